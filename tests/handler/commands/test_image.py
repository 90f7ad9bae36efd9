"""`dragoman build-image`: what the engine gets, and what is refused; tests/e2e builds the images and runs them."""

import json
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from handler import cli
from handler.commands.image import command
from tests.support.server import serve

ROOT = Path(__file__).parents[3]
ENGINE = f"""#!{sys.executable}
import json, os, sys
context = sys.argv[-1]
files = sorted(os.path.relpath(os.path.join(at, name), context) for at, _, names in os.walk(context) for name in names)
json.dump([sys.argv[1:-1], files], open(os.environ["TOLD"], "w"))
sys.exit(int(os.environ.get("EXIT", 0)))
"""
"""A stand-in for a container engine: it notes what it was told."""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository with one model, which is a link, files that are not models, and two loops."""
    folder = tmp_path / "models"
    (folder / "iris" / "1" / "__pycache__").mkdir(parents=True)
    (tmp_path / "weights").write_bytes(b"w")
    (folder / "iris" / "1" / "model.onnx").symlink_to(tmp_path / "weights")
    for name, target in (("here", "."), ("round", folder)):
        (folder / "iris" / "1" / name).symlink_to(target)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    return folder


def test_the_dockerfile_in_the_package_is_fresh() -> None:
    """A wheel has no files from beside its packages: cp Dockerfile handler/commands/image/."""
    assert command.DOCKERFILE.read_bytes() == (ROOT / "Dockerfile").read_bytes()


def test_the_dockerfile_prunes_what_the_functions_artifact_does_without() -> None:
    """The list is that of function.mk."""
    made = (ROOT / "handler/commands/init/files/aws/function.mk").read_text(encoding="utf-8")
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (parts,) = (line.partition("onnxruntime/,")[2].split(")")[0] for line in made.splitlines() if "PRUNED :=" in line)
    (unused,) = (line.partition(":= ")[2] for line in made.splitlines() if line.startswith("UNUSED"))
    assert all(f"onnxruntime/{part}" in text for part in parts.split())
    assert all(f'"*.{name}"' in text for name in unused.split())


def test_the_images_user_can_read_models_that_only_their_owner_could(tmp_path: Path) -> None:
    """The step of the Dockerfile that takes the models over runs here, on a context like that of a strict umask."""
    steps = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("/models", str(tmp_path / "models"))
    (step,) = (text.partition("\n#")[0] for text in steps.split("\nRUN ") if "mv repository" in text)
    version = tmp_path / "context" / "repository" / "iris" / "1"
    version.mkdir(parents=True)
    (tmp_path / "context" / "wheels").mkdir()
    (tmp_path / "context" / "wheels" / "dragoman.whl").touch()
    (version / "model.onnx").touch(0o600)
    for folder in (version, version.parent, version.parents[1]):
        folder.chmod(0o700)
    subprocess.run(["sh", "-c", step], cwd=tmp_path / "context", check=True)  # noqa: S607 - the Dockerfile's own
    made = [tmp_path / "models", *(tmp_path / "models").rglob("*")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o755, 0o755, 0o755, 0o644]


def test_the_images_health_is_asked_on_the_servers_port(tmp_path: Path) -> None:
    """The platform or dragoman.toml names it, or PORT if the server listens there. The check does not use a proxy."""
    check = (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("HEALTHCHECK")[2].partition("CMD ")[2]
    _, *words = json.loads(check.partition("\n")[0])
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models")) as server:
        port = str(server.port)

        def status(text: str, **environ: str) -> int:
            (tmp_path / "dragoman.toml").write_text(text)
            return subprocess.run([sys.executable, *words], cwd=tmp_path, env=environ, check=False).returncode

        assert status("", SAGEMAKER_BIND_TO_PORT=port) == status("", AIP_HTTP_PORT=port, AIP_PREDICT_ROUTE="/p") == 0
        assert status("", K_SERVICE="s", PORT=port) == status(f"port = {port}", PORT="1") == 0
        assert status(f"port = {port}", HTTP_PROXY="http://127.0.0.1:1") == 0
        assert status("port = 1") != 0


@pytest.mark.parametrize(("extras", "told"), [
    ("foo", "--extras has 'foo'; expected server, onnx, grpc, "),
    ("server,onxx", "--extras has 'onxx'; did you mean onnx?"),
    ("onnx,", "--extras has ''; expected server, onnx"),
])  # fmt: skip
def test_an_unknown_extra_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extras: str, told: str
) -> None:
    """Pip only warns of it, and the image lacks what was meant."""
    words = ["build-image", "--tag", "a", "--context", str(tmp_path / "c"), "--extras"]
    assert cli.main([*words, extras]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    assert cli.main([*words, "Convert_SKLEARN, onnx"]) == 0


@pytest.mark.parametrize("target", ["lambda", "streaming"])
def test_the_base_of_a_function_is_awss(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    """Another Python would choose the wheels, and the function could not import them."""
    words = ["build-image", "--tag", "a", "--context", str(tmp_path / "c"), "--target", target]
    assert cli.main([*words, "--base", "python:3.11-slim"]) == 2
    assert f"--base is the base of a server's image; a function has AWS's own (--target {target})" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "c").exists()
    assert cli.main(words) == 0


@pytest.mark.parametrize(("words", "expected"), [
    ((), ["--target", "server"]),
    (("--target", "streaming", "--extras", "onnx,signing"),
     ["--target", "streaming", "--build-arg", "LAMBDA_EXTRAS=onnx,signing"]),
    (("--base", "python:3.14", "--platform", "linux/arm64", "--extras", "server,onnx"),
     ["--target", "server", "--platform", "linux/arm64", "--build-arg", "PYTHON=python:3.14",
      "--build-arg", "EXTRAS=server,onnx"]),
])  # fmt: skip
def test_the_engine_gets_the_wheel_and_the_models(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: list[str]
) -> None:
    """A stand-in for the engine has the context while it runs; its exit code is the command's."""
    engine, told, pins = tmp_path / "engine", tmp_path / "told", tmp_path / "pins.txt"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    pins.write_text("numpy==2.3.0\n")
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.setenv("EXIT", "3")
    flags = ["--tag", "fraud:1", "--engine", str(engine), "--constraints", str(pins), *words]
    assert cli.main(["build-image", str(models), *flags]) == 3
    said, files = json.loads(told.read_text())
    assert [word for word in said if word not in ("build", "--tag", "fraud:1")] == expected
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parts = ["Dockerfile", "constraints.txt", "repository/iris/1/model.onnx"]
    assert files == [*parts, f"wheels/dragoman-{version}-py3-none-any.whl"]


