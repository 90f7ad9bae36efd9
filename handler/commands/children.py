"""Starts modules of ours in processes of their own, and names the reason of an end."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[2]
TAIL: Final = 2000
SHOWN: Final = 300
"""The most characters of a child's last line that a reason shows."""


def command(module: str, *arguments: str) -> list[str]:
    """Returns the command line of a module, for this interpreter."""
    # -P: a module in the current folder, such as handler.py, must not come before ours.
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(environ: Mapping[str, str], *behind: str) -> dict[str, str]:
    """Returns the child's variables: our modules come first on Python's path. `behind`: folders that come last."""
    paths = (str(ROOT), environ.get("PYTHONPATH", ""), *behind)
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def end_of(code: int) -> str:
    """Returns the words for an exit code, as of `subprocess.Popen.returncode`: the signal's name, if one ended it."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def last_line(written: IO[bytes]) -> str:
    """Returns the last line that has text: in a child's standard error, the message of its exception."""
    written.seek(0, os.SEEK_END)
    written.seek(max(0, written.tell() - TAIL))
    lines = written.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:SHOWN]
