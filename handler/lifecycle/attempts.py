"""Loads that were cut off: what a process that ends in the middle of one tells the next, in the folder for downloads.

Nothing can interrupt a runtime that loads a model. Lambda ends a function at its timeout, or when its memory is full,
and keeps its /tmp: without a trace of that, the next process would begin the same again for ever.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from core.errors import ModelNotLoadable, ModelUnavailable, StillLoading
from handler.deadlines import Patience

FOLDER: Final = "attempts"
MOST: Final = 3
"""Times that a load may be cut off with as many seconds before it: one may have been an accident."""
MORE: Final = 1.2
"""Times as many seconds, and it is worth another try."""
SETUP_SECONDS: Final = 0.5
BYTES_PER_SECOND: Final = 150e6
"""What a runtime is thought to load, at least, on one CPU."""


class NoTimeBeside(ModelUnavailable):
    """Another request may load it, with more time; what is loaded answers this one. No failure of the model."""


@contextmanager
def attempt(cache: Path, model: str, identity: Any, size: int, patience: Patience | None) -> Iterator[None]:
    """Around a runtime's load of `size` bytes. `identity`: its repr is that of these files of the model and no others.

    Raises StillLoading where the next request will have more time, ModelNotLoadable where no time was enough,
    NoTimeBeside where what is loaded can answer and this would keep it from doing so.
    """
    if patience is None:
        yield
        return
    from hashlib import sha256  # noqa: PLC0415 - 3 ms of cold start, which health checks need not pay

    trace = cache / FOLDER / sha256(repr((model, identity)).encode()).hexdigest()[:32]
    seconds, times, left_over = _read(trace)
    left = patience.left
    guess = max(SETUP_SECONDS + size / BYTES_PER_SECOND, seconds / MORE)
    if patience.beside is not None and left < max(guess, patience.beside):
        raise NoTimeBeside(
            f"model {model!r} is fetched, and loading it takes more time than the request has left: raise the "
            "function's timeout, or call load"
        )
    if (left < guess and not left_over) or (patience.init and times):
        _write(trace, seconds, times, 1)  # once only: whoever comes next begins with what time there is
        raise StillLoading(f"model {model!r} is fetched, and not loaded by its runtime yet: try again", retry_after=1)
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
    """Seconds that were left for the load, how often it was cut off with no more than so many, whether it was left."""
    try:
        seconds, times, left_over, process = trace.read_text().split()
        if int(process) != os.getpid() and Path("/proc", process).exists():
            return 0.0, 0, 0  # another process that shares the folder is loading it right now
        return float(seconds), int(times), int(left_over)
    except (OSError, ValueError):
        return 0.0, 0, 0


def _write(trace: Path, seconds: float, times: int, left_over: int) -> None:
    with suppress(OSError):  # nowhere to leave a trace: the load is tried all the same
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text(f"{seconds} {times} {left_over} {os.getpid()}")
