"""The flags of `dragoman init`. What it does is imported when it runs."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    init = commands.add_parser("init", help="make a repository to start from, or the files that deploy one on AWS")
    init.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="folder to write; default: this one")
    init.add_argument("--aws", action="store_true", help="write a SAM template and its function's files instead")


def run(options: argparse.Namespace) -> None:
    """Writes the folder. Raises Refused."""
    from handler.commands.init import command  # noqa: PLC0415 - no other command needs it

    command.run(options.folder, is_aws=options.aws)
