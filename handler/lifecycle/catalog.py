"""What the repository is known to hold, and which version of it a client means."""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from core.errors import InvalidInput, ModelNotFound, ServingError, UnknownLabel, VersionNotFound, shown
from core.operations import IndexEntry, ModelRef, State, Statistics, StatusResult
from handler.lifecycle.models import Entry, Split, Target
from handler.lifecycle.repository import VERSION, Repository
from handler.lifecycle.versions import Slot
from handler.settings.model import CustomPath

CUSTOM_SECONDS: Final = 10.0
"""How long a path that no model has named is known to be nobody's: finding out lists the repository."""


class Preloaded:
    """What DRAGOMAN_PRELOAD names; `*` means all models that there are when it is first asked.

    `unloaded`: by call, and not loaded again since.
    """

    def __init__(self, repository: Repository, named: tuple[str, ...]) -> None:
        self._repository = repository
        self._all: tuple[str, ...] | None = None if "*" in named else named
        self.unloaded: set[str] = set()

    def includes(self, name: str) -> bool:
        """Whether a model of this name stays, once it is loaded."""
        return self._all is not None and name in self._all

    def names(self) -> Sequence[str]:
        """Of the models that have to be loaded. Raises ServingError."""
        if self._all is None:
            self._all = tuple(self._repository.models())
        return [name for name in self._all if name not in self.unloaded]


