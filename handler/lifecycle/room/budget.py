"""Keeps resident memory within DRAGOMAN_MEMORY_LIMIT by evicting idle models, least recently used first.

The measure is what the kernel reports as resident (RSS), not a sum of estimates: a model may load if the resident bytes
and the bytes at the peak of its load stay within the limit together. Loads take turns, so that no two count on the same
memory, and so that each load's own bytes can be measured. Fetching files takes no turn. A load that takes long lets
others have theirs, and the memory that it may yet take is reserved.
"""

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from core.errors import MemoryShort, NeverFits, counted
from core.records import NamedTuple
from handler.lifecycle.room import memory
from handler.lifecycle.room.residents import Residents
from handler.lifecycle.usage import Loaded, MemoryGate
from handler.lifecycle.versions import ServedVersion
from handler.stores.progress import OTHERS, Progress

log = logging.getLogger(__name__)
ROOM_SECONDS: Final = 30.0
"""The seconds that a load waits for models in use, if its request waits as long."""
LOOK_SECONDS: Final = 0.1
"""Seconds between two looks while it waits: memory may become free without notice."""
TRIES: Final = 3
MB: Final = 1_000_000


class Footprint(NamedTuple):
    """Bytes that a load takes: at its peak, and for as long as the model is in memory."""

    peak: int
    cost: int


class Claim(NamedTuple):
    """A version that is to be loaded. `guess`: before it was ever measured. `spared`: versions that stay meanwhile."""

    version: ServedVersion
    guess: Footprint
    spared: Sequence[ServedVersion] = ()


class Budget:
    """`limit`: in bytes. The thread that holds `_turn` changes the rest.

    `_reserved`: the bytes that loads without a turn may yet take. `_spent`: those that all loads have taken so far.
    """

    def __init__(self, limit: int, residents: Residents) -> None:
        self.limit = limit
        self.gate = MemoryGate()
        self._residents = residents
        self._base = sys.maxsize
        self._made: weakref.WeakKeyDictionary[Loaded, ServedVersion] = weakref.WeakKeyDictionary()
        self._footprints: weakref.WeakKeyDictionary[ServedVersion, Footprint] = weakref.WeakKeyDictionary()
        self._reserved: dict[ServedVersion, int] = {}
        self._spent = 0
        self._turn = threading.Lock()

    def check(self, claim: Claim) -> None:
        """Raises NeverFits if the version can never fit, whatever else is evicted."""
        self._check(claim, self._need(claim).cost)

    def spend(self, claim: Claim, load: Callable[[], Loaded], progress: Progress) -> Loaded:
        """Calls `load` once there is room for it, and measures it.

        Raises NeverFits, MemoryShort if the others stay in use, and what `load` raises.
        """
        for _ in range(TRIES):
            self._admit(claim, progress)
            try:
                loaded, footprint = self._measured(claim, load, progress)
                self._footprints[claim.version] = footprint
                self._made[loaded] = claim.version
                if self._fits(claim, 0):
                    self._spent += footprint.cost
                    return loaded
                held = _resident()
                del loaded  # it took more than was known: now it is known
                gc.collect()
                memory.trim()
                self._footprints[claim.version] = _freed(footprint, held - _resident(), claim.guess.cost)
            finally:
                self._turn.release()
        raise self._busy(claim)

    def add(self, work: Callable[[], None], size: int) -> bool:
        """Calls `work` for a model in memory if so many bytes fit without evicting others. Returns whether it did."""
        with self._turn:
            fits = self._taken() + size <= self.limit
            if fits:
                with memory.separate_blocks():
                    work()
                memory.trim()
        return fits

    def _measured(self, claim: Claim, load: Callable[[], Loaded], progress: Progress) -> tuple[Loaded, Footprint]:
        """Returns the model, and what its load took. This thread has the turn before and after."""
        measure = _Measure(self._spent)
        turn = progress.turn(partial(self._give_way, claim, measure))
        try:
            with memory.separate_blocks():
                loaded = load()
        finally:
            if not turn.keep():
                self._take_turn(progress)
                del self._reserved[claim.version]
        return loaded, measure.footprint(claim.guess.cost, self._spent)

    def _give_way(self, claim: Claim, measure: "_Measure") -> None:
        """Lets others load beside a load that takes long."""
        self._reserved[claim.version] = max(0, self._need(claim).peak - measure.pause())
        self._turn.release()

    def _take_turn(self, progress: Progress) -> None:
        if not self._turn.acquire(blocking=False):
            progress.waits_for = OTHERS
            self._turn.acquire()
            progress.waits_for = ""

    def _taken(self) -> int:
        """Returns the resident bytes, and those that are reserved."""
        return _resident() + sum(self._reserved.values())

    def _need(self, claim: Claim) -> Footprint:
        return self._footprints.get(claim.version) or claim.guess

    def _admit(self, claim: Claim, progress: Progress) -> None:
        """Waits until there is room, and takes the turn to load."""
        until = time.monotonic() + progress.deadline.earlier(ROOM_SECONDS)
        self.gate.waiting.append(None)
        try:
            while not self._takes_turn(claim, progress):
                if time.monotonic() > until:
                    raise self._busy(claim)
                progress.waits_for = "memory that other models use"
                self.gate.wait(LOOK_SECONDS)
        finally:
            progress.waits_for = ""
            self.gate.waiting.pop()

    def _takes_turn(self, claim: Claim, progress: Progress) -> bool:
        """Takes the turn if there is room, after evicting for it."""
        self.gate.close()
        self._take_turn(progress)
        has_room = False
        try:
            has_room = self._has_room(claim)
        finally:
            if not has_room:
                self._turn.release()
        return has_room

    def _check(self, claim: Claim, cost: int) -> None:
        staying = self._residents.staying(claim.version, claim.spared)
        most = self.limit - self._own(claim) - sum(map(self.cost, staying))
        if cost > most:
            raise self._too_large(claim, cost, most, staying)

    def _has_room(self, claim: Claim) -> bool:
        """Decides whether it may load now, after evicting others. Raises NeverFits if that will not help."""
        need = self._need(claim)
        self._check(claim, need.cost)
        if self._fits(claim, need.peak):
            return True
        staying = self._residents.staying(claim.version, claim.spared)
        if len(self._residents.beside(claim.version)) > len(staying) or any(each.in_use() for each in self._leaving()):
            return False  # models in use will be idle
        if self._reserved:  # what the other load takes counts neither as free nor as this one's
            return self._taken() + need.cost <= self.limit
        gc.collect()  # what was unloaded without a look at what that frees; not at every look, it takes 60 ms
        memory.trim()
        if self._fits(claim, need.peak):
            return True
        if any(self._leaving()):
            return False  # the thread that holds it is a step away from letting go
        self._base = max(0, _resident() - sum(map(self.cost, staying)))
        self._check(claim, need.cost)
        return True  # a peak is over soon, and can be lower than estimated

    def _fits(self, claim: Claim, more: int) -> bool:
        """Decides whether that many bytes fit, after evicting as little as possible."""
        while self._taken() + more > self.limit:
            if not any(map(self._evict, self._residents.leaving(claim.version, claim.spared))):
                return False
        return True

    def _evict(self, version: ServedVersion) -> bool:
        before = _resident()
        if not self._residents.evict(version):
            return False
        memory.trim()
        if before - _resident() < self.cost(version) / 2:  # python code, whose functions and globals hold each other
            gc.collect()
            memory.trim()
        return True

    def _leaving(self) -> Iterator[Loaded]:
        """Yields models that are in memory and in no version: out of it while in use, or on their way into it."""
        return (loaded for loaded, version in list(self._made.items()) if version.loaded is not loaded)

    def cost(self, version: ServedVersion) -> int:
        """Returns the bytes that the version's load was measured to take; 0 before that."""
        footprint = self._footprints.get(version)
        return 0 if footprint is None else footprint.cost

    def _own(self, claim: Claim) -> int:
        """Returns the resident bytes without any model (the interpreter, libraries): the least that was ever seen.

        Requests, and models on their way out, come on top for a while, and are not a reason to say "never". The number
        is known, and may turn out to be higher, when no model is left.
        """
        self._base = min(self._base, max(0, _resident() - sum(map(self.cost, self._residents.beside(claim.version)))))
        return self._base

    def _too_large(self, claim: Claim, need: int, most: int, staying: list[ServedVersion]) -> NeverFits:
        if self._base >= self.limit:
            own = f"the server itself uses {_mb(self._base)}, and DRAGOMAN_MEMORY_LIMIT is {_mb(self.limit)}"
            return NeverFits(f"model {claim.version.name!r} has no room: {own}: raise it")
        beside = "the server itself"
        if staying:
            # The client that asked for this model is perhaps not permitted to see the others.
            named = ", ".join(f"{other.name} version {other.version.number}" for other in staying[:8])
            log.warning("%s has no room beside what has to stay: %s", claim.version.name, named)
            beside += f" and {counted(len(staying), 'other version')} that must stay"
        return NeverFits(
            f"model {claim.version.name!r} version {claim.version.version.number} needs {_mb(need)}; at most "
            f"{_mb(max(0, most))} fit beside {beside} (DRAGOMAN_MEMORY_LIMIT {_mb(self.limit)})"
        )

    def _busy(self, claim: Claim) -> MemoryShort:
        return MemoryShort(
            f"model {claim.version.name!r} needs {_mb(self._need(claim).peak)} to load, and what is in use leaves no "
            f"room (DRAGOMAN_MEMORY_LIMIT {_mb(self.limit)}): try again"
        )


