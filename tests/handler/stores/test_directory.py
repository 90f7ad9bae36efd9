"""handler.stores and handler.stores.directory: files as the disk has them."""

import os
from collections.abc import Iterator
from errno import EIO
from pathlib import Path

import pytest

from core.errors import ModelUnavailable
from handler.settings import InvalidSettings, Settings
from handler.stores import open_store
from handler.stores.directory import DirectoryStore


def test_a_file_that_goes_while_its_folder_is_read_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing leaves out a file that a push has replaced meanwhile; another fault of the disk is an error."""
    listed = os.scandir

    def scanned(folder: Path) -> Iterator[os.DirEntry[str]]:
        for entry in listed(folder):
            if entry.name == "gone.bin":
                Path(entry.path).unlink()
            yield entry

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"1")
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}))
    there = store.files("m")
    assert [file.path for file in there] == ["1/model.onnx"]
    (tmp_path / "m" / "1" / "gone.bin").write_bytes(b"1")
    monkeypatch.setattr(os, "scandir", scanned)
    assert store.files("m") == there

    def broken(_: object) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(ModelUnavailable, match="model 'm' cannot be listed: Input/output error"):
        store.files("m")


def test_file_uris_are_directories(tmp_path: Path) -> None:
    """A file URI names a directory, percent-encoded as URIs are. Folders of Python and file systems are no models."""
    for name in ("m/1", "__pycache__", "lost+found", ".git"):
        (tmp_path / "a b" / name).mkdir(parents=True)
    store = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": f"file://{tmp_path}/a%20b"}))
    assert list(store.models()) == ["m"]


def test_a_store_that_nobody_knows_is_a_wrong_setting() -> None:
    """The refusal of an unknown scheme names the known ones."""
    with pytest.raises(InvalidSettings, match="expected a directory or one of file://, s3://"):
        open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": "gopher://x"}))
