"""The models of this process: what is loaded, what is being loaded, what failed. Implements core.ports.Models.

Each version owns its state (versions), the catalog knows what a reference means, rollout what has to be loaded next,
and single_flight lets one thing at a time be done for each model. This module is where they meet.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from core import operations as ops
from core.deadline import NEVER, Deadline
from core.errors import ModelNotFound, NotSupported, ServingError, VersionNotFound
from core.operations import ModelRef, State
from core.ports import Context
from handler.lifecycle import budget, models
from handler.lifecycle.budget import FRESH_SECONDS, Budget
from handler.lifecycle.catalog import Catalog, stable
from handler.lifecycle.custom_paths import CustomPaths
from handler.lifecycle.loading import Loading
from handler.lifecycle.models import CanarySplit
from handler.lifecycle.preload import Preloaded
from handler.lifecycle.repository import Repository
from handler.lifecycle.rollout import Rollout
from handler.lifecycle.single_flight import Here, Load, Pending, SingleFlight
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import ServedVersion
from handler.settings import Settings
from handler.stores import open_store

log = logging.getLogger(__name__)


class Registry:
    """`executor`: its threads load models. Without one, loads run in the caller's thread (Lambda)."""

    def __init__(self, settings: Settings, executor: Executor | None = None) -> None:
        self._settings = settings
        self._poll = settings.repository_poll or float("inf")
        self._repository = Repository(open_store(settings))
        self._preloaded = Preloaded(self._repository, settings.preload)
        self._catalog = Catalog(self._repository, settings.default_model, self._poll)
        self._paths = CustomPaths(self._repository, self._catalog)
        limit = budget.limit_of(settings.memory_limit)
        fresh = FRESH_SECONDS if executor is not None else 0.0
        memory = limit and Budget(limit, self._catalog.residents, self._preloaded.includes, fresh)
        loading = Loading(self._repository, settings, memory or None)
        self._rollout = Rollout(self._catalog, loading.load, self._preloaded, self._poll)
        self._flights = Here() if executor is None else SingleFlight(executor)
        self._online = True

    # -- asking -------------------------------------------------------------------------------------------------------

    def server(self) -> ops.ServerInfo:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms of cold start

        try:
            number = version("dragoman")
        except PackageNotFoundError:  # run from a tree that was never installed
            number = "0"
        return ops.ServerInfo(self._settings.name, number)

    def ready(self, context: Context) -> ops.Readiness:
        if not self._online:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason="set offline")
        try:
            self._repository.check(context.deadline)
            if self._missing(context):
                self.preload(context)  # a failed load is due again after its pause, and no request comes before that
            missing = self._missing(context)
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        if not missing:
            return ops.Readiness(ready=True)
        reason = "; ".join(f"{name}: {self.readiness(ModelRef(name), context).reason}" for name in missing[:8])
        return ops.Readiness(ready=False, state=State.LOADING, reason=f"models not loaded: {reason}")

    def _missing(self, context: Context) -> list[str]:
        names = self._preloaded.names(context.deadline)
        return [name for name in names if not self.readiness(ModelRef(name), context).ready]

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
        return self._catalog.index(context.deadline)

    def readiness(self, ref: ModelRef, context: Context) -> ops.Readiness:
        try:
            target = self._catalog.ready.get(ref) or self._catalog.resolve(ref, context.deadline)
        except (ModelNotFound, VersionNotFound):
            raise
        except ServingError as error:
            return ops.Readiness(ready=False, state=State.UNAVAILABLE, reason=error.message)
        version = stable(target)
        ready = version.loaded is not None
        return ops.Readiness(ready, State.READY if ready else version.state, "" if ready else version.reason)

    def describe(self, ref: ModelRef, context: Context) -> ops.ModelInfo:
        with self._use(ref, context, 1.0) as model:
            spec = model.spec
        return ops.ModelInfo(spec, tuple(map(str, self._catalog.model(spec.name, context.deadline).versions)))

    def status(self, ref: ModelRef, context: Context) -> ops.StatusResult:
        return self._catalog.status(ref, context.deadline)

    def statistics(self, ref: ModelRef | None, context: Context) -> Sequence[ops.Statistics]:
        return self._catalog.statistics(ref, context.deadline)

    def known(self) -> Sequence[ServedVersion]:
        """Returns the versions that this process has looked at so far. Does not ask the repository."""
        return self._catalog.known()

    def load_seconds(self, name: str, version: str) -> float | None:
        """Returns how long the last load of a version took; None if it has not been loaded here."""
        return self._catalog.load_seconds(name, version)

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
            if version is None and ref.dashed:
                self._flights.run(ref, ref.name, partial(self._rollout.find, ref), context, final=False)
            elif version is None or loaded is None:
                key, name = (ref, ref.name) if version is None else (version, version.name)
                self._flights.run(key, name, partial(self._rollout.obtain, ref, drawn), context, final=False)
                renewed = True
            elif renewed or time.monotonic() < version.due:
                return loaded
            else:
                self._renew_with(loaded, version, context)
                renewed = True

    def _renew_with(self, loaded: Loaded, version: ServedVersion, context: Context) -> None:
        """Looks for newer versions, while the loaded one could answer at once."""
        if isinstance(self._flights, Here):
            took = version.progress.load_ns / 1e9 if version.progress is not None else 0.0
            deadline = context.deadline._replace(beside=took)
            work = partial(self._rollout.renew, version.name, deadline=deadline)
            with loaded:
                self._flights.run(None, version.name, work, context, final=False)
            return
        version.look_again(time.monotonic() + self._poll)  # requests that come meanwhile do not look
        with suppress(Pending, RuntimeError):  # RuntimeError: the server is ending
            work = partial(self._rollout.renew, version.name, deadline=NEVER)
            self._flights.run(("renew", version.name), version.name, work, context, final=False)

    # -- on demand ----------------------------------------------------------------------------------------------------

    def load(self, name: str, context: Context) -> None:
        self._flights.run(("load", name), name, partial(self._rollout.load, name), context, final=True)

    def unload(self, name: str, context: Context) -> None:
        self._catalog.model(name, context.deadline)  # raises ModelNotFound
        work = partial(self._rollout.unload, name)
        if not self._flights.at_once(name, work):
            self._flights.run(("unload", name), name, lambda _: work(), context, final=True)

    def preload(self, context: Context) -> None:
        """Starts to load what the settings ask for; readiness and index show what fails."""
        try:
            names = self._preloaded.names(context.deadline)
        except ServingError as error:
            log.warning("preload: %s", error.message)
            return
        for name in names:
            if context.deadline.left < 0:
                log.info("preload of %s is left to the first request for it", name)
                continue
            try:
                self._preload(self._catalog.model(name, context.deadline).targets, context)
            except ServingError as error:
                log.warning("preload of %s: %s", name, error.message)

    def _preload(self, versions: Iterable[ServedVersion], context: Context) -> None:
        for version in versions:
            with suppress(Pending), self._use(ModelRef(version.name, str(version.version.number)), context, 1.0):
                pass

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Drops what a copy of this process's memory could not use: connections, and their credentials."""
        self._repository.disconnect()

    def restored(self, deadline: Deadline) -> None:
        """Looks whether what is loaded is still the newest: the process goes on elsewhere and later."""
        for version in self._catalog.residents():
            version.forgive()
        self._paths.forget()
        for name in sorted(self._catalog.loaded()):
            self._rollout.renew(name, Load(name, deadline), deadline)
