"""The steps of Python code, between which other threads can run. They cannot run during one call of C's."""

import sys
from collections.abc import Callable
from typing import Any


def steps_of(work: Callable[[], Any]) -> list[str]:
    """Returns the calls and returns of the functions of Python and C that Python code calls while `work` runs."""
    steps: list[str] = []
    sys.setprofile(lambda _frame, event, _of: steps.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
    return steps
