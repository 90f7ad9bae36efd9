"""`dragoman replay`: sends the requests of a payload log again, and compares the answers with those of the log."""
