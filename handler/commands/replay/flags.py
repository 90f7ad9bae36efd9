"""The flags of `dragoman replay`."""

import re
from argparse import ArgumentTypeError, Namespace
from typing import Any


def add(commands: Any) -> None:
    replay = commands.add_parser("replay", help="send the requests of a payload log again, and compare the answers")
    replay.add_argument("files", nargs="+", metavar="FILE", help="files of the log, or folders with *.jsonl")
    replay.add_argument("--url", default="http://127.0.0.1:8080", help="default: http://127.0.0.1:8080")
    protocols = ("same", "v2", "v2-binary", "v1", "grpc", "connect", "grpc-web")
    replay.add_argument("--protocol", choices=protocols, default="same", help="default: that of each request")
    replay.add_argument("--rtol", type=float, default=1e-5, help="relative tolerance of numbers; default: 1e-5")
    replay.add_argument("--atol", type=float, default=1e-8, help="absolute tolerance of numbers; default: 1e-8")
    replay.add_argument("--limit", type=_limit, help="the most requests to send; default: all")
    replay.add_argument("--timeout", type=float, default=60.0, help="seconds for an answer; default: 60")
    replay.add_argument("--header", action="append", default=[], help="'name: value' to send; may be repeated")
    replay.add_argument("--json", action="store_true", help="print JSON")


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise ArgumentTypeError(f"it is {text[:64]!r}; expected 1 to 999999999")
    return int(text)


def run(options: Namespace) -> None:
    """Sends the requests. Raises Refused."""
    from handler.commands.replay import command  # noqa: PLC0415 - 0.4 s, which only the command needs

    command.run(options)
