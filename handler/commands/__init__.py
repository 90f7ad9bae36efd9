"""What a person runs at a terminal; no server imports it."""
