"""How this program is called, for the commands that others print to be tried."""

import shlex
import sys
from pathlib import Path


def called() -> str:
    """Returns `dragoman` if a shell finds this installation by it, else a command that works from any folder."""
    from shutil import which  # noqa: PLC0415 - 3 ms, for those who print it

    command = which("dragoman")
    if command is not None and Path(command).parent == Path(sys.executable).parent:
        return "dragoman"
    return f"{shlex.quote(sys.executable)} -m dragoman"
