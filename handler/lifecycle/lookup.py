"""What every reference of a client means at this moment, for requests to look up without a lock."""

import threading
from collections.abc import Mapping

from core.operations import ModelRef
from handler.lifecycle.models import Entry, Target


class Lookup:
    """`ready`: replaced as a whole, never changed. `entries`: by model, as they are at any moment."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.ready: dict[ModelRef, Target] = {}
        self._entries = entries
        self._before: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> Entry | None:
        """Make what serves of a model findable in one step, in the words of `ref`, too. Gives the model's entry.

        Words go on to mean what they did until the entry is another. There are few: a version has 18 digits at most.
        """
        with self._lock:
            entry, before = self._entries.get(name), self._before.get(name)
            if entry is None or before is None or not entry.is_like(before):
                ready = {known: other for known, other in self.ready.items() if other.name != name}
            else:
                ready = dict(self.ready)
            if entry is not None:
                self._before[name] = entry
                ready |= entry.served()
            if ref is not None and target is not None:
                ready[ref] = target
            self.ready = ready
        return entry

    def withdraw(self, ref: ModelRef) -> None:
        """It has come to mean nothing."""
        with self._lock:
            self.ready = {known: target for known, target in self.ready.items() if known != ref}

    def forget(self, name: str) -> None:
        """What the model's other names mean is to be looked up again."""
        with self._lock:
            self._before.pop(name, None)
