"""`dragoman infer` and `dragoman bench`: requests to a server, from the shell."""
