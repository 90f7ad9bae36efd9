"""How a version is used: by which requests right now, by how many so far, and how long they took."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from core.operations import ModelSpec
from core.ports import Model
from core.statistics import BatchCount, Count, Series, Statistics
from handler.lifecycle.traffic.recent import AnswerCount, Lapse, Recent
from handler.lifecycle.traffic.series import PROCESS
from handler.stores import Folder

QUICK_RUNS: Final = 16
QUICK_NS: Final = 1_000_000
"""A model is quick once that many requests in a row took less than that many nanoseconds each, from body to answer.

The time in the model counts twice. Only the model could run beside the event loop: the rest holds the interpreter's
lock.
"""
MOST_QUICK_RUNS: Final = 4
"""Times as many runs count. A longer request halves them: a hiccup of the machine is forgiven, a habit is not."""
SLOW_NS: Final = 50_000_000
"""After a request of that many nanoseconds, which an event loop would have felt, a model has to prove itself anew..."""
PROBATION: Final = 8
MOST_PROBATION: Final = 1 << 16
"""...by this many times as many runs each time, up to so many: on a machine that was busy once it takes a moment, and a
model whose clients can make it slow stalls an event loop once in 65,536 requests."""
MOST_ENDED: Final = 64
"""So many inferences that have ended are counted together: alone, each takes three times as long, as its code is then
not in the processor's cache."""
TURNS: Final = itertools.count(1)
"""The order of uses: the model with the lowest number was used least recently."""


Trouble = Callable[[ModelSpec | None], str]


class MemoryGate:
    """Loads that need memory wait on it, until a model is no longer in use."""

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

    __slots__ = (
        *("__weakref__", "_computes", "_gate", "_pace", "_steady", "_traffic"),
        *("born", "folder", "last_use", "model", "note", "trouble", "uses", "version"),
    )

    def __init__(self, model: Model, folder: Folder, gate: MemoryGate, traffic: "Traffic", pace: "Pace") -> None:
        self.model = model
        self.note = ""  # the unused keys of its settings
        self.trouble: Callable[[], str] = str  # returns why it answers no requests, "" if it does
        self.folder = folder  # whose files a model may read as long as it lives
        self.version = model.spec.version.encode()
        self.born = time.monotonic()
        self.last_use = 0
        self.uses: list[None] = []
        self._gate = gate
        self._traffic = traffic
        self._pace = pace
        # Requests that run together need a thread in which they meet.
        self._steady = model.steady and model.spec.batching is None
        # Its time without the processor is that of the machine. Of other devices, and of steps on them, it is its own.
        self._computes = not model.spec.providers and model.spec.platform != "pipeline"

    @property
    def parameters(self) -> dict[str, str]:
        """What was verified of its files, and what runs it, for the model's metadata."""
        proof, providers = self.folder.proof, self.model.spec.providers
        told = {"providers": ",".join(providers)} if providers else {}
        if proof is None:
            return told
        return {"digest": f"sha256:{proof.digest}"} | ({"signer": proof.signer} if proof.signer else {}) | told

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

    def record(self, durations: Sequence[int], size: int, protocol: str = "", rows: int = 1, *, success: bool) -> None:
        """Counts one inference; see Traffic.record. `size`: bytes of the request's body."""
        ns = sum(durations) + sum(durations[2:3]) - durations[0]  # failures have no durations[2]
        cpu = most_cpu() if ns >= QUICK_NS and self._computes else None
        self._pace.time(ns, size, success=success, steady=self._steady, cpu=cpu)
        _ENDED.append((self._traffic, time.monotonic(), durations, protocol, rows, success))
        if len(_ENDED) >= MOST_ENDED:
            settle()

    def asked(self, ns: int, kind: str, *, success: bool) -> None:
        """Counts one question that is not an inference; see Traffic.asked."""
        self._traffic.asked(ns, kind, success=success)

    def share(self) -> None:
        """Notes that the inference that was just counted ran in a batch."""
        self._traffic.share()

    def executed(self, rows: int, joined: int, inferred: int, split: int) -> None:
        """Counts one run of the model for a batch of so many rows; see Traffic.executed."""
        self._traffic.executed(rows, joined, inferred, split)

    def hesitate(self) -> None:
        """Notes that a request takes long, before it has ended."""
        cpu = most_cpu() if self._computes else None
        self._pace.time(SLOW_NS + 1, 0, success=True, steady=False, cpu=cpu)


