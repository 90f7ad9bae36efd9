"""The flags of `dragoman infer` and `dragoman bench`."""

import argparse
import re
from typing import Any

from handler.commands.call.defaults import GRPC, LEVELS, NAMES, URL
from handler.commands.refused import Refused


def add(commands: Any) -> None:
    infer = commands.add_parser(
        "infer",
        help="send a model one request, and print its answer",
        description="Send a model one request, and print its answer. The server describes the model's inputs.",
    )
    _add_request(infer)
    infer.add_argument("--json", action="store_true", help="print JSON")
    bench = commands.add_parser(
        "bench",
        help="measure a model's latency and throughput",
        description="Send a model the same request again and again, at several concurrencies, and print a table.",
    )
    _add_request(bench)
    bench.add_argument(
        "--concurrency", default=LEVELS, metavar="N,...", help=f"numbers of concurrent requests; default: {LEVELS}"
    )
    bench.add_argument("--seconds", type=_seconds, default=5.0, help="seconds for each concurrency; default: 5")
    bench.add_argument("--json", action="store_true", help="print JSON")
    bench.add_argument("--svg", metavar="FILE", help="draw throughput and latency into this file")


def _add_request(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL")
    command.add_argument("--version", default="", help="version of the model; default: the server's choice")
    command.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="an input, such as age=22 or 'x=[[1, 2]]'"
    )
    command.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="an input from a .npy, .json, .csv or other file (its bytes); without NAME: the columns of a .csv file",
    )
    command.add_argument("--sample", action="store_true", help="make inputs from the model's metadata")
    command.add_argument("--rows", type=_rows, default=1, help="rows of --sample; default: 1")
    command.add_argument("--protocol", choices=NAMES, default="v2", help="default: v2")
    command.add_argument("--url", help=f"the server; default: {URL}, with --protocol grpc: {GRPC}")
    command.add_argument("--key", metavar="KEY|@FILE", help="key or token (JWT), or the file that has it")
    command.add_argument("--timeout", type=_seconds, default=300.0, help="seconds to wait; default: 300")


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"it is {text[:64]!r}; expected seconds above 0, below 100000")
    return float(text)


def _rows(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"it is {text[:64]!r}; expected 1 to 9999999")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Asks a server. Raises Refused."""
    if options.sample and (options.input or options.file):
        raise Refused("--sample makes all inputs: leave out --input and --file")
    if options.command == "infer":
        from handler.commands.call import infer  # noqa: PLC0415 - 0.4 s, which only the command needs

        return infer.run(options)
    from handler.commands.call import bench  # noqa: PLC0415 - as above

    return bench.run(options)
