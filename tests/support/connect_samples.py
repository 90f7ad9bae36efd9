"""Samples that the tests of Connect and gRPC-Web share."""

import struct


def envelope(message: bytes, flags: int = 0) -> bytes:
    """Returns an envelope as the protocol's documents draw it."""
    return struct.pack(">BI", flags, len(message)) + message
