"""Classification, model repository, configuration, statistics, and the extensions that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import alive, refusal
from tests.support.wire import json_input
from tests.support.zoo.models import LABELS

if TYPE_CHECKING:
    from tests.support.wire import Answer, Wire

SCORES = np.array([0.1, 0.5, -1.25, 0.25], np.float32)
FEATURES = json_input("features", "FP32", SCORES)
X = json_input("x", "INT64", np.array([0]))


def classes(answer: Answer) -> list[tuple[float, int, str]]:
    """The parts of each "value:index[:label]"."""
    parts = [text.decode().split(":") for text in answer.tensors()["scores"].ravel()]
    return [(float(value), int(index), label[0] if label else "") for value, index, *label in parts]


def classified(count: int, **parameters: Any) -> list[dict[str, Any]]:
    """Outputs that ask for so many classes."""
    return [{"name": "scores", "parameters": {"classification": count, **parameters}}]


@pytest.mark.row("R-400")
@pytest.mark.parametrize("binary", [False, True])
def test_the_best_classes_come_with_value_index_and_label(wire: Wire, *, binary: bool) -> None:
    """The highest first, as BYTES [count]."""
    answer = wire.infer("classifier", FEATURES, outputs=classified(2, binary_data=binary))
    assert classes(answer) == [(0.5, 1, LABELS[1]), (0.25, 3, LABELS[3])]
    (output,) = answer.split()[0]["outputs"]
    assert output["datatype"] == "BYTES"
    assert output["shape"] == [2]


@pytest.mark.row("R-401")
def test_there_are_no_more_classes_than_scores(wire: Wire) -> None:
    """Asking for nine of four gives four."""
    answer = wire.infer("classifier", FEATURES, outputs=classified(9))
    assert [index for _, index, _ in classes(answer)] == [1, 3, 0, 2]


def test_classes_without_labels_have_value_and_index(wire: Wire) -> None:
    """No settings, no label."""
    answer = wire.infer("classifier_unlabelled", FEATURES, outputs=classified(1))
    assert answer.tensors()["scores"].tolist() == [b"0.500000:1"]


def test_every_row_of_a_batch_is_classified(wire: Wire) -> None:
    """Shape [rows, count]."""
    batch = json_input("features", "FP32", np.stack([SCORES, -SCORES]))
    answer = wire.infer("classifier_batch", batch, outputs=classified(1))
    assert answer.split()[0]["outputs"][0]["shape"] == [2, 1]
    assert [index for _, index, _ in classes(answer)] == [1, 2]


def test_nan_scores_can_be_classified(wire: Wire) -> None:
    """A NaN is never the best class, and the answer stays JSON."""
    scores = np.array([np.nan, 1.0, np.inf], np.float32)
    answer = wire.infer("classifier_unlabelled", json_input("features", "FP32", scores), outputs=classified(2))
    assert [text.decode().split(":")[1] for text in answer.tensors()["scores"]] == ["2", "1"]


def test_nothing_can_be_classified(wire: Wire) -> None:
    """No scores, no classes."""
    scores = np.empty(0, np.float32)
    answer = wire.infer("classifier_unlabelled", json_input("features", "FP32", scores), outputs=classified(2))
    assert answer.status in {200, 400}
    alive(wire)


def test_text_has_no_classes(wire: Wire) -> None:
    """Classification of BYTES is refused by name."""
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": 1}}]
    own = json_input("INPUT0", "BYTES", np.array([b"a"], object))
    assert "OUTPUT0" in refusal(wire.infer("vector_bytes", own, outputs=outputs), 400)
    alive(wire)


@pytest.mark.row("R-410")
@pytest.mark.parametrize("body", [None, {}, b"", {"ready": False}, {"unheard_of": 1}])
def test_the_index_lists_every_version(wire: Wire, body: Any) -> None:
    """Name, version, state and reason, with an empty body or an empty object."""
    answer = wire.post("/v2/repository/index", body)
    assert answer.status == 200
    entries = answer.json()
    assert all(
        sorted(entry) in (["name", "reason", "state", "version"], ["name", "state", "version"]) for entry in entries
    )
    assert {entry["state"] for entry in entries} <= {"READY", "LOADING", "UNAVAILABLE"}
    assert [entry["version"] for entry in entries if entry["name"] == "versions"] == ["1", "2", "10"]
    broken = [entry for entry in entries if entry["name"] == "broken_onnx"]
    assert broken[0]["state"] == "UNAVAILABLE"
    assert all(isinstance(entry["reason"], str) for entry in broken)


@pytest.mark.row("R-410")
def test_the_index_can_be_of_ready_models_only(wire: Wire) -> None:
    """{"ready": true}."""
    alive(wire)
    entries = wire.post("/v2/repository/index", {"ready": True}).json()
    assert {entry["state"] for entry in entries} == {"READY"}
    assert "add_sub" in {entry["name"] for entry in entries}


def ready(wire: Wire, model: str) -> int:
    """The status of readiness."""
    return wire.get(f"/v2/models/{model}/ready").status


def entry(wire: Wire, model: str) -> dict[str, Any]:
    """The model's line in the index."""
    (only,) = [entry for entry in wire.post("/v2/repository/index").json() if entry["name"] == model]
    return dict(only)


