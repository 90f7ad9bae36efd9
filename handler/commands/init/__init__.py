"""`dragoman init`: a folder to start from, made of the files in `files`."""
