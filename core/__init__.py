"""The pure core: operations, protocols and their encodings. Bytes and numpy in, bytes and numpy out; no I/O."""
