"""What a worker answers and does for the others, with its own models alone."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from core.deadline import within
from core.operations import IndexEntry, ModelRef
from handler.edge.peers.sockets import ASK_SECONDS, NotServing
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background, Load, Pending, outcome

QUESTIONS: Final = ("ready", "readiness", "status", "statistics")
"""The methods of the registry that the others ask, with a context that ends in time."""


class OwnModels:
    """`publish`: writes this worker's numbers where a scrape of another one finds them."""

    def __init__(self, registry: Registry, publish: Callable[[], None]) -> None:
        self._registry = registry
        self._serves = threading.Event()
        self.verbs: dict[str, Callable[..., Any]] = {verb: partial(self._ask, verb) for verb in QUESTIONS}
        self.verbs |= {
            "condition": self._if_serving(registry.condition),
            "states": self._if_serving(self._states),
            "series": self._if_serving(registry.series),
            "publish": self._if_serving(publish),
            "load": partial(self._do, registry.load),
            "unload": partial(self._do, registry.unload),
            "online": self._online,
        }

    def serve(self) -> None:
        """Counts from now on: the worker is like the others, and takes requests."""
        self._serves.set()

    def _if_serving(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def asked() -> Any:
            if not self._serves.is_set():
                raise NotServing
            return call()

        return asked

    def _ask(self, verb: str, *arguments: Any) -> Any:
        context = Background(within(ASK_SECONDS))
        return self._if_serving(partial(getattr(self._registry, verb), *arguments, context))()

    def _states(self) -> list[IndexEntry]:
        """Returns the versions that are known so far. Does not ask the repository."""
        return [version.entry for version in self._registry.known()]

    def _do(self, change: Callable[[str, Any], bool], name: str) -> Any:
        """A change that comes while this worker becomes like the others is made afterwards."""
        self._serves.wait()
        return finished(partial(change, name, Background()))

    def _online(self, online: bool) -> None:  # noqa: FBT001 - a verb's argument
        self._serves.wait()
        self._registry.set_online(online=online)


def finished(call: Callable[[], Any], load: Load | None = None) -> Any:
    """Returns the result of a call, and waits for the models that it waits for. Raises ServingError.

    `load`: has the progress.
    """
    while True:
        try:
            return call()
        except Pending as pending:
            if load is not None:
                load.ahead = pending.load
            result = outcome(pending.future)
            if load is not None:
                load.ahead, load.version = None, pending.load.version
            if pending.final:
                return result


def used(registry: Registry, ref: ModelRef) -> None:
    """Loads a version, as a request for it would."""
    with registry.use(ref, Background()):
        pass
