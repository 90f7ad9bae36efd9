"""The store as shared looks find it, and the bounds on what clients can make up."""
