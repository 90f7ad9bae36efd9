"""One version of one model in this process: its state, the lock under which it is loaded, its numbers."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.errors import ModelFailed, ServingError, StillLoading
from core.operations import IndexEntry, State, Statistics
from core.ports import Model
from handler import backends
from handler.attempts import attempt
from handler.backends import Source
from handler.model_settings import ModelSettings
from handler.patience import Patience
from handler.phases import Phases
from handler.repository import Listing, Repository, Version
from handler.settings import Settings
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
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries of a load that fails: doubling, so that a broken model costs its callers little."""


@dataclass(slots=True)
class Slot:
    """At most one thread loads, holding `_lock`; `model` and `state` may be read by anybody at any time."""

    listing: Listing
    version: Version
    statistics: Statistics
    state: State = State.UNAVAILABLE
    reason: str = NOT_YET
    model: Model | None = None
    load_seconds: float = 0.0
    phases: Phases | None = None
    _folder: Folder | None = None
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

    def obtain(self, repository: Repository, settings: Settings, patience: Patience | None) -> Model:
        """The model, loaded if it was not; a recent failure is raised again instead of being tried again."""
        with self._lock:
            if self.model is not None:
                return self.model
            wait = self._retry_at - time.monotonic()
            if self._failure is not None and wait > 0:
                raise type(self._failure)(self._failure.message, retry_after=wait)
            return self._load(repository, settings, patience)

    def fill(self, repository: Repository, settings: Settings, patience: Patience | None) -> None:
        """Load anew, whatever was; what was loaded before serves until the new model is there."""
        with self._lock:
            self._load(repository, settings, patience)

    def empty(self) -> None:
        with self._lock:
            self.model = self._folder = None
            self.state, self.reason = State.UNAVAILABLE, "unloaded"

    def relist(self, listing: Listing, version: Version) -> None:
        """The files may have changed: then an earlier failure says nothing any more."""
        if self.version != version or self.listing.settings != listing.settings:
            self.listing, self.version = listing, version
            self._failure, self._retry_at = None, 0.0

    def forgive(self) -> None:
        """Let what failed be tried again at once: the clock of its pause may be another now."""
        self._failure, self._failures, self._retry_at = None, 0, 0.0

    def _load(self, repository: Repository, settings: Settings, patience: Patience | None) -> Model:
        started = time.monotonic()
        self.phases = Phases(self.name, patience)
        if self.model is None:
            self.state, self.reason = State.LOADING, "loading"
        try:
            self.model, self._folder = self._fetched(repository, settings, self.phases)
        except StillLoading as unfinished:  # no failure: the next request goes on with it, and without a pause
            if self.model is None:
                self.reason = unfinished.message
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
        self.state, self.reason = State.READY, ""
        self._failure, self._failures = None, 0
        self.load_seconds = time.monotonic() - started
        log.info("model %s version %s loaded in %.3f s", self.name, self.version.number, self.load_seconds)
        return self.model

    def _fetched(self, repository: Repository, settings: Settings, phases: Phases) -> tuple[Model, Folder]:
        said = repository.settings(self.listing, self.version)
        load = backends.choose(self.name, self.version.paths, said)
        folder = repository.fetch(self.listing, self.version, phases.progress)
        source = Source(self.name, str(self.version.number), folder.path, said)
        size = sum(file.size or 0 for file in self.version.files)
        with attempt(settings.cache, self.name, self.version, size, phases.patience):
            return phases.run(lambda: load(source, settings)), folder

    def _failed(self, error: ServingError) -> None:
        self._failure = error
        self.reason = error.message
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._retry_at = time.monotonic() + pause
        error.retry_after = pause
        self._failures = min(self._failures + 1, 10)
        if self.model is None:
            self.state = State.UNAVAILABLE

    def is_quick(self, size: int) -> bool:
        """Whether a request with a body of `size` bytes is so sure to be short that it need not change threads."""
        return size <= self._quick_bytes and self._quick_runs >= QUICK_RUNS

    def _time(self, ns: int, size: int, *, success: bool) -> None:
        if ns < QUICK_NS and not success:
            return  # a refusal is quick whatever its body, and proves nothing
        if ns < QUICK_NS and not self._was_slow and self.model is not None and self.model.steady:
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


class Entry(NamedTuple):
    """A model as its files were last listed. `versions`: by number, ascending; never empty."""

    versions: dict[int, Slot]
    said: ModelSettings

    @classmethod
    def of(cls, listing: Listing, known: "Entry | None") -> "Entry":
        """Versions that were known keep what is loaded of them."""
        slots = {}
        for version in listing.versions:
            slot = known.versions.get(version.number) if known is not None else None
            if slot is None:
                slot = Slot(listing, version, Statistics(listing.name, str(version.number)))
            slot.relist(listing, version)
            slots[version.number] = slot
        return cls(slots, listing.said)

    @property
    def newest(self) -> Slot:
        return next(reversed(self.versions.values()))

    def find(self, version: str | None) -> Slot | None:
        """A version by the text of its number, the newest for None."""
        if version is None:
            return self.newest
        return self.versions.get(int(version)) if version.isascii() and version.isdecimal() else None
