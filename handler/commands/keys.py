"""`dragoman keys new`: a key for a client, and the line by which a server knows it."""

import argparse
from typing import Any

from handler.commands import results
from handler.commands.refused import Refused

PREFIX = "dgm_"
"""Lets scanners for leaked secrets find a key."""
BYTES = 32
SEPARATORS = frozenset(" \t\r\n;#")


def add(commands: Any) -> None:
    keys = commands.add_parser("keys", help="make keys for clients (DRAGOMAN_AUTH=keys)")
    new = keys.add_subparsers(dest="action", required=True, metavar="ACTION").add_parser(
        "new", help="print a new key and its line"
    )
    new.add_argument("--name", required=True, help="name of the key, for the log")
    new.add_argument(
        "--rights", default="infer", help="some of infer, read, admin, with commas between; default: infer"
    )
    new.add_argument("--models", default="*", help="patterns of models, with commas between; default: *")
    results.add_json(new)


def run(options: argparse.Namespace) -> None:
    """Prints a new key, which nothing keeps, and its line. Raises Refused for a wrong name, right or pattern."""
    import secrets  # noqa: PLC0415 - as the gate
    from hashlib import sha256  # noqa: PLC0415 - as the gate

    from handler.edge.gate import keys  # noqa: PLC0415 - 0.3 s, which only the command needs

    key = PREFIX + secrets.token_urlsafe(BYTES)
    line = f"{options.name} sha256:{sha256(key.encode()).hexdigest()} {options.rights} {options.models}"
    if set(f"{options.name}{options.rights}{options.models}") & SEPARATORS:
        raise Refused("a name, rights and models cannot have blanks, line ends, semicolons or #")
    try:
        keys.parsed(line)
    except keys.InvalidKeys as error:
        raise Refused(str(error).partition(": ")[2]) from None
    shown = f"The key, shown this once: {key}\nThe line for DRAGOMAN_KEYS_FILE: {line}"
    results.tell(options, shown, key=key, line=line)
