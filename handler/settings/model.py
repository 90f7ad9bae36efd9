"""model-settings.json: a publisher's settings of a model, checked when they are read. Unknown keys are noted.

The fields `name`, `platform`, `inputs`, `outputs`, `max_batch_size` and `parameters` have MLServer's names and meaning.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from core.errors import ModelNotLoadable
from core.operations import Batching
from core.records import NamedTuple
from core.signature import EmbeddingTensors
from core.tensor import TensorSpec
from handler.settings import parsers, routing
from handler.settings.checked import Unquoted, Wrong, an_object, members_of, number, texts

if TYPE_CHECKING:
    from handler.settings.explainer import ExplainerSettings
    from handler.settings.pipeline import SaidPipeline
    from handler.settings.signatures import SaidSignatures
    from handler.settings.warmup import WarmUp

FILE: Final = "model-settings.json"
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
ROUTING: Final = ("version_policy", "version_labels", "canary")
"""Keys that route requests to versions. They do not change how a version is loaded."""
UNSIGNED: Final = (*ROUTING, "name", "http")
"""Keys that a signature need not cover: they choose a version and its path, and do not change what it answers."""
LONGEST_TIMEOUT: Final = 10**9
"""Seconds: thirty years. A clock's arithmetic stays exact."""


class CustomPath(NamedTuple):
    """The path on which the model answers whole requests itself."""

    path: str
    methods: tuple[str, ...] = ("POST",)


class ModelSettings(NamedTuple):
    """The settings of one model. `inputs`, `outputs` None: the model's own declaration applies."""

    platform: str | None = None
    implementation: str | None = None
    max_batch_size: int = 0
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    version_policy: routing.VersionPolicy = routing.VersionPolicy()
    version_labels: Mapping[str, int] = MappingProxyType({})
    signatures: "SaidSignatures | None" = None
    v1_dialect: str | None = None
    explainer: "ExplainerSettings | None" = None
    http: CustomPath | None = None
    canary: Mapping[int, float] = MappingProxyType({})
    """The share of requests without a version that each version receives."""
    warmup: "tuple[WarmUp, ...]" = ()
    timeout: float | None = None
    """Seconds that one inference may run, in place of DRAGOMAN_TIMEOUT."""
    max_concurrency: int | None = None
    """The most inferences of the model that run at the same time."""
    providers: tuple[str, ...] = ()
    """ONNX Runtime's execution providers, in place of DRAGOMAN_PROVIDERS."""
    note: str = ""
    """The unused keys, for the index and the log; empty without any."""
    grpc_outputs: str | None = None
    batching: Batching | None = None
    """How concurrent requests are run together; None: each runs alone."""
    pipeline: "SaidPipeline | None" = None
    """The steps of a pipeline whose version has no pipeline.json."""
    optimized: bool = False
    """Whether `dragoman push --optimize` wrote model.onnx. The settings name its original."""
    embeddings: EmbeddingTensors | None = None

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The class labels by tensor: those of the outputs, and of the signatures' scores, which come first."""
        signatures = (self.signatures or {}).values()
        scores = {said.outputs["scores"].tensor: said.class_labels for said in signatures if said.class_labels}
        return {spec.name: spec.labels for spec in self.outputs or () if spec.labels} | scores


KEYS: Final = frozenset(ModelSettings._fields) - {"note"} | {"name", "dynamic_batching"}
NESTED: Final = frozenset(("inputs", "outputs", "version_policy"))
"""Keys whose values can have unknown keys. The others refuse them."""


