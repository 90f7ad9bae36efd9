"""The models of all workers of a server, as the port that every protocol asks.

The worker that gets an inference, or a request for a model's metadata, answers it alone, without a cost for the others.
Readiness, states and numbers are those of all workers. A change is answered when all workers have made it.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from core import operations as ops
from core.errors import ModelNotFound, ServingError, located
from core.operations import ModelRef, Readiness, State
from core.ports import Context
from core.statistics import Series, Statistics
from handler.edge.peers import merged
from handler.edge.peers.own import finished
from handler.edge.peers.sockets import Peers
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background, Load, SingleFlight

CHANGERS: Final = 8
"""Changes of different models that can be under way at the same time; each waits for the other workers."""
ELSEWHERE: Final = "another worker"


class SharedModels:
    """Implements core.ports.Models and edge.jobs.ServedModels for all workers. `registry`: this one's."""

    def __init__(self, registry: Registry, peers: Peers) -> None:
        self._registry = registry
        self._peers = peers
        self._flights = SingleFlight(ThreadPoolExecutor(CHANGERS, "dragoman-change"))
        # What concerns this worker alone: every inference passes here.
        self.server = registry.server
        self.names = registry.names
        self.use = registry.use
        self.describe = registry.describe
        self.is_quick = registry.is_quick
        self.spec = registry.spec

    # -- asking -------------------------------------------------------------------------------------------------------

    def ready(self, context: Context) -> Readiness:
        return merged.readiness(self._states(self._registry.ready(context), "ready"))

    def readiness(self, ref: ModelRef, context: Context) -> Readiness:
        return merged.readiness(self._states(self._registry.readiness(ref, context), "readiness", ref))

    def _states(self, own: Readiness, *question: Any) -> Iterator[Readiness]:
        """Yields this worker's readiness, and asks the others if it is ready."""
        yield own
        for answer in self._peers.ask(*question) if own.ready else ():
            if isinstance(answer, ServingError):
                reason = f"{ELSEWHERE}: {answer.message}"
                yield Readiness(ready=False, state=State.UNAVAILABLE, reason=reason, fault=answer.fault)
            elif answer.ready:
                yield answer
            else:
                yield answer._replace(reason=": ".join(filter(None, (ELSEWHERE, answer.reason))))

    def index(self, context: Context) -> Sequence[ops.IndexEntry]:
        """Looks at the repository once, and asks the other workers for their states."""
        return merged.index(self._registry.index(context), list(self._others("states")))

    def status(self, ref: ModelRef, context: Context) -> ops.StatusResult:
        return merged.status([self._registry.status(ref, context), *self._others("status", ref)])

    def statistics(self, ref: ModelRef | None, context: Context) -> Sequence[Statistics]:
        return merged.statistics([self._registry.statistics(ref, context), *self._others("statistics", ref)])

    def series(self) -> Series:
        return merged.series([self._registry.series(), *self._others("series")])

    def _others(self, *question: Any) -> Iterator[Any]:
        """Yields the answers of the others, without their refusals: they might not know a new model yet."""
        return (answer for answer in self._peers.ask(*question) if not isinstance(answer, ServingError))

    # -- changing -----------------------------------------------------------------------------------------------------

    def load(self, name: str, context: Context, *, anew: bool = True) -> bool:
        """One that this worker's model fails at is not tried by the others."""
        return bool(self._flights.run(("load", name, anew), name, partial(self._load, name, anew), context, final=True))

    def _load(self, name: str, anew: bool, load: Load) -> bool:  # noqa: FBT001 - of `partial`
        with self._peers.turn(name):
            is_loaded = finished(partial(self._registry.load, name, Background(), anew=anew), load)
            if is_loaded:
                self._agreed(self._peers.tell("load", name))
        return bool(is_loaded)

    def unload(self, name: str, context: Context) -> bool:
        """Another worker can have a model that was removed from the repository since."""
        return bool(self._flights.run(("unload", name), name, partial(self._unload, name), context, final=True))

    def _unload(self, name: str, _: Load) -> bool:
        with self._peers.turn(name):
            missing, was_there = None, False
            try:
                was_there = finished(partial(self._registry.unload, name, Background()))
            except ModelNotFound as error:
                missing = error
            answers = self._peers.tell("unload", name)
            if missing is not None and all(isinstance(answer, ModelNotFound) for answer in answers):
                raise missing
            self._agreed([answer for answer in answers if not isinstance(answer, ModelNotFound)])
        return was_there or True in answers

    def set_online(self, *, online: bool) -> None:
        work = partial(self._set_online, online)
        self._flights.run(("online", online), "", work, Background(), final=True)

    def _set_online(self, online: bool, _: Load) -> None:  # noqa: FBT001 - of `partial`
        with self._peers.turn(""):
            self._registry.set_online(online=online)
            self._agreed(self._peers.tell("online", online))

    def _agreed(self, answers: Sequence[Any]) -> None:
        """Raises the first refusal of another worker."""
        for answer in answers:
            if isinstance(answer, ServingError):
                raise located(answer, ELSEWHERE)
