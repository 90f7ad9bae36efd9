"""The models of this process: what is loaded, what is being loaded, what failed. The only state there is.

Loading is single flight: however many requests want a version, it is fetched and loaded once. With an executor (ASGI
servers) `use` never blocks on a load: it raises Pending, whose future the edge awaits. Without one (Lambda, where an
instance has one request at a time) it loads on the spot.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from core import operations as ops
from core.errors import ModelNotFound, NotSupported, ServingError, StillLoading, VersionNotFound
from core.operations import ModelRef, State
from core.ports import Model
from handler.deadlines import Patience
from handler.lifecycle import models as entries
from handler.lifecycle.budget import FRESH_SECONDS, Budget
from handler.lifecycle.catalog import Catalog, Preloaded
from handler.lifecycle.loading import Loading
from handler.lifecycle.lookup import Lookup
from handler.lifecycle.models import Split, Target
from handler.lifecycle.repository import Repository
from handler.lifecycle.rollout import Rollout
from handler.lifecycle.single_flight import Flight, Flights, Pending
from handler.lifecycle.versions import Loaded, Slot
from handler.settings import Settings
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
        self._repository = Repository(open_store(settings), lambda: self.patience and self.patience.slice)
        self._poll = settings.repository_poll or float("inf")
        self._preloaded = Preloaded(self._repository, settings.preload)
        self._catalog = Catalog(self._repository, settings.default_model, self._poll)
        fresh = FRESH_SECONDS if executor is not None else 0.0
        budget = Budget(settings.memory_limit, self._catalog.residents, self._preloaded.includes, fresh)
        self._load = Loading(self._repository, settings, budget).load
        self._rollout = Rollout(self._catalog, self._bring, self._publish, self._poll)
        self._flights = None if executor is None else Flights(executor)
        self._lookup = Lookup(self._catalog.entries)
        self._online = True

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
        return [name for name in self._preloaded.names() if not self.readiness(ModelRef(name)).ready]

    def names(self) -> Sequence[str]:
        return self._catalog.names()

    def index(self) -> Sequence[ops.IndexEntry]:
        return self._catalog.index()

    def readiness(self, ref: ModelRef) -> ops.Readiness:
        try:
            target = self._lookup.ready.get(ref) or self._catalog.resolve(ref)
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
        return self._catalog.statistics(ref)

    def known(self) -> Sequence[Slot]:
        """What this process has looked at so far, without asking the repository."""
        return self._catalog.known()

    def load_seconds(self, name: str, version: str) -> float | None:
        """How long the last load of a version took, None if it has not been loaded here."""
        return self._catalog.load_seconds(name, version)

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Whether a request of `size` bytes is so sure to be short that it need not change threads."""
        target = self._lookup.ready.get(ref)
        return target is not None and target.is_quick(size)

    # -- using --------------------------------------------------------------------------------------------------------

    def use(self, ref: ModelRef) -> Loaded:
        """The model that answers one request, in use until the end of `with`; see Slot.use.

        Raises Pending while it is being loaded elsewhere, ServingError if it cannot be.
        """
        target = self._lookup.ready.get(ref)
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
        renewed = False
        while True:
            target = self._lookup.ready.get(ref)
            slot = target.pick(drawn) if isinstance(target, Split) else target
            loaded = None if slot is None else slot.use()
            if slot is None and ref.dashed:
                self._now_or_later(ref, ref.name, partial(self._find, ref), final=False)
            elif slot is None or loaded is None:
                self._now_or_later(slot or ref, (slot or ref).name, partial(self._obtain, ref, drawn), final=False)
                renewed = True
            elif renewed or time.monotonic() < slot.due:
                return loaded
            elif self._flights is not None:
                self._renew_beside(slot)
                return loaded
            else:
                with loaded:
                    self._now_or_later(None, slot.name, partial(self._renew, slot), final=False)
                renewed = True

    def _find(self, ref: ModelRef, _: Flight) -> None:
        """Which model the words mean, whose loads take turns."""
        target = self._catalog.resolve(ref)
        self._publish(target.name, ref, target)

    def _renew(self, slot: Slot, flight: Flight) -> None:
        """Of what could answer at once: who asks waits for a slice of the work only."""
        whole, took = self.patience, slot.phases.load_ns / 1e9 if slot.phases is not None else 0.0
        try:
            self.patience = whole and whole._replace(beside=took)
            self._rollout.renew(slot.name, flight)
        finally:
            self.patience = whole

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
        self._catalog.entry(name)  # there is such a model
        if self._flights is None:
            self._unload(name)
        elif not self._flights.at_once(name, partial(self._unload, name)):
            self._now_or_later(("unload", name), name, lambda _: self._unload(name), final=True)

    def _unload(self, name: str) -> None:
        for slot in self._catalog.give_up(name).slots:
            slot.empty()
        self._preloaded.unloaded.add(name)
        self._lookup.forget(name)
        self._publish(name)

    def preload(self) -> None:
        """Start loading what the settings ask for; what fails stands in readiness and index."""
        try:
            names = self._preloaded.names()
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
        for name in sorted(self._catalog.loaded()):
            self._rollout.renew(name, Flight(name))

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
            self._rollout.renew(slot.name, flight)
        target = self._catalog.resolve(ref)
        slot = target.pick(drawn) if isinstance(target, Split) else target
        try:
            self._bring(slot, flight)
        except StillLoading:
            raise
        except ServingError:
            if ref.dashed:  # somebody may make up any number of them
                self._lookup.withdraw(ref)
            if not isinstance(target, Split) or slot is target.stable:
                raise  # and else the canary is failing now, and the stable version is picked
        if slot not in self._catalog.entry(slot.name).versions.values():  # a version that was not known before
            self._rollout.advance(slot.name, flight)
        self._publish(slot.name, ref, self._catalog.resolve(ref))

    def _publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> None:
        entry = self._lookup.publish(name, ref, target)
        if entry is not None and entry.serves:
            self._preloaded.unloaded.discard(name)
