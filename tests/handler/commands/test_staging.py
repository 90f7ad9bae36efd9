"""handler.commands.staging: files and folders appear whole, or leave nothing."""

import resource
import shutil
from pathlib import Path

import pytest

from handler.cli import main

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
