"""The commands of `dragoman`: light modules with their options, and what does their work. No server imports them."""
