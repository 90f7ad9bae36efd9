"""Triton's config.pbtxt as the members of a model-settings.json. Protobuf reads the file.

Fields without an effect on this server are logged (optimization, instance_group, ...). Fields that would change the
answers are refused: an unknown backend, sequence_batching.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from google.protobuf import text_format

from core.dtype import DATATYPES
from core.errors import ModelNotLoadable, shown
from handler.settings.batching import MOST_ROWS, MOST_SECONDS
from handler.settings.checked import Wrong, WrongText, members_of
from handler.settings.model import settings_of
from handler.settings.triton import FILE, ensemble
from handler.settings.triton.tokens import TOKEN, check_escapes
from handler.settings.triton.triton_model_config import (
    DynamicBatching,
    ModelInput,
    ModelOutput,
    TritonConfig,
    VersionPolicy,
)

log = logging.getLogger(__name__)
MOST_BYTES: Final = 1024 * 1024
KEPT: Final = 1024
"""Files whose translation is remembered: every look at a repository reads all of them."""
DATATYPE_OF: Final = {row.triton: row.name for row in DATATYPES.values()}
TYPES: Final = TritonConfig.DESCRIPTOR.file.enum_types_by_name["TritonType"].values_by_number
KINDS: Final = ("onnxruntime_onnx", "onnxruntime", "python", "ensemble")
ENSEMBLE: Final = "ensemble"
MODELS: Final = ("model.onnx", "model.py")
OPENERS, CLOSERS, BEFORE_VALUE = ("{", "<", "["), ("}", ">", "]"), (":", "{", "<", "[")
ENCODING: Final = "utf-8-sig"
"""UTF-8, with or without the mark that PowerShell and Notepad begin a file with."""
VISIBLE: Final = re.compile(r"[^\s]")
TENSORS: Final = re.compile(r"^(in|out)puts\[")
"""The keys of model-settings.json at the start of an error. In the file they are `input` and `output`."""


def merged(model: str, config: bytes, settings: bytes | None, read: Callable[[str], bytes | None]) -> bytes:
    """Returns the settings of both files; those of model-settings.json come first. Raises ModelNotLoadable.

    `read`: returns a file of the model's folder, None if it is not there.
    """
    try:
        own = {} if settings is None else members_of(settings)
    except Wrong:
        return settings or b""  # the parser says why
    found = members(model, config)
    if "dynamic_batching" in own:  # Triton's name for the same
        found = {key: value for key, value in found.items() if key != "batching"}
    try:
        outputs = [_labelled(each, f"output[{index}]", read) for index, each in enumerate(found["outputs"])]
    except Wrong as wrong:
        raise _refused(model, wrong) from None
    return json.dumps(found | {"outputs": outputs} | own).encode()


@lru_cache(KEPT)
def members(model: str, text: bytes) -> dict[str, Any]:
    """Returns the file as members of model-settings.json. Raises ModelNotLoadable.

    An output's `labels` is still the name of the file that has them.
    """
    try:
        return _checked(model, _members(model, _read(text)))
    except Wrong as wrong:
        raise _refused(model, wrong) from None


def _refused(model: str, wrong: Wrong) -> ModelNotLoadable:
    problem = TENSORS.sub(r"\1put[", str(wrong))
    return ModelNotLoadable(f"{FILE} of model {model!r}: {problem}")


def _labelled(output: dict[str, Any], path: str, read: Callable[[str], bytes | None]) -> dict[str, Any]:
    """Returns an output with the class labels that its file has, one a line. Raises Wrong."""
    if "labels" not in output:
        return output
    key, name = f"{path}.label_filename", output["labels"]
    content = read(name)
    if content is None:
        raise Wrong(key, name, "a file in the model's folder")
    try:
        if len(content) > MOST_BYTES:
            raise Wrong(key, f"a file of {len(content)} bytes", f"at most {MOST_BYTES}")
        lines = content.decode(ENCODING).removesuffix("\n").split("\n")
        return output | {"labels": [line.rstrip("\r") for line in lines]}
    except UnicodeDecodeError:
        raise Wrong(key, name, "a file in UTF-8") from None


def _read(text: bytes) -> tuple[TritonConfig, list[str]]:
    """Returns the configuration, and the names of its fields. Raises Wrong."""
    if len(text) > MOST_BYTES:
        raise Wrong("the file", f"{len(text)} bytes", f"at most {MOST_BYTES}")
    try:
        known, fields = _known(text.decode(ENCODING))
        check_escapes(known)
        return text_format.Parse(known, TritonConfig(), allow_unknown_field=True), fields
    except (text_format.ParseError, RecursionError, ValueError) as error:
        words = " ".join(str(error).replace("dragoman.triton.", "").split())
        raise WrongText(f"the file is not protobuf's text format: {words[:160]}") from None


def _known(text: str) -> tuple[str, list[str]]:
    """Returns the text with blanks for the outermost fields that have no effect, and the names of all.

    Protobuf skips unknown fields, but not `instance_group [ ... ]`, which Triton's own files have.
    """
    fields = list(_fields(text))
    names, starts = [name for name, _ in fields], [start for _, start in fields]
    kept = [text[: starts[0]] if starts else text]
    for (name, start), end in zip(fields, [*starts[1:], len(text)], strict=False):  # without fields there is one end
        is_known = name in TritonConfig.DESCRIPTOR.fields_by_name
        kept.append(text[start:end] if is_known else VISIBLE.sub(" ", text[start:end]))
    return "".join(kept), list(dict.fromkeys(names))


def _fields(text: str) -> Iterator[tuple[str, int]]:
    """Yields the names of the outermost fields, and where each begins."""
    depth, before = 0, None
    for token in TOKEN.finditer(text):
        word = token[0]
        if word[0] == "#":
            continue
        if depth == 0 and before is not None and word in BEFORE_VALUE and before[0].isidentifier():
            yield before[0], before.start()
        depth += (word in OPENERS) - (word in CLOSERS)
        before = token
        if depth < 0:
            break
    if depth:
        raise WrongText("the file does not have as many closing brackets as opening ones")


def _members(model: str, read: tuple[TritonConfig, list[str]]) -> dict[str, Any]:
    config, fields = read
    _check(model, config, fields)
    batch = config.max_batch_size
    found: dict[str, Any] = {
        "max_batch_size": batch,
        "inputs": [_tensor(each, f"input[{index}]", batch) for index, each in enumerate(config.input)],
        "outputs": [_tensor(each, f"output[{index}]", batch) for index, each in enumerate(config.output)],
    }
    if config.HasField("version_policy"):
        found["version_policy"] = _version_policy(config.version_policy)
    if config.HasField("dynamic_batching") and batch > 1:
        found["batching"] = _batching(config.dynamic_batching, batch)
    if ENSEMBLE in (config.platform, config.backend) or config.HasField("ensemble_scheduling"):
        found["pipeline"] = ensemble.said(config)
    elif config.platform:
        found["platform"] = config.platform
    return found


def _check(model: str, config: TritonConfig, fields: Iterable[str]) -> None:
    """Raises Wrong for a field whose meaning this server cannot provide, and logs the fields without an effect."""
    if config.name not in ("", model):
        raise Wrong("name", config.name, f"the folder's name {model!r}, or no name")
    for key, kind in (("platform", config.platform), ("backend", config.backend)):
        if kind and kind not in KINDS:
            raise Wrong(key, kind, f"one of {', '.join(KINDS)}")
    if config.default_model_filename and config.default_model_filename not in MODELS:
        raise Wrong("default_model_filename", config.default_model_filename, " or ".join(MODELS))
    if config.max_batch_size < 0:
        raise Wrong("max_batch_size", config.max_batch_size, "0 or more")
    if "sequence_batching" in fields:
        raise WrongText(
            "sequence_batching is not offered: no model keeps a state between requests", "sequence_batching"
        )
    unused = sorted(field for field in fields if field not in TritonConfig.DESCRIPTOR.fields_by_name)
    if unused:
        log.warning("%s of model %s: %s has no effect here", FILE, model, shown(", ".join(unused)))


def _tensor(tensor: ModelInput | ModelOutput, path: str, batch: int) -> dict[str, Any]:
    kind = TYPES.get(tensor.data_type)
    datatype = None if kind is None else DATATYPE_OF.get(kind.name)
    if not tensor.name:
        raise Wrong(f"{path}.name", tensor.name, "the name of a tensor")
    if datatype is None:
        raise Wrong(f"{path}.data_type", tensor.data_type, f"one of {', '.join(DATATYPE_OF)}")
    dims = list(tensor.dims)
    if any(size < -1 for size in dims):
        raise Wrong(f"{path}.dims", dims, "whole numbers from -1 up")
    first = [-1] if batch else []
    shape = {"shape": [*first, *dims]}
    own: dict[str, Any] = {}
    if tensor.HasField("reshape"):
        own["reshape"] = [*first, *tensor.reshape.shape]
    if isinstance(tensor, ModelInput):
        own["format"] = ModelInput.Format.Name(tensor.format)
    elif tensor.label_filename:
        own["labels"] = tensor.label_filename
    return {"name": tensor.name, "datatype": datatype} | shape | own


def _checked(model: str, found: dict[str, Any]) -> dict[str, Any]:
    """Returns the members. Raises Wrong for what is refused in model-settings.json as well."""
    outputs = [{key: value for key, value in each.items() if key != "labels"} for each in found["outputs"]]
    settings_of(found | {"outputs": outputs}, model, is_renamed=True)
    return found


def _version_policy(policy: VersionPolicy) -> dict[str, Any]:
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return {"all": {}}
    if kind == "specific":
        versions = list(policy.specific.versions)
        if not versions or any(version < 0 for version in versions):
            raise Wrong("version_policy.specific.versions", versions, "at least one version, and none below 0")
        return {"specific": {"versions": versions}}
    return {"latest": {"num_versions": policy.latest.num_versions or 1}}


def _batching(batching: DynamicBatching, batch: int) -> dict[str, Any]:
    """Returns the key "batching". Smaller batches and shorter waits than Triton's change no answer."""
    preferred = list(batching.preferred_batch_size)
    if any(not 0 < size <= batch for size in preferred):
        raise Wrong("dynamic_batching.preferred_batch_size", preferred, f"sizes from 1 to max_batch_size, {batch}")
    delay = min(batching.max_queue_delay_microseconds / 1000, MOST_SECONDS * 1000)
    said: dict[str, Any] = {"max_batch_size": min(batch, MOST_ROWS), "max_delay_ms": delay}
    fitting = [size for size in preferred if size <= MOST_ROWS]
    return said | ({"preferred": fitting} if fitting else {})
