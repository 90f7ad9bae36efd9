"""Verifies and signs versions in the OpenSSF model-signing format, with keys and certificates."""
