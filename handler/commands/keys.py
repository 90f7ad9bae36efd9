"""`dragoman keys new`: a key for a client, and the line by which a server knows it."""

import argparse
import secrets
from hashlib import sha256

from handler.commands.refused import Refused
from handler.edge.gate import keys
from handler.settings import Settings

PREFIX = "dgm_"
"""Lets scanners for leaked secrets find a key."""
BYTES = 32
SEPARATORS = frozenset(" \t\r\n;#")


def run(options: argparse.Namespace, _settings: Settings) -> None:
    """Prints a new key, which nothing keeps, and its line. Raises Refused for a wrong name, right or pattern."""
    key = PREFIX + secrets.token_urlsafe(BYTES)
    line = f"{options.name} sha256:{sha256(key.encode()).hexdigest()} {options.rights} {options.models}"
    if set(f"{options.name}{options.rights}{options.models}") & SEPARATORS:
        raise Refused("a name, rights and models have no blanks, line ends, semicolons and #")
    try:
        keys.parsed(line)
    except keys.InvalidKeys as error:
        raise Refused(str(error).partition(": ")[2]) from None
    print(f"The key, shown this once: {key}")  # noqa: T201 - the command's answer
    print(f"The line for DRAGOMAN_KEYS_FILE: {line}")  # noqa: T201 - the same
