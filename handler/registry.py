"""The models of this process: what is loaded, what is being loaded, what failed. The only state there is.

Loading is single flight: however many requests want a version, it is fetched and loaded once. With an executor (ASGI
servers) `use` never blocks on a load: it raises Pending, whose future the edge awaits. Without one (Lambda, where an
instance has one request at a time) it loads on the spot.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from core import operations as ops
from core.errors import ModelNotFound, NotSupported, ServingError, StillLoading, VersionNotFound
from core.operations import ModelRef, State
from core.ports import Model
from handler import entries
from handler.budget import FRESH_SECONDS, Budget
from handler.catalog import Catalog
from handler.entries import Split, Target
from handler.flights import Flight, Flights, Pending
from handler.loading import Loading
from handler.patience import Patience
from handler.repository import Repository
from handler.rollout import Rollout
from handler.settings import Settings
from handler.slots import Loaded, Slot
from handler.stores import open_store

log = logging.getLogger(__name__)


class Registry:
    """Implements core.ports.Models.

    `patience`: until when loads on the spot may go on, for who has one request at a time to set before each. `flown`:
    the loads on the spot since it was last taken away, for who measures a request.
    """

    patience: Patience | None = None
    flown: Flight | None = None

    def __init__(self, settings: Settings, executor: Executor | None = None) -> None:
        self._settings = settings
        self._repository = Repository(open_store(settings))
        self._poll = settings.repository_poll or float("inf")
        self._catalog = Catalog(self._repository, settings.default_model, self._poll)
        fresh = FRESH_SECONDS if executor is not None else 0.0
        budget = Budget(settings.memory_limit, self._catalog.residents, self._is_preloaded, fresh)
        self._load = Loading(self._repository, settings, budget).load
        self._rollout = Rollout(self._catalog, self._bring, self._publish, self._poll)
        self._flights = None if executor is None else Flights(executor)
        self._lock = threading.Lock()
        self._ready: dict[ModelRef, Target] = {}
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
        return {slot.name for slot in self._catalog.residents() if slot.loaded is not None}

    def _is_preloaded(self, name: str) -> bool:
        return self._preloaded is not None and name in self._preloaded

    def index(self) -> Sequence[ops.IndexEntry]:
        return [entry for name in self.names() for entry in self._index_of(name)]

    def _index_of(self, name: str) -> Iterator[ops.IndexEntry]:
        try:
            entry = self._catalog.entry(name) if name in self._loaded_names() else self._catalog.look(name, None)
        except ServingError as error:
            yield ops.IndexEntry(name, "", State.UNAVAILABLE, error.message)
            return
        yield from (self._catalog.entries.get(name) or entry).overview()

    def readiness(self, ref: ModelRef) -> ops.Readiness:
        try:
            target = self._ready.get(ref) or self._catalog.resolve(ref)
        except (ModelNotFound, VersionNotFound):
            raise
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        slot = target.stable if isinstance(target, Split) else target
        ready = slot.loaded is not None
        return ops.Readiness(ready, State.READY if ready else slot.state, "" if ready else slot.reason)

    def describe(self, ref: ModelRef) -> ops.ModelInfo:
        spec = self.get(ref).spec
        return ops.ModelInfo(spec, tuple(str(number) for number in self._catalog.entry(spec.name).versions))

    def status(self, ref: ModelRef) -> ops.StatusResult:
        return self._catalog.status(ref)

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
        return self._catalog.load_seconds(name, version)

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Whether a request of `size` bytes is so sure to be short that it need not change threads."""
        target = self._ready.get(ref)
        if isinstance(target, Split):
            return all(slot.is_quick(size) for slot in target.slots)
        return target is not None and target.is_quick(size)

    # -- using --------------------------------------------------------------------------------------------------------

    def use(self, ref: ModelRef) -> Loaded:
        """The model that answers one request, in use until the end of `with`; see Slot.use.

        Raises Pending while it is being loaded elsewhere, ServingError if it cannot be.
        """
        target = self._ready.get(ref)
        if type(target) is Slot and time.monotonic() < target.due:  # nearly always; the rest takes its time
            loaded = target.use()
            if loaded is not None:
                return loaded
        return self._use(ref, entries.draw())

    def get(self, ref: ModelRef) -> Model:
        """The model, and never a canary. Raises as `use` does."""
        with self._use(ref, 1.0) as model:
            return model

    def _use(self, ref: ModelRef, drawn: float) -> Loaded:
        """`drawn`: from 0 to 1, which request this is of those that canaries share in."""
        while True:
            target = self._ready.get(ref)
            slot = target.pick(drawn) if isinstance(target, Split) else target
            loaded = None if slot is None else slot.use()
            if slot is None or loaded is None:
                self._now_or_later(slot or ref, ref.name, partial(self._obtain, ref, drawn), final=False)
            elif time.monotonic() < slot.due:
                return loaded
            elif self._flights is not None:
                self._renew_beside(slot)
                return loaded
            else:
                with loaded:
                    self._now_or_later(None, slot.name, partial(self._renew, slot), final=False)

    def _renew(self, slot: Slot, flight: Flight) -> None:
        slot.due = time.monotonic() + self._poll  # whatever comes of it
        self._rollout.renew(slot.name, flight)

    def _renew_beside(self, slot: Slot) -> None:
        slot.due = time.monotonic() + self._poll  # for those who come meanwhile
        with suppress(Pending, RuntimeError):  # RuntimeError: the server is ending
            self._now_or_later(("renew", slot.name), slot.name, partial(self._renew, slot), final=False)

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self, name: str) -> None:
        """Look at the repository again and load what it says, whatever failed before; what is as it was stays."""
        self._now_or_later(("load", name), name, partial(self._rollout.load, name), final=True)

    def unload(self, name: str) -> None:
        """Requests that are being answered go on; the next one looks at the repository and loads what it finds."""
        entry = self._catalog.entry(name)
        slots = [*entry.versions.values(), *(entry.coming.versions.values() if entry.coming is not None else ())]
        if any(slot.is_loading for slot in slots):
            self._now_or_later(("unload", name), name, lambda _: self._unload(name, slots), final=True)
        else:
            self._unload(name, slots)

    def _unload(self, name: str, slots: Sequence[Slot]) -> None:
        self._catalog.give_up(name)
        for slot in slots:
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
                for slot in self._catalog.entry(name).targets:
                    with suppress(Pending):
                        self.get(ModelRef(name, str(slot.version.number)))
            except ServingError as error:
                log.warning("preload of %s: %s", name, error.message)
        self.flown = None

    def disconnect(self) -> None:
        """Drop what a copy of this process's memory could not use: connections, and what they were opened with."""
        self._repository.disconnect()

    def restored(self) -> None:
        """Elsewhere and later than it was loaded: look whether what is here is still the newest that there is."""
        for slot in self._catalog.residents():
            slot.forgive()
        self._catalog.forget_paths()
        for name in sorted(self._loaded_names()):
            self._rollout.renew(name, Flight(name))

    def _wanted(self) -> tuple[str, ...]:
        if self._preloaded is None:
            self._preloaded = tuple(self._repository.models())
        return self._preloaded

    def _now_or_later(self, key: Any, name: str, work: Callable[[Flight], Any], *, final: bool) -> None:
        if self._flights is not None:
            raise Pending(self._flights.join(key, name, work), final=final)
        self.flown = self.flown or Flight(name)
        self.flown.here(work)

    def _bring(self, slot: Slot, flight: Flight, *, at_once: bool = False) -> None:
        if slot.loaded is None:
            flight.slot = slot
        slot.obtain(self._load, self.patience, at_once=at_once)

    def _obtain(self, ref: ModelRef, drawn: float, flight: Flight) -> None:
        """Load what the reference means; at the end it is ready, or there is a reason why not."""
        slot = self._catalog.slot(ref)
        if time.monotonic() >= slot.due:
            self._renew(slot, flight)
        target = self._catalog.resolve(ref)
        slot = target.pick(drawn) if isinstance(target, Split) else target
        try:
            self._bring(slot, flight)
        except ServingError as error:
            if not isinstance(target, Split) or slot is target.stable or isinstance(error, StillLoading):
                raise  # and else the canary is failing now, and the stable version is picked
        if slot not in self._catalog.entry(slot.name).versions.values():  # a version that was not known before
            self._rollout.advance(slot.name, flight)
        self._publish(slot.name, ref, self._catalog.resolve(ref))

    def _publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> None:
        """Make what serves of a model findable without a lock, in one step; `ref`: in these words of a client, too."""
        with self._lock:
            entry = self._catalog.entries.get(name)
            ready = {known: other for known, other in self._ready.items() if other.name != name}
            ready |= entry.served() if entry is not None else {}
            self._ready = ready if ref is None or target is None else {**ready, ref: target}
