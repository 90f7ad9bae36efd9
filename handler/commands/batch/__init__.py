"""`dragoman batch`: runs a file of records through a model into a file of answers, and goes on where it was ended."""
