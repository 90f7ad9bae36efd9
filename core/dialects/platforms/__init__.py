"""The routes that platforms call on the servers they start, and the bodies that their clients send there."""
