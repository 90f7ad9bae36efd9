"""GRPS: over HTTP and as remote calls."""
