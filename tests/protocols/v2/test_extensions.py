"""The extensions are classification, model repository, configuration and statistics; others are refused."""

from typing import Any

import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.checks import alive, refusal
from tests.support.wire import Wire, json_input
from tests.support.zoo.models import LABELS

SCORES = np.array([0.1, 0.5, -1.25, 0.25], np.float32)
FEATURES = json_input("features", "FP32", SCORES)
X = json_input("x", "INT64", np.array([0]))


def classified(count: int, **parameters: Any) -> list[dict[str, Any]]:
    """Returns outputs that ask for so many classes."""
    return [{"name": "scores", "parameters": {"classification": count, **parameters}}]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("model", "scores", "count", "expected"), [
    row("R-400", "classifier", SCORES, 2, [f"0.500000:1:{LABELS[1]}", f"0.250000:3:{LABELS[3]}"]),
    row("R-401", "classifier_unlabelled", SCORES, 9, ["0.500000:1", "0.250000:3", "0.100000:0", "-1.250000:2"],
        name="no more than there are"),
    row("", "classifier_unlabelled", SCORES, 1, ["0.500000:1"], name="without labels"),
    row("", "classifier_batch", np.stack([SCORES, -SCORES]), 1,
        [[f"0.500000:1:{LABELS[1]}"], [f"1.250000:2:{LABELS[2]}"]], name="every row of a batch"),
    row("", "classifier_unlabelled", np.array([np.nan, 1.0, np.inf], np.float32), 2, ["inf:2", "1.000000:1"],
        name="NaN is never the best"),
])  # fmt: skip
def test_the_best_classes_come_with_value_index_and_label(
    wire: Wire, model: str, scores: Any, count: int, expected: Any, *, binary: bool
) -> None:
    """The highest is first, as BYTES [count] or [rows, count]."""
    own = json_input("features", "FP32", scores)
    answer = wire.infer(model, own, outputs=classified(count, binary_data=binary))
    (output,) = answer.split()[0]["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", list(np.shape(expected)))
    assert answer.tensors()["scores"].astype(str).tolist() == expected


def test_nothing_can_be_classified(wire: Wire) -> None:
    """Without scores there are no classes."""
    scores = np.empty(0, np.float32)
    answer = wire.infer("classifier_unlabelled", json_input("features", "FP32", scores), outputs=classified(2))
    assert answer.status in {200, 400}
    alive(wire)


def test_text_has_no_classes(wire: Wire) -> None:
    """The refusal of classification for BYTES has its name."""
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": 1}}]
    own = json_input("INPUT0", "BYTES", np.array([b"a"], object))
    assert "OUTPUT0" in refusal(wire.infer("vector_bytes", own, outputs=outputs), 400)
    alive(wire)


@pytest.mark.row("R-410")
@pytest.mark.parametrize("body", [None, {}, b"", {"ready": False}, {"unheard_of": 1}])
def test_the_index_lists_every_version(wire: Wire, body: Any) -> None:
    """It has name, version, state and reason, with an empty body or an empty object."""
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
    """The body is {"ready": true}."""
    alive(wire)
    entries = wire.post("/v2/repository/index", {"ready": True}).json()
    assert {entry["state"] for entry in entries} == {"READY"}
    assert "add_sub" in {entry["name"] for entry in entries}


def ready(wire: Wire, model: str) -> int:
    """Returns the status of readiness."""
    return wire.get(f"/v2/models/{model}/ready").status


def entry(wire: Wire, model: str) -> dict[str, Any]:
    """Returns the model's entry in the index."""
    (only,) = [entry for entry in wire.post("/v2/repository/index").json() if entry["name"] == model]
    return dict(only)


@pytest.mark.row("R-411")
def test_load_makes_a_model_ready(wire: Wire) -> None:
    """It was not ready before; a second load is not a mistake."""
    assert ready(wire, "spare_load") == 503
    for _ in range(2):
        assert wire.post("/v2/repository/models/spare_load/load", {}).status == 200
        assert ready(wire, "spare_load") == 200
    assert entry(wire, "spare_load")["state"] == "READY"


@pytest.mark.row("R-413")
@pytest.mark.parametrize("body", [None, {}, {"parameters": {"unload_dependents": False}}])
def test_a_model_is_unloaded_and_loaded_again(wire: Wire, body: Any) -> None:
    """It is ready, then unready with the reason, then ready."""
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
    """It has Triton's names: TYPE_*, TYPE_STRING for text, dims."""
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
    """Successes have their nanoseconds, and failures count apart."""
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
    """The path is GET /v2/models/stats."""
    alive(wire)
    body = wire.get("/v2/models/stats").json()
    assert "add_sub" in {entry["name"] for entry in body["model_stats"]}


WORKS = {
    "binary_tensor_data": ("POST", "/v2/models/vector_int32/infer", {"parameters": {"binary_data_output": True}}),
    "classification": ("POST", "/v2/models/classifier/infer", {"outputs": classified(1)}),
    "generate": ("POST", "/v2/models/py_echo_parameters/generate", {"x": 1}),
    "model_configuration": ("GET", "/v2/models/add_sub/config", {}),
    "model_repository": ("POST", "/v2/repository/index", {}),
    "statistics": ("GET", "/v2/models/add_sub/stats", {}),
}


@pytest.mark.row("R-431")
@pytest.mark.parametrize("extension", WORKS)
def test_what_is_listed_works(wire: Wire, extension: str) -> None:
    """Each listed extension answers, and no others are listed."""
    assert set(wire.get("/v2").json()["extensions"]) == set(WORKS)
    method, path, more = WORKS[extension]
    inputs = {"vector_int32": json_input("INPUT0", "INT32", np.array([1], np.int32)), "classifier": FEATURES}
    own = [value for name, value in inputs.items() if f"/{name}/" in path]
    answer = wire.get(path) if method == "GET" else wire.post(path, {"inputs": own, **more} if own else more)
    assert answer.status == 200
