"""The models of this process: what is loaded, what is being loaded, what failed. The only state there is.

Loading is single flight: however many requests want a version, it is fetched and loaded once. With an executor (ASGI
servers) `get` never blocks on a load: it raises Pending, whose future the edge awaits. Without one (Lambda, where an
instance has one request at a time) it loads on the spot.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from core import operations as ops
from core.errors import ModelNotFound, NotSupported, ServingError, UnknownLabel, VersionNotFound
from core.operations import ModelRef, State
from core.ports import Model
from handler.catalog import Catalog
from handler.flights import Flight, Pending
from handler.patience import Patience
from handler.repository import Repository
from handler.settings import Settings
from handler.slots import Slot
from handler.stores import open_store

log = logging.getLogger(__name__)


class Registry:
    """Implements core.ports.Models.

    `patience`: until when loads on the spot may go on, for who has one request at a time to set before each. `flown`:
    the last such load, for who measures a request to take away.
    """

    patience: Patience | None = None
    flown: Flight | None = None

    def __init__(self, settings: Settings, executor: Executor | None = None) -> None:
        self._settings = settings
        self._repository = Repository(open_store(settings))
        self._catalog = Catalog(self._repository, settings.default_model)
        self._executor = executor
        self._lock = threading.Lock()
        self._ready: dict[ModelRef, Slot] = {}
        self._flights: dict[Any, Flight] = {}
        self._online = True
        self._preloaded: tuple[str, ...] | None = None if "*" in settings.preload else settings.preload

    # -- asking -------------------------------------------------------------------------------------------------------

    def server(self) -> ops.ServerInfo:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms of cold start

        try:
            number = version("dragoman")
        except PackageNotFoundError:  # run from a tree that was never installed
            number = "0"
        return ops.ServerInfo(self._settings.name, number)

    def ready(self) -> ops.Readiness:
        if not self._online:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason="set offline")
        try:
            self._repository.check()
            if self._missing():
                self.preload()  # what failed is due again after its pause; no request may come before we are ready
            missing = self._missing()
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        if not missing:
            return ops.Readiness(ready=True)
        reason = "; ".join(f"{name}: {self.readiness(ModelRef(name)).reason}" for name in missing[:8])
        return ops.Readiness(ready=False, state=State.LOADING, reason=f"models not loaded: {reason}")

    def set_online(self, *, online: bool) -> None:
        if self._settings.grps_health_control == "off":
            raise NotSupported(
                "online and offline are not supported here: instances come and go by themselves, and none speaks for "
                "the others (DRAGOMAN_GRPS_HEALTH_CONTROL=off)"
            )
        self._online = online

    def custom(self, path: str) -> Mapping[str, Sequence[str]]:
        """The models that answer whole requests on the path, with the methods that they take. Raises ServingError."""
        return self._catalog.custom(path)

    def _missing(self) -> list[str]:
        return [name for name in self._wanted() if not self.readiness(ModelRef(name)).ready]

    def names(self) -> Sequence[str]:
        return sorted({*self._repository.models(), *self._loaded_names()})

    def _loaded_names(self) -> set[str]:
        return {slot.name for slot in list(self._ready.values())}

    def index(self) -> Sequence[ops.IndexEntry]:
        return [entry for name in self.names() for entry in self._index_of(name)]

    def _index_of(self, name: str) -> Iterator[ops.IndexEntry]:
        try:
            entry = self._catalog.entry(name) if name in self._loaded_names() else self._catalog.look(name, None)
        except ServingError as error:
            yield ops.IndexEntry(name, "", State.UNAVAILABLE, error.message)
            return
        for slot in entry.versions.values():
            yield slot.entry

    def readiness(self, ref: ModelRef) -> ops.Readiness:
        if ref in self._ready:
            return ops.Readiness(ready=True)
        try:
            slot = self._catalog.slot(ref)
        except (ModelNotFound, VersionNotFound):
            raise
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        return ops.Readiness(slot.model is not None, slot.state, slot.reason)

    def describe(self, ref: ModelRef) -> ops.ModelInfo:
        spec = self.get(ref).spec
        return ops.ModelInfo(spec, tuple(str(number) for number in self._catalog.entry(spec.name).versions))

    def status(self, ref: ModelRef) -> ops.StatusResult:
        try:
            wanted = self._catalog.slot(ref)
            entry = self._catalog.entry(ref.name)
        except ModelNotFound:
            return ops.StatusResult(())
        except VersionNotFound as error:
            return ops.StatusResult((), missing=error.version)
        except UnknownLabel:
            raise
        except ServingError as error:  # the store does not answer, or the settings are wrong
            failed = ops.IndexEntry(ref.name, ref.version or "0", State.UNAVAILABLE, error.message, error.fault)
            return ops.StatusResult((failed,))
        every = ref.version is None and ref.label is None
        slots = entry.versions.values() if every else (wanted,)
        entries = tuple(slot.entry for slot in slots)
        return ops.StatusResult(entries, wanted.model is not None, v1_dialect=entry.said.v1_dialect)

    def statistics(self, ref: ModelRef | None) -> Sequence[ops.Statistics]:
        if ref is None:
            return [slot.statistics for slot in self.known()]
        if ref.version is not None:
            return [self._catalog.slot(ref).statistics]
        return [slot.statistics for slot in self._catalog.entry(ref.name).versions.values()]

    def known(self) -> Sequence[Slot]:
        """What this process has looked at so far, without asking the repository."""
        return self._catalog.known()

    def load_seconds(self, name: str, version: str) -> float | None:
        """How long the last load of a version took, None if it has not been loaded here."""
        entry = self._catalog.entries.get(name)
        slot = None if entry is None else entry.find(version)
        return slot.load_seconds if slot is not None and slot.load_seconds else None

    def record(self, ref: ModelRef, durations: Sequence[int], size: int, *, success: bool) -> None:
        """One inference: nanoseconds in the queue, for decoding, for the model, for encoding; `size` of its body."""
        slot = self._ready.get(ref)
        if slot is not None:
            slot.record(durations, size, success=success)

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Whether a request of `size` bytes is so sure to be short that it need not change threads."""
        slot = self._ready.get(ref)
        return slot is not None and slot.is_quick(size)

    # -- loading ------------------------------------------------------------------------------------------------------

    def get(self, ref: ModelRef) -> Model:
        """The loaded model. Raises Pending while it is being loaded elsewhere, ServingError if it cannot be."""
        slot = self._ready.get(ref)
        model = None if slot is None else slot.model  # another thread may just be unloading it
        return model or self._now_or_later(ref, ref.name, lambda flight: self._obtain(ref, flight), final=False)

    def load(self, name: str) -> None:
        """Look at the repository again and load what it says, whether or not an earlier load failed or succeeded."""
        self._now_or_later(("load", name), name, lambda flight: self._reload(name, flight), final=True)

    def unload(self, name: str) -> None:
        for slot in self._catalog.entry(name).versions.values():
            slot.empty()
        self._publish(name)

    def preload(self) -> None:
        """Start loading what the settings ask for; what fails stands in readiness and index."""
        try:
            names = self._wanted()
        except ServingError as error:
            log.warning("preload: %s", error.message)
            return
        for name in names:
            if self.patience is not None and self.patience.left < 0:
                log.info("preload of %s is left to the first request for it", name)
                continue
            try:
                self.get(ModelRef(name))
            except Pending:
                pass
            except ServingError as error:
                log.warning("preload of %s: %s", name, error.message)
        self.flown = None

    def disconnect(self) -> None:
        """Drop what a copy of this process's memory could not use: connections, and what they were opened with."""
        self._repository.disconnect()

    def restored(self) -> None:
        """Elsewhere and later than it was loaded: look whether what is here is still the newest that there is."""
        for slot in self._catalog.known():
            slot.forgive()
        self._catalog.forget_paths()
        for name in sorted(self._loaded_names()):
            try:
                self._renew(name)
            except ServingError as error:
                log.warning("after a restore: %s; what is loaded serves on", error.message)
        self.flown = None

    def _renew(self, name: str) -> None:
        known = {slot.version: slot.model for slot in self._catalog.entries[name].versions.values()}
        newest = self._catalog.look(name, None).newest
        if known.get(newest.version) is None:
            newest.fill(self._repository, self._settings, self.patience)
            self._publish(name)

    def _wanted(self) -> tuple[str, ...]:
        if self._preloaded is None:
            self._preloaded = tuple(self._repository.models())
        return self._preloaded

    def _now_or_later(self, key: Any, name: str, work: Callable[[Flight], Any], *, final: bool) -> Any:
        if self._executor is None:
            self.flown = Flight(name)
            return self.flown.here(work)
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = Flight(name)
                flight.future = self._executor.submit(flight.here, work)
                self._flights[key] = flight
                flight.future.add_done_callback(lambda _: self._flights.pop(key, None))
        raise Pending(flight, final=final)

    def _obtain(self, ref: ModelRef, flight: Flight) -> Model:
        slot = flight.slot = self._catalog.slot(ref)
        model = slot.obtain(self._repository, self._settings, self.patience)
        self._publish(slot.name)
        with self._lock:
            self._ready[ref] = slot  # under the client's own way of naming it, too
        return model

    def _reload(self, name: str, flight: Flight) -> None:
        for slot in self._catalog.look(name, None).versions.values():
            flight.slot = slot
            slot.fill(self._repository, self._settings, self.patience)
        self._publish(name)

    def _publish(self, name: str) -> None:
        """Make what is loaded of a model findable without a lock, its newest version without a number."""
        with self._lock:
            slots = self._catalog.entries[name].versions
            for ref in [ref for ref, slot in self._ready.items() if slot.name == name]:
                del self._ready[ref]
            for number, slot in slots.items():
                if slot.model is not None:
                    self._ready[ModelRef(name, str(number))] = slot
            newest = self._catalog.entries[name].newest
            if newest.model is not None:
                self._ready[ModelRef(name)] = newest
            for label, number in self._catalog.entries[name].said.version_labels.items():
                labelled = slots.get(number)
                if labelled is not None and labelled.model is not None:
                    self._ready[ModelRef(name, None, label)] = labelled
