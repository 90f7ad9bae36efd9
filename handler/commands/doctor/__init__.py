"""`dragoman doctor`: finds faults of a repository, its models, the settings, the store and the function."""
