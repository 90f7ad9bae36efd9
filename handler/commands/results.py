"""The results of commands on stdout: a line for people, or with --json its facts as a line of JSON."""

import json
from typing import Any

from handler.commands.options import CommandOptions


def tell(options: CommandOptions, line: str, /, **facts: Any) -> None:
    """Prints one result. `facts`: what the line says, as JSON has it."""
    print(json.dumps(facts, ensure_ascii=False) if options.json else line, flush=True)  # noqa: T201 - the result
