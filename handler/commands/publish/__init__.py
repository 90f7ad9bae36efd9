"""`dragoman push`, `pull`, `list`, `sign` and `verify`: versions on their way to a repository, and what it has."""
