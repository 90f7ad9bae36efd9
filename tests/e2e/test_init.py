"""A newcomer has a wheel, and nothing else of this project: `dragoman init` and what it prints work as they stand."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.tools import ROOT, require, run, runtime_python
from tests.support.ports import free_port

UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
FILES = ROOT / "handler" / "commands" / "init" / "files"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the wheel, which is made of the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", folder, ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def env(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the environment of a shell in which a new virtual environment with the wheel is active."""
    home = tmp_path_factory.mktemp("venv")
    run(runtime_python(), "-m", "venv", home)
    run(UV, "pip", "install", "--quiet", "--python", home / "bin" / "python", f"{built}[server,onnx]")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "PYTHON"))}
    return kept | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(home)}


def test_the_wheel_has_all_that_init_writes(built: Path) -> None:
    """Package data is in the sdist and in the wheel that is made of it."""
    with zipfile.ZipFile(built) as archive:
        packed = set(archive.namelist())
    assert {str(path.relative_to(ROOT)) for path in FILES.rglob("*") if path.is_file()} <= packed


def test_what_init_prints_serves_the_example(env: dict[str, str], tmp_path: Path) -> None:
    """The lines are run in a shell as they are, but for the port."""
    require("curl")
    printed = run("dragoman", "init", "x y", env=env, cwd=tmp_path)
    cd, serve, _, curl = re.findall(r"^  (.*)$", printed, re.MULTILINE)
    port = free_port()
    with subprocess.Popen(["/bin/bash", "-ec", f"{cd}; exec {serve} --port {port}"], env=env, cwd=tmp_path) as server:
        try:
            waiting = "curl --silent --show-error --fail-with-body --retry 60 --retry-delay 1 --retry-all-errors"
            answer = run("bash", "-c", curl.replace("curl", waiting, 1).replace(":8080", f":{port}"), env=env)
        finally:
            server.terminate()
    assert json.loads(answer)["predictions"][0][2] == pytest.approx(0.765, abs=1e-3)
    assert "iris: ok" in run("make", "test", env=env, cwd=tmp_path / "x y")
    asked = ("MODEL=iris", "VERSION=1", f"BUCKET={tmp_path}/r")
    run("make", "push", *asked, env=env, cwd=tmp_path / "x y")
    assert (tmp_path / "r" / "iris" / "1" / "model.onnx").exists()
