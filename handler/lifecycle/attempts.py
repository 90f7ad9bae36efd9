"""Traces of loads that were cut off: a process that dies in the middle of one leaves a file for the next process.

Nothing can interrupt a runtime that loads a model. Lambda ends a function at its timeout, or when its memory is full,
and keeps its /tmp: without a trace, the next process would begin the same load again for ever.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from core.deadline import Deadline
from core.errors import ModelNotLoadable, StillLoading
from handler.lifecycle.versions import Postponed

FOLDER: Final = "attempts"
MOST: Final = 3
"""How often a load may be cut off with as many seconds or fewer: one of them may have been an accident."""
MORE: Final = 1.2
"""A load with this many times the seconds of the longest one that was cut off is worth another try."""
SETUP_SECONDS: Final = 0.5
BYTES_PER_SECOND: Final = 150e6
"""The least number of bytes per second that a runtime is expected to load on one CPU."""


@contextmanager
def attempt(cache: Path, model: str, identity: Any, size: int, deadline: Deadline) -> Iterator[None]:
    """Surrounds a runtime's load of `size` bytes. `identity`: its repr stands for exactly these files of the model.

    Raises StillLoading if the next request will have more time, ModelNotLoadable if no time was enough, and Postponed
    if a loaded version can answer and this load would keep it from doing so.
    """
    if deadline.is_never:
        yield
        return
    from hashlib import sha256  # noqa: PLC0415 - 3 ms of cold start, which health checks need not pay

    trace = cache / FOLDER / sha256(repr((model, identity)).encode()).hexdigest()[:32]
    seconds, times, left_over = _read(trace)
    left = deadline.process_left  # a client's deadline does not end a load: the next request needs it
    guess = max(SETUP_SECONDS + size / BYTES_PER_SECOND, seconds / MORE)
    if deadline.beside is not None and deadline.left < max(guess, deadline.beside):
        raise Postponed(
            f"model {model!r} is fetched, and loading it takes more time than the request has left: raise the "
            "function's timeout, or call load"
        )
    if (left < guess and not left_over) or (deadline.init and times):
        _write(trace, seconds, times, 1)  # once only: the next request begins with the time that it has
        raise StillLoading(f"model {model!r} is fetched, but not yet loaded: try again", retry_after=1)
    if left > MORE * seconds:
        seconds, times = left, 0
    elif times >= MOST:
        raise ModelNotLoadable(
            f"loading model {model!r} was cut off {times} times, with {seconds:.1f} s for its runtime to load it: "
            "raise the function's timeout or memory, or load it before the first request"
        )
    _write(trace, seconds, times + 1, 0)
    try:
        yield
    finally:
        with suppress(OSError):
            trace.unlink(missing_ok=True)


def _read(trace: Path) -> tuple[float, int, int]:
    """Returns (seconds of the longest killed attempt, how many were killed with that many or fewer, 1 if put off)."""
    try:
        seconds, times, left_over, process = trace.read_text().split()
        if int(process) != os.getpid() and Path("/proc", process).exists():
            return 0.0, 0, 0  # another process that shares the folder is loading it right now
        return float(seconds), int(times), int(left_over)
    except (OSError, ValueError):
        return 0.0, 0, 0


def _write(trace: Path, seconds: float, times: int, left_over: int) -> None:
    with suppress(OSError):  # without a place for the trace the load is tried all the same
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text(f"{seconds} {times} {left_over} {os.getpid()}")
