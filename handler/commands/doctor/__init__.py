"""`dragoman doctor`: what is wrong with a repository, its models, the settings, the store and the function."""
