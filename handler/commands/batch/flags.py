"""The flags of `dragoman batch`."""

import argparse
import re
from typing import Any

from handler.commands.models import NAME, WHERE, add_quiet

FORMATS = ("jsonl", "csv", "npy", "parquet")
"""The names of `edge.batch.files.FORMATS`, which takes 0.2 s to import."""


def add(commands: Any) -> None:
    batch = commands.add_parser(
        "batch",
        help="run a file of records through a model, without a server",
        description="Run a file of records through a model, without a server. A line of JSON for each record goes into "
        "OUTPUT, in their order. If it is interrupted, the same command continues where it was.",
    )
    batch.add_argument("model", metavar=NAME, help=WHERE)
    batch.add_argument("input", metavar="INPUT", help="records: .jsonl, .csv, .npy or .parquet")
    batch.add_argument("output", metavar="OUTPUT", help="answers, as lines of JSON; it appears when it is complete")
    batch.add_argument("--version", help="version of the model; default: the newest that its settings serve")
    batch.add_argument("--signature", default="", help="signature of the records' names; default: serving_default")
    batch.add_argument("--format", choices=FORMATS, help="form of INPUT; default: by the suffix of its name")
    batch.add_argument(
        "--batch-size", type=_rows, metavar="N", help="records of one inference; default: the model's own, else 256"
    )
    batch.add_argument("--force", action="store_true", help="begin again, and replace OUTPUT")
    batch.add_argument("--json", action="store_true", help="print a summary as JSON")
    add_quiet(batch)


def _rows(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"it is {text[:64]!r}; expected 1 to 999999")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Runs the records. Raises Refused, ServingError, InvalidSettings."""
    from handler.commands.batch import command  # noqa: PLC0415 - 0.3 s, which only the command needs

    return command.run(options)
