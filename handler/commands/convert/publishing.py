"""Into a repository on this machine: a version appears complete, by one rename, or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handler.commands.refused import Refused
from handler.commands.staging import appear, of_number, staged
from handler.lifecycle.repository import NAME
from handler.settings.model import FILE


def target(text: str) -> Path:
    """REPOSITORY/NAME of the command line. Raises Refused."""
    folder = repository(text)
    if not NAME.fullmatch(folder.name):
        raise Refused(f"{text!r} does not end in a model's name; expected REPOSITORY/NAME")
    return folder


def repository(text: str) -> Path:
    scheme, separator, _ = text.partition("://")
    if separator:
        raise Refused(f"{text!r} is no folder of this machine; convert into one and copy it to {scheme}:// then")
    return Path(text)


def check_free(model: Path, version: int) -> None:
    """Raises Refused if the model has that version, however its folder is written."""
    for folder in of_number(model, version):
        raise Refused(f"{model.name}/{folder.name} is there already; --force replaces it")


def publish(model: Path, version: int, onnx: bytes, settings: Mapping[str, Any]) -> None:
    """Write NAME/VERSION/model.onnx and its settings, in the place of what is there. Raises Refused."""
    with staged(model.parent, ".convert-") as stage:
        folder = stage / "new"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(onnx)
        (folder / FILE).write_text(text(settings), encoding="utf-8")
        model.mkdir(exist_ok=True)
        appear(folder, model / str(version), of_number(model, version), stage)


def publish_settings(model: Path, settings: Mapping[str, Any]) -> None:
    """Set these keys in NAME/model-settings.json; others in it stay. Raises Refused."""
    path = model / FILE
    try:
        present = json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError:
        raise Refused(f"{model.name}/{FILE} is no JSON") from None
    if not isinstance(present, dict):
        raise Refused(f"{model.name}/{FILE} is no JSON object")
    with staged(model.parent, ".convert-") as stage:
        new = stage / FILE
        new.write_text(text(present | dict(settings)), encoding="utf-8")
        new.replace(path)


def text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
