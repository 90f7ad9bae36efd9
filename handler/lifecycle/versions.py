"""One version of one model in this process: its state, what of it is in memory and who uses it, its numbers."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.errors import ModelFailed, ServerBusy, ServingError, StillLoading
from core.operations import IndexEntry, State, Statistics
from core.ports import Model
from handler.deadlines import Patience
from handler.lifecycle.attempts import NoTimeBeside
from handler.lifecycle.phases import Phases
from handler.lifecycle.repository import Listing, Version
from handler.stores import Folder

log = logging.getLogger(__name__)
QUICK_RUNS: Final = 16
QUICK_NS: Final = 500_000
"""A model is quick once so many requests in a row took less than so many nanoseconds each, from body to answer."""
MOST_QUICK_RUNS: Final = 64
"""Runs that count. A request that takes longer halves them: one hiccup of the machine is forgiven, a habit is not."""
SLOW_NS: Final = 50_000_000
"""One request of so many nanoseconds, and it is never called quick again."""
NOT_YET: Final = "not loaded yet"
UNLOADED: Final = "unloaded"
EVICTED: Final = "unloaded to make room for other models"
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries of a load that fails: doubling, so that a broken model costs its callers little."""
TURNS: Final = itertools.count(1)
"""The order of uses: what has the lowest number was used least recently."""


class Gate:
    """Where those wait who need memory, until a model is no longer in use."""

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
    """A model in memory. As a context manager it ends a use that `Slot.use` or `again` began.

    Uses are elements of a list: that appending and popping are atomic costs a quarter of a lock around a number.
    """

    __slots__ = ("__weakref__", "_gate", "born", "folder", "last_use", "model", "slot", "uses", "version")

    def __init__(self, slot: "Slot", model: Model, folder: Folder, gate: Gate) -> None:
        self.slot = slot
        self.model = model
        self.folder = folder  # whose files a model may read as long as it lives
        self.version = model.spec.version.encode()
        self.born = time.monotonic()
        self.last_use = 0
        self.uses: list[None] = []
        self._gate = gate

    def __enter__(self) -> Model:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.uses.pop()
        if self._gate.waiting:
            self._gate.open()

    def again(self) -> "Loaded":
        """A further use, of who uses it already."""
        self.uses.append(None)
        return self

    def in_use(self) -> bool:
        return bool(self.uses)


Load = Callable[["Slot", Phases], Loaded]


class Footprint(NamedTuple):
    """Bytes that a load took: at its peak, and for as long as the model is in memory."""

    peak: int
    cost: int


