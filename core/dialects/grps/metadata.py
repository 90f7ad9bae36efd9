"""What GRPS tells of a server and of a model: one YAML document each, in str_data.

GRPS's own servers send their configuration files, paths included; this tells what a client can use.
"""

from collections.abc import Sequence
from typing import Any

from core.dialects.grps.content import carrier
from core.operations import IndexEntry, ModelInfo, ServerInfo
from core.tensor import TensorSpec


def of_server(overview: tuple[ServerInfo, Sequence[IndexEntry]]) -> str:
    """The server, and every version of every model. GRPS's servers have `interface` and `models` in theirs, too."""
    info, versions = overview
    return _yaml(
        {
            "name": info.name,
            "version": info.version,
            "platform": "dragoman",
            "interface": {"framework": "http+grpc"},
            "models": [{"name": each.name, "version": each.version, "state": each.state} for each in versions],
        }
    )


def of_model(info: ModelInfo) -> str:
    """`dtype`: of the protocol; `datatype`: of the tensor; both `inputs` and a `shape` are null where it is open."""
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
    """Of an object, or of a list of objects; strings are quoted, so that none is taken for a number or a date."""
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
    """A double-quoted scalar; what YAML's readers refuse or take for the end of a line is escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
