"""A repository in the place of a model: the model's name was probably forgotten."""

from pathlib import Path
from typing import Any

import pytest

from tests.handler.commands.publish.conftest import Bucket, adds

READINGS = (
    "'r' can be the repository in this folder, which has model wine, or a new model of models: type r/NAME or models/r"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the repository `r`, which has the model `wine`, and with files to publish."""
    monkeypatch.chdir(tmp_path)
    adds(1, tmp_path / "r" / "wine" / "1")
    adds(2, tmp_path / "new")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    return tmp_path


@pytest.mark.parametrize("command", [("push", "new"), ("convert", "saved")])
@pytest.mark.parametrize(("typed", "told"), [
    ("r", READINGS),
    ("./r", "./r is a repository, with model wine: add the model's name, ./r/NAME"),
    ("r/wine/1", "r/wine/1 is the place of a version of r/wine: push to r/wine with --version 1"),
])  # fmt: skip
def test_a_place_that_is_not_a_models_is_refused(
    run: Any, here: Path, command: tuple[str, ...], typed: str, told: str
) -> None:
    """A conversion is refused before it begins. Neither the repository nor the default repository is written."""
    assert run(*command, typed) == (1, "", f"dragoman: {told}\n")
    assert not (here / "models").exists()
    assert [path.name for path in (here / "r").iterdir()] == ["wine"]


def test_a_model_with_a_number_for_a_name_does_not_hide_that_a_folder_is_a_repository(run: Any, here: Path) -> None:
    """Its folder has versions and no model's file, as a version's folder would have."""
    adds(1, here / "r" / "2024" / "1")
    told = "is a repository, with model wine: add the model's name"
    for command in (("push", "new", "./r"), ("push", "new", "r/")):
        code, out, err = run(*command)
        assert (code, out, told in err) == (1, "", True), command
    assert run("push", "new", "r/2024")[:2] == (0, "r/2024/2: 1 file, 96 B; served\n")
    assert sorted(path.name for path in (here / "r").iterdir()) == ["2024", "wine"]


@pytest.mark.parametrize("beside", ["1", ".", "src/v1", "deep/wine/1"])
def test_a_name_has_one_meaning_beside_a_folder_that_is_not_a_repository(run: Any, here: Path, beside: str) -> None:
    """The folder can be a model, as `pull` makes it, a version, or a project's."""
    adds(3, here / "other" / beside)
    assert run("push", "new", "other") == (0, "models/other/1: 1 file, 96 B; served\n", "")


def test_a_name_has_one_meaning_if_the_repository_has_that_model(
    run: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next version is pushed. The path of a new model is always clear, as is a name beside its own repository."""
    assert run("push", "new", "models/r")[:2] == (0, "models/r/1: 1 file, 96 B; served\n")
    assert run("push", "new", "r")[:2] == (0, "models/r/2: 1 file, 96 B; served\n")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", ".")
    assert (
        run("push", "new", "r")[2] == "dragoman: ./r is a repository, with model wine: add the model's name, ./r/NAME\n"
    )
    assert run("push", "new", "other")[:2] == (0, "./other/1: 1 file, 96 B; served\n")


def test_a_listed_model_does_not_hide_a_repository_of_its_name(run: Any, here: Path) -> None:
    """A line on stderr names it. A folder that is a model needs none."""
    run("push", "new", "models/r")
    run("push", "new", "models/other")
    adds(3, here / "other" / "1")
    code, out, err = run("list", "r")
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["r", "1"])
    assert err == "'r' is a model of models; ./r is the repository in this folder\n"
    assert run("list", "./r")[1].splitlines()[1].split()[:2] == ["wine", "1"]
    assert run("list", "other")[2] == ""


def test_a_pull_into_a_repository_is_refused(run: Any, here: Path, bucket: Bucket) -> None:
    """The versions would lie beside its models, and hide them. The model's place in it is named."""
    bucket.put("wine/2/model.onnx", b"x")
    told = "dragoman: r is a repository, with model wine: add the model's name, r/NAME\n"
    assert run("pull", f"{bucket.uri}/wine", "r") == (1, "", told)
    assert run("pull", f"{bucket.uri}/wine", "r/wine", "--quiet")[:2] == (0, "r/wine/2: 1 B\n")
