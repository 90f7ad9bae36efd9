"""The operations that clients request, and their results, in every protocol.

What travels is a NamedTuple: forty frozen dataclasses were half of the time that this project adds to a cold start.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from core.dtype import NDArray
from core.errors import Fault
from core.records import NamedTuple
from core.signature import AS_DECLARED, NONE, EmbeddingTensors, Signatures
from core.tensor import Tensor, TensorSpec


class State(StrEnum):
    """A version's state, in the words of the model repository extension."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"


class ModelRef(NamedTuple):
    """A model, or one of its versions. `version`: the client's text; None is the server's choice (the highest number).

    `label`: a version's name in the settings, instead of a number. `zero_is_newest`: 0 means the highest number, unless
    there is a version 0. `dashed`: `name` may be "name-version", and "" is the default model; `version` comes first.
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


class ServerSeries(NamedTuple):
    """The inferences of the whole server over time."""


class ListModels(NamedTuple):
    pass


class RepositoryIndex(NamedTuple):
    ready_only: bool = False


class ModelReady(NamedTuple):
    ref: ModelRef


class ModelMetadata(NamedTuple):
    ref: ModelRef


class ModelStatus(NamedTuple):
    """The state of the versions that `ref` names: all of them without a version and a label."""

    ref: ModelRef


class ModelStatistics(NamedTuple):
    """The statistics of a model. `ref` None: of every model."""

    ref: ModelRef | None


class Load(NamedTuple):
    name: str
    anew: bool = True  # False: a model in memory stays as it is; the result is whether it was loaded


class Unload(NamedTuple):
    name: str


class RequestedOutput(NamedTuple):
    """An output of a request. `classes` > 0: the classification extension's top `classes` instead of the tensor."""

    name: str
    classes: int = 0


class Infer(NamedTuple):
    """An inference. `outputs` empty: all, in the model's order. `raw`: the only input's bytes, in the model's type."""

    ref: ModelRef
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Any] = MappingProxyType({})
    raw: bytes | memoryview | None = None


class Stream(NamedTuple):
    """The inference of `infer`, with any number of answers: a tuple, or a generator to be closed if left."""

    infer: Infer

    @property
    def ref(self) -> ModelRef:
        return self.infer.ref


class Custom(NamedTuple):
    """A whole request that the model answers itself, in its own form. See core.dialects.custom."""

    ref: ModelRef
    request: Any


class SetOnline(NamedTuple):
    """Sets whether this process reports itself ready, unless another reason prevents it."""

    online: bool


class Explain(NamedTuple):
    """The inference of `infer`, and the weight of each element of its inputs."""

    infer: Infer

    @property
    def ref(self) -> ModelRef:
        return self.infer.ref


class Deferred(NamedTuple):
    """A request whose tensors only the model's spec describes. It is decoded once the model is loaded.

    `decode`: returns the operation, which is not Deferred, and the function that makes an answer from its result.
    """

    ref: ModelRef
    decode: "Callable[[ModelSpec], tuple[Infer | Stream | Explain, Callable[[Any], Any]]]"


Operation = (
    ServerLive | ServerReady | ServerMetadata | ServerOverview | ServerSeries | ListModels | RepositoryIndex
    | ModelReady | ModelMetadata | ModelStatus | ModelStatistics | Load | Unload | SetOnline
    | Infer | Stream | Explain | Custom | Deferred
)  # fmt: skip
"""What a client can ask. One version of a model answers the last five, from decoding to reply."""


class Readiness(NamedTuple):
    """`fault`: the kind of the failure that is in the way, None for a model that is only not loaded yet."""

    ready: bool
    state: State = State.READY
    reason: str = ""
    fault: Fault | None = None


class ServerInfo(NamedTuple):
    """`default_model`: the model of GRPS requests that name none, as `name` or `name-version`; "" if it is not set."""

    name: str
    version: str
    default_model: str = ""


class Explainer(NamedTuple):
    """Shapley values, against a background: input name -> its rows, [rows, ...], of the input's own type.

    `budget`: coalitions of features to evaluate for an example. `output`, `target`: the explained output and class,
    None for the rule of core.explain.explanation. `feature_names`: input name -> its elements' names, or nothing.
    """

    background: Mapping[str, NDArray[Any]]
    budget: int = 2048
    seed: int = 0
    output: str | None = None
    target: int | None = None
    feature_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Batching(NamedTuple):
    """How requests run together: at most `rows`, after at most `seconds`; `preferred` sizes, ascending, end a wait."""

    rows: int
    seconds: float
    preferred: tuple[int, ...] = ()


class EnsembleStep(NamedTuple):
    """A call of another model. `version`: -1 is the one that serves. `inputs`, `outputs`: the model's -> tensors."""

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class ModelSpec(NamedTuple):
    """The description of one loaded version. `inputs`, `outputs` None: not described, and not checked."""

    name: str
    version: str
    platform: str
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    max_batch_size: int = 0
    signatures: Signatures = NONE
    """The signatures for TensorFlow Serving's clients; none if the model does not describe its inputs and outputs."""
    v1_dialect: str | None = None
    """The answer's form under /v1 that the model's settings pin: "tfs", "kserve" or "auto"."""
    explainer: Explainer | None = None
    """The explainer of its answers, unless the model explains them itself."""
    timeout: float | None = None
    """The seconds that one inference may run; None: as many as the server permits."""
    max_concurrency: int | None = None
    """The most inferences that run at the same time; None: as many as the server permits."""
    providers: tuple[str, ...] = ()
    """The execution providers that its runtime uses, in order of preference, if settings have chosen them."""
    raw_outputs: bool = False
    """Whether V2's protobuf answers have their tensors as raw bytes, however the request has its own."""
    batching: Batching | None = None
    """How concurrent requests are run together; None: each runs alone."""
    steps: tuple[EnsembleStep, ...] = ()
    """Its calls of other models, if it calls all of them for every request."""
    embeddings: EmbeddingTensors = AS_DECLARED
    """Its tensors for clients that ask for embeddings."""
    decoupled: bool = False  # whether one request has any number of answers, which only a stream can have

    @property
    def batch_size(self) -> int:
        """The most rows that run together, as Triton's clients see it; 0: requests have no rows."""
        return self.max_batch_size or (0 if self.batching is None else self.batching.rows)


class ModelInfo(NamedTuple):
    """A model's metadata. `versions`: the versions that clients can request, in numeric order.

    `parameters`: facts about it, such as the digest and the signer of its files.
    """

    spec: ModelSpec
    versions: tuple[str, ...]
    parameters: Mapping[str, str] = MappingProxyType({})


class IndexEntry(NamedTuple):
    """A version in the index. `fault`: of its failed load, or of its requests. `fresh`: its load was not tried yet."""

    name: str
    version: str
    state: State
    reason: str = ""
    fault: Fault | None = None
    fresh: bool = False


class StatusResult(NamedTuple):
    """A model's status. `versions`: ascending; none if model or version is `missing`. `ready`: that would answer."""

    versions: tuple[IndexEntry, ...]
    ready: bool = False
    missing: str = ""
    v1_dialect: str | None = None


class InferResult(NamedTuple):
    """The outputs of an inference. `raw`: as the spec's `raw_outputs`."""

    model_name: str
    model_version: str
    outputs: tuple[Tensor, ...]
    raw: bool = False


class ExplainResult(NamedTuple):
    """An explained inference. `explanations`: one per example, with members for JSON, numpy arrays among them."""

    inferred: InferResult
    explanations: Sequence[Mapping[str, Any]]
