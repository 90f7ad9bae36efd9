"""A publisher's commands: `dragoman convert`, `push`, `pull`, `list`. No server imports them."""
