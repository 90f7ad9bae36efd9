"""The models that DRAGOMAN_PRELOAD names, which the operator wants to be loaded, and to stay loaded."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from core.deadline import Deadline
from core.errors import ModelNotFound, ModelUnavailable, ServingError, some
from core.operations import ModelRef
from core.ports import Context
from handler.lifecycle.backoff import reason
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.repository import Repository
from handler.lifecycle.single_flight import Load, Pending
from handler.lifecycle.versions import ServedVersion

MOST_NAMED: Final = 8
NO_MODEL: Final = (
    "the model's folder has no model.onnx, model.py or pipeline.json, and no numbered folder with one of them"
)
log = logging.getLogger(__name__)


class Preloaded:
    """`*` among the names stands for all models that the repository has when it is first asked.

    Of each model, all versions that its policy serves are loaded, and its canaries, for which readiness does not wait.
    `unloaded`: preloaded models that a client has unloaded; readiness does not wait for them. `is_one_model`: the
    repository is the folder of one model, which has to be there.
    """

    def __init__(
        self, repository: Repository, catalog: Catalog, named: tuple[str, ...], *, is_one_model: bool = False
    ) -> None:
        self._repository = repository
        self._catalog = catalog
        self._has_star = "*" in named
        self._needs_model = is_one_model and self._has_star
        self._all: tuple[str, ...] | None = None if self._has_star else named
        self.unloaded: set[str] = set()

    def includes(self, name: str) -> bool:
        """Decides whether a model of this name stays in memory once it is loaded."""
        return name in (self._all or ())

    def keeps(self, name: str) -> bool:
        """Decides whether all versions of the model have to be in memory now."""
        return self.includes(name) and name not in self.unloaded

    def missing(self, deadline: Deadline) -> Mapping[str, str]:
        """Returns why models and versions are not in memory, by name. Raises ServingError, ModelNotFound for one.

        `*` also lists folders without files, which are not models.
        """
        missing, found = {}, bool(self.unloaded)
        for name in self._names(deadline):
            try:
                versions = self._catalog.model(name, deadline).regular
            except ModelNotFound:
                if self._has_star:
                    continue
                raise
            except ServingError as error:
                missing[name] = error.message
                continue
            found = True
            for version in versions:
                if version.loaded is None:
                    missing[_named(version, versions)] = version.reason
        if self._needs_model and not (missing or found):
            self._all = None  # it may come later
            raise ModelUnavailable(NO_MODEL)
        return missing

    def start(self, use: Callable[[ModelRef], AbstractContextManager[Any]], context: Context) -> Sequence[Load]:
        """Starts to load what is wanted, by beginning a use of it. What fails is logged, and `missing` has it.

        Returns the loads that other threads do.
        """
        loads: list[Load] = []
        try:
            names = self._names(context.deadline)
        except ServingError as error:
            log.warning("preload: %s", error.message)
            return loads
        for name in names:
            if context.deadline.left < 0:
                log.info("preload of %s is left to the first request for it", name)
                continue
            try:
                model = self._catalog.model(name, context.deadline)
            except ServingError as error:
                if not (self._has_star and isinstance(error, ModelNotFound)):
                    log.warning("preload of %s: %s", name, error.message)
                continue
            for version in dict.fromkeys((*model.regular, *model.canaries)):
                loads += _started(use, version)
        return loads

    def _names(self, deadline: Deadline) -> Sequence[str]:
        names = self._all
        if names is None:
            names = self._all = tuple(self._repository.models(deadline))
        return [name for name in names if name not in self.unloaded]


def _started(use: Callable[[ModelRef], AbstractContextManager[Any]], version: ServedVersion) -> Sequence[Load]:
    """Returns the load, if another thread does it."""
    number = str(version.version.number)
    try:
        with use(ModelRef(version.name, number)):
            pass
    except Pending as pending:
        return (pending.load,)
    except ServingError as error:
        log.warning("preload of %s version %s failed%s", version.name, number, reason(error))
    return ()


def _named(version: ServedVersion, versions: Sequence[ServedVersion]) -> str:
    return version.name if len(versions) == 1 else f"{version.name} version {version.version.number}"


def listed(missing: Mapping[str, str]) -> str:
    """Returns a line of text with the first missing versions and their reasons."""
    return some([f"{name}: {reason}" for name, reason in missing.items()], MOST_NAMED, "; ")
