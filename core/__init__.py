"""The pure core: bytes and numpy in, bytes and numpy out. Nothing here does I/O."""
