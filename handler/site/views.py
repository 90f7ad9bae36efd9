"""The content of the pages, as pydantic models: programs get the same as JSON.

Everything comes from the models that the caller may see, and from what this process knows already: making a view loads
nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel

from core.operations import IndexEntry, ModelSpec, State, StatusResult
from core.tensor import TensorSpec
from handler.lifecycle.particulars import Particulars
from handler.lifecycle.traffic.recent import merged
from handler.site import examples
from handler.site.numbers import APART, ProtocolView, SpanView, TimesView, protocol_view, span_view, times_view
from handler.stores import parity

CALM: Final = ("not loaded yet", "unloaded", "replaced by a newer version")
"""The beginnings of reasons that are not problems: a model loads with its first request."""


class TensorView(BaseModel):
    """An input or output. `shape`: -1 is any size, None any rank. `labels`: of classes, or of the last axis."""

    name: str
    datatype: str
    shape: list[int] | None
    optional: bool = False
    labels: list[str] = []


class SignatureView(BaseModel):
    """A signature: the tensors' names by the names that TensorFlow Serving's clients use."""

    name: str
    method: str
    inputs: dict[str, str]
    outputs: dict[str, str]


class VersionView(BaseModel):
    """A version. `tone`: ready, loading, idle or failed. `size`, `memory`: bytes."""

    version: str
    state: State
    tone: str
    reason: str
    size: int | None = None
    memory: int | None = None
    load_seconds: float | None = None
    labels: list[str] = []
    share: float | None = None
    """The share of requests without a version that a canary gets."""
    signer: str = ""
    digest: str = ""
    providers: str = ""
    parity: list[str] = []
    """What `dragoman convert` has measured, of a version in memory."""
    requests: int = 0
    failures: int = 0
    times: TimesView = TimesView()
    spans: list[SpanView] = []
    protocols: list[ProtocolView] = []


class EntryView(BaseModel):
    """A version in the table of all models."""

    model: str
    version: str
    state: State
    tone: str
    reason: str
    requests: int
    failures: int
    p50: float | None
    load_seconds: float | None


class StatusView(BaseModel):
    """A process and its models. `trouble`: why they cannot be listed."""

    name: str
    version: str
    looked: datetime
    up_seconds: int
    resident_bytes: int | None
    platform: str
    python: str
    trouble: str
    models: list[EntryView]


class ModelView(BaseModel):
    """A model. `loaded`: the version that inputs, outputs and signatures are those of; None: no version is in memory.

    `example`: a working request of V2. `barred`: why the caller cannot load and unload it; "" if it can.
    """

    name: str
    looked: datetime
    loaded: str | None = None
    platform: str = ""
    inputs: list[TensorView] | None = None
    outputs: list[TensorView] | None = None
    signatures: list[SignatureView] = []
    explains: bool = False
    example: dict[str, Any] | None = None
    barred: str = ""
    versions: list[VersionView]


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def tone_of(entry: IndexEntry) -> str:
    """Returns the severity of a state. A model without a request so far is not in trouble."""
    if entry.state is not State.UNAVAILABLE:
        return "ready" if entry.state is State.READY else "loading"
    return "idle" if entry.fault is None and entry.reason.startswith(CALM) else "failed"


def entry_view(entry: IndexEntry, known: Particulars | None) -> EntryView:
    """Returns a row of the table. `known`: None for an unknown version."""
    count = merged(() if known is None else known.protocols.values())
    return EntryView(
        model=entry.name,
        version=entry.version,
        state=entry.state,
        tone=tone_of(entry),
        reason=entry.reason,
        requests=sum(count.times.values()),
        failures=count.failures,
        p50=times_view(count).p50,
        load_seconds=None if known is None else known.load_seconds,
    )


def model_view(name: str, status: StatusResult, known: Sequence[Particulars], barred: str) -> ModelView:
    """Returns a model's view. `status`: as the caller may see it."""
    by_number = {each.version: each for each in known}
    loaded = next((each for each in reversed(known) if each.spec is not None and not each.canary), None)
    loaded = loaded or next((each for each in reversed(known) if each.spec is not None), None)
    versions = [version_view(entry, by_number.get(entry.version)) for entry in status.versions]
    more = {} if loaded is None or loaded.spec is None else _described(loaded.spec, explains=loaded.explains)
    return ModelView(name=name, looked=now(), barred=barred, versions=versions, **more)


def _described(spec: ModelSpec, *, explains: bool) -> dict[str, Any]:
    features = {} if spec.explainer is None else spec.explainer.feature_names
    return {
        "loaded": spec.version,
        "platform": spec.platform,
        "inputs": None if spec.inputs is None else [tensor_view(each, features) for each in spec.inputs],
        "outputs": None if spec.outputs is None else [tensor_view(each, {}) for each in spec.outputs],
        "signatures": [
            SignatureView(
                name=name,
                method=signature.method,
                inputs={alias: binding.spec.name for alias, binding in (signature.inputs or {}).items()},
                outputs={alias: binding.spec.name for alias, binding in signature.outputs.items()},
            )
            for name, signature in spec.signatures.items()
        ],
        "explains": explains,
        "example": examples.v2(spec),
    }


def tensor_view(spec: TensorSpec, features: Mapping[str, Sequence[str]]) -> TensorView:
    return TensorView(
        name=spec.name,
        datatype=spec.datatype.name,
        shape=None if spec.shape is None else list(spec.shape),
        optional=spec.optional,
        labels=list(spec.labels or features.get(spec.name) or ()),
    )


def version_view(entry: IndexEntry, known: Particulars | None) -> VersionView:
    """Returns a version's view. `known`: None for an unknown version."""
    view = VersionView(version=entry.version, state=entry.state, tone=tone_of(entry), reason=entry.reason)
    if known is None:
        return view
    count = merged(known.protocols.values())
    return view.model_copy(
        update={
            "size": known.size,
            "memory": known.memory or None,
            "load_seconds": known.load_seconds,
            "labels": list(known.labels),
            "share": known.canary or None,
            "signer": known.parameters.get("signer", ""),
            "digest": known.parameters.get("digest", ""),
            "providers": known.parameters.get("providers", ""),
            "parity": [] if known.folder is None else parity.beside(known.folder),
            "requests": sum(count.times.values()),
            "failures": count.failures,
            "times": times_view(count),
            "spans": [span_view(ago, lapse.total) for ago, lapse in known.spans],
            "protocols": [
                protocol_view(name, known.protocols[name], known.spans)
                for name in sorted(known.protocols, key=APART.__contains__)  # protocols first, in their order
            ],
        }
    )
