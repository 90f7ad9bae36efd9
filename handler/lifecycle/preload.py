"""The models that DRAGOMAN_PRELOAD names: what the operator wants to be loaded, and to stay loaded."""

from collections.abc import Sequence

from core.deadline import Deadline
from handler.lifecycle.repository import Repository


class Preloaded:
    """`*` among the names stands for all models that the repository has when it is first asked.

    `unloaded`: preloaded models that a client has unloaded; readiness does not wait for them.
    """

    def __init__(self, repository: Repository, named: tuple[str, ...]) -> None:
        self._repository = repository
        self._all: tuple[str, ...] | None = None if "*" in named else named
        self.unloaded: set[str] = set()

    def includes(self, name: str) -> bool:
        """Decides whether a model of this name stays in memory once it is loaded."""
        return self._all is not None and name in self._all

    def names(self, deadline: Deadline) -> Sequence[str]:
        """Returns the models that have to be loaded. Raises ServingError."""
        if self._all is None:
            self._all = tuple(self._repository.models(deadline))
        return [name for name in self._all if name not in self.unloaded]
