"""TensorFlow Serving's models.config (proto/model_server_config.proto: ModelServerConfig) as models to convert.

Protobuf reads the file and checks its fields. model_platform, model_type and logging_config have no effect here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from google.protobuf import text_format

from core.records import NamedTuple
from core.schema.pool import POOL
from handler.commands.convert import model_server_config
from handler.commands.convert.model_server_config import FileSystemStoragePathSourceConfig, ModelServerConfig
from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION
from handler.settings.triton.tokens import check_escapes
from handler.stores.directory import is_name

POLICIES: Final = ("latest", "all", "specific")
PACKAGE: Final = ModelServerConfig.DESCRIPTOR.file.package
UNKNOWN: Final = re.compile(r'Message type "([\w.]+)" has no field')


class ModelConfig(NamedTuple):
    """`version_policy`: in the form of model-settings.json, None where the file has none."""

    name: str
    base_path: Path
    version_policy: dict[str, Any] | None
    version_labels: Mapping[str, int]


def read(path: Path) -> list[ModelConfig]:
    """Returns the models that the file names. Raises Refused."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    try:
        return parse(text)
    except Refused as refusal:
        raise Refused(f"{path}: {refusal}") from None


def parse(text: str) -> list[ModelConfig]:
    """Returns the models that the text names. Raises Refused."""
    models = [_model(config) for config in _server(text).model_config_list.config]
    if not models:
        raise Refused("no model is named: expected model_config_list { config { name: ... base_path: ... } }")
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise Refused(f"model {name!r} is named twice")
    return models


def _server(text: str) -> ModelServerConfig:
    """Reads the text format. A field that the schema does not have is a spelling mistake, which nothing may hide."""
    try:
        check_escapes(text)
        return text_format.Parse(text, ModelServerConfig())
    except text_format.ParseError as error:
        raise _refusal(error, text) from None
    except ValueError as error:
        raise Refused(f"a text cannot be read: {error}") from None


def _refusal(error: text_format.ParseError, text: str) -> Refused:
    """Names the place, then protobuf's reason without the file's line, then the fields that a message has."""
    line, column, words = error.GetLine() or 1, error.GetColumn() or 1, str(error)
    for repeated in (f"{line}:{column} : ", f"'{text.split(chr(10))[line - 1]}': ", "'': "):
        words = words.removeprefix(repeated)
    refusal = f"line {line}, column {column}: {words.replace(f'{PACKAGE}.', '')}"
    if (unknown := UNKNOWN.match(words)) is None:
        return Refused(refusal)
    fields = POOL.FindMessageTypeByName(unknown[1]).fields
    return Refused(f"{refusal.removesuffix('.')}; expected {', '.join(field.name for field in fields)}")


def _model(config: model_server_config.ModelConfig) -> ModelConfig:
    name = _required(config.name, "name", "config")
    if not is_name(name):
        raise Refused(f"config.name is {name!r}, which cannot name a model's folder")
    where = f"model {name!r}"
    return ModelConfig(
        name,
        _local(_required(config.base_path, "base_path", where), where),
        _policy(config.model_version_policy, where) if config.HasField("model_version_policy") else None,
        {label: _version(number, f"{where}: version_labels.value") for label, number in config.version_labels.items()},
    )


def _required(value: str, field: str, where: str) -> str:
    if not value:
        raise Refused(f"{where}: {field} is missing")
    return value


def _local(base_path: str, where: str) -> Path:
    scheme, separator, _ = base_path.partition("://")
    if not separator:
        return Path(base_path)
    if scheme != "file":
        raise Refused(f"{where}: base_path is {base_path!r}; copy it to this machine first, {scheme}:// is not read")
    return Path(unquote(urlsplit(base_path).path))


def _policy(policy: FileSystemStoragePathSourceConfig.ServableVersionPolicy, where: str) -> dict[str, Any]:
    what = f"{where}: model_version_policy"
    kind = policy.WhichOneof("policy_choice")
    if kind is None:
        raise Refused(f"{what} is empty; expected one of {', '.join(POLICIES)}")
    if kind == "all":
        return {"all": {}}
    if kind == "latest":
        # TensorFlow Serving reads 0, protobuf's default, as 1.
        return {"latest": {"num_versions": policy.latest.num_versions or 1}}
    versions = [_version(number, f"{what}.specific.versions") for number in policy.specific.versions]
    if not versions:
        raise Refused(f"{what}.specific names no versions")
    return {"specific": {"versions": versions}}


def _version(number: int, what: str) -> int:
    if not VERSION.fullmatch(str(number)):
        raise Refused(f"{what} is {number}; expected a whole number from 0 up, below 9 * 10**18")
    return number
