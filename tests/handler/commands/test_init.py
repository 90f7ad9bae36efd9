"""`dragoman init`: the folders that it writes serve, deploy, and make themselves again."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from handler import cli
from handler.commands.init import command, wheel

ROOT = Path(__file__).parents[3]
COPIES = {
    "aws/template.yaml": "template.yaml",
    **{f"aws/events/{path.name}": f"events/{path.name}" for path in (command.FILES / "aws" / "events").iterdir()},
    "repository/models/iris/1/model.onnx": "models/iris/1/model.onnx",
    "repository/models/iris/model-settings.json": "models/iris/model-settings.json",
}


def run(folder: Path, *words: str | Path, home: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder, with the code of another one. `more`: variables."""
    env = {**os.environ, "PYTHONPATH": str(home), "DRAGOMAN_ACCESS_LOG": "", **more}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("copy", "original"), COPIES.items(), ids=COPIES)
def test_a_copy_in_the_package_is_fresh(copy: str, original: str) -> None:
    """A wheel has no files from beside its packages: cp ORIGINAL handler/commands/init/files/COPY."""
    assert (command.FILES / copy).read_bytes() == (ROOT / original).read_bytes()


def test_the_repository_is_checked_by_its_own_program(tmp_path: Path) -> None:
    """`make test` and CI see a sound example, a model that cannot be loaded, and a request that is refused."""
    assert cli.main(["init", str(tmp_path)]) == 0
    done = run(tmp_path, "check.py")
    assert (done.returncode, done.stdout) == (0, "iris: ok\n"), done.stderr
    request = tmp_path / "requests" / "iris.json"
    request.write_text(request.read_text().replace('"x"', '"y"'))
    (tmp_path / "models" / "more" / "1").mkdir(parents=True)
    (tmp_path / "models" / "more" / "1" / "model.onnx").write_bytes(b"no graph")
    done = run(tmp_path, "check.py")
    iris, more = done.stdout.splitlines()
    assert done.returncode == 1
    assert iris.startswith("iris: 400 ")
    assert "'x'" in iris
    assert more.startswith("more: 503 ")


def test_the_program_checks_the_folders_that_the_server_takes_for_models(tmp_path: Path) -> None:
    """Editors, notebooks and file systems make folders, too; and a model's name may have other than ASCII's letters."""
    assert cli.main(["init", str(tmp_path)]) == 0
    models = tmp_path / "models"
    for name in (".ipynb_checkpoints", "__pycache__", "lost+found"):
        (models / name).mkdir()
    shutil.copytree(models / "iris" / "1", models / "fleur bleuâtre" / "1")
    done = run(tmp_path, "check.py", PYTHONUTF8="1")
    assert (done.returncode, done.stdout) == (0, "fleur bleuâtre: ok\niris: ok\n"), done.stderr


def test_the_program_reaches_its_server_whatever_the_settings_are(tmp_path: Path) -> None:
    """Keys, control and the address in dragoman.toml are for the real server, and a proxy for the world outside."""
    assert cli.main(["init", str(tmp_path)]) == 0
    with (tmp_path / "dragoman.toml").open("a") as settings:
        settings.write('auth = "keys"\nkeys_file = "keys.txt"\ncontrol = "off"\nhost = "::1"\n')
    nobody = "http://127.0.0.1:9"
    done = run(tmp_path, "check.py", http_proxy=nobody, HTTP_PROXY=nobody, no_proxy="", NO_PROXY="")
    assert (done.returncode, done.stdout) == (0, "iris: ok\n"), done.stderr


def test_the_program_names_the_model_whose_request_cannot_be_sent(tmp_path: Path) -> None:
    """A traceback would hide the other models."""
    assert cli.main(["init", str(tmp_path)]) == 0
    shutil.copytree(tmp_path / "models" / "iris" / "1", tmp_path / "models" / "more" / "1")
    (tmp_path / "requests" / "iris.json").write_text("{")
    done = run(tmp_path, "check.py")
    iris, more = done.stdout.splitlines()
    assert (done.returncode, more) == (1, "more: ok"), done.stderr
    assert iris.startswith("iris: Expecting property name")


