"""Ports for servers that tests start, side by side with other tests."""

import secrets
import socket
from contextlib import suppress
from typing import Final

LOWEST: Final = 16_384
BEYOND: Final = 32_768
"""The kernel gives ports from here on to programs that ask for any port, as other tests' clients do meanwhile."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns different ports that are free now, and that are unlikely to be chosen by others before they are taken."""
    found: list[int] = []
    while len(found) < count:
        port = LOWEST + secrets.randbelow(BEYOND - LOWEST)  # random has the same seed in every test
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            found += [port] * (port not in found)
    return found


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]
