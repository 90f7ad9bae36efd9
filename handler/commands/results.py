"""The results of commands on stdout: a line for people, or with --json its facts as a line of JSON."""

import json
from argparse import ArgumentParser, Namespace
from typing import Any


def add_json(command: ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON, a line for each result")


def tell(options: Namespace, line: str, /, **facts: Any) -> None:
    """Prints one result. `facts`: what the line says, as JSON has it."""
    print(json.dumps(facts, ensure_ascii=False) if options.json else line, flush=True)  # noqa: T201 - the result
