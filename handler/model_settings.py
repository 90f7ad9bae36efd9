"""model-settings.json: what a publisher says of a model, checked when it is read. Unknown keys are ignored.

The fields `name`, `platform`, `inputs`, `outputs`, `max_batch_size` and `parameters` have MLServer's names and meaning.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from core.dtype import DATATYPES
from core.errors import ModelNotLoadable, shown
from core.tensor import TensorSpec

FILE = "model-settings.json"


class VersionPolicy(NamedTuple):
    """Which versions are served: the `latest` n, all (None), or these `specific` ones."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: list[int]) -> list[int]:
        if self.specific:
            return [version for version in versions if version in self.specific]
        return versions if self.latest is None else versions[-self.latest :]


class ModelSettings(NamedTuple):
    """`inputs`, `outputs` None: what the model itself says."""

    platform: str | None = None
    implementation: str | None = None
    max_batch_size: int = 0
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    version_policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Output tensor -> class labels."""


class _Wrong(Exception):
    def __init__(self, path: str, value: Any, expected: str) -> None:
        super().__init__(f"{path} is {shown(value)}; expected {expected}")


def parse(model: str, *texts: bytes | None) -> ModelSettings:
    """A model's settings, later texts' keys over earlier ones'. Raises ModelNotLoadable with the wrong key's path."""
    merged: dict[str, Any] = {}
    try:
        for text in texts:
            merged |= {} if text is None else _object(_json(text), "the file")
        return _settings(merged, model)
    except _Wrong as wrong:
        raise ModelNotLoadable(f"{FILE} of model {model!r}: {wrong}") from None


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Wrong("the file", text[:40], f"JSON ({str(error)[:80]})") from None


def _settings(members: dict[str, Any], model: str) -> ModelSettings:
    name = _optional(members, "name", str, "text")
    if name is not None and name != model:
        raise _Wrong("name", name, f"the folder's name {model!r}, or nothing")
    batch = _optional(members, "max_batch_size", int, "a whole number") or 0
    if batch < 0:
        raise _Wrong("max_batch_size", batch, "0 or more")
    return ModelSettings(
        platform=_optional(members, "platform", str, "text"),
        implementation=_optional(members, "implementation", str, "text"),
        max_batch_size=batch,
        inputs=_tensors(members, "inputs"),
        outputs=_tensors(members, "outputs"),
        version_policy=_version_policy(members.get("version_policy")),
        labels=_labels(members.get("signatures")),
    )


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(path, value, "an object")
    return value


def _optional(members: dict[str, Any], key: str, kind: type, expected: str) -> Any:
    value = members.get(key)
    if value is not None and type(value) is not kind:
        raise _Wrong(key, value, expected)
    return value


def described(model: str, metadata: Any) -> tuple[tuple[TensorSpec, ...] | None, tuple[TensorSpec, ...] | None]:
    """The inputs and outputs that a python model's `metadata` tells. Raises ModelNotLoadable."""
    try:
        members = _object(metadata, "metadata")
        return _tensors(members, "inputs"), _tensors(members, "outputs")
    except _Wrong as wrong:
        raise ModelNotLoadable(f"metadata of model {model!r}: {wrong}") from None


def _tensors(members: dict[str, Any], key: str) -> tuple[TensorSpec, ...] | None:
    value = members.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise _Wrong(key, value, "an array of tensors")
    tensors = tuple(_tensor(member, f"{key}[{index}]") for index, member in enumerate(value))
    return tensors or None  # MLServer writes [] for "not said"


def _tensor(member: Any, path: str) -> TensorSpec:
    members = _object(member, path)
    name, datatype, shape = members.get("name"), members.get("datatype"), members.get("shape")
    if not isinstance(name, str):
        raise _Wrong(f"{path}.name", name, "text")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise _Wrong(f"{path}.datatype", datatype, f"one of {', '.join(DATATYPES)}")
    if shape is not None and not _is_shape(shape):
        raise _Wrong(f"{path}.shape", shape, "an array of whole numbers from -1 up, or null for any rank")
    return TensorSpec(name, DATATYPES[datatype], None if shape is None else tuple(shape))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= -1 for size in value)


def _version_policy(value: Any) -> VersionPolicy:
    if value is None:
        return VersionPolicy()
    policy = _object(value, "version_policy")
    if len(policy) != 1 or next(iter(policy)) not in ("latest", "all", "specific"):
        raise _Wrong("version_policy", policy, "one of latest, all, specific")
    kind, options = next(iter(policy.items()))
    options = _object(options, f"version_policy.{kind}")
    if kind == "all":
        return VersionPolicy(latest=None)
    if kind == "latest":
        return VersionPolicy(latest=_number(options.get("num_versions", 1), "version_policy.latest.num_versions", 1))
    versions = options.get("versions")
    if not isinstance(versions, list) or not versions:
        raise _Wrong("version_policy.specific.versions", versions, "an array of at least one version")
    return VersionPolicy(
        specific=tuple(_number(v, f"version_policy.specific.versions[{i}]", 0) for i, v in enumerate(versions))
    )


def _number(value: Any, path: str, least: int) -> int:
    if type(value) is not int or value < least:
        raise _Wrong(path, value, f"a whole number from {least} up")
    return value


def _labels(value: Any) -> dict[str, tuple[str, ...]]:
    """Class labels of the signatures that have them, under the tensor that their scores come from."""
    labels = {}
    for name, member in _object(value, "signatures").items() if value is not None else ():
        signature = _object(member, f"signatures.{name}")
        texts = signature.get("class_labels")
        if texts is None:
            continue
        path = f"signatures.{name}.class_labels"
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _Wrong(path, texts, "an array of text")
        scores = _object(signature.get("outputs"), f"signatures.{name}.outputs").get("scores")
        target = scores.get("tensor") if isinstance(scores, dict) else scores
        if not isinstance(target, str):
            raise _Wrong(f"signatures.{name}.outputs.scores", scores, "the name of the output that the labels are of")
        labels[target] = tuple(texts)
    return labels