def parse(
    model: str, text: bytes | None = None, own: bytes | None = None, *, folder: str = "", is_renamed: bool = False
) -> ModelSettings:
    """Parses a model's settings. `own`: those of its version in `folder`, whose keys replace the model's.

    `is_renamed`: the operator has named the model, so the texts may have another name. Raises ModelNotLoadable with
    the wrong key's path, and the file that has it.
    """
    theirs = its = None
    try:
        theirs = {} if text is None else members_of(text)
        its = {} if own is None else members_of(own)
        return settings_of(theirs | its, model, is_renamed=is_renamed)
    except Wrong as wrong:
        is_own = theirs is not None and (its is None or wrong.key in its)
        where = f"{folder}/{FILE}" if folder and is_own else FILE
        raise ModelNotLoadable(f"{where} of model {model!r}: {wrong}") from None


def loads_alike(before: bytes | None, after: bytes | None) -> bool:
    """Decides whether a version loaded under one text can serve under the other without another load."""
    return before == after or _loading(before) == _loading(after)


def _loading(text: bytes | None) -> Any:
    try:
        members = {} if text is None else members_of(text)
    except Wrong:
        return text
    return {key: value for key, value in members.items() if key not in ROUTING}


def unsigned(text: bytes | None, own: bytes | None) -> dict[str, Any]:
    """Returns the members of a model's settings that a signed version's own settings have to repeat, and do not.

    Raises ModelNotLoadable for a text that is not an object.
    """
    try:
        outside, inside = (members_of(each) if each is not None else {} for each in (text, own))
    except Wrong as wrong:
        raise ModelNotLoadable(f"{FILE}: {wrong}") from None
    return {key: value for key, value in outside.items() if key not in UNSIGNED and key not in inside}


def settings_of(members: dict[str, Any], model: str, *, is_renamed: bool) -> ModelSettings:
    """Returns the settings that a file with these members makes. Raises Wrong."""
    name = _optional(members, "name", str, "text")
    if name not in (None, model) and not is_renamed:
        raise Wrong("name", name, f"the folder's name {model!r}, or no name")
    batch = _optional(members, "max_batch_size", int, "a whole number") or 0
    if batch < 0:
        raise Wrong("max_batch_size", batch, "0 or more")
    return ModelSettings(
        platform=_optional(members, "platform", str, "text"),
        implementation=_optional(members, "implementation", str, "text"),
        max_batch_size=batch,
        inputs=_tensors(members, "inputs"),
        outputs=_tensors(members, "outputs"),
        version_policy=routing.version_policy(members.get("version_policy")),
        version_labels=routing.version_labels(members.get("version_labels")),
        signatures=_signatures(members.get("signatures")),
        v1_dialect=_one_of(members, "v1_dialect", parsers.V1_DIALECTS),
        grpc_outputs=_one_of(members, "grpc_outputs", parsers.GRPC_OUTPUTS),
        explainer=_explainer(members.get("explainer")),
        http=_http(members.get("http")),
        canary=routing.canary(members.get("canary")),
        warmup=_warmup(members.get("warmup")),
        timeout=_timeout(members.get("timeout")),
        max_concurrency=_max_concurrency(members.get("max_concurrency")),
        providers=() if members.get("providers") is None else texts(members["providers"], "providers"),
        note=_note(members),
        batching=_batching(members, batch),
        pipeline=_pipeline(members.get("pipeline")),
        optimized=_optimized(members.get("optimized")),
        embeddings=_embeddings(members.get("embeddings")),
    )


def _note(members: dict[str, Any]) -> str:
    if KEYS.issuperset(members) and NESTED.isdisjoint(members):
        return ""
    from handler.settings import keys  # noqa: PLC0415 - for models with more than the plainest settings

    return keys.note(members, KEYS)


def _optional(members: dict[str, Any], key: str, kind: type, expected: str) -> Any:
    value = members.get(key)
    if value is not None and type(value) is not kind:
        raise Wrong(key, value, expected)
    return value


def described(model: str, metadata: Any) -> tuple[tuple[TensorSpec, ...] | None, tuple[TensorSpec, ...] | None]:
    """Returns the inputs and outputs that a Python model's `metadata` declares. Raises ModelNotLoadable."""
    try:
        members = an_object(_plain(metadata) or {}, "metadata")
        return _tensors(members, "inputs"), _tensors(members, "outputs")
    except Wrong as wrong:
        raise ModelNotLoadable(f"metadata of model {model!r}: {wrong}") from None


