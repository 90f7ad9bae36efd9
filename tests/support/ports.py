"""Ports for servers that tests start, side by side with other tests."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

LOWEST: Final = 16_384
BEYOND: Final = 32_768
"""Where the kernel begins to give ports to who asks for any one, as clients of other tests do at the same time."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that nobody has at this moment, and nobody else is likely to choose before they are taken."""
    found: list[int] = []
    while len(found) < count:
        port = LOWEST + secrets.randbelow(BEYOND - LOWEST)  # random has the same seed in every test
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            found += [port] * (port not in found)
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """One of them."""
    return free_ports(1, host)[0]
