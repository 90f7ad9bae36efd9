"""The commands that a person runs at a terminal. No server imports them."""
