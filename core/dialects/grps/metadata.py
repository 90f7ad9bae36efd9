"""GRPS's metadata of the server and of a model: one YAML document each, in str_data.

GRPS's own servers send their configuration files, paths included; these documents have only what a client can use.
"""

from collections.abc import Sequence
from typing import Any

from core.dialects.grps.content import carrier
from core.operations import IndexEntry, ModelInfo, ServerInfo
from core.tensor import TensorSpec


def of_server(overview: tuple[ServerInfo, Sequence[IndexEntry]]) -> str:
    """Returns the YAML of the server and every model version.

    GRPS's servers have `interface`, `models` and `dag`, too: the model that answers requests which name none.
    """
    info, versions = overview
    return _yaml(
        {
            "name": info.name,
            "version": info.version,
            "platform": "dragoman",
            "interface": {"framework": "http+grpc"},
            "models": [{"name": each.name, "version": each.version, "state": each.state} for each in versions],
            "dag": {"type": "sequential", "name": "default", "nodes": _nodes(info.default_model, versions)},
        }
    )


def _nodes(default: str, versions: Sequence[IndexEntry]) -> list[dict[str, Any]]:
    """Returns the only node of the default: a version that the caller sees. It is empty without a default."""
    names = {entry.name for entry in versions}
    name = default or (next(iter(names)) if len(names) == 1 else "")
    fitting = [entry for entry in versions if name in (entry.name, f"{entry.name}-{entry.version}")]
    if not fitting:
        return []
    newest = max(fitting, key=lambda entry: int(entry.version or -1))
    return [{"name": "node-1", "type": "model", "model": f"{newest.name}-{newest.version}"}]


def of_model(info: ModelInfo) -> str:
    """Returns the YAML of a model. `dtype`: the protocol's type; `datatype`: the tensor's own.

    `inputs`, `outputs` and a `shape` are null if the model does not declare them.
    """
    spec = info.spec
    return _yaml(
        {
            "name": spec.name,
            "version": spec.version,
            "versions": list(info.versions),
            "platform": spec.platform,
            "inputs": _tensors(spec.inputs),
            "outputs": _tensors(spec.outputs),
        }
    )


def _tensors(specs: Sequence[TensorSpec] | None) -> list[dict[str, Any]] | None:
    if specs is None:
        return None
    return [
        {
            "name": spec.name,
            "dtype": carrier(spec.datatype).grps,
            "datatype": spec.datatype.name,
            "shape": None if spec.shape is None else list(spec.shape),
        }
        for spec in specs
    ]


def _yaml(document: dict[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(value: Any) -> list[str]:
    """Returns the lines of an object or a list of objects. Strings are quoted: none is read as a number or a date."""
    if isinstance(value, list):
        marks = ("- ", "  ")
        return [marks[bool(index)] + line for member in value for index, line in enumerate(_lines(member))]
    lines = []
    for key, member in value.items():
        if isinstance(member, dict) or (isinstance(member, list) and member and isinstance(member[0], dict)):
            lines += [f"{key}:", *(f"  {line}" for line in _lines(member))]
        else:
            lines.append(f"{key}: {_plain(member)}")
    return lines


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """Returns a double-quoted scalar, with an escape for characters that YAML refuses or reads as the end of a line."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
