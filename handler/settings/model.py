"""model-settings.json: a publisher's settings of a model, checked when they are read. Unknown keys are ignored.

The fields `name`, `platform`, `inputs`, `outputs`, `max_batch_size` and `parameters` have MLServer's names and meaning.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from core.dtype import DATATYPES
from core.errors import ModelNotLoadable
from core.tensor import TensorSpec
from handler.settings.checked import Wrong, an_object, is_shape, number, only, texts

if TYPE_CHECKING:
    from handler.settings.explainer import ExplainerSettings
    from handler.settings.signatures import SaidSignatures
    from handler.settings.warmup import WarmUp

FILE: Final = "model-settings.json"
VERSION: Final = re.compile(r"[0-9]{1,18}")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
V1_DIALECTS: Final = ("auto", "tfs", "kserve")
ROUTING: Final = ("version_policy", "version_labels", "canary")
"""Keys that route requests to versions. They do not change how a version is loaded."""
ROUNDING: Final = 1e-9


class VersionPolicy(NamedTuple):
    """The versions that are served: the `latest` n, all (None), or these `specific` ones."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: list[int]) -> list[int]:
        if self.specific:
            return [version for version in versions if version in self.specific]
        return versions if self.latest is None else versions[-self.latest :]


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
    version_policy: VersionPolicy = VersionPolicy()
    version_labels: Mapping[str, int] = MappingProxyType({})
    signatures: "SaidSignatures | None" = None
    v1_dialect: str | None = None
    explainer: "ExplainerSettings | None" = None
    http: CustomPath | None = None
    canary: Mapping[int, float] = MappingProxyType({})
    """The share of requests without a version that each version receives."""
    warmup: "tuple[WarmUp, ...]" = ()

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The class labels of the signatures that have them, by the name of their tensor of scores."""
        signatures = (self.signatures or {}).values()
        return {said.outputs["scores"].tensor: said.class_labels for said in signatures if said.class_labels}


def parse(model: str, *texts: bytes | None) -> ModelSettings:
    """Parses a model's settings; a key of a later text replaces the earlier one.

    Raises ModelNotLoadable with the wrong key's path.
    """
    merged: dict[str, Any] = {}
    try:
        for text in texts:
            merged |= {} if text is None else an_object(_json(text), "the file")
        return _settings(merged, model)
    except Wrong as wrong:
        raise ModelNotLoadable(f"{FILE} of model {model!r}: {wrong}") from None


def loads_alike(before: bytes | None, after: bytes | None) -> bool:
    """Decides whether a version loaded under one text can serve under the other without another load."""
    return before == after or _loading(before) == _loading(after)


def _loading(text: bytes | None) -> Any:
    try:
        members = {} if text is None else an_object(_json(text), "the file")
    except Wrong:
        return text
    return {key: value for key, value in members.items() if key not in ROUTING}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Wrong("the file", text[:40], f"JSON ({str(error)[:80]})") from None


def _settings(members: dict[str, Any], model: str) -> ModelSettings:
    name = _optional(members, "name", str, "text")
    if name is not None and name != model:
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
        version_policy=_version_policy(members.get("version_policy")),
        version_labels=_version_labels(members.get("version_labels")),
        signatures=_signatures(members.get("signatures")),
        v1_dialect=_v1_dialect(members.get("v1_dialect")),
        explainer=_explainer(members.get("explainer")),
        http=_http(members.get("http")),
        canary=_canary(members.get("canary")),
        warmup=_warmup(members.get("warmup")),
    )


def _optional(members: dict[str, Any], key: str, kind: type, expected: str) -> Any:
    value = members.get(key)
    if value is not None and type(value) is not kind:
        raise Wrong(key, value, expected)
    return value


def described(model: str, metadata: Any) -> tuple[tuple[TensorSpec, ...] | None, tuple[TensorSpec, ...] | None]:
    """Returns the inputs and outputs that a Python model's `metadata` declares. Raises ModelNotLoadable."""
    try:
        members = an_object(metadata, "metadata")
        return _tensors(members, "inputs"), _tensors(members, "outputs")
    except Wrong as wrong:
        raise ModelNotLoadable(f"metadata of model {model!r}: {wrong}") from None


def _tensors(members: dict[str, Any], key: str) -> tuple[TensorSpec, ...] | None:
    value = members.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise Wrong(key, value, "an array of tensors")
    tensors = tuple(_tensor(member, f"{key}[{index}]") for index, member in enumerate(value))
    return tensors or None  # MLServer writes [] for "not declared"


def _tensor(member: Any, path: str) -> TensorSpec:
    members = an_object(member, path)
    name, datatype, shape = members.get("name"), members.get("datatype"), members.get("shape")
    if not isinstance(name, str):
        raise Wrong(f"{path}.name", name, "text")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise Wrong(f"{path}.datatype", datatype, f"one of {', '.join(DATATYPES)}")
    if shape is not None and not is_shape(shape):
        raise Wrong(f"{path}.shape", shape, "an array of whole numbers from -1 up, or null for any rank")
    return TensorSpec(name, DATATYPES[datatype], None if shape is None else tuple(shape))


def _version_policy(value: Any) -> VersionPolicy:
    if value is None:
        return VersionPolicy()
    policy = an_object(value, "version_policy")
    if len(policy) != 1 or next(iter(policy)) not in ("latest", "all", "specific"):
        raise Wrong("version_policy", policy, "one of latest, all, specific")
    kind, options = next(iter(policy.items()))
    options = an_object(options, f"version_policy.{kind}")
    if kind == "all":
        return VersionPolicy(latest=None)
    if kind == "latest":
        return VersionPolicy(latest=number(options.get("num_versions", 1), "version_policy.latest.num_versions", 1))
    versions = options.get("versions")
    if not isinstance(versions, list) or not versions:
        raise Wrong("version_policy.specific.versions", versions, "an array of at least one version")
    return VersionPolicy(
        specific=tuple(number(v, f"version_policy.specific.versions[{i}]", 0) for i, v in enumerate(versions))
    )


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


def _canary(value: Any) -> dict[int, float]:
    members = {} if value is None else an_object(value, "canary")
    shares = {}
    for version, share in members.items():
        if not VERSION.fullmatch(version):
            raise Wrong("canary", version, "a version's number as key, of at most 18 digits")
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise Wrong(f"canary.{version}", share, "a share from 0 to 1")
        shares[int(version)] = float(share)
    if sum(shares.values()) > 1 + ROUNDING:
        raise Wrong("canary", members, "shares that add up to 1 at most")
    return shares


def _http(value: Any) -> CustomPath | None:
    if value is None:
        return None
    members = only(an_object(value, "http"), "http", "path", "methods")
    path = members.get("path")
    if not isinstance(path, str) or not path.startswith("/") or path == "/":
        raise Wrong("http.path", path, "a path such as /v1/chat/completions")
    methods = texts(members.get("methods", ["POST"]), "http.methods")
    if not methods or not set(methods) <= set(METHODS):
        raise Wrong("http.methods", list(methods), f"some of {', '.join(METHODS)}")
    return CustomPath(path, methods)


def _version_labels(value: Any) -> dict[str, int]:
    """Returns the labels' versions. Whether a version exists is checked when a request uses its label."""
    members = {} if value is None else an_object(value, "version_labels")
    return {label: number(version, f"version_labels.{label}", 0) for label, version in members.items()}


def _v1_dialect(value: Any) -> str | None:
    if value is not None and value not in V1_DIALECTS:
        raise Wrong("v1_dialect", value, f"one of {', '.join(V1_DIALECTS)}")
    return str(value) if value is not None else None
