"""The messages of proto/: descriptor sets that protoc made of it, and their types for mypy (`make proto`)."""
