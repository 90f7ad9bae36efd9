"""The store as shared looks find it, and the bounds on names that clients invent."""
