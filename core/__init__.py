"""The pure core: bytes and numpy in, bytes and numpy out. Nothing here touches the world."""