class Catalog:
    """`entries`: models that have been looked at, by name. `default_model`: what GRPS requests mean that name none.

    `poll`: seconds after a look until the next is due.
    """

    def __init__(self, repository: Repository, default_model: str, poll: float = float("inf")) -> None:
        self._repository = repository
        self._default_model = default_model
        self._poll = poll
        self._lock = threading.Lock()
        self._looks = itertools.count()
        self._custom: Mapping[str, Mapping[str, Sequence[str]]] = {}
        self._custom_until = float("-inf")
        self.entries: dict[str, Entry] = {}

    def known(self) -> Sequence[Slot]:
        """What this process has looked at so far, without asking the repository."""
        return [slot for _, entry in sorted(self.entries.items()) for slot in entry.versions.values()]

    def statistics(self, ref: ModelRef | None) -> Sequence[Statistics]:
        if ref is None:
            return [slot.statistics for slot in self.known()]
        if ref.version is not None:
            return [self.slot(ref).statistics]
        return [slot.statistics for slot in self.entry(ref.name).versions.values()]

    def load_seconds(self, name: str, version: str) -> float | None:
        entry = self.entries.get(name)
        slot = None if entry is None else entry.find(version)
        return slot.load_seconds if slot is not None and slot.load_seconds else None

    def residents(self) -> Sequence[Slot]:
        """What may be in memory: what serves, and what is coming."""
        return [slot for entry in list(self.entries.values()) for slot in entry.slots]

    def names(self) -> Sequence[str]:
        return sorted({*self._repository.models(), *self.loaded()})

    def loaded(self) -> set[str]:
        """The models of which a version is in memory."""
        return {slot.name for slot in self.residents() if slot.loaded is not None}

    def index(self) -> Sequence[IndexEntry]:
        """Every model, looked at again if it is not in memory."""
        loaded = self.loaded()
        return [told for name in self.names() for told in self._told(name, is_loaded=name in loaded)]

    def _told(self, name: str, *, is_loaded: bool) -> Iterator[IndexEntry]:
        try:
            entry = self.entry(name) if is_loaded else self.look(name)
        except ServingError as error:
            yield IndexEntry(name, "", State.UNAVAILABLE, error.message)
            return
        yield from (self.entries.get(name) or entry).overview()

    def entry(self, name: str, wanted: int | None = None) -> Entry:
        return self.entries.get(name) or self.look(name, wanted)

    def look(self, name: str, wanted: int | None = None) -> Entry:
        """List a model again: what is found is the entry at once where the model does not serve yet, else `coming`."""
        number = next(self._looks)
        try:
            listing = self._repository.look(name, wanted)
        except ServingError as error:
            self._miss(name, number, error)
            raise
        with self._lock:
            known = self.entries.get(name)
            if known is not None and known.look > number and not listing.partial:
                return known.coming or known  # who began later has seen what is newer
            found = Entry.of(listing, known, number, time.monotonic() + self._poll)
            if known is None or not known.serves:
                self.entries[name] = found
            else:
                coming = None if found.is_like(known) else found
                self.entries[name] = known._replace(look=number, coming=coming, trouble="")
        return found

    def take_over(self, base: Entry, after: Entry) -> bool:
        """Let what was coming, and is loaded, take the entry's place. False if the entry or what is coming is another.

        `after`: the entry itself, if nothing was coming.
        """
        name = base.listing.name
        with self._lock:
            known = self.entries.get(name)
            if known is None or known.versions != base.versions:
                return False
            found = known.coming or known
            if not found.is_like(after):
                return False
            self.entries[name] = found
        return True

    def give_up(self, name: str) -> Entry:
        """What was coming is no longer wanted, and the next request looks again. Gives the entry as it was."""
        entry = self.entry(name)
        with self._lock:
            entry = self.entries.get(name, entry)
            self.entries[name] = entry._replace(coming=None)
        self.put_off(name, float("-inf"))
        return entry

    def put_off(self, name: str, until: float) -> None:
        """The repository is due to be looked at again `until`, on time.monotonic."""
        entry = self.entries.get(name)
        for slot in entry.versions.values() if entry is not None else ():
            slot.due = until

    def _miss(self, name: str, number: int, error: ServingError) -> None:
        """What is loaded goes on serving, and the index says why; the rest of a model that has left is dropped."""
        with self._lock:
            entry = self.entries.get(name)
            if entry is None or entry.look > number:
                return
            if isinstance(error, ModelNotFound) and all(slot.loaded is None for slot in entry.versions.values()):
                del self.entries[name]
            else:
                self.entries[name] = entry._replace(trouble=error.message)

    def slot(self, ref: ModelRef) -> Slot:
        """Of those that a request may get, the one that is no canary. Raises as `resolve` does."""
        target = self.resolve(ref)
        return target.stable if isinstance(target, Split) else target

    def resolve(self, ref: ModelRef) -> Target:
        """Raises ModelNotFound, VersionNotFound, UnknownLabel, and what listing a model raises."""
        if ref.dashed:
            return self._selected(ref.name or self._default())
        version = ref.version if ref.version is not None and VERSION.fullmatch(ref.version) else None
        entry = self.entry(ref.name, None if version is None else int(version))
        if ref.label is not None:
            return self._labelled(entry, ref.name, ref.label)
        if ref.version is None or (ref.version == "0" and ref.zero_is_newest and 0 not in entry.versions):
            return entry.target
        if version is None or str(int(version)) != version:
            text = f"model {ref.name!r} has no version {shown(ref.version)}: versions are numbers"
            raise VersionNotFound(text, ref.version)
        # A version that is not known may have been published since.
        slot = entry.find(version) or self.look(ref.name, int(version)).find(version)
        if slot is None:
            served = ", ".join(map(str, self.entry(ref.name).versions))
            raise VersionNotFound(f"model {ref.name!r} has no version {ref.version}; it serves {served}", ref.version)
        return slot

    def status(self, ref: ModelRef) -> StatusResult:
        """Raises UnknownLabel."""
        try:
            wanted = self.slot(ref)
            entry = self.entry(ref.name)
        except ModelNotFound:
            return StatusResult(())
        except VersionNotFound as error:
            return StatusResult((), missing=error.version)
        except UnknownLabel:
            raise
        except ServingError as error:  # the store does not answer, or the settings are wrong
            failed = IndexEntry(ref.name, ref.version or "0", State.UNAVAILABLE, error.message, error.fault)
            return StatusResult((failed,))
        every = ref.version is None and ref.label is None
        told = tuple(entry.overview()) if every else (wanted.entry,)
        return StatusResult(told, wanted.loaded is not None, v1_dialect=entry.said.v1_dialect)

    def _selected(self, selector: str) -> Target:
        """GRPS's name-version, where a name may hold dashes, too; else a name."""
        name, _, version = selector.rpartition("-")
        try:
            if name and VERSION.fullmatch(version):
                return self.resolve(ModelRef(name, str(int(version))))
        except ModelNotFound:
            pass  # the dash may be part of the name
        except VersionNotFound:
            if selector not in self._repository.models():
                raise
        return self.resolve(ModelRef(selector))

    def _default(self) -> str:
        if self._default_model:
            return self._default_model
        names = self._repository.models()
        if len(names) != 1:
            known = ", ".join(names[:16]) or "none"
            raise InvalidInput(
                f"no model is named, and none is the default; known are: {known} (DRAGOMAN_DEFAULT_MODEL)"
            )
        return names[0]

    def custom(self, path: str) -> Mapping[str, Sequence[str]]:
        """The models that answer whole requests on a path, and with which methods; as it was some seconds ago."""
        now = time.monotonic()
        if now > self._custom_until:
            with suppress(ServingError):  # while the store does not answer, what it said last counts
                self._custom = self._customs()
            self._custom_until = now + CUSTOM_SECONDS
        return self._custom.get(path, {})

    def _customs(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """By path. Raises what listing the repository raises."""
        paths: dict[str, dict[str, Sequence[str]]] = {}
        for name in self._repository.models():
            said = self._http_of(name)
            if said is not None:
                paths.setdefault(said.path, {})[name] = said.methods
        return paths

    def forget_paths(self) -> None:
        """Their time was measured on a clock that may be another now."""
        self._custom_until = float("-inf")

    def _http_of(self, name: str) -> CustomPath | None:
        try:
            return self.entry(name).said.http
        except ServingError:  # the index says it
            return None

    def _labelled(self, entry: Entry, name: str, label: str) -> Target:
        number = entry.said.version_labels.get(label)
        if number is None:
            raise UnknownLabel(f"Unrecognized servable version label: {label[:256]}")
        return self.resolve(ModelRef(name, str(number)))
