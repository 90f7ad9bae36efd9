"""TensorFlow Serving's models.config (model_server_config.proto: ModelServerConfig) as models to convert.

model_platform, model_type and logging_config say nothing that is needed here, and are ignored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from handler.commands.convert import text_format
from handler.commands.convert.text_format import Message
from handler.commands.refused import Refused
from handler.lifecycle.repository import NAME, VERSION

IGNORED: Final = {"model_platform", "model_type", "logging_config"}
KNOWN: Final = {"name", "base_path", "model_version_policy", "version_labels", *IGNORED}
POLICIES: Final = ("latest", "all", "specific")


class ModelConfig(NamedTuple):
    """`version_policy`: as model-settings.json has it, None where the file is silent."""

    name: str
    base_path: Path
    version_policy: dict[str, Any] | None
    version_labels: Mapping[str, int]


def read(path: Path) -> list[ModelConfig]:
    """The models that the file names. Raises Refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    try:
        return parse(text)
    except Refused as refusal:
        raise Refused(f"{path}: {refusal}") from None


def parse(text: str) -> list[ModelConfig]:
    server = text_format.parse(text)
    for field in server:
        if field != "model_config_list":
            raise Refused(f"{field} is not supported; expected model_config_list")
    lists = [_message(member, "model_config_list") for member in server.get("model_config_list", [])]
    models = [_model(_message(member, "config")) for fields in lists for member in fields.get("config", [])]
    if not models:
        raise Refused("no model is named: expected model_config_list { config { name: ... base_path: ... } }")
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise Refused(f"model {name!r} is named twice")
    return models


def _model(fields: Message) -> ModelConfig:
    name = _text(fields, "name", "config")
    if not NAME.fullmatch(name):
        raise Refused(f"config.name is {name!r}, which is no name for a model's folder")
    where = f"model {name!r}"
    for field in fields:
        if field not in KNOWN:
            raise Refused(f"{where}: {field} is no field of ModelConfig")
    policy = fields.get("model_version_policy")
    return ModelConfig(
        name,
        _local(_text(fields, "base_path", where), where),
        None if policy is None else _policy(_message(policy[-1], f"{where}: model_version_policy"), where),
        dict(_label(_message(entry, f"{where}: version_labels"), where) for entry in fields.get("version_labels", [])),
    )


def _local(base_path: str, where: str) -> Path:
    scheme, separator, _ = base_path.partition("://")
    if not separator:
        return Path(base_path)
    if scheme != "file":
        raise Refused(f"{where}: base_path is {base_path!r}; copy it to this machine first, {scheme}:// is not read")
    return Path(unquote(urlsplit(base_path).path))


def _policy(fields: Message, where: str) -> dict[str, Any]:
    chosen = [field for field in fields if field in POLICIES]
    if len(chosen) != 1 or len(fields) != 1:
        raise Refused(f"{where}: model_version_policy has {', '.join(fields) or 'nothing'}; expected one of {POLICIES}")
    kind = chosen[0]
    what = f"{where}: model_version_policy.{kind}"
    options = _message(fields[kind][-1], what)
    if kind == "all":
        return {"all": {}}
    if kind == "latest":
        # TensorFlow Serving takes 0, protobuf's "not said", for 1.
        numbers = options.get("num_versions", ["0"])
        return {"latest": {"num_versions": _number(numbers[-1], f"{what}.num_versions") or 1}}
    versions = [_number(value, f"{what}.versions") for value in options.get("versions", [])]
    if not versions:
        raise Refused(f"{what} names no versions")
    return {"specific": {"versions": versions}}


def _label(entry: Message, where: str) -> tuple[str, int]:
    """An entry of the map; a key or value that is left out is protobuf's default."""
    key = _last_text(entry.get("key", [""])[-1], f"{where}: version_labels.key")
    return key, _number(entry.get("value", ["0"])[-1], f"{where}: version_labels.value")


def _message(value: Any, what: str) -> Message:
    if not isinstance(value, dict):
        raise Refused(f"{what} is {value!r}; expected a message in braces")
    return value


def _text(fields: Message, field: str, where: str) -> str:
    values = fields.get(field)
    if not values or not values[-1]:
        raise Refused(f"{where}: {field} is missing")
    return _last_text(values[-1], f"{where}: {field}")


def _last_text(value: Any, what: str) -> str:
    if not isinstance(value, str) or isinstance(value, text_format.Word):
        raise Refused(f"{what} is {value if isinstance(value, str) else 'a message'}; expected text in quotes")
    return value


def _number(value: Any, what: str) -> int:
    if not isinstance(value, str) or not VERSION.fullmatch(value):
        raise Refused(
            f"{what} is {value if isinstance(value, str) else 'a message'}; expected a whole number from 0 up"
        )
    return int(value)
