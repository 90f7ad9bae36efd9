"""What the repository is known to hold, and which version of it a client means."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from core.errors import InvalidInput, ModelNotFound, ServingError, UnknownLabel, VersionNotFound, shown
from core.operations import ModelRef
from handler.model_settings import CustomPath
from handler.repository import VERSION, Repository
from handler.slots import Entry, Slot

CUSTOM_SECONDS: Final = 10.0
"""How long a path that no model has named is known to be nobody's: finding out lists the repository."""


class Catalog:
    """`entries`: models that have been looked at, by name. `default_model`: what GRPS requests mean that name none."""

    def __init__(self, repository: Repository, default_model: str) -> None:
        self._repository = repository
        self._default_model = default_model
        self._lock = threading.Lock()
        self._custom: Mapping[str, Mapping[str, Sequence[str]]] = {}
        self._custom_until = float("-inf")
        self.entries: dict[str, Entry] = {}

    def known(self) -> Sequence[Slot]:
        """What this process has looked at so far, without asking the repository."""
        return [slot for _, entry in sorted(self.entries.items()) for slot in entry.versions.values()]

    def entry(self, name: str) -> Entry:
        return self.entries.get(name) or self.look(name, None)

    def look(self, name: str, wanted: int | None) -> Entry:
        """List a model again; versions whose files are the same keep what is known of them."""
        try:
            listing = self._repository.look(name, wanted)
        except ModelNotFound:
            self._forget(name)
            raise
        with self._lock:
            entry = self.entries[name] = Entry.of(listing, self.entries.get(name))
        return entry

    def _forget(self, name: str) -> None:
        """A model that has left the repository: loaded versions go on serving, the rest is dropped."""
        entry = self.entries.get(name)
        if entry is not None and all(slot.model is None for slot in entry.versions.values()):
            del self.entries[name]

    def slot(self, ref: ModelRef) -> Slot:
        """Raises ModelNotFound, VersionNotFound, UnknownLabel, and what listing a model raises."""
        if ref.dashed:
            return self._selected(ref.name or self._default())
        entry = self.entry(ref.name)
        if ref.label is not None:
            return self._labelled(entry, ref.name, ref.label)
        if ref.version is None or (ref.version == "0" and ref.zero_is_newest and 0 not in entry.versions):
            return entry.newest
        if not VERSION.fullmatch(ref.version) or str(int(ref.version)) != ref.version:
            text = f"model {ref.name!r} has no version {shown(ref.version)}: versions are numbers"
            raise VersionNotFound(text, ref.version)
        # A version that is not known may have been published since.
        slot = entry.find(ref.version) or self.look(ref.name, int(ref.version)).find(ref.version)
        if slot is None:
            served = ", ".join(map(str, self.entry(ref.name).versions))
            raise VersionNotFound(f"model {ref.name!r} has no version {ref.version}; it serves {served}", ref.version)
        return slot

    def _selected(self, selector: str) -> Slot:
        """GRPS's name-version, where a name may hold dashes, too; else a name."""
        name, _, version = selector.rpartition("-")
        try:
            if name and VERSION.fullmatch(version):
                return self.slot(ModelRef(name, str(int(version))))
        except ModelNotFound:
            pass  # the dash may be part of the name
        except VersionNotFound:
            if selector not in self._repository.models():
                raise
        return self.slot(ModelRef(selector))

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
            paths: dict[str, dict[str, Sequence[str]]] = {}
            for name in self._repository.models():
                said = self._http_of(name)
                if said is not None:
                    paths.setdefault(said.path, {})[name] = said.methods
            self._custom, self._custom_until = paths, now + CUSTOM_SECONDS
        return self._custom.get(path, {})

    def forget_paths(self) -> None:
        """Their time was measured on a clock that may be another now."""
        self._custom_until = float("-inf")

    def _http_of(self, name: str) -> CustomPath | None:
        try:
            return self.entry(name).said.http
        except ServingError:  # the index says it
            return None

    def _labelled(self, entry: Entry, name: str, label: str) -> Slot:
        number = entry.said.version_labels.get(label)
        if number is None:
            raise UnknownLabel(f"Unrecognized servable version label: {label[:256]}")
        return self.slot(ModelRef(name, str(number)))
