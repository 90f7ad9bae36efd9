"""Threads for the streams of a fetch: as many as the process can start."""

import threading
from collections.abc import Callable
from contextlib import suppress


def started(stream: Callable[[], None], most: int) -> list[threading.Thread]:
    """Starts threads. Returns fewer than `most` if the process cannot have so many."""
    threads = list[threading.Thread]()
    with suppress(RuntimeError):
        for _ in range(most):
            thread = threading.Thread(target=stream, daemon=True)
            thread.start()
            threads.append(thread)
    return threads