def budget_of(limit: int | None, residents: Residents) -> Budget | None:
    """Returns the budget for a limit in bytes; None without one, or if the system does not report resident memory."""
    if limit is not None and memory.resident() is None:
        log.warning("this system does not report resident memory: DRAGOMAN_MEMORY_LIMIT is not enforced")
        return None
    return None if limit is None else Budget(limit, residents)


class _Measure:
    """Measures a load. Other threads may free memory meanwhile, so a model never counts for less than `least`.

    `spent`: the bytes that all loads have taken. What others take between `pause` and the end is not this load's.
    """

    def __init__(self, spent: int) -> None:
        memory.trim()
        memory.reset_peak()
        self._before = _resident()
        self._spent = spent
        self._peak: int | None = None

    def pause(self) -> int:
        """Ends the measure of the peak, since another load begins. Returns the bytes that the load has taken."""
        self._peak = memory.peak() - self._before
        return _resident() - self._before

    def footprint(self, least: int, spent: int) -> Footprint:
        peak = memory.peak() - self._before if self._peak is None else self._peak
        memory.trim()
        cost = max(least, _resident() - self._before - (spent - self._spent))
        return Footprint(max(peak, cost + least), cost)


def _freed(measured: Footprint, freed: int, least: int) -> Footprint:
    """Returns the footprint of a model that was dropped after its load. `freed`: the bytes that this has freed.

    Requests take memory during a load, too. If it counted as the model's, the model would never fit again.
    """
    others = measured.cost - max(least, min(measured.cost, freed))
    return Footprint(measured.peak - others, measured.cost - others)


def _resident() -> int:
    return memory.resident() or 0


def _mb(size: int) -> str:
    return "less than 1 MB" if 0 < size < MB else f"{size / MB:.0f} MB"