def test_make_install_makes_an_environment_and_the_other_commands_use_it(tmp_path: Path) -> None:
    """The Python of Debian, Ubuntu and Homebrew refuses packages. A Python that is named gets them itself."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PYTHON")}

    def planned(*words: str) -> list[str]:
        command = ["make", "--dry-run", *words]
        made = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return made.stdout.splitlines()

    assert cli.main(["init", str(tmp_path)]) == 0
    new = ["python3 -m venv .venv", ".venv/bin/python -m pip install -r requirements.txt"]
    assert planned("install") == new
    assert planned("install", "PYTHON=python3.13") == ["python3.13 -m pip install -r requirements.txt"]
    assert planned("test") == ["python3 check.py"]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    assert (planned("install"), planned("test")) == (new, [".venv/bin/python check.py"])


def test_what_cannot_be_written_as_a_whole_is_not_written(tmp_path: Path) -> None:
    """Files of a first attempt, on a disk that was full, were in the way of the second."""
    (tmp_path / "mine.txt").touch()
    limited = 'ulimit -f 8; exec "$0" -m dragoman init --aws .'
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["/bin/sh", "-c", limited, sys.executable], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "cannot be written: File too large" in done.stderr) == (1, True)
    assert [*written(tmp_path)] == ["mine.txt"]
    assert cli.main(["init", "--aws", str(tmp_path)]) == 0


@pytest.mark.parametrize("flags", [[], ["--aws"]], ids=["repository", "aws"])
def test_the_wheel_that_is_written_makes_the_same_folder(tmp_path: Path, flags: list[str]) -> None:
    """It has the whole code, what init needs, and the metadata; nothing of the checkout is used then."""
    folder, home, again = tmp_path / "one" / "x", tmp_path / "home", tmp_path / "two"
    again.mkdir()
    assert cli.main(["init", str(folder), *flags]) == 0
    (archive,) = (folder / "wheels").iterdir()
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(home)
    done = run(again, "-m", "dragoman", "init", "x", *flags, home=home)
    assert done.returncode == 0, done.stderr
    assert written(again / "x") == written(folder)


def test_the_functions_requirements_are_those_that_its_runtime_lacks(tmp_path: Path) -> None:
    """boto3 is in the runtime; ONNX models need the extra; the command line, servers, gRPC and tools stay out."""
    assert cli.main(["init", "--aws", str(tmp_path / "my models!")]) == 0
    needed = (tmp_path / "my models!" / "requirements.txt").read_text()
    assert {"numpy", "mangum", "onnxruntime"} <= {line.partition(">")[0] for line in needed.splitlines()}
    assert not {"boto3", "click", "rich", "uvicorn", "grpcio", "pytest", "extra"} & set(
        needed.replace(">", " ").replace('"', " ").split()
    )
    assert 'stack_name = "dragoman-my-models"' in (tmp_path / "my models!" / "samconfig.toml").read_text()


@pytest.mark.parametrize("there", ["README.md", "models/iris/1/model.onnx", ".github"])
def test_nothing_is_overwritten(tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the file that is there, and writes none of the others."""
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("mine")
    assert cli.main(["init", str(tmp_path)]) == 1
    assert str(tmp_path / there) in capsys.readouterr().err
    assert written(tmp_path) == {there: b"mine"}


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is an installation without metadata, of which no wheel can be made."""
    (tmp_path / "file").write_text("mine")
    assert cli.main(["init", str(tmp_path / "file")]) == 1
    assert f"dragoman: {tmp_path / 'file'}" in capsys.readouterr().err

    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(wheel, "distribution", missing)
    assert cli.main(["init", str(tmp_path / "x")]) == 1
    assert "dragoman is not installed" in capsys.readouterr().err


def test_the_next_commands_suit_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go into the folder, install what is missing, and use the command only if it is this Python's."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init"]) == 0
    assert "cd " not in capsys.readouterr().out
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: "/elsewhere/dragoman")
    assert cli.main(["init", "a b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("  cd 'a b'")
    assert lines[at + 1 : at + 3] == [
        f"  {sys.executable} -m pip install -r requirements.txt",
        f"  {sys.executable} -m dragoman serve",
    ]
    monkeypatch.setattr(shutil, "which", lambda _: str(Path(sys.executable).parent / "dragoman"))
    assert cli.main(["init", "c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  dragoman serve" in lines
    body = lines[-1].split("'")[1]
    assert json.loads(body) == {"instances": [[5.9, 3.0, 5.1, 1.8]]}
