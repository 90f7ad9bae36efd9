"""One version of one model in this process: the owner of its state.

Everything that changes a version's status, or what of it is in memory, stands in this file, and nothing else assigns
to a ServedVersion. TRANSITIONS says which event moves it from which status to which; an event that the table does not
have for a status raises, because it would be a mistake of this project's own.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import Fault, ModelFailed, ModelUnavailable, ServingError, StillLoading
from core.operations import IndexEntry, State
from core.records import NamedTuple
from core.statistics import Statistics
from handler.lifecycle.backoff import Backoff, named
from handler.lifecycle.repository import Listing, Version
from handler.lifecycle.usage import TURNS, Loaded, Pace, Traffic
from handler.stores.progress import Progress

log = logging.getLogger(__name__)


class Status(Enum):
    NEW = auto()
    LOADING = auto()
    """A thread loads it, or its load ran out of time and continues with the next request."""
    READY = auto()
    FAILED = auto()
    POSTPONED = auto()
    """Another version answers, and loading this one was left to a request with more time."""
    EVICTED = auto()
    """It is out of memory for another model's sake; the next request loads it again."""
    UNLOADED = auto()
    REPLACED = auto()
    """A newer version, or none, has taken its place; requests that held it before may still load it."""


class Event(Enum):
    BEGIN = auto()
    PAUSE = auto()
    POSTPONE = auto()
    FAIL = auto()
    LOAD = auto()
    EVICT = auto()
    UNLOAD = auto()
    REPLACE = auto()


_ANY: Final = tuple(Status)
TRANSITIONS: Final[dict[Event, tuple[tuple[Status, ...], Status]]] = {
    Event.BEGIN: (tuple(status for status in Status if status is not Status.READY), Status.LOADING),
    # A version may be replaced while a thread loads it: the load then ends as it would have.
    Event.PAUSE: ((Status.LOADING, Status.REPLACED), Status.LOADING),
    Event.POSTPONE: ((Status.LOADING, Status.REPLACED), Status.POSTPONED),
    Event.FAIL: ((Status.LOADING, Status.REPLACED), Status.FAILED),
    Event.LOAD: ((Status.LOADING, Status.REPLACED), Status.READY),
    Event.EVICT: ((Status.READY,), Status.EVICTED),
    Event.UNLOAD: (_ANY, Status.UNLOADED),
    Event.REPLACE: (_ANY, Status.REPLACED),
}
"""The statuses in which an event may come, and the status after it."""
SERVES: Final = {Event.LOAD: True, Event.UNLOAD: False, Event.REPLACE: False}
"""Whether the version serves after an event; every other event leaves that as it is."""
STATES: Final = {Status.LOADING: State.LOADING, Status.READY: State.READY}
"""The states as the model repository extension names them; every other status is UNAVAILABLE."""
REASONS: Final = {
    Status.NEW: "not loaded yet",
    Status.LOADING: "loading",
    Status.READY: "",
    Status.EVICTED: "unloaded to make room for other models",
    Status.UNLOADED: "unloaded",
    Status.REPLACED: "replaced by a newer version",
}


class Postponed(ModelUnavailable):
    """Another request may load the version, with more time; a loaded one answers this request. Not a failure."""


class _Standing(NamedTuple):
    """Replaced as a whole, so that any thread reads a status with the reason that belongs to it."""

    status: Status
    reason: str
    failure: ServingError | None = None


LoadVersion = Callable[["ServedVersion", Progress, Sequence["ServedVersion"]], Loaded]


