"""The models of this process: what is loaded, what is being loaded, what failed. Implements core.ports.Models.

Each version owns its state (versions), the catalog knows what a reference means, rollout what has to be loaded next,
and single_flight lets one thing at a time be done for each model. This module is where they meet.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final

from core import operations as ops
from core.deadline import NEVER, Deadline
from core.errors import ModelNotFound, NotSupported, ServingError, VersionNotFound
from core.operations import ModelRef, State
from core.ports import Context
from core.statistics import Series, Statistics
from handler.lifecycle import models
from handler.lifecycle.catalog import Catalog, wanted_of
from handler.lifecycle.custom_paths import CustomPaths
from handler.lifecycle.index import Index
from handler.lifecycle.loading import Loading
from handler.lifecycle.models import CanarySplit, stable
from handler.lifecycle.particulars import Particulars, ProcessState, particulars
from handler.lifecycle.pipelines.steps import Steps
from handler.lifecycle.preload import Preloaded, listed
from handler.lifecycle.repository import Repository
from handler.lifecycle.rollout import Rollout
from handler.lifecycle.room.budget import budget_of
from handler.lifecycle.room.disk import Disk
from handler.lifecycle.room.residents import FRESH_SECONDS, Residents
from handler.lifecycle.single_flight import Here, Load, SingleFlight
from handler.lifecycle.usage import Loaded, Trouble, series
from handler.lifecycle.versions import ServedVersion
from handler.plugins import distribution_version
from handler.settings import Settings
from handler.stores import open_store
from handler.stores.progress import Progress

LOOKERS: Final = 2
"""Threads that look names and versions up: one look at the store decides for all that wait."""


class Registry:
    """`executor`: its threads load models. Without one, loads run in the caller's thread (Lambda).

    `trouble`: returns why loaded models answer no requests, "" if they do; with a spec, why that version does not.
    """

    def __init__(self, settings: Settings, executor: Executor | None = None, trouble: Trouble = lambda _: "") -> None:
        self._settings = settings
        self._poll = settings.repository_poll or float("inf")
        self._repository = Repository(open_store(settings), direct=executor is None, is_renamed=settings.is_loose)
        self._catalog = Catalog(self._repository, settings.default_model, self._poll)
        is_one_model = settings.contract.layout == "one"
        self._preloaded = Preloaded(self._repository, self._catalog, settings.preload, is_one_model=is_one_model)
        self._index = Index(self._repository, self._catalog)
        self._paths = CustomPaths(self._repository, self._catalog)
        residents = Residents(self._catalog.residents, self._stays, FRESH_SECONDS if executor is not None else 0.0)
        self._budget = budget_of(settings.memory_limit, residents)
        self._steps = Steps(self._repository, self._catalog, self._obtain_step, has_limit=self._budget is not None)
        self._loading = Loading(self._repository, settings, Disk(residents, settings), self._budget, self._steps)
        self._rollout = Rollout(self._catalog, self._loaded, self._preloaded, self._poll)
        self._flights = Here() if executor is None else SingleFlight(executor)
        self._trouble = trouble
        # Names that possibly do not exist wait in a lane of their own, and never for a load.
        self._lookers = None if executor is None else ThreadPoolExecutor(LOOKERS, "dragoman-look")
        self._looks = self._flights if self._lookers is None else SingleFlight(self._lookers)
        self._online = True

    def _stays(self, name: str) -> bool:
        """Decides whether a model of this name stays in memory: it, or a pipeline that calls it, is preloaded."""
        return self._preloaded.includes(name) or any(map(self._preloaded.includes, self._steps.owners(name)))

    def _obtain_step(self, ref: ModelRef, load: Load, spared: Sequence[ServedVersion]) -> None:
        self._rollout.obtain(ref, 1.0, load, spared=spared)

    def _loaded(self, version: ServedVersion, progress: Progress, spared: Sequence[ServedVersion]) -> Loaded:
        loaded = self._loading.load(version, progress, spared)
        loaded.trouble = partial(self._trouble, loaded.model.spec)
        return loaded

    # -- asking -------------------------------------------------------------------------------------------------------

    def server(self) -> ops.ServerInfo:
        return ops.ServerInfo(self._settings.name, distribution_version(), self._settings.default_model)

    def series(self) -> Series:
        return series()

    def ready(self, context: Context) -> ops.Readiness:
        if not self._online:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason="set offline")
        if trouble := self._trouble(None):
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=trouble)
        try:
            self._repository.inventory.check(context.deadline)
            if self._preloaded.missing(context.deadline):
                self.preload(context)  # a failed load is due again after its pause, and no request comes before that
            missing = self._preloaded.missing(context.deadline)
            if not missing:
                self._repository.inventory.confirm(context.deadline)
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        reason = f"models not loaded: {listed(missing)}" if missing else ""
        return ops.Readiness(not missing, State.LOADING if missing else State.READY, reason)

    def set_online(self, *, online: bool) -> None:
        if self._settings.grps_health_control == "off":
            raise NotSupported(
                "online and offline are not supported here: instances come and go by themselves, and none speaks for "
                "the others (DRAGOMAN_GRPS_HEALTH_CONTROL=off)"
            )
        self._online = online

    def custom(self, path: str, deadline: Deadline = NEVER) -> Mapping[str, Sequence[str]]:
        """Returns the models that answer whole requests on the path, each with its methods. Raises ServingError."""
        return self._paths.models(path, deadline)

    def names(self, context: Context) -> Sequence[str]:
        return self._catalog.names(context.deadline)

    def index(self, context: Context) -> Sequence[ops.IndexEntry]:
        return self._index.entries(context.deadline)

    def readiness(self, ref: ModelRef, context: Context) -> ops.Readiness:
        try:
            version = stable(self._catalog.ready.get(ref) or self._catalog.resolve(ref, context.deadline))
        except (ModelNotFound, VersionNotFound):
            raise
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message, fault=error.fault)
        entry = version.entry
        return ops.Readiness(entry.state is State.READY, entry.state, entry.reason, entry.fault)

    def describe(self, ref: ModelRef, context: Context) -> ops.ModelInfo:
        use = self._use(ref, context, 1.0)
        with use as model:
            spec = model.spec
        versions = tuple(map(str, self._catalog.model(spec.name, context.deadline).versions))
        return ops.ModelInfo(spec, versions, use.parameters)

    def status(self, ref: ModelRef, context: Context) -> ops.StatusResult:
        return self._catalog.status(ref, context.deadline)

    def statistics(self, ref: ModelRef | None, context: Context) -> Sequence[Statistics]:
        return self._catalog.statistics(ref, context.deadline)

    def known(self) -> Sequence[ServedVersion]:
        """Returns the versions that this process knows so far. Does not ask the repository."""
        return self._catalog.known()

    def numbers(self, name: str) -> frozenset[str]:
        """Returns the versions of a model that this process knows. Does not ask the repository."""
        model = self._catalog.models.get(name)
        return frozenset() if model is None else frozenset(map(str, model.versions))

    def in_memory(self) -> tuple[int, int]:
        """Returns how many versions are in memory, and the bytes that their loads took, where they were measured."""
        residents = [version for version in self._catalog.residents() if version.loaded is not None]
        return len(residents), 0 if self._budget is None else sum(map(self._budget.cost, residents))

    def condition(self) -> ProcessState:
        """Returns what another process of the same server has to do to be like this one."""
        loaded = sorted((each.name, str(each.version.number)) for each in self._catalog.residents() if each.loaded)
        return ProcessState(self._online, tuple(sorted(self._preloaded.unloaded)), tuple(loaded))

    def particulars(self, name: str) -> Sequence[Particulars]:
        """Returns the particulars of a model's known versions. Does not ask the repository."""
        model = self._catalog.models.get(name)
        return [] if model is None else particulars(model, (lambda _: 0) if self._budget is None else self._budget.cost)

    def spec(self, ref: ModelRef) -> ops.ModelSpec | None:
        """Returns the spec of a version in memory; None if it is not, or if the reference is not resolved yet."""
        target = self._catalog.ready.get(ref)
        loaded = None if target is None else stable(target).loaded
        return None if loaded is None else loaded.model.spec

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Decides whether a request of `size` bytes is so sure to be short that it need not change threads."""
        target = self._catalog.ready.get(ref)
        return target is not None and target.is_quick(size)

    # -- using --------------------------------------------------------------------------------------------------------

    def use(self, ref: ModelRef, context: Context) -> Loaded:
        target = self._catalog.ready.get(ref)
        if type(target) is ServedVersion and time.monotonic() < target.due:  # nearly always
            loaded = target.use()
            if loaded is not None:
                return loaded
        return self._use(ref, context, models.draw())

    def _use(self, ref: ModelRef, context: Context, drawn: float) -> Loaded:
        """`drawn`: which request this is, from 0 to 1, of those that canaries share in; 1 never gets one."""
        renewed = False
        while True:
            target = self._catalog.ready.get(ref)
            version = target.pick(drawn) if isinstance(target, CanarySplit) else target
            loaded = None if version is None else version.use()
            if version is None and (ref.dashed or self._is_unsure(ref)):
                # A model's own look waits for its load; a look for a name that possibly does not exist does not.
                looks = self._flights if ref.dashed and self._repository.admits(ref.name, None) else self._looks
                looks.run(ref, ref.name, partial(self._rollout.find, ref), context, final=False)
            elif version is None:
                self._flights.run(ref, ref.name, partial(self._rollout.obtain, ref, drawn), context, final=False)
                renewed = True
            elif loaded is None:
                bring = partial(self._rollout.obtain_again, ref, drawn)
                self._flights.run(version, version.name, bring, context, final=False)
                renewed = True
            elif renewed or time.monotonic() < version.due:
                return loaded
            else:
                versions = (version, *(each for each in self._steps.of(version) if time.monotonic() >= each.due))
                self._rollout.renew_with(self._flights, loaded, versions, context.deadline, context)
                renewed = True

    def _is_unsure(self, ref: ModelRef) -> bool:
        """Decides whether a look has to find out first if there is such a model. Raises ServingError if there is not.

        Without threads of its own for loads a request finds that out with its load.
        """
        if self._looks is self._flights or self._catalog.is_listed(ref):
            return False
        if ref.name in self._catalog.models:
            return True
        wanted = wanted_of(ref)
        admitted = self._repository.admits(ref.name, wanted)
        if admitted is False and not self._repository.inventory.is_local:
            raise self._repository.refusal(ref.name, wanted)
        return not admitted

    # -- on demand ----------------------------------------------------------------------------------------------------

    def load(self, name: str, context: Context, *, anew: bool = True) -> bool:
        is_new = name not in self._catalog.models and not self._repository.admits(name, None)
        if is_new and self._looks is not self._flights:
            may = self._repository.inventory.may_look(name, None)  # a push can be newer than the latest look
            look = partial(self._catalog.look if may else self._catalog.model, name, NEVER)
            self._looks.run(("load", name), name, lambda _: look(), context, final=False, anew=True)
        work = partial(self._load, name, anew)
        return bool(self._flights.run(("load", name, anew), name, work, context, final=True, anew=anew))

    def _load(self, name: str, anew: bool, load: Load) -> bool:  # noqa: FBT001 - an argument of `partial`
        if not anew and name in self._catalog.loaded():
            return False
        self._forget()
        self._rollout.load(name, load)
        return True

    def _forget(self) -> None:
        """Lets the next requests look at the repository again."""
        self._repository.inventory.forget()
        self._index.forget()

    def unload(self, name: str, context: Context) -> bool:
        self._catalog.model(name, context.deadline)  # raises ModelNotFound
        was_there = name in self._catalog.loaded()
        work = partial(self._unload, name, was_there)
        if not self._flights.run_if_idle(name, work):
            self._flights.run(("unload", name), name, lambda _: work(), context, final=True)
        return was_there

    def _unload(self, name: str, was_there: bool) -> bool:  # noqa: FBT001 - the same
        self._rollout.unload(name)
        self._steps.release()
        return was_there

    def close(self) -> None:
        """Ends the threads that look names up."""
        if self._lookers is not None:
            self._lookers.shutdown(wait=False, cancel_futures=True)

    def preload(self, context: Context) -> Sequence[Load]:
        """Starts to load what the settings ask for; readiness and index show what fails.

        Returns the loads that other threads do.
        """
        return self._preloaded.start(partial(self._use, context=context, drawn=1.0), context)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Drops what a copy of this process's memory could not use: connections, and their credentials."""
        self._repository.disconnect()

    def restored(self, deadline: Deadline) -> None:
        """Checks whether the loaded versions are still the newest: the process continues elsewhere and later."""
        for version in self._catalog.residents():
            version.forgive()
        self._paths.forget()
        self._forget()
        for name in sorted(self._catalog.loaded()):
            self._rollout.renew(name, Load(name, deadline), deadline)
