"""Chromium uses the console of a server that runs: browser/scenarios.py has what it does there."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.e2e.tools import HOME, environment, node_modules, require
from tests.support.openapi import ROOT
from tests.support.publishing import publish
from tests.support.server import HOST, UVICORN, Server, running, serve
from tests.support.zoo.models import adds, graph, identity, total

HERE = Path(__file__).with_name("browser")
KEY = "dgm_console"
MANY = 300
LONG = "long" * 60
CODE = b'def predict(inputs, parameters):\n    return {"y": inputs["x"] * 8}\n'
NAMED = '{"signatures": {"more": {"inputs": {"value": "x"}, "outputs": {"result": "y"}}}}'
ADDED = "".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] optional: true }}\n' for name in "xc")
MODELS: dict[str, dict[str, Any]] = {
    "files": {
        "pictures": identity("FP32", [None, 3, 2, 2]),
        "large": identity("FP32", [None, 3, 64, 64]),
        "words": identity("BYTES", [None]),
    },
    "forms": {
        "total": total(),
        "floats": identity("FP32", [None]),
        "undescribed": CODE,
        "named": (adds(5), {"model-settings.json": NAMED}),
        "added": (
            graph(
                "added",
                [helper.make_node("Add", ["x", "c"], ["y"])],
                [("x", "FP32", [None]), ("c", "FP32", [None])],
                [("y", "FP32", [None])],
                {"c": np.array([7], np.float32)},
            ),
            {"config.pbtxt": f'platform: "onnxruntime_onnx"\n{ADDED}'},
        ),
    },
    "wrong": {"undescribed": CODE},
    "programs": {"flags": identity("BOOL", [None]), "floats": identity("FP32", [None])},
    "digits": {
        "ids": adds(2**53),
        "names": graph(
            "names", [helper.make_node("Identity", [LONG], ["y"])], [(LONG, "FP32", [1])], [("y", "FP32", [1])]
        ),
    },
}
"""Further models of a scenario: ONNX or code, some with files beside it."""


@pytest.fixture(scope="session")
def axe() -> Path:
    """Return axe-core's script, which npm installs."""
    return node_modules(HERE / "package.json") / "axe-core" / "axe.min.js"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Offer a server for the scenario, with the sample models and one that cannot be loaded."""
    models, log = tmp_path / "models", tmp_path / "log"
    shutil.copytree(ROOT / "models", models, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    if request.param != "pictures":
        (models / "broken" / "1").mkdir(parents=True)
        (models / "broken" / "1" / "model.onnx").write_bytes(b"no model at all")
    if request.param == "screens":
        shutil.copytree(models / "species", models / LONG)
    for name, model in MODELS.get(request.param, {}).items():
        content, beside = model if isinstance(model, tuple) else (model, {})
        if isinstance(content, bytes):
            publish(models, name, 1, content, "model.py")
        else:
            publish(models, name, 1, content.SerializeToString())
        for file, text in beside.items():
            (models / name / file).write_text(text)
    with ExitStack() as stack:
        if request.param == "staged":
            arguments = ["-m", "uvicorn", "tests.e2e.browser.staged:app", "--host", HOST, *UVICORN, "--port"]
            _, (port,) = stack.enter_context(
                running(lambda port: [*arguments, str(port)], 1, log, {"REPOSITORY": str(models)})
            )
            yield f"http://{HOST}:{port}/Prod/"
            return
        yield f"http://{stack.enter_context(served(request.param, models, log)).netloc}/"


def served(scenario: str, models: Path, log: Path) -> "ExitStack | Server":
    """Return a server with the settings of a scenario."""
    if scenario == "many":
        shutil.rmtree(models)
        for number in range(MANY):
            shutil.copytree(ROOT / "models" / "species", models / f"m-{number}")
    if scenario == "behind_a_key":
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        return serve(log, REPOSITORY=str(models), AUTH="keys", KEYS=f"people sha256:{digest} read,infer iris")
    return serve(log, REPOSITORY=str(models), ALLOW_CODE="true")


@pytest.mark.parametrize(
    ("address", "scenario"),
    [
        (name, name)
        for name in (
            *("protocols", "forms", "wrong", "digits", "failing", "files", "live", "many", "coming", "screens"),
            *("keyboard", "staged", "behind_a_key"),
        )
    ],
    indirect=["address"],
)
def test_people_use_the_console(address: str, scenario: str, axe: Path, tmp_path: Path) -> None:
    """Each scenario ends well, no request leaves the origin, and the console has no error."""
    acted(scenario, address, axe, KEY if scenario == "behind_a_key" else tmp_path / "models")


def acted(scenario: str, address: str, axe: Path, more: str | Path) -> None:
    """Run a scenario to its end."""
    require("chromium")
    command = (environment("browser") / "python", HERE / "scenarios.py", scenario, address, axe, more)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.parametrize("address", ["programs"], indirect=True)
def test_the_programs_of_the_console_run(address: str, axe: Path, tmp_path: Path) -> None:
    """Each prints an answer of the model, for texts, flags and NaN too."""
    acted("programs", address, axe, tmp_path / "models")
    programs = sorted((tmp_path / "programs").iterdir())
    assert len(programs) == 28
    runners = {".py": sys.executable, ".sh": "bash", ".mjs": "node"}
    for program in programs:
        done = subprocess.run(
            [runners[program.suffix], program], capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, (program.read_text(), done.stderr)
        assert "error" not in done.stdout, (program.read_text(), done.stdout)


@pytest.mark.parametrize("address", ["pictures"], indirect=True)
def test_the_pictures_of_the_pages_are_made_here(address: str, axe: Path) -> None:
    """They are left in .e2e/pictures, to be copied to docs/pictures when the console has changed."""
    made = HOME / "pictures"
    made.mkdir(parents=True, exist_ok=True)
    acted("pictures", address, axe, made)
    ours = {path.name: width_of(path) for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert ours == {path.name: width_of(path) for path in made.glob("*.png")}


def width_of(picture: Path) -> int:
    """Return the width of a PNG file in pixels."""
    return int.from_bytes(picture.read_bytes()[16:20], "big")
