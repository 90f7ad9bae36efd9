"""DRAGOMAN_MEMORY_LIMIT: loads models within it, and unloads for that what was used least recently and is idle.

What counts is what the kernel says is resident (RSS), not a sum of estimates: a model may load if what is resident and
what its load takes at its peak stay within the limit together. Loads take turns, so that no two count on the same
memory, and so that what one took can be told. Fetching files takes no turn.
"""

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from core.errors import ModelNotLoadable, ServerBusy
from handler.deadlines import Patience
from handler.lifecycle import memory
from handler.lifecycle.versions import Footprint, Gate, Loaded, Slot

if TYPE_CHECKING:
    from core.ports import Model

log = logging.getLogger(__name__)
ROOM_SECONDS: Final = 30.0
"""How long a load waits for models that are in use, if whoever asked for it waits as long."""
LOOK_SECONDS: Final = 0.1
"""Between two looks while it waits: not everything that frees memory says so."""
TRIES: Final = 3
GONE_SECONDS: Final = 0.05
"""How long the thread that used a model last may take to let go of it."""
FRESH_SECONDS: Final = 5.0
MB: Final = 1_000_000


class Budget:
    """`residents`: the slots that may hold a model. `is_pinned`: whether a model of this name stays once loaded.

    `fresh`: seconds for which a model that nobody has used yet stays, for those who wait for it in other threads.
    """

    def __init__(
        self,
        limit: int | None,
        residents: Callable[[], Iterable[Slot]],
        is_pinned: Callable[[str], bool],
        fresh: float = FRESH_SECONDS,
    ) -> None:
        if limit is not None and memory.resident() is None:
            log.warning("this system does not tell what is in memory: DRAGOMAN_MEMORY_LIMIT is not kept")
            limit = None
        self.limit = limit
        self.gate = Gate()
        self._residents = residents
        self._is_pinned = is_pinned
        self._fresh = fresh
        self._base = sys.maxsize
        self._made: weakref.WeakSet[Loaded] = weakref.WeakSet()
        self._turn = threading.Lock()

    def check(self, slot: Slot, least: int) -> None:
        """Raises ModelNotLoadable if it can never fit, whatever else is unloaded. `least`: as in `spend`."""
        if self.limit is None:
            return
        cost = least if slot.footprint is None else slot.footprint.cost
        staying = self._staying(slot)
        most = self.limit - self._own(slot) - sum(map(_cost, staying))
        if cost > most:
            raise self._too_large(slot, cost, most, staying)

    def spend(
        self, slot: Slot, least: int, peak: int, load: Callable[[], Loaded], patience: Patience | None = None
    ) -> Loaded:
        """What `load` gives, once there is room for it.

        `least`, `peak`: bytes that it will take if it has never been measured. Raises ModelNotLoadable if it can never
        fit, ServerBusy if the others stay in use, and what `load` raises.
        """
        if self.limit is None:
            return load()
        guess = Footprint(peak, least)
        for _ in range(TRIES):
            self._admit(slot, slot.footprint or guess, self.limit, patience)
            try:
                loaded, slot.footprint = _measured(load, least)
                self._made.add(loaded)
                if self._fits(slot, 0, self.limit):
                    return loaded
                del loaded  # it took more than was known: now it is known
                memory.trim()
            finally:
                self._turn.release()
        raise self._busy(slot, slot.footprint or guess, self.limit)

    def _admit(self, slot: Slot, need: Footprint, limit: int, patience: Patience | None) -> None:
        """Wait until there is room, and take the turn to load."""
        until = time.monotonic() + (ROOM_SECONDS if patience is None else min(ROOM_SECONDS, patience.left))
        self.gate.waiting.append(None)
        try:
            while True:
                self.gate.close()
                self._turn.acquire()
                try:
                    if self._has_room(slot, need, limit):
                        return
                except BaseException:
                    self._turn.release()
                    raise
                self._turn.release()
                if time.monotonic() > until:
                    raise self._busy(slot, need, limit)
                slot.reason = "waiting for memory that other models use"
                self.gate.wait(LOOK_SECONDS)
        finally:
            self.gate.waiting.pop()

    def _has_room(self, slot: Slot, need: Footprint, limit: int) -> bool:
        """Whether it may load now, after unloading others for it. Raises ModelNotLoadable if that will not help."""
        self.check(slot, need.cost)
        if self._fits(slot, need.peak, limit):
            return True
        staying = self._staying(slot)
        if len(self._loaded(slot)) > len(staying) or any(each.in_use() for each in self._leaving()):
            return False  # what is in use will be idle
        gc.collect()  # what was unloaded without a look at what that frees; not at every look, it takes 60 ms
        memory.trim()
        if self._fits(slot, need.peak, limit):
            return True
        if any(self._leaving()):
            return False  # whoever holds it is a step away from letting go
        if staying:
            raise self._too_large(slot, need.peak, limit - _resident(), staying)
        self._base = _resident()
        self.check(slot, need.cost)
        return True  # nothing is at risk: a peak is over soon, and may be less than was guessed

    def _fits(self, slot: Slot, more: int, limit: int) -> bool:
        """Whether so many bytes fit, after unloading as little as possible."""
        while _resident() + more > limit:
            idle = [other for other in self._loaded(slot) if not self._stays(other, slot)]
            if not any(map(self._evict, sorted(idle, key=_last_use))):
                return False
        return True

    def _evict(self, slot: Slot) -> bool:
        loaded = slot.loaded
        if loaded is None or self._is_fresh(loaded) or not slot.evict():
            return False
        before = _resident()
        gone = weakref.ref(loaded.model)
        del loaded
        _await_end(gone)
        memory.trim()
        if before - _resident() < _cost(slot) / 2:  # python code, whose functions and globals hold each other
            gc.collect()
            memory.trim()
        log.info("model %s version %s is unloaded to make room", slot.name, slot.version.number)
        return True

    def _is_fresh(self, loaded: Loaded) -> bool:
        return not loaded.last_use and time.monotonic() < loaded.born + self._fresh

    def _loaded(self, apart_from: Slot) -> list[Slot]:
        return [slot for slot in self._residents() if slot.loaded is not None and slot is not apart_from]

    def _leaving(self) -> Iterator[Loaded]:
        """What is in memory and in no slot: unloaded or replaced while in use, or on its way into its slot."""
        return (each for each in self._made if each.slot.loaded is not each)

    def _stays(self, other: Slot, slot: Slot) -> bool:
        return other in slot.spared or self._is_pinned(other.name)

    def _staying(self, slot: Slot) -> list[Slot]:
        return [other for other in self._loaded(slot) if self._stays(other, slot)]

    def _own(self, slot: Slot) -> int:
        """What is resident without any model (the interpreter, libraries), as little as it has seemed to be.

        Requests and models that are on their way out come on top for a while, and are no reason to say "never". It is
        known, and may turn out to be more, when no model is left.
        """
        self._base = min(self._base, max(0, _resident() - sum(map(_cost, self._loaded(slot)))))
        return self._base

    def _too_large(self, slot: Slot, need: int, most: int, staying: list[Slot]) -> ModelNotLoadable:
        beside = "the server itself"
        if staying:
            named = ", ".join(f"{other.name} version {other.version.number}" for other in staying[:8])
            beside += f" and what has to stay ({named})"
        return ModelNotLoadable(
            f"model {slot.name!r} version {slot.version.number} needs {_mb(need)}; at most {_mb(max(0, most))} fit "
            f"beside {beside} (DRAGOMAN_MEMORY_LIMIT {_mb(self.limit or 0)})"
        )

    def _busy(self, slot: Slot, need: Footprint, limit: int) -> ServerBusy:
        return ServerBusy(
            f"model {slot.name!r} needs {_mb(need.peak)} to load, and what is in use leaves no room "
            f"(DRAGOMAN_MEMORY_LIMIT {_mb(limit)}): try again"
        )


def _measured(load: Callable[[], Loaded], least: int) -> tuple[Loaded, Footprint]:
    """What others free meanwhile makes a model look small: it is never taken for less than `least`, nor its copies."""
    memory.trim()
    memory.reset_peak()
    before = _resident()
    with memory.separate_blocks():
        loaded = load()
    peak = memory.peak() - before
    memory.trim()
    cost = max(least, _resident() - before)
    return loaded, Footprint(max(peak, cost + least), cost)


def _await_end(gone: "weakref.ref[Model]") -> None:
    """Until nobody holds the model: its last user may be a step away from that."""
    until = time.monotonic() + GONE_SECONDS
    while gone() is not None and time.monotonic() < until:
        time.sleep(GONE_SECONDS / 50)


def _resident() -> int:
    return memory.resident() or 0


def _cost(slot: Slot) -> int:
    return slot.footprint.cost if slot.footprint is not None else 0


def _last_use(slot: Slot) -> int:
    loaded = slot.loaded
    return loaded.last_use if loaded is not None else 0


def _mb(size: int) -> str:
    return f"{size / MB:.0f} MB"
