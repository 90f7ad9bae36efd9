"""handler.commands.staging: files and folders appear whole, or leave nothing."""

import os
import resource
import shutil
from pathlib import Path

import pytest

from handler.cli import main
from handler.commands import staging

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("words", [["sign", "{}/iris", "--unsigned"], ["index", "{}"]])
def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A limit on the size of files does what a full disk does: the beginning of the file is there."""
    shutil.copytree(ROOT / "models" / "iris", tmp_path / "iris")
    before = sorted(tmp_path.rglob("*"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        code = main([text.replace("{}", str(tmp_path)) for text in words])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, sorted(tmp_path.rglob("*"))) == (1, before)
    assert "cannot be written: File too large" in capsys.readouterr().err


def test_two_writers_of_a_file_do_not_share_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one writes between the first one's content and its rename."""
    path, replace, others = tmp_path / "index.json", Path.replace, [b"second"]

    def renamed(new: Path, target: Path) -> Path:
        if others:
            staging.write(path, others.pop())
        return replace(new, target)

    monkeypatch.setattr(Path, "replace", renamed)
    staging.write(path, b"first")
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (b"first", [path])


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power failure can leave an empty file in the place of the old one."""
    path, fsync = tmp_path / "index.json", os.fsync
    seen: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda file: (seen.append((os.fstat(file).st_size, path.exists())), fsync(file)))
    staging.write(path, b"content")
    assert seen == [(7, False)]