def test_the_context_can_be_had_alone(tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run does not mix its files with those of the first. An edit there changes no model of the repository."""
    words = ["build-image", str(models), "--tag", "x", "--context", str(tmp_path / "context")]
    assert cli.main(words) == 0
    assert f"docker build --target server --tag x {tmp_path / 'context'}" in capsys.readouterr().out
    copy = tmp_path / "context" / "repository" / "iris" / "1" / "model.onnx"
    assert copy.read_bytes() == b"w"
    copy.write_bytes(b"edited")
    assert (tmp_path / "weights").read_bytes() == b"w"
    assert cli.main(words) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "text"), [
    (["s3://bucket/models"], "`dragoman pull` fetches them"),
    (["nowhere"], "the folder nowhere does not exist"),
    (["."], "has no models: expected a folder for each"),
    (["iris"], "iris is one model: name the folder of the models, "),
    (["iris/1"], "iris/1 has no models: expected a folder for each"),
    (["--constraints", "none.txt"], "there is no file none.txt"),
    (["--engine", "no-such-engine"], "no program no-such-engine to build an image with"),
])  # fmt: skip
def test_what_cannot_become_an_image_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    """Nothing has been built."""
    monkeypatch.chdir(tmp_path)
    if words[0].startswith("iris"):
        (tmp_path / "iris" / "1").mkdir(parents=True)
    assert cli.main(["build-image", *words, "--tag", "x"]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("context", ["iris/context", "../models/context"])
def test_a_context_among_the_models_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], context: str
) -> None:
    """It was copied into itself until Python had no more stack; a refusal wrote nothing."""
    monkeypatch.chdir(models)
    assert cli.main(["build-image", ".", "--tag", "x", "--context", context]) == 1
    assert (
        capsys.readouterr().err
        == f"dragoman: {context} lies in ., whose files are copied there; choose another folder\n"
    )
    assert not Path(context).exists()


def test_files_that_cannot_be_copied_are_one_line(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of them is named. All were, each with its copy. Nothing is in the way of the next attempt."""
    for name in ("gone", "missing"):
        (models / name).symlink_to(tmp_path / "nothing")
    words = ["build-image", str(models), "--tag", "x", "--context", str(tmp_path / "context")]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.count("No such file") == 1
    for name in ("gone", "missing"):
        (models / name).unlink()
    assert cli.main(words) == 0
