"""The messages of proto/: descriptor sets that protoc made of them, and their types for mypy (`make proto`)."""
