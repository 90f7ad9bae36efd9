"""What the core needs from outside."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from core.operations import (
    IndexEntry,
    ModelInfo,
    ModelRef,
    ModelSpec,
    Readiness,
    ServerInfo,
    Statistics,
    StatusResult,
)
from core.tensor import Tensor


class Model(Protocol):
    """One loaded version."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def steady(self) -> bool:
        """Whether like requests take like times, and `predict` may be called in any thread, an event loop's too."""
        ...

    @property
    def explain(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None:
        """The model's own explanation of each example, None where it has none. Raises as `predict` does."""
        ...

    @property
    def stream(
        self,
    ) -> Callable[[Mapping[str, Tensor], Sequence[str], Mapping[str, Any]], Generator[Sequence[Tensor]]] | None:
        """As `predict`, answer by answer; None for a model that always gives one. Raises while it is iterated."""
        ...

    @property
    def http(self) -> Callable[[Any], Any] | None:
        """The answer to a whole request, None for a model that takes tensors alone. See core.dialects.custom."""
        ...

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any], /
    ) -> Sequence[Tensor]:
        """The named outputs, in that order, or all of them if none is named.

        Inputs and names have been checked against the spec, as far as there is one. Raises InvalidInput for values
        that the runtime cannot carry, ModelFailed for everything else.
        """
        ...


class Models(Protocol):
    """The models of this server. All but `get` and `load` leave what is loaded as it is."""

    def server(self) -> ServerInfo: ...

    def ready(self) -> Readiness: ...

    def names(self) -> Sequence[str]: ...

    def index(self) -> Sequence[IndexEntry]: ...

    def readiness(self, ref: ModelRef) -> Readiness: ...

    def get(self, ref: ModelRef) -> Model:
        """The model, loaded if it was not."""
        ...

    def describe(self, ref: ModelRef) -> ModelInfo: ...

    def status(self, ref: ModelRef) -> StatusResult:
        """Without loading. Raises UnknownLabel."""
        ...

    def statistics(self, ref: ModelRef | None) -> Sequence[Statistics]: ...

    def load(self, name: str) -> None:
        """Look at the repository again and load what it now says."""
        ...

    def unload(self, name: str) -> None: ...

    def set_online(self, *, online: bool) -> None:
        """Raises NotSupported where nobody but this server decides that."""
        ...
