"""How a model comes to be what the repository now says: looked at, loaded beside what serves, switched at once.

Either everything of a model that serves moves to what was found, or nothing does: a version that does not load leaves
the old ones serving, and says so in the index. A canary is the exception: without it the stable version has its share.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from core.errors import ServingError
from handler.catalog import Catalog
from handler.entries import Entry
from handler.flights import Flight
from handler.slots import LONGEST_PAUSE, Slot

log = logging.getLogger(__name__)
REPLACED: Final = "replaced by a newer version"


class Obtain(Protocol):
    def __call__(self, slot: Slot, flight: Flight, *, at_once: bool = False) -> None:
        """See Slot.obtain. Raises ServingError."""
        ...


class Rollout:
    """`obtain`: loads a version if it is not. `publish`: makes what is loaded of a model findable.

    `poll`: seconds between two looks. `flight`: what the work of a method is part of.
    """

    def __init__(self, catalog: Catalog, obtain: Obtain, publish: Callable[[str], None], poll: float) -> None:
        self._catalog = catalog
        self._bring = obtain
        self._publish = publish
        self._poll = poll
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def renew(self, name: str, flight: Flight) -> None:
        """Look at the repository again, and move to what it says if the model serves. What fails is put off."""
        with self._alone(name):
            try:
                self._catalog.look(name)
                self._advance(name, flight)
            except ServingError as error:
                log.warning("model %s stays as it is: %s; what is loaded serves on", name, error.message)
                pause = LONGEST_PAUSE if error.retry_after is None else error.retry_after
                self._catalog.put_off(name, time.monotonic() + min(self._poll, pause))

    def advance(self, name: str, flight: Flight) -> None:
        """Move to what was found by a look, if it all loads. Raises ServingError."""
        with self._alone(name):
            self._advance(name, flight)

    def load(self, name: str, flight: Flight) -> None:
        """Look at the repository again and load all that it says, whatever failed before. Raises ServingError."""
        with self._alone(name):
            self._catalog.look(name)
            base = self._catalog.entries[name]
            after = base.coming or base
            self._obtain(base, after, list(after.versions.values()), partial(self._bring, flight=flight, at_once=True))
            self._finish(base)

    def _alone(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    def _advance(self, name: str, flight: Flight) -> None:
        base = self._catalog.entries[name]
        if base.coming is not None:
            slots = base.successors(base.coming)
            self._obtain(base, base.coming, slots, partial(self._bring, flight=flight))
            self._finish(base)

    def _obtain(self, base: Entry, after: Entry, slots: list[Slot], obtain: Callable[[Slot], None]) -> None:
        """The slots in memory, while what serves now stays there; and the canaries, if that goes well."""
        canaries = [slot for slot in after.canaries if slot is not after.stable]
        serving = tuple(slot for slot in base.versions.values() if slot.loaded is not None)
        for slot in dict.fromkeys([*(s for s in slots if s not in canaries), *canaries]):
            slot.spared = serving if after is not base else ()
            try:
                obtain(slot)
            except ServingError:
                if slot not in canaries:
                    raise
            finally:
                slot.spared = ()

    def _finish(self, base: Entry) -> None:
        name = base.listing.name
        if base.coming is None:
            self._publish(name)
        elif self._catalog.take_over(base):
            self._publish(name)
            log.info("model %s serves %s", name, ", ".join(map(str, base.coming.versions)))
            for slot in base.versions.values():
                if slot not in base.coming.versions.values():
                    slot.leave(REPLACED)
