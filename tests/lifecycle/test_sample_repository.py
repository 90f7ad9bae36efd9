"""The sample repository: its files are what its script makes, and the server answers with them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from tests.support.server import ROOT, Server, serve
from tests.support.wire import json_input

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.wire import Wire

MODELS = ROOT / "models"
LABELS = ["setosa", "versicolor", "virginica"]


def files(root: Path) -> dict[str, bytes]:
    """What a client or the server reads: no script, no cache of Python."""
    found = [path for pattern in ("*/*/model.onnx", "*/model-settings.json") for path in root.glob(pattern)]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    """Made again, they are the same, byte by byte."""
    subprocess.run([sys.executable, MODELS / "make.py", tmp_path], check=True, timeout=100)
    made = files(tmp_path)
    assert sorted(made) == [
        "half_plus_three/123/model.onnx", "half_plus_three/model-settings.json", "iris/1/model.onnx",
        "iris/model-settings.json", "strings/1/model.onnx",
    ]  # fmt: skip
    assert made == files(MODELS)


def test_the_models_are_old_enough_for_every_runtime() -> None:
    """IR version and opset that ONNX Runtime 1.20 reads, and small files."""
    for path in MODELS.glob("*/*/model.onnx"):
        model = onnx.load(path)
        assert model.ir_version == 8
        assert {opset.domain: opset.version for opset in model.opset_import} == {"": 13, "ai.onnx.ml": 3}
        assert path.stat().st_size < 1000


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the sample repository, in need of no setting but the repository."""
    with serve(tmp_path_factory.mktemp("sample") / "log", REPOSITORY=str(MODELS), PRELOAD="*") as server:
        yield server


@pytest.fixture
def wire(sample: Server) -> Iterator[Wire]:
    """A connection to it."""
    with sample.wire() as connection:
        yield connection


def test_all_samples_can_be_loaded_at_start(wire: Wire) -> None:
    """Every folder with a model, and nothing else."""
    while (answer := wire.get("/v2/health/ready")).status != 200:
        assert "error" in answer.json()
    assert sorted(wire.get("/v2/models").json()["models"]) == ["half_plus_three", "iris", "strings"]
    assert {entry["state"] for entry in wire.post("/v2/repository/index").json()} == {"READY"}


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_half_plus_three_takes_any_rank(wire: Wire, shape: tuple[int, ...]) -> None:
    """The answer is x / 2 + 3 in the shape of x."""
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    answer = wire.infer("half_plus_three", json_input("x", "FP32", x))
    assert answer.json()["model_version"] == "123"
    assert answer.tensor().shape == shape
    assert np.array_equal(answer.tensor(), x / 2 + 3)


def test_iris_tells_irises_apart(wire: Wire) -> None:
    """It agrees with scikit-learn up to the rounding of the weights."""
    features, classes = load_iris(return_X_y=True)
    regression = LogisticRegression(solver="newton-cg", tol=1e-12, max_iter=1000).fit(features, classes)
    tensors = wire.infer("iris", json_input("x", "FP32", features.astype(np.float32))).tensors()
    assert tensors["label"].tolist() == regression.predict(features).tolist()
    assert np.allclose(tensors["probabilities"], regression.predict_proba(features), atol=0.005)


def test_iris_names_the_classes(wire: Wire) -> None:
    """The settings' labels by the classification extension."""
    x = json_input("x", "FP32", np.array([[5.1, 3.5, 1.4, 0.2]], np.float32))
    outputs = [{"name": "probabilities", "parameters": {"classification": 3}}]
    best, *_ = wire.infer("iris", x, outputs=outputs).tensor().ravel()
    assert best.decode().split(":")[1:] == ["0", "setosa"]
    settings = json.loads((MODELS / "iris" / "model-settings.json").read_text(encoding="utf-8"))
    assert settings["signatures"]["serving_default"]["class_labels"] == LABELS


def test_strings_come_back(wire: Wire) -> None:
    """Text beyond ASCII, NUL at the end."""
    text = np.array(["日本".encode(), b"", b"a\0"], object)
    assert wire.infer("strings", json_input("text", "BYTES", text)).tensor().tolist() == text.tolist()
