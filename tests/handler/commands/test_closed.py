"""Commands on a place that this user may not search. They do not say that it does not exist."""

import os
from errno import EACCES
from pathlib import Path

import pytest

from handler.cli import main
from handler.commands.doctor import command
from handler.commands.serve import welcome


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in one that may not be searched. The tests may run as root, who may search everything."""
    folder = tmp_path / "closed" / "models"
    looked = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to(folder):
            raise PermissionError(EACCES, os.strerror(EACCES), str(path))
        return looked(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    return folder


@pytest.mark.parametrize("arguments", [
    ("push", "{}/m", "to"), ("push", "{}/m/1/model.onnx", "to"), ("list", "{}"), ("sign", "{}/m", "--unsigned"),
    ("convert", "{}/m", "to"), ("convert", "{}/m.txt", "to"), ("index", "{}"), ("replay", "{}/x.jsonl"),
    ("build-image", "{}", "--tag", "a"), ("build-image", ".", "--tag", "a", "--constraints", "{}/x.txt"),
    ("batch", "m", "{}/in.jsonl", "out.jsonl"), ("bench", "m", "--svg", "{}/x.svg"),
])  # fmt: skip
def test_a_closed_place_is_not_called_absent(
    arguments: tuple[str, ...], closed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the system's reason, and the path."""
    monkeypatch.chdir(closed.parents[1])
    Path("iris/1").mkdir(parents=True)
    assert main([text.replace("{}", str(closed)) for text in arguments]) != 0
    told = "".join(capsys.readouterr())
    assert os.strerror(EACCES) in told
    assert "exist" not in told
    assert "there is no" not in told


def test_serve_and_doctor_leave_the_reason_to_the_listing(closed: Path) -> None:
    """It has the system's."""
    assert "" == welcome._missing(closed) == command._not_a_folder(closed)
