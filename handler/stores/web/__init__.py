"""Repositories on a web server (http:// and https://), which are read only: an index names their files."""
