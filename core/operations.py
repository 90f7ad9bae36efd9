"""What a client can ask, whatever the protocol, and what it is told.

Whatever travels is a NamedTuple: a frozen dataclass takes ten times as long to define (0.6 ms), and forty of them were
half of what this project adds to a cold start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from core.tensor import Tensor, TensorSpec


class State(StrEnum):
    """A version's state, in the words of the model repository extension."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"


class ModelRef(NamedTuple):
    """`version`: as the client wrote it; None is the server's choice (the highest number)."""

    name: str
    version: str | None = None


class ServerLive(NamedTuple):
    pass


class ServerReady(NamedTuple):
    pass


class ServerMetadata(NamedTuple):
    pass


class ListModels(NamedTuple):
    pass


class RepositoryIndex(NamedTuple):
    ready_only: bool = False


class ModelReady(NamedTuple):
    ref: ModelRef


class ModelMetadata(NamedTuple):
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


class Readiness(NamedTuple):
    ready: bool
    state: State = State.READY
    reason: str = ""


class ServerInfo(NamedTuple):
    name: str
    version: str


class ModelSpec(NamedTuple):
    """What is known of one loaded version. `inputs`, `outputs` None: it does not say, and anything goes."""

    name: str
    version: str
    platform: str
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    max_batch_size: int = 0


class ModelInfo(NamedTuple):
    """`versions`: those that may be requested, in numeric order."""

    spec: ModelSpec
    versions: tuple[str, ...]


class IndexEntry(NamedTuple):
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


class InferResult(NamedTuple):
    model_name: str
    model_version: str
    outputs: tuple[Tensor, ...]
