"""The streams of commands: each is there, stdout takes every name, what cannot be written ends without a rest."""

import os
import sys
from codecs import register_error
from io import TextIOWrapper


def prepare() -> None:
    """Makes stdout take names that its encoding does not have: they are escaped as in JSON, which --json prints.

    A stream that is closed, as by `2>&-`, becomes empty. Else the next file that a command opens would have its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # by their numbers: each takes the lowest
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        register_error("escaped", _escaped)
        sys.stdout.reconfigure(errors="escaped")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101 - nothing is decoded
    points = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{points[index : index + 2].hex()}" for index in range(0, len(points), 2)), error.end


def is_lost() -> bool:
    """Decides whether stdout cannot be written. Then drops the rest, which would fail again when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