@pytest.mark.row("R-411")
def test_load_makes_a_model_ready(wire: Wire) -> None:
    """It was not before; loading twice is no mistake."""
    assert ready(wire, "spare_load") == 503
    for _ in range(2):
        assert wire.post("/v2/repository/models/spare_load/load", {}).status == 200
        assert ready(wire, "spare_load") == 200
    assert entry(wire, "spare_load")["state"] == "READY"


@pytest.mark.row("R-413")
@pytest.mark.parametrize("body", [None, {}, {"parameters": {"unload_dependents": False}}])
def test_a_model_is_unloaded_and_loaded_again(wire: Wire, body: Any) -> None:
    """Ready, unready with the reason, ready."""
    assert wire.post("/v2/repository/models/spare_unload/load", body).status == 200
    assert ready(wire, "spare_unload") == 200
    assert wire.post("/v2/repository/models/spare_unload/unload", body).status == 200
    answer = wire.get("/v2/models/spare_unload/ready")
    assert answer.status == 503
    assert answer.json()["reason"] == "unloaded"
    assert entry(wire, "spare_unload")["state"] == "UNAVAILABLE"
    assert entry(wire, "spare_unload")["reason"] == "unloaded"
    assert wire.post("/v2/repository/models/spare_unload/load", body).status == 200
    assert ready(wire, "spare_unload") == 200
    assert wire.infer("spare_unload", X).tensor().tolist() == [5]


@pytest.mark.row("R-420")
@pytest.mark.parametrize("path", ["/v2/models/three_types/config", "/v2/models/three_types/versions/1/config"])
def test_a_model_has_a_configuration(wire: Wire, path: str) -> None:
    """Triton's names: TYPE_*, TYPE_STRING for text, dims."""
    answer = wire.get(path)
    assert answer.status == 200
    body = answer.json()
    assert body["name"] == "three_types"
    assert body["max_batch_size"] == 0
    found = {
        side: {port["name"]: (port["data_type"], port["dims"]) for port in body[side]} for side in ("input", "output")
    }
    types = {"integers": "TYPE_INT32", "text": "TYPE_STRING", "flags": "TYPE_BOOL"}
    assert found["input"] == {name: (kind, [-1]) for name, kind in types.items()}
    assert found["output"] == {f"{name}_out": (kind, [-1]) for name, kind in types.items()}


@pytest.mark.row("R-421")
def test_a_models_inferences_are_counted(wire: Wire) -> None:
    """Successes with their nanoseconds, and failures apart."""
    model = "spare_statistics"

    def statistics() -> dict[str, Any]:
        (only,) = wire.get(f"/v2/models/{model}/stats").json()["model_stats"]
        assert (only["name"], only["version"]) == (model, "1")
        return dict(only["inference_stats"])

    assert wire.infer(model, X).status == 200
    before = statistics()
    for _ in range(3):
        assert wire.infer(model, X).status == 200
    after = statistics()
    assert after["success"]["count"] - before["success"]["count"] == 3
    assert after["success"]["ns"] > before["success"]["ns"]
    assert after["fail"]["count"] == before["fail"]["count"]


@pytest.mark.row("R-422")
def test_all_models_are_counted(wire: Wire) -> None:
    """GET /v2/models/stats."""
    alive(wire)
    body = wire.get("/v2/models/stats").json()
    assert "add_sub" in {entry["name"] for entry in body["model_stats"]}


WORKS = {
    "binary_tensor_data": ("POST", "/v2/models/vector_int32/infer", {"parameters": {"binary_data_output": True}}),
    "classification": ("POST", "/v2/models/classifier/infer", {"outputs": classified(1)}),
    "model_configuration": ("GET", "/v2/models/add_sub/config", {}),
    "model_repository": ("POST", "/v2/repository/index", {}),
    "statistics": ("GET", "/v2/models/add_sub/stats", {}),
}


@pytest.mark.row("R-431")
@pytest.mark.parametrize("extension", WORKS)
def test_what_is_listed_works(wire: Wire, extension: str) -> None:
    """Each listed extension answers, and none but these is listed."""
    assert set(wire.get("/v2").json()["extensions"]) == set(WORKS)
    method, path, more = WORKS[extension]
    inputs = {"vector_int32": json_input("INPUT0", "INT32", np.array([1], np.int32)), "classifier": FEATURES}
    own = [value for name, value in inputs.items() if f"/{name}/" in path]
    answer = wire.get(path) if method == "GET" else wire.post(path, {"inputs": own, **more} if own else more)
    assert answer.status == 200
