"""`dragoman build-image`: an image of a server or a function with models inside, built by a container engine."""