class ServedVersion:
    """At most one thread loads, holding `_lock`. Any thread can read every attribute at any time.

    `loaded`: the model, None while it is not in memory. `serves`: it was loaded, and no client has unloaded it; it
    may be out of memory for another model's sake. `due`: when, on time.monotonic(), the repository may be looked at
    again. `progress`: how far its latest load is. `_changing` is held while `loaded` and the status change together,
    and never during a load.
    """

    __slots__ = (
        *("__weakref__", "_backoff", "_changing", "_lock", "_standing", "due", "listing", "load_seconds", "loaded"),
        *("is_quick", "name", "pace", "progress", "serves", "traffic", "version"),
    )

    def __init__(self, listing: Listing, version: Version, traffic: Traffic, due: float = float("inf")) -> None:
        self.name = listing.name
        self.listing = listing
        self.version = version
        self.traffic = traffic
        self.due = due
        self.loaded: Loaded | None = None
        self.serves = False
        self.load_seconds = 0.0
        self.progress: Progress | None = None
        self._backoff: Backoff | None = None  # until its first failure
        self.pace = Pace()
        self.is_quick = self.pace.is_quick
        self._standing = _Standing(Status.NEW, REASONS[Status.NEW])
        self._lock = threading.Lock()
        self._changing = threading.Lock()

    @property
    def status(self) -> Status:
        return self._standing.status

    @property
    def state(self) -> State:
        return self.entry.state

    @property
    def reason(self) -> str:
        """Why it is not ready; empty if it is."""
        return self.entry.reason

    @property
    def is_failing(self) -> bool:
        """Whether its last load failed, and its next one is not due yet."""
        backoff = self._backoff
        return self.loaded is None and backoff is not None and backoff.left > 0

    @property
    def failure(self) -> ServingError | None:
        """Why its last load failed; None after a success."""
        return None if self._backoff is None else self._backoff.failure

    @property
    def entry(self) -> IndexEntry:
        (status, reason, failure), loaded, progress = self._standing, self.loaded, self.progress
        fault, state = None if failure is None else failure.fault, STATES.get(status, State.UNAVAILABLE)
        if loaded is not None and (trouble := loaded.trouble()):
            state, reason, fault = State.UNAVAILABLE, trouble, Fault.UNAVAILABLE
        elif status is Status.LOADING and progress is not None and progress.waits_for:
            reason = f"waiting for {progress.waits_for}"
        return IndexEntry(self.name, str(self.version.number), state, reason, fault, status is Status.NEW)

    def statistics(self) -> Statistics:
        return self.traffic.statistics(self.name, str(self.version.number))

    def use(self) -> Loaded | None:
        """Begins a use of the model; returns None if it is not in memory. `with` ends the use."""
        loaded = self.loaded
        if loaded is None:
            return None
        loaded.uses.append(None)
        if self.loaded is not loaded:  # `evict` has taken it away, and did not see this use or will give it back
            loaded.__exit__()
            return None
        loaded.last_use = next(TURNS)
        return loaded

    def obtain(
        self,
        load: LoadVersion,
        deadline: Deadline = NEVER,
        *,
        skips_pause: bool = False,
        spared: Sequence["ServedVersion"] = (),
    ) -> None:
        """Loads the model if it is not loaded. Raises a recent failure again instead of trying again.

        `skips_pause`: tries even within the pause after a failure. A lack of memory never causes that pause. `spared`:
        versions that have to stay in memory meanwhile.
        """
        with self._lock:
            if self.loaded is not None:
                return
            if self._backoff is not None and not skips_pause:
                self._backoff.check()
            self._load(load, deadline, spared)

    def _load(self, load: LoadVersion, deadline: Deadline, spared: Sequence["ServedVersion"]) -> None:
        started = time.monotonic()
        self._move(Event.BEGIN)
        progress = self.progress = Progress(deadline)
        log.info("model %s version %s is being loaded", self.name, self.version.number)
        try:
            loaded = load(self, progress, spared)
        except StillLoading as unfinished:  # the next request continues the load, without a pause
            self._move(Event.PAUSE, unfinished.message)
            raise
        except Postponed as untried:
            self._move(Event.POSTPONE, untried.message)
            raise
        except ServingError as error:
            self._fail(error)
            raise
        except Exception as error:
            log.exception("loading %s version %s failed", self.name, self.version.number)
            kind = type(error).__name__
            failure = ModelFailed(f"model {self.name!r} version {self.version.number} cannot be loaded: {kind}")
            self._fail(failure)
            raise failure from error
        self._backoff, self.load_seconds = None, time.monotonic() - started
        self._move(Event.LOAD, loaded=loaded)
        proof = f", {loaded.folder.proof}" if loaded.folder.proof else ""
        log.info("model %s version %s loaded in %.3f s%s", self.name, self.version.number, self.load_seconds, proof)

    def _fail(self, error: ServingError) -> None:
        log.warning("%s", named(error, self.name, self.version.number))
        error.is_logged = True
        self._backoff = self._backoff or Backoff()
        error.retry_after = self._backoff.fail(error)
        self._move(Event.FAIL, error.message, self._backoff.failure)

    def _move(
        self,
        event: Event,
        reason: str | None = None,
        failure: ServingError | None = None,
        loaded: Loaded | None = None,
    ) -> None:
        with self._changing:
            self._set(event, reason, failure, loaded)

    def _set(
        self,
        event: Event,
        reason: str | None = None,
        failure: ServingError | None = None,
        loaded: Loaded | None = None,
    ) -> None:
        """Applies an event, while this thread holds `_changing`."""
        allowed, after = TRANSITIONS[event]
        if self._standing.status not in allowed:
            raise AssertionError((event, self._standing))
        self.loaded = loaded
        self.serves = SERVES.get(event, self.serves)
        self._standing = _Standing(after, REASONS[after] if reason is None else reason, failure)

    def unload(self) -> None:
        """Takes the model out of memory, after a load that is under way. Requests that use it go on to their end."""
        with self._lock:
            self._move(Event.UNLOAD)

    def replace(self) -> None:
        """Takes the model out of memory because a newer version serves. Does not wait for a load."""
        self._move(Event.REPLACE)

    def evict(self) -> bool:
        """Takes the model out of memory for another model's sake. Returns False if it is in use."""
        loaded = self.loaded
        if loaded is None or loaded.in_use() or not self._lock.acquire(blocking=False):
            return False
        try:
            with self._changing:
                evicted = self._evict(loaded)
            if evicted:
                log.info("model %s version %s is unloaded to make room", self.name, self.version.number)
        finally:
            self._lock.release()  # the log has this line before that of its next load
        return evicted

    def _evict(self, loaded: Loaded) -> bool:
        if self.loaded is not loaded:  # another thread has unloaded or replaced it meanwhile
            return False
        self.loaded = None
        if loaded.in_use():  # since the line above no use can begin
            self.loaded = loaded
            return False
        self._set(Event.EVICT)
        return True

    def relist(self, listing: Listing) -> None:
        """Notes that the repository still has these files, under settings that load them alike."""
        self.listing = listing

    def look_again(self, at: float) -> None:
        """Sets when the next look at the repository is due, on time.monotonic()."""
        self.due = at

    def forgive(self) -> None:
        """Lets a failed load be tried at once, and the repository be listed: the clock can differ now."""
        self._backoff = None
        self.due = float("-inf")
