"""What a client can ask, whatever the protocol, and what the answer says.

Everything that travels is a NamedTuple: a frozen dataclass takes ten times as long to define (0.6 ms), and forty of
them were half of the time that this project adds to a cold start.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from numpy.typing import NDArray

from core.errors import Fault
from core.signature import NONE, Signatures
from core.tensor import Tensor, TensorSpec


class State(StrEnum):
    """A version's state, in the words of the model repository extension."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"


class ModelRef(NamedTuple):
    """`version`: as the client wrote it; None is the server's choice (the highest number).

    `label`: instead of a version, what the model's settings call one. `zero_is_newest`: version 0 means the highest
    number, unless there is a version 0. `dashed`: `name` may be "name-version", and "" is the default model.
    """

    name: str
    version: str | None = None
    label: str | None = None
    zero_is_newest: bool = False
    dashed: bool = False


class ServerLive(NamedTuple):
    pass


class ServerReady(NamedTuple):
    pass


class ServerMetadata(NamedTuple):
    pass


class ServerOverview(NamedTuple):
    """The server, and every model version with its state."""


class ListModels(NamedTuple):
    pass


class RepositoryIndex(NamedTuple):
    ready_only: bool = False


class ModelReady(NamedTuple):
    ref: ModelRef


class ModelMetadata(NamedTuple):
    ref: ModelRef


class ModelStatus(NamedTuple):
    """How it stands with the versions that `ref` names: all without a version and a label."""

    ref: ModelRef


class ModelStatistics(NamedTuple):
    """`ref` None: every model."""

    ref: ModelRef | None


class Load(NamedTuple):
    name: str


class Unload(NamedTuple):
    name: str


class RequestedOutput(NamedTuple):
    """`classes` > 0: the classification extension's top `classes` instead of the tensor."""

    name: str
    classes: int = 0


class Infer(NamedTuple):
    """`outputs` empty: all, in the model's order. `raw`: the bytes of the only input, described by the model alone."""

    ref: ModelRef
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Any] = MappingProxyType({})
    raw: bytes | memoryview | None = None


class Stream(NamedTuple):
    """The inference of `infer`, in as many answers as its model gives: a tuple, or a generator to be closed if left."""

    infer: Infer

    @property
    def ref(self) -> ModelRef:
        return self.infer.ref


class Custom(NamedTuple):
    """A whole request that the model answers itself, in its own form. See core.dialects.custom."""

    ref: ModelRef
    request: Any


class SetOnline(NamedTuple):
    """Whether this process calls itself ready, if nothing else speaks against it."""

    online: bool


class Explain(NamedTuple):
    """The inference of `infer`, and how much each element of its inputs weighed in it."""

    infer: Infer

    @property
    def ref(self) -> ModelRef:
        return self.infer.ref


class Deferred(NamedTuple):
    """A question whose tensors only the model's spec tells: it is decoded once the model is there.

    `decode`: returns the operation, which is not Deferred, and the reply that phrases its result.
    """

    ref: ModelRef
    decode: "Callable[[ModelSpec], tuple[Infer | Stream | Explain, Callable[[Any], Any]]]"


Question = Infer | Stream | Explain | Custom | Deferred
"""The operations that one version of a model answers, from decoding to reply."""
Operation = (
    ServerLive
    | ServerReady
    | ServerMetadata
    | ServerOverview
    | ListModels
    | RepositoryIndex
    | ModelReady
    | ModelMetadata
    | ModelStatus
    | ModelStatistics
    | Load
    | Unload
    | SetOnline
    | Question
)


class Readiness(NamedTuple):
    ready: bool
    state: State = State.READY
    reason: str = ""


class ServerInfo(NamedTuple):
    name: str
    version: str


class Explainer(NamedTuple):
    """Shapley values, against a background: input name -> its rows, [rows, ...], of the input's own type.

    `budget`: coalitions of features to evaluate for an example. `output`, `target`: what is explained, None for the
    rule that core.explanation states. `feature_names`: input name -> a name for each of its elements, or nothing.
    """

    background: Mapping[str, NDArray[Any]]
    budget: int = 2048
    seed: int = 0
    output: str | None = None
    target: int | None = None
    feature_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class ModelSpec(NamedTuple):
    """What is known of one loaded version. `inputs`, `outputs` None: it does not say, and anything goes."""

    name: str
    version: str
    platform: str
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    max_batch_size: int = 0
    signatures: Signatures = NONE
    """Of TensorFlow Serving's clients; none where the model does not say its inputs and outputs."""
    v1_dialect: str | None = None
    """The answer's form under /v1 that the model's settings pin: "tfs", "kserve" or "auto"."""
    explainer: Explainer | None = None
    """What explains its answers, unless it does so itself."""


class ModelInfo(NamedTuple):
    """`versions`: those that may be requested, in numeric order."""

    spec: ModelSpec
    versions: tuple[str, ...]


class IndexEntry(NamedTuple):
    """`fault`: why it is not loaded, where it was tried. `fresh`: it was not tried yet."""

    name: str
    version: str
    state: State
    reason: str = ""
    fault: Fault | None = None
    fresh: bool = False


class StatusResult(NamedTuple):
    """`versions`: ascending; none if there is no such model, or no version `missing`. `ready`: what would answer is."""

    versions: tuple[IndexEntry, ...]
    ready: bool = False
    missing: str = ""
    v1_dialect: str | None = None


class Count(NamedTuple):
    """How often something happened, and how many nanoseconds it took together."""

    times: int = 0
    ns: int = 0


class Statistics(NamedTuple):
    """The statistics extension's numbers of one version, since this process first listed it."""

    name: str
    version: str
    inference_count: int = 0
    last_inference_ms: int = 0
    success: Count = Count()
    fail: Count = Count()
    queue: Count = Count()
    compute_input: Count = Count()
    compute_infer: Count = Count()
    compute_output: Count = Count()


class InferResult(NamedTuple):
    model_name: str
    model_version: str
    outputs: tuple[Tensor, ...]


class ExplainResult(NamedTuple):
    """`explanations`: one per example, members as JSON takes them (numpy arrays among them)."""

    inferred: InferResult
    explanations: Sequence[Mapping[str, Any]]
