"""What the tests of Connect and gRPC-Web use alike."""

import struct


def envelope(message: bytes, flags: int = 0) -> bytes:
    """As the protocol's documents draw it."""
    return struct.pack(">BI", flags, len(message)) + message