def _plain(value: Any) -> Any:
    """Returns a value of a module with names in place of other objects than JSON's.

    The text of an object may have a path or anything else, and even its truth can raise. `from importlib import
    metadata` makes a module of the variable.
    """
    if isinstance(value, dict):
        return {_plain(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_plain, value))
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else Unquoted(f"a Python {type(value).__name__}")


def _tensors(members: dict[str, Any], key: str) -> tuple[TensorSpec, ...] | None:
    if members.get(key) is None:
        return None
    from handler.settings import tensors  # noqa: PLC0415 - for models whose settings describe them

    return tensors.parse(members, key)


def _signatures(value: Any) -> "SaidSignatures | None":
    if value is None:
        return None
    from handler.settings import signatures as signature_settings  # noqa: PLC0415 - 2 ms of cold start for models without any

    return signature_settings.parse(value)


def _explainer(value: Any) -> "ExplainerSettings | None":
    if value is None:
        return None
    from handler.settings import explainer as explainer_settings  # noqa: PLC0415 - 2 ms of cold start for models without one

    return explainer_settings.parse(value)


def _warmup(value: Any) -> "tuple[WarmUp, ...]":
    if value is None:
        return ()
    from handler.settings import warmup as warmup_settings  # noqa: PLC0415 - the same, for models without one

    return warmup_settings.parse(value)


def _batching(members: dict[str, Any], rows: int) -> Batching | None:
    if members.get("batching") is None and members.get("dynamic_batching") is None:
        return None
    from handler.settings import batching as batching_settings  # noqa: PLC0415 - the same

    return batching_settings.parse(members, rows)


def _pipeline(value: Any) -> "SaidPipeline | None":
    if value is None:
        return None
    from handler.settings import pipeline  # noqa: PLC0415 - the same, for models that are not pipelines

    return pipeline.parse(value, "pipeline")


def _optimized(value: Any) -> bool:
    if value is not None:
        an_object(an_object(value, "optimized", "from", "by", "tolerance").get("from"), "optimized.from")
    return value is not None


def _embeddings(value: Any) -> EmbeddingTensors | None:
    if value is None:
        return None
    from handler.settings import embeddings  # noqa: PLC0415 - the same, for models whose settings name them

    return embeddings.parse(value)


def _timeout(value: Any) -> float | None:
    if value is not None and (type(value) not in (int, float) or not 0 < value <= LONGEST_TIMEOUT):
        raise Wrong("timeout", value, f"seconds above 0, at most {LONGEST_TIMEOUT}")
    return None if value is None else float(value)


def _max_concurrency(value: Any) -> int | None:
    return None if value is None else number(value, "max_concurrency", 1)


def _http(value: Any) -> CustomPath | None:
    if value is None:
        return None
    members = an_object(value, "http", "path", "methods")
    path = members.get("path")
    if not isinstance(path, str) or not path.startswith("/") or path == "/":
        raise Wrong("http.path", path, "a path such as /v1/chat/completions")
    from core import dialects, router  # noqa: PLC0415 - for models whose settings name a path

    if router.has_route(path, dialects.DIALECTS):
        raise Wrong("http.path", path, "a path without a route of a protocol, which would answer instead")
    methods = texts(members.get("methods", ["POST"]), "http.methods")
    if not methods or not set(methods) <= set(METHODS):
        raise Wrong("http.methods", list(methods), f"some of {', '.join(METHODS)}")
    return CustomPath(path, methods)


def _one_of(members: dict[str, Any], key: str, words: tuple[str, ...]) -> str | None:
    value = members.get(key)
    if value is not None and value not in words:
        raise Wrong(key, value, f"one of {', '.join(words)}")
    return str(value) if value is not None else None
