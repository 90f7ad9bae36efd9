"""Dragoman under its own name: `dragoman.asgi:app`, `dragoman.aws.lambda_handler`, `python -m dragoman`.

The code is in the packages `core` and `handler`. A file or package of one of these names that Python finds first would
take their place: importing this package says so.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent


def _is_command() -> bool:
    """Decides whether `dragoman` or `python -m dragoman` imports this package, and not another program."""
    program = next(iter(sys.argv), "")  # Python replaces "-m" after this import
    return program == "-m" or Path(program).stem == "dragoman"


def _check(name: str) -> None:
    """Raises ImportError if Python finds another module under the name of one of Dragoman's packages.

    A command prints the reason alone, and ends with exit code 1.
    """
    spec = find_spec(name)
    found = spec.origin if spec is not None else None
    if found is None or Path(found).parent.parent != HERE:
        reason = (
            f"{found or 'nothing'} is found as {name!r}, which is a package of Dragoman: rename it, or start elsewhere"
        )
        if _is_command():
            sys.exit(f"dragoman: {reason}")
        raise ImportError(reason)


for _name in ("core", "handler"):
    _check(_name)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms, for those who ask

    return version("dragoman")
