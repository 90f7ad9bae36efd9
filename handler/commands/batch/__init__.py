"""`dragoman batch`: runs a file of records through a model into a file of answers. It can be interrupted."""
