"""Commands on a path that this user is not permitted to look at. They do not report it as missing."""

import os
from errno import EACCES
from pathlib import Path

import pytest

from handler.cli import main
from handler.commands.doctor import command
from handler.commands.serve import welcome


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path that this user cannot look at. A patch does it, because root, who runs the tests, can look everywhere."""
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
def test_a_closed_path_is_not_reported_as_missing(
    arguments: tuple[str, ...], closed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the path, and the system's reason."""
    monkeypatch.chdir(closed.parents[1])
    Path("iris/1").mkdir(parents=True)
    assert main([text.replace("{}", str(closed)) for text in arguments]) != 0
    told = "".join(capsys.readouterr())
    assert os.strerror(EACCES) in told
    assert "exist" not in told
    assert "there is no" not in told


def test_serve_and_doctor_leave_the_reason_to_the_listing(closed: Path) -> None:
    """The listing has the system's reason."""
    assert "" == welcome._missing(closed) == command._not_a_folder(closed)
