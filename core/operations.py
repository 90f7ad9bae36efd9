"""What a client can ask, whatever the protocol, and what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from core.tensor import Tensor, TensorSpec


class State(StrEnum):
    """A version's state, in the words of the model repository extension."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"


@dataclass(frozen=True, slots=True)
class ModelRef:
    """`version`: as the client wrote it; None is the server's choice (the highest number)."""

    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class ServerLive:
    pass


@dataclass(frozen=True, slots=True)
class ServerReady:
    pass


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    pass


@dataclass(frozen=True, slots=True)
class ListModels:
    pass


@dataclass(frozen=True, slots=True)
class RepositoryIndex:
    ready_only: bool = False


@dataclass(frozen=True, slots=True)
class ModelReady:
    ref: ModelRef


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    ref: ModelRef


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """`ref` None: every model."""

    ref: ModelRef | None


@dataclass(frozen=True, slots=True)
class Load:
    name: str


@dataclass(frozen=True, slots=True)
class Unload:
    name: str


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """`classes` > 0: the classification extension's top `classes` instead of the tensor."""

    name: str
    classes: int = 0


@dataclass(frozen=True, slots=True)
class Infer:
    """`outputs` empty: all, in the model's order. `raw`: the bytes of the only input, described by the model alone."""

    ref: ModelRef
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes | None = None


Operation = (
    ServerLive
    | ServerReady
    | ServerMetadata
    | ListModels
    | RepositoryIndex
    | ModelReady
    | ModelMetadata
    | ModelStatistics
    | Load
    | Unload
    | Infer
)


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    state: State = State.READY
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What is known of one loaded version. `inputs`, `outputs` None: it does not say, and anything goes."""

    name: str
    version: str
    platform: str
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    max_batch_size: int = 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """`versions`: those that may be requested, in numeric order."""

    spec: ModelSpec
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    name: str
    version: str
    state: State
    reason: str = ""


@dataclass(slots=True)
class Count:
    """How often something happened, and how many nanoseconds it took together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class Statistics:
    """The statistics extension's numbers of one version, since it was first loaded here."""

    name: str
    version: str
    inference_count: int = 0
    last_inference_ms: int = 0
    success: Count = field(default_factory=Count)
    fail: Count = field(default_factory=Count)
    queue: Count = field(default_factory=Count)
    compute_input: Count = field(default_factory=Count)
    compute_infer: Count = field(default_factory=Count)
    compute_output: Count = field(default_factory=Count)


@dataclass(frozen=True, slots=True)
class InferResult:
    model_name: str
    model_version: str
    outputs: tuple[Tensor, ...]
