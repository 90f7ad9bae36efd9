"""Ports for servers that tests start, side by side with other tests."""

import itertools
import os
import secrets
import socket
from contextlib import suppress
from typing import Final

LOWEST: Final = 16_384
BEYOND: Final = 32_768
"""The kernel gives ports from here on to programs that ask for any port, as other tests' clients do meanwhile."""
SHARES: Final = 16
"""A server takes its port a second after it was chosen. Two processes of a run never choose the same one meanwhile: a
test would talk to the other's server, and its own would end without a word."""
SIZE: Final = (BEYOND - LOWEST) // SHARES
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_TURNS: Final = itertools.count(secrets.randbelow(SIZE))  # random has the same seed in every test


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns different ports that are free now, and that were not returned lately."""
    found: list[int] = []
    while len(found) < count:
        port = LOWEST + WORKER % SHARES * SIZE + next(_TURNS) % SIZE
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            found.append(port)
    return found


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]
