"""Dragoman under its own name: `dragoman.asgi:app`, `dragoman.aws.lambda_handler`, `python -m dragoman`.

The code is in the packages `core` and `handler`. A file or package of one of these names that Python finds first would
take their place: importing this package says so.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent


def _check(name: str) -> None:
    """Raises ImportError if Python finds another module under the name of one of Dragoman's packages."""
    spec = find_spec(name)
    found = spec.origin if spec is not None else None
    if found is None or Path(found).parent.parent != HERE:
        raise ImportError(
            f"{found or 'nothing'} is found as {name!r}, which is a package of Dragoman: rename it, or start elsewhere"
        )


for _name in ("core", "handler"):
    _check(_name)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - 10 ms, for those who ask

    return version("dragoman")