@dataclass(slots=True, eq=False)
class Slot:
    """At most one thread loads, holding `_lock`; `loaded`, `state` and `reason` may be read by anybody at any time.

    `serves`: it was loaded, and nobody has asked to unload it; for others' sake it may be out of memory for a while.
    `due`: when, on time.monotonic, the repository may be looked at again. `spared`: slots that have to stay in memory
    while this one is loaded beside them. `phases`: how far its latest load is.
    """

    listing: Listing
    version: Version
    statistics: Statistics
    due: float = float("inf")
    state: State = State.UNAVAILABLE
    reason: str = NOT_YET
    loaded: Loaded | None = None
    serves: bool = False
    load_seconds: float = 0.0
    phases: Phases | None = None
    footprint: Footprint | None = None
    spared: tuple["Slot", ...] = ()
    _failure: ServingError | None = None
    _failures: int = 0
    _retry_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _quick_runs: int = 0
    _quick_bytes: int = 0
    _was_slow: bool = False

    @property
    def name(self) -> str:
        return self.listing.name

    @property
    def is_failing(self) -> bool:
        """Whether it could not be loaded, and is not due to be tried again."""
        return self._failure is not None and self.loaded is None and time.monotonic() < self._retry_at

    @property
    def failure(self) -> ServingError | None:
        return self._failure

    @property
    def entry(self) -> IndexEntry:
        failure = self._failure
        return IndexEntry(
            self.name,
            str(self.version.number),
            self.state,
            self.reason,
            None if failure is None or self.state is not State.UNAVAILABLE else failure.fault,
            self.reason is NOT_YET,
        )

    def use(self) -> Loaded | None:
        """Begin a use of the model; None if it is not in memory. To be ended by `with`."""
        loaded = self.loaded
        if loaded is None:
            return None
        loaded.uses.append(None)
        if self.loaded is not loaded:  # `evict` has taken it away, and did not see this use or will give it back
            loaded.__exit__()
            return None
        loaded.last_use = next(TURNS)
        return loaded

    def obtain(self, load: Load, patience: Patience | None = None, *, at_once: bool = False) -> None:
        """Load the model if it is not; a recent failure is raised again instead of being tried again.

        `at_once`: a failure is no reason to wait. Neither is that others were in use.
        """
        with self._lock:
            if self.loaded is not None:
                return
            wait = self._retry_at - time.monotonic()
            if self._failure is not None and wait > 0 and not (at_once or isinstance(self._failure, ServerBusy)):
                raise type(self._failure)(self._failure.message, retry_after=wait)
            self._load(load, patience)

    def empty(self) -> None:
        """Take the model out of memory, after a load that is on; who uses it goes on to the end."""
        with self._lock:
            self.leave(UNLOADED)

    def leave(self, reason: str) -> None:
        """As `empty`, without waiting."""
        self.loaded, self.serves = None, False
        self.state, self.reason = State.UNAVAILABLE, reason

    def evict(self) -> bool:
        """Take the model out of memory for others' sake. False if it is in use."""
        loaded = self.loaded
        if loaded is None or loaded.in_use() or not self._lock.acquire(blocking=False):
            return False
        try:
            self.loaded = None
            if loaded.in_use():  # since the line above nobody can begin to
                self.loaded = loaded
                return False
            self.state, self.reason = State.UNAVAILABLE, EVICTED
            return True
        finally:
            self._lock.release()

    def forgive(self) -> None:
        """Let what failed be tried again at once, and listed again: their clock may be another now."""
        self._failure, self._failures, self._retry_at = None, 0, 0.0
        self.due = float("-inf")

    def _load(self, load: Load, patience: Patience | None) -> None:
        started = time.monotonic()
        phases = self.phases = Phases(self.name, patience)
        self.state, self.reason = State.LOADING, "loading"
        log.info("model %s version %s is being loaded", self.name, self.version.number)
        try:
            self.loaded = load(self, phases)
        except StillLoading as unfinished:  # no failure: the next request goes on with it, and without a pause
            self.reason = unfinished.message
            raise
        except NoTimeBeside as untried:  # neither: whoever has more time loads it
            self.state, self.reason = State.UNAVAILABLE, untried.message
            raise
        except ServingError as error:
            self._failed(error)
            raise
        except Exception as error:
            log.exception("loading %s version %s failed", self.name, self.version.number)
            failure = ModelFailed(
                f"model {self.name!r} version {self.version.number} cannot be loaded: {type(error).__name__}"
            )
            self._failed(failure)
            raise failure from error
        self.serves = True
        self.state, self.reason = State.READY, ""
        self._failure, self._failures = None, 0
        self.load_seconds = time.monotonic() - started
        log.info("model %s version %s loaded in %.3f s", self.name, self.version.number, self.load_seconds)

    def _failed(self, error: ServingError) -> None:
        log.warning("model %s version %s cannot be loaded: %s", self.name, self.version.number, error.message)
        self._failure = type(error)(error.message)  # without its traceback, which keeps whole requests alive
        self.state, self.reason = State.UNAVAILABLE, error.message
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._retry_at = time.monotonic() + pause
        error.retry_after = pause
        if not isinstance(error, ServerBusy):  # of which the model is not to blame
            self._failures = min(self._failures + 1, 10)

    def is_quick(self, size: int) -> bool:
        """Whether a request with a body of `size` bytes is so sure to be short that it need not change threads."""
        return size <= self._quick_bytes and self._quick_runs >= QUICK_RUNS

    def _time(self, ns: int, size: int, *, success: bool) -> None:
        if ns < QUICK_NS and not success:
            return  # a refusal is quick whatever its body, and proves nothing
        loaded = self.loaded
        if ns < QUICK_NS and not self._was_slow and loaded is not None and loaded.model.steady:
            self._quick_runs = min(MOST_QUICK_RUNS, self._quick_runs + 1)
            self._quick_bytes = max(self._quick_bytes, size)
        else:
            self._was_slow = self._was_slow or ns > SLOW_NS
            self._quick_runs = 0 if self._was_slow else self._quick_runs // 2

    def record(self, durations: Sequence[int], size: int, *, success: bool) -> None:
        """One inference: nanoseconds in the queue, for decoding, for the model, for encoding; `size` of its body."""
        stats = self.statistics
        with self._counting:
            self._time(sum(durations[1:]), size, success=success)
            if not success:
                stats.fail.add(sum(durations))
                return
            queue, decode, infer, encode = durations
            stats.success.add(queue + decode + infer + encode)
            stats.queue.add(queue)
            stats.compute_input.add(decode)
            stats.compute_infer.add(infer)
            stats.compute_output.add(encode)
            stats.inference_count += 1
            stats.last_inference_ms = time.time_ns() // 1_000_000