class Traffic:
    """The numbers of the statistics extension for one version number, whichever files it had."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._successes = self._inferences = 0
        self._failures = 0
        self._failed_ns = 0
        self._steps = [0, 0, 0, 0]
        self._last_ms = 0
        self._shared = 0
        self._runs = 0
        self._batches: dict[int, list[int]] = {}
        self._recent = Recent()

    def record(self, at: float, durations: Sequence[int], protocol: str = "", rows: int = 1, *, success: bool) -> None:
        """Counts one request. `durations`: nanoseconds in the queue, for decoding, for the model, for encoding.

        `at`: when it ended, on time.monotonic(). `protocol`: "" for a pipeline's step, which no client has asked for.
        `rows`: how many inferences it is.
        """
        ns = sum(durations)
        PROCESS.record(ns, success=success, at=at)
        with self._lock:
            self._recent.record(ns, protocol, success=success, at=at)
            if not success:
                self._failures += 1
                self._failed_ns += ns
                return
            self._successes += 1
            self._inferences += rows
            for step, spent in enumerate(durations):
                self._steps[step] += spent
            self._last_ms = round((time.time() - (time.monotonic() - at)) * 1e3)

    def asked(self, ns: int, kind: str, *, success: bool) -> None:
        """Counts one question that is not an inference, which the statistics extension leaves out."""
        with self._lock:
            self._recent.record(ns, kind, success=success)

    def share(self) -> None:
        """Notes that a counted inference was one of a batch, whose run is counted by `executed`."""
        with self._lock:
            self._shared += 1

    def executed(self, rows: int, joined: int, inferred: int, split: int) -> None:
        """Counts a run for a batch. `rows`: 0 for one without a number of rows. The rest: nanoseconds of its steps."""
        with self._lock:
            self._runs += 1
            if rows:
                sums = self._batches.get(rows, (0, 0, 0, 0))
                self._batches[rows] = list(map(int.__add__, sums, (1, joined, inferred, split)))

    def lately(self) -> tuple[Mapping[str, AnswerCount], Sequence[tuple[int, Lapse]]]:
        """Returns the counts by protocol, and the spans of the last minutes; see traffic.recent."""
        settle()
        with self._lock:
            return self._recent.totals(), self._recent.spans()

    def statistics(self, name: str, version: str) -> Statistics:
        """Returns the present numbers."""
        settle()
        with self._lock:
            success = Count(self._successes, sum(self._steps))
            queue, decoding, model, encoding = (Count(self._successes, ns) for ns in self._steps)
            fail = Count(self._failures, self._failed_ns)
            runs = self._successes - self._shared + self._runs
            batches = tuple(
                BatchCount(rows, *(Count(times, ns) for ns in sums))
                for rows, (times, *sums) in sorted(self._batches.items())
            )
            steps = (success, fail, queue, decoding, model, encoding)
            return Statistics(name, version, self._inferences, self._last_ms, *steps, runs, batches)


Ended = tuple[Traffic, float, Sequence[int], str, int, bool]
_ENDED: Final[deque[Ended]] = deque()
_SETTLING: Final = threading.Lock()


class _Look(threading.local):
    """The processor's time of a thread at the last look."""

    ns = 0


_LOOK: Final = _Look()


def most_cpu() -> int:
    """Returns the nanoseconds of the processor that this thread has used since the last call.

    A request that began since then has used no more. A look takes half a microsecond, so an event loop looks at every
    64th request, and a thread of the pool at each.
    """
    before, _LOOK.ns = _LOOK.ns, time.thread_time_ns()
    return _LOOK.ns - before


def settle() -> None:
    """Counts the inferences that have ended. Who reads their numbers calls it first."""
    most_cpu()
    with _SETTLING:
        for _ in range(len(_ENDED)):  # only this thread takes from it
            traffic, at, durations, protocol, rows, success = _ENDED.popleft()
            traffic.record(at, durations, protocol, rows, success=success)


def series() -> Series:
    """Returns the inferences of this process in the last minutes."""
    settle()
    return PROCESS.series()


class Pace:
    """Decides whether a request is so sure to be short that changing threads twice would be most of its time."""

    __slots__ = ("_bytes", "_needed", "_runs")

    def __init__(self) -> None:
        self._runs = 0
        self._needed = QUICK_RUNS
        self._bytes = 0

    def is_quick(self, size: int) -> bool:
        """`size`: bytes of the request's body."""
        return size <= self._bytes and self._runs >= self._needed

    def time(self, ns: int, size: int, *, success: bool, steady: bool, cpu: int | None = None) -> None:
        """Counts a request. `ns`: its time, as QUICK_NS defines it. `steady`: similar requests take similar times.

        `cpu`: nanoseconds of the processor in its thread, at most; None if they are not known, or say nothing. A busy
        machine, a quota and the interpreter's lock take a thread's time, and none of these. Without that, a model would
        not return to the event loop from threads that take each other's time.
        """
        if ns < QUICK_NS and not success:
            return  # a refusal is quick whatever its body, and proves nothing
        was_short = ns < QUICK_NS or (cpu is not None and 2 * cpu < QUICK_NS and ns <= SLOW_NS and success)
        if was_short and steady:
            self._runs = min(MOST_QUICK_RUNS * self._needed, self._runs + 1)
            self._bytes = max(self._bytes, size)
        elif ns <= SLOW_NS or (cpu is not None and 2 * cpu < SLOW_NS):
            self._runs //= 2
        else:
            self._runs = self._bytes = 0
            self._needed = min(MOST_PROBATION, self._needed * PROBATION)
