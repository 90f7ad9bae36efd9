"""How a model comes to be what the repository now says: looked at, loaded beside what serves, switched at once.

Either everything of a model that serves moves to what was found, or nothing does: a version that does not load leaves
the old ones serving, and says so in the index. A canary is the exception: without it the stable version has its share.

Of each model one thing is done here at a time (see `flights`); others may look at the repository meanwhile.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from core.errors import ServingError, StillLoading
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.models import Entry
from handler.lifecycle.single_flight import Flight
from handler.lifecycle.versions import LONGEST_PAUSE, Slot

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

    def renew(self, name: str, flight: Flight) -> None:
        """Look at the repository again, and move to what it says if the model serves. What fails is put off."""
        try:
            self._look(name)
        except ServingError as error:
            self._stay(name, error, LONGEST_PAUSE)
            return
        try:
            self.advance(name, flight)
        except StillLoading as error:  # the next request goes on with it
            self._stay(name, error, 0.0)
        except ServingError as error:
            self._stay(name, error, LONGEST_PAUSE if error.retry_after is None else error.retry_after)

    def advance(self, name: str, flight: Flight) -> None:
        """Move to what was found by a look, if it all loads. Raises ServingError."""
        bring = partial(self._bring, flight=flight)
        while (base := self._catalog.entry(name)).coming is not None:
            self._obtain(base, base.coming, base.successors(base.coming), bring)
            self._finish(base, base.coming)

    def load(self, name: str, flight: Flight) -> None:
        """Look at the repository again and load all that it says, whatever failed before. Raises ServingError."""
        bring = partial(self._bring, flight=flight, at_once=True)
        self._look(name)
        moved = False
        while not moved:
            base = self._catalog.entry(name)
            after = base.coming or base
            self._obtain(base, after, list(after.versions.values()), bring)
            moved = self._finish(base, after)

    def _look(self, name: str) -> None:
        """Raises ServingError."""
        self._catalog.look(name)
        self._catalog.put_off(name, time.monotonic() + self._poll)

    def _stay(self, name: str, error: ServingError, pause: float) -> None:
        log.warning("model %s stays as it is: %s; what is loaded serves on", name, error.message)
        self._catalog.put_off(name, time.monotonic() + min(self._poll, pause))

    def _obtain(self, base: Entry, after: Entry, slots: list[Slot], obtain: Callable[[Slot], None]) -> None:
        """The slots in memory, while what serves now stays there; and the canaries, if that goes well."""
        canaries = [slot for slot in after.canaries if slot is not after.stable]
        serving = tuple(slot for slot in base.versions.values() if slot.loaded is not None)
        for slot in dict.fromkeys([*(s for s in slots if s not in canaries), *canaries]):
            slot.spared = serving if after is not base else ()
            try:
                obtain(slot)
            except ServingError as error:
                if slot not in canaries or isinstance(error, StillLoading):
                    raise
            finally:
                slot.spared = ()

    def _finish(self, base: Entry, after: Entry) -> bool:
        """Whether what is loaded is what the model is to serve: others may have found something newer meanwhile."""
        name = base.listing.name
        moved = self._catalog.take_over(base, after)
        if moved:
            self._publish(name)
            if after is not base:
                log.info("model %s serves %s", name, ", ".join(map(str, after.versions)))
        staying = self._catalog.residents()
        for slot in base.slots:
            if slot not in staying:
                slot.leave(REPLACED)
        return moved
