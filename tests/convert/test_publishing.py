"""handler.commands.convert.publishing: a version appears complete, or what was there stays."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from handler.commands.convert import publishing
from handler.commands.refused import Refused

if TYPE_CHECKING:
    from pathlib import Path


def test_a_replacement_whose_last_rename_fails_leaves_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `--force` has it, under the name that it had, and nothing beside it."""
    model = tmp_path / "repository" / "m"
    publishing.publish(model, 1, b"old", {})
    (model / "1").rename(model / "001")
    rename = type(tmp_path).rename

    def fails(self: Path, to: Path) -> Any:
        if to == model / "1":
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(type(tmp_path), "rename", fails)
    with pytest.raises(Refused, match="repository cannot be written: No space left on device"):
        publishing.publish(model, 1, b"new", {})
    monkeypatch.undo()
    assert (model / "001" / "model.onnx").read_bytes() == b"old"
    assert sorted(path.name for path in (*model.iterdir(), *model.parent.iterdir())) == ["001", "m"]
    publishing.publish(model, 1, b"new", {})
    assert (model / "1" / "model.onnx").read_bytes() == b"new"
    assert [path.name for path in model.iterdir()] == ["1"]
