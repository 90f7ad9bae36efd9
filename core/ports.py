"""What the core needs from outside: models, and the request on whose behalf it asks."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from core.deadline import Deadline
from core.operations import (
    IndexEntry,
    ModelInfo,
    ModelRef,
    ModelSpec,
    Readiness,
    ServerInfo,
    StatusResult,
)
from core.statistics import Series, Statistics
from core.tensor import Tensor

MODELS_KEY = "dragoman.models"
"""The member of ASGI's scope that holds the Models which the caller of a request may ask."""
CONTROL_KEY = "dragoman.control"
"""The member of ASGI's scope that says why the caller cannot load and unload models; "" if it can."""
OWN_ID_KEY = "dragoman.own_id"
"""The member of ASGI's scope with the id that the client has sent, b"" without one."""


class Model(Protocol):
    """One loaded version."""

    @property
    def spec(self) -> ModelSpec:
        """The model's declaration of its inputs, outputs and signatures. It never changes."""
        ...

    @property
    def steady(self) -> bool:
        """Whether like requests take like times, and `predict` is safe in any thread, an event loop's included."""
        ...

    @property
    def explain(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None:
        """The model's own explanation, a mapping for each example; None if it has none. Raises as `predict` does."""
        ...

    @property
    def stream(
        self,
    ) -> Callable[[Mapping[str, Tensor], Sequence[str], Mapping[str, Any]], Generator[Sequence[Tensor]]] | None:
        """As `predict`, answer by answer; None for a model with one answer. Raises while it is iterated."""
        ...

    @property
    def http(self) -> Callable[[Any], Any] | None:
        """Answers a whole HTTP request; None for a model that takes tensors only. See core.dialects.custom."""
        ...

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any], /
    ) -> Sequence[Tensor]:
        """Returns the named outputs, in that order, or all of them if none is named.

        The engine has checked inputs and names against the spec, as far as there is one. Raises InvalidInput for
        values that the runtime cannot carry, ModelFailed for everything else.
        """
        ...


class Use(Protocol):
    """A use of a loaded version. The version stays in memory until the `with` block ends."""

    model: Model

    def __enter__(self) -> Model: ...

    def __exit__(self, *_: object) -> None: ...

    def again(self) -> "Use":
        """Begins a further use of the same version, for an answer that outlives the first one."""
        ...


class Context(Protocol):
    """The request that an operation is worked on for: how long it waits, and how it counts its time.

    Times are nanoseconds of time.perf_counter_ns().
    """

    @property
    def deadline(self) -> Deadline: ...

    def using(self, use: Any) -> None:
        """Notes which version works on the request from now on."""
        ...

    def waited(self, ns: int, load: Any) -> None:
        """Counts the time that the request waited for a model, or for a look at the repository."""
        ...

    def answered(self, use: Any, decoded: int, inferred: int, rows: int = 1) -> None:
        """Counts an inference. `decoded`: when its inputs were ready. `inferred`: when its model had answered.

        `rows`: how many inferences it is for the statistics extension, see `core.engine.rows_of`.
        """
        ...

    def began(self, spent: int) -> None:
        """Notes that a stream goes on in steps. `spent`: nanoseconds on its first answers, if they were made before."""
        ...

    def streamed(self, use: Any, decoded: int, infer: int, *, success: bool) -> None:
        """Counts a stream as one inference, whose model took `infer` nanoseconds in all."""
        ...

    def asking(self, kind: str) -> None:
        """Notes that the question is not an inference, and its kind: "explain" or "custom"."""
        ...

    def asked(self, use: Any) -> None:
        """Counts the answer of such a question."""
        ...

    def failed(self, use: Any) -> None:
        """Counts an inference, or such a question, that ended with a ServingError."""
        ...


class Models(Protocol):
    """The models of this server. Every method raises ServingError; each says which models it can load.

    Every method that may wait takes the request's context. A server with threads of its own for loading does not wait:
    it raises an exception of its own, after which the caller asks again.
    """

    def server(self) -> ServerInfo:
        """Returns the server's name and version."""
        ...

    def series(self) -> Series:
        """Returns the inferences of this process over time."""
        ...

    def ready(self, context: Context, /) -> Readiness:
        """Returns whether requests may come. Loads models that the settings preload and that are not loaded."""
        ...

    def names(self, context: Context, /) -> Sequence[str]:
        """Returns the names of the repository's models, sorted. Loads none."""
        ...

    def index(self, context: Context, /) -> Sequence[IndexEntry]:
        """Returns every version of every model with its state. Lists models that are not loaded; loads none."""
        ...

    def readiness(self, ref: ModelRef, context: Context, /) -> Readiness:
        """Returns whether the version is in memory. Loads none. Raises ModelNotFound, VersionNotFound."""
        ...

    def use(self, ref: ModelRef, context: Context, /) -> Use:
        """Returns the version that answers one request, in use until the end of `with`. Loads it if it is not loaded.

        Raises ModelNotFound, VersionNotFound, UnknownLabel, ModelNotLoadable, ModelUnavailable, StillLoading at the
        context's deadline, ServerBusy while other models use the memory.
        """
        ...

    def describe(self, ref: ModelRef, context: Context, /) -> ModelInfo:
        """Returns the version's inputs and outputs. Loads it, as `use` does, because only the file knows them."""
        ...

    def status(self, ref: ModelRef, context: Context, /) -> StatusResult:
        """Returns the states of the versions that `ref` names. Loads none. Raises UnknownLabel."""
        ...

    def statistics(self, ref: ModelRef | None, context: Context, /) -> Sequence[Statistics]:
        """Returns the counts of the versions that `ref` names, or of all known ones. Loads none."""
        ...

    def load(self, name: str, context: Context, /, *, anew: bool = True) -> bool:
        """Lists the model again and loads what its policy serves. Versions that have not changed stay loaded.

        Returns whether it did so. `anew` False: it does not if a version is in memory.
        """
        ...

    def unload(self, name: str, context: Context, /) -> bool:
        """Takes the model out of memory after the requests that use it. The next request loads it again.

        Returns whether a version was in memory.
        """
        ...

    def set_online(self, *, online: bool) -> None:
        """Sets the state that `ready` reports. Raises NotSupported where only the platform decides it."""
        ...
