"""How a version is used: by which requests right now, by how many so far, and how long they took."""

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Final

from core.operations import Count, Statistics
from core.ports import Model
from handler.stores import Folder

QUICK_RUNS: Final = 16
QUICK_NS: Final = 500_000
"""A model is quick once that many requests in a row took less than that many nanoseconds each, from body to answer."""
MOST_QUICK_RUNS: Final = 64
"""Runs that count. A request that takes longer halves them: one hiccup of the machine is forgiven, a habit is not."""
SLOW_NS: Final = 50_000_000
"""After one request of that many nanoseconds a model never counts as quick again."""
TURNS: Final = itertools.count(1)
"""The order of uses: the model with the lowest number was used least recently."""


class Gate:
    """Where loads wait that need memory, until a model is no longer in use."""

    __slots__ = ("_freed", "waiting")

    def __init__(self) -> None:
        self.waiting: list[None] = []
        self._freed = threading.Event()

    def close(self) -> None:
        self._freed.clear()

    def open(self) -> None:
        self._freed.set()

    def wait(self, seconds: float) -> None:
        self._freed.wait(seconds)


class Loaded:
    """A model in memory; as a context manager, one use of it, which `ServedVersion.use` or `again` began.

    Implements core.ports.Use. Uses are elements of a list: appending and popping are atomic, and cost a quarter of a
    lock around a number.
    """

    __slots__ = ("__weakref__", "_gate", "_pace", "_traffic", "born", "folder", "last_use", "model", "uses", "version")

    def __init__(self, model: Model, folder: Folder, gate: Gate, traffic: "Traffic", pace: "Pace") -> None:
        self.model = model
        self.folder = folder  # whose files a model may read as long as it lives
        self.version = model.spec.version.encode()
        self.born = time.monotonic()
        self.last_use = 0
        self.uses: list[None] = []
        self._gate = gate
        self._traffic = traffic
        self._pace = pace

    def __enter__(self) -> Model:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.uses.pop()
        if self._gate.waiting:
            self._gate.open()

    def again(self) -> "Loaded":
        self.uses.append(None)
        return self

    def in_use(self) -> bool:
        return bool(self.uses)

    def record(self, durations: Sequence[int], size: int, *, success: bool) -> None:
        """Counts one inference; see Traffic.record. `size`: bytes of the request's body."""
        self._traffic.record(durations, success=success)
        self._pace.time(sum(durations[1:]), size, success=success, steady=self.model.steady)


class Traffic:
    """The numbers of the statistics extension for one version number, whichever files it had."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._successes = 0
        self._failures = 0
        self._failed_ns = 0
        self._steps = [0, 0, 0, 0]
        self._last_ms = 0

    def record(self, durations: Sequence[int], *, success: bool) -> None:
        """Counts one inference. `durations`: nanoseconds in the queue, for decoding, for the model, for encoding."""
        with self._lock:
            if not success:
                self._failures += 1
                self._failed_ns += sum(durations)
                return
            self._successes += 1
            self._steps = list(map(int.__add__, self._steps, durations))
            self._last_ms = time.time_ns() // 1_000_000

    def statistics(self, name: str, version: str) -> Statistics:
        """Returns the numbers as they are now."""
        with self._lock:
            success = Count(self._successes, sum(self._steps))
            steps = (Count(self._successes, ns) for ns in self._steps)
            fail = Count(self._failures, self._failed_ns)
            return Statistics(name, version, self._successes, self._last_ms, success, fail, *steps)


class Pace:
    """Decides whether a request is so sure to be short that changing threads twice would be most of its time."""

    __slots__ = ("_bytes", "_runs", "_was_slow")

    def __init__(self) -> None:
        self._runs = 0
        self._bytes = 0
        self._was_slow = False

    def is_quick(self, size: int) -> bool:
        """`size`: bytes of the request's body."""
        return size <= self._bytes and self._runs >= QUICK_RUNS

    def time(self, ns: int, size: int, *, success: bool, steady: bool) -> None:
        """Takes a request into account. `steady`: the model says that like requests take like times."""
        if ns < QUICK_NS and not success:
            return  # a refusal is quick whatever its body, and proves nothing
        if ns < QUICK_NS and not self._was_slow and steady:
            self._runs = min(MOST_QUICK_RUNS, self._runs + 1)
            self._bytes = max(self._bytes, size)
        else:
            self._was_slow = self._was_slow or ns > SLOW_NS
            self._runs = 0 if self._was_slow else self._runs // 2
