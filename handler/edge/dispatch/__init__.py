"""Where a request is worked on: the threads of a server, or the caller's own, and for how long."""
