"""The models as one caller sees them: others are refused, and every listing leaves them out.

A refusal comes before the store is asked, so that it reads the same whether the model exists or not.
"""

from collections.abc import Sequence
from typing import Final

from core import operations as ops
from core.errors import NotPermitted, ServingError, Unauthenticated, shown, some
from core.operations import ModelRef, ModelSpec
from core.ports import Context, Use
from core.statistics import Series, Statistics
from core.wire import Right
from handler.edge.exchange import Scope
from handler.edge.gate.identity import Caller
from handler.edge.gate.refusals import UNKNOWN_CALLER, peer_of
from handler.edge.jobs import ServedModels
from handler.lifecycle.catalog import unnamed
from handler.lifecycle.repository import VERSION

OTHER_DEFAULT: Final = "this credential does not permit the server's default model: name one that it permits"
THE_MONITOR: Final = "this credential is for some models; the monitor concerns all of them"
ONLINE: Final = "this credential is for some models; online and offline concern all of them"


class SeenModels:
    """Implements core.ports.Models for one caller. `identity` None: the caller is not known."""

    __slots__ = ("_default", "_identity", "_models", "_scope")

    def __init__(self, models: ServedModels, identity: Caller | None, default: str, scope: Scope) -> None:
        """`default`: the model of requests that name none. `scope`: of the caller's request, for the log."""
        self._models = models
        self._scope = scope
        self._identity = identity
        self._default = default

    def _own(self, name: str) -> str:
        """Returns the name if the caller may use that model. Raises NotPermitted."""
        if not self._sees(name):
            raise self._refused(not_permitted(name))
        return name

    def _refused(self, error: ServingError) -> ServingError:
        """Returns the error with the caller, for the log."""
        error.caller = UNKNOWN_CALLER if self._identity is None else self._identity.name, peer_of(self._scope)
        return error

    def _sees(self, name: str) -> bool:
        return self._identity is not None and self._identity.may_use(name)

    def _ref(self, ref: ModelRef, context: Context) -> ModelRef:
        """Returns a reference that means a model of the caller's. Raises NotPermitted, InvalidInput."""
        if not ref.dashed:
            self._own(ref.name)
            return ref
        selector = ref.name or self._default or self._only(context)
        name, _, version = selector.rpartition("-")
        if name and VERSION.fullmatch(version) and self._sees(name):
            # "a-1" is version 1 of "a", or the model "a-1": both are looked for only if the caller may use both.
            return ref if self._sees(selector) else ModelRef(name, ref.version or version)
        if not ref.name and not self._sees(selector):
            raise self._refused(NotPermitted(OTHER_DEFAULT))
        return ModelRef(self._own(selector), ref.version)

    def _only(self, context: Context) -> str:
        names = self.names(context)
        if len(names) != 1:
            raise unnamed(some(names))
        return names[0]

    # -- core.ports.Models --------------------------------------------------------------------------------------------

    def server(self) -> ops.ServerInfo:
        return self._models.server()

    def series(self) -> Series:
        """Refuses a caller of some models: the series have the inferences of all of them."""
        if self._identity is None or self._identity.models is not None:
            raise self._refused(NotPermitted(THE_MONITOR))
        return self._models.series()

    def ready(self, context: Context) -> ops.Readiness:
        """Leaves out the reason, which may name models."""
        found = self._models.ready(context)
        return found if found.ready else found._replace(reason="this server is not ready")

    def names(self, context: Context) -> Sequence[str]:
        return [name for name in self._models.names(context) if self._sees(name)]

    def index(self, context: Context) -> Sequence[ops.IndexEntry]:
        return [entry for entry in self._models.index(context) if self._sees(entry.name)]

    def readiness(self, ref: ModelRef, context: Context) -> ops.Readiness:
        """Needs READ: gRPC's health names a model in its message, behind a route that needs no right."""
        if self._identity is None:
            raise self._refused(Unauthenticated("the health of a model is for known callers: send a key or a token"))
        if Right.READ not in self._identity.rights:
            raise self._refused(lacking(Right.READ))
        return self._models.readiness(self._ref(ref, context), context)

    def use(self, ref: ModelRef, context: Context) -> Use:
        return self._models.use(self._ref(ref, context), context)

    def describe(self, ref: ModelRef, context: Context) -> ops.ModelInfo:
        return self._models.describe(self._ref(ref, context), context)

    def status(self, ref: ModelRef, context: Context) -> ops.StatusResult:
        return self._models.status(self._ref(ref, context), context)

    def statistics(self, ref: ModelRef | None, context: Context) -> Sequence[Statistics]:
        if ref is not None:
            return self._models.statistics(self._ref(ref, context), context)
        return [stats for stats in self._models.statistics(None, context) if self._sees(stats.name)]

    def load(self, name: str, context: Context, *, anew: bool = True) -> bool:
        return self._models.load(self._own(name), context, anew=anew)

    def unload(self, name: str, context: Context) -> bool:
        return self._models.unload(self._own(name), context)

    def set_online(self, *, online: bool) -> None:
        """Refuses a caller of some models: readiness is that of all of them."""
        if self._identity is None or self._identity.models is not None:
            raise self._refused(NotPermitted(ONLINE))
        self._models.set_online(online=online)

    # -- handler.edge.jobs.ServedModels -------------------------------------------------------------------------------

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        return bool(ref.name) and self._models.is_quick(ref, size)

    def spec(self, ref: ModelRef) -> ModelSpec | None:
        return self._models.spec(ref) if ref.name else None


def not_permitted(model: str) -> ServingError:
    return NotPermitted(f"this credential does not permit the model {shown(model)}")


def lacking(right: Right) -> ServingError:
    return NotPermitted(f"this credential does not have the right {right.name.lower()!r}")
