"""The files of the sample repository are those of its script, and the server answers with them."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support import v1_client
from tests.support.server import ROOT, Server, serve
from tests.support.wire import Wire, json_input

MODELS = ROOT / "models"
NAMES = ["flowers", "half_plus_three", "iris", "numbers", "passengers", "species", "strings"]
LABELS = ["setosa", "versicolor", "virginica"]


def files(root: Path) -> dict[str, bytes]:
    """Returns the files that a client or the server reads, without the script and Python's cache."""
    found = [
        path
        for pattern in ("*/*/model.onnx", "*/*/pipeline.json", "*/model-settings.json")
        for path in root.glob(pattern)
    ]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    """When they are made again, every byte is the same."""
    subprocess.run([sys.executable, MODELS / "make.py", tmp_path], check=True, timeout=100)
    made = files(tmp_path)
    assert sorted(made) == [
        "flowers/1/pipeline.json", "half_plus_three/123/model.onnx", "half_plus_three/model-settings.json",
        "iris/1/model.onnx", "iris/model-settings.json", "numbers/1/model.onnx", "passengers/1/model.onnx",
        "passengers/model-settings.json", "species/1/model.onnx", "strings/1/model.onnx",
    ]  # fmt: skip
    assert made == files(MODELS)


def test_the_models_are_old_enough_for_every_runtime() -> None:
    """Their IR version and opset are readable for ONNX Runtime 1.20, and their files are small."""
    for path in MODELS.glob("*/*/model.onnx"):
        model = onnx.load(path)
        assert model.ir_version == 8
        assert {opset.domain: opset.version for opset in model.opset_import} == {"": 13, "ai.onnx.ml": 3}
        assert path.stat().st_size < 2000


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the sample repository, which needs no other setting."""
    with serve(tmp_path_factory.mktemp("sample") / "log", REPOSITORY=str(MODELS), PRELOAD="*") as server:
        yield server


@pytest.fixture
def wire(sample: Server) -> Iterator[Wire]:
    """A connection to that server."""
    with sample.wire() as connection:
        yield connection


def test_all_samples_can_be_loaded_at_start(wire: Wire) -> None:
    """Every folder with a model is a sample, and no other is."""
    while (answer := wire.get("/v2/health/ready")).status != 200:
        assert "error" in answer.json()
    assert sorted(wire.get("/v2/models").json()["models"]) == NAMES
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
    from sklearn.datasets import load_iris  # noqa: PLC0415 - takes two seconds of each process that collects the tests
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - as above

    features, classes = load_iris(return_X_y=True)
    regression = LogisticRegression(solver="newton-cg", tol=1e-12, max_iter=1000).fit(features, classes)
    tensors = wire.infer("iris", json_input("x", "FP32", features.astype(np.float32))).tensors()
    assert tensors["label"].tolist() == regression.predict(features).tolist()
    assert np.allclose(tensors["probabilities"], regression.predict_proba(features), atol=0.005)


def test_iris_names_the_classes(wire: Wire) -> None:
    """The classification extension shows the settings' labels."""
    x = json_input("x", "FP32", np.array([[5.1, 3.5, 1.4, 0.2]], np.float32))
    outputs = [{"name": "probabilities", "parameters": {"classification": 3}}]
    best, *_ = wire.infer("iris", x, outputs=outputs).tensor().ravel()
    assert best.decode().split(":")[1:] == ["0", "setosa"]
    settings = json.loads((MODELS / "iris" / "model-settings.json").read_text(encoding="utf-8"))
    assert settings["signatures"]["serving_default"]["class_labels"] == LABELS


def test_rows_of_a_table_are_answered_as_their_pipeline_does(wire: Wire) -> None:
    """Numbers and text by column, with the pipeline that the script makes as the oracle, and its explanations."""
    spec = importlib.util.spec_from_file_location("make_models", MODELS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    table, pipeline = make.voyage()[0], make.passengers()
    rows = {"instances": table.to_dict("records")}
    found = v1_client.read(v1_client.predict(wire, "passengers", rows))["predictions"]
    assert [row["output_label"] for row in found] == pipeline.predict(table).tolist()
    assert np.allclose([row["output_probability"] for row in found], pipeline.predict_proba(table), atol=1e-5)
    (told,) = v1_client.read(v1_client.post(wire, "passengers:explain", {"instances": rows["instances"][:1]}))[
        "explanations"
    ]
    assert list(told["importance_scores"]) == ["age", "fare", "sex", "port"]
    assert told["prediction"] == pytest.approx(pipeline.predict_proba(table[:1]).max(), abs=1e-5)


def test_strings_come_back(wire: Wire) -> None:
    """The cases are text beyond ASCII, and NUL at the end."""
    text = np.array(["日本".encode(), b"", b"a\0"], object)
    assert wire.infer("strings", json_input("text", "BYTES", text)).tensor().tolist() == text.tolist()
