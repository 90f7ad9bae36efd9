"""The tests cover metadata and readiness of models, their versions and their names."""

from typing import Any

import numpy as np
import pytest

from tests.support.checks import alive
from tests.support.wire import Wire, json_input
from tests.support.zoo.models import DATATYPES


def port(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    """Returns a tensor of metadata."""
    return {"name": name, "datatype": datatype, "shape": shape, **more}


ANY_RANK = {"parameters": {"any_rank": True}}
PORTS = {
    "add_sub": [[port("INPUT0", "INT32", [16]), port("INPUT1", "INT32", [16])],
                [port("OUTPUT0", "INT32", [16]), port("OUTPUT1", "INT32", [16])]],
    "fixed": [[port("INPUT0", "FP32", [2, 3])], [port("OUTPUT0", "FP32", [2, 3])]],
    "matrix": [[port("INPUT0", "FP32", [-1, -1])], [port("OUTPUT0", "FP32", [-1, -1])]],
    "named_dims": [[port("INPUT0", "FP32", [-1, 3])], [port("OUTPUT0", "FP32", [-1, 3])]],
    "scalar": [[port("INPUT0", "FP32", [])], [port("OUTPUT0", "FP32", [])]],
    "scalar_by_settings": [[port("INPUT0", "FP32", [])], [port("OUTPUT0", "FP32", [])]],
    "identity_int8": [[port("INPUT0", "INT8", [-1], **ANY_RANK)], [port("OUTPUT0", "INT8", [-1], **ANY_RANK)]],
    "three_types": [[port("integers", "INT32", [-1]), port("text", "BYTES", [-1]), port("flags", "BOOL", [-1])],
                    [port("integers_out", "INT32", [-1]), port("text_out", "BYTES", [-1]),
                     port("flags_out", "BOOL", [-1])]],
    "py_echo_parameters": [[port("x", "FP32", [-1])], [port("x", "FP32", [-1]), port("parameters", "BYTES", [1])]],
}  # fmt: skip


@pytest.mark.row("R-010")
@pytest.mark.parametrize("model", PORTS)
def test_a_model_describes_its_tensors(wire: Wire, model: str) -> None:
    """It has names, datatypes and shapes, in the model's order."""
    answer = wire.get(f"/v2/models/{model}")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body["name"] == model
    assert isinstance(body["platform"], str)
    assert [body["inputs"], body["outputs"]] == PORTS[model]


@pytest.mark.row("R-011")
@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name != "BF16"])
def test_a_datatype_has_its_own_name(wire: Wire, datatype: str) -> None:
    """The names are those of the specification's table; text is BYTES."""
    body = wire.get(f"/v2/models/{DATATYPES[datatype].model}").json()
    assert [tensor["datatype"] for tensor in (*body["inputs"], *body["outputs"])] == [datatype] * 2


@pytest.mark.row("R-011", "N-01")
@pytest.mark.parametrize("model", ["identity_bf16", "py_bf16"])
def test_bf16_has_its_own_name(wire: Wire, model: str) -> None:
    """The type that numpy lacks is in the metadata, too."""
    body = wire.get(f"/v2/models/{model}").json()
    assert [tensor["datatype"] for tensor in (*body["inputs"], *body["outputs"])] == ["BF16", "BF16"]


@pytest.mark.row("R-012")
def test_the_platform_of_onnx_is_the_specifications(wire: Wire) -> None:
    """The specification calls it onnx_onnxv1."""
    assert wire.get("/v2/models/add_sub").json()["platform"] == "onnx_onnxv1"


VERSIONS = {
    "versions": ["1", "2", "10"], "versions_latest": ["10"], "versions_latest_two": ["2", "10"],
    "versions_specific": ["1", "2"], "versions_padded": ["7"],
}  # fmt: skip


@pytest.mark.row("R-013", "R-014")
@pytest.mark.parametrize("model", VERSIONS)
def test_the_versions_are_those_that_the_policy_serves(wire: Wire, model: str) -> None:
    """They are strings, in numeric order."""
    assert wire.get(f"/v2/models/{model}").json()["versions"] == VERSIONS[model]


@pytest.mark.row("R-015")
@pytest.mark.parametrize("version", VERSIONS["versions"])
def test_a_version_has_metadata(wire: Wire, version: str) -> None:
    """The path with a version describes that version."""
    answer = wire.get(f"/v2/models/versions/versions/{version}")
    assert answer.status == 200
    assert answer.json()["name"] == "versions"
    assert answer.json()["inputs"] == [port("x", "INT64", [-1])]


@pytest.mark.row("R-016")
@pytest.mark.parametrize("path", ["", "/health/live", "/models/add_sub", "/models/py_no_metadata", "/models/scalar"])
def test_metadata_holds_no_null(wire: Wire, path: str) -> None:
    """Unknown optional members are absent."""
    assert b"null" not in wire.get(f"/v2{path}").content


@pytest.mark.row("R-020", "R-022")
def test_a_loaded_model_is_ready(wire: Wire) -> None:
    """The answer is 200 with the name, once it has answered."""
    alive(wire)
    answer = wire.get("/v2/models/add_sub/ready")
    assert answer.status == 200
    assert answer.json() == {"name": "add_sub", "ready": True}


@pytest.mark.row("R-021")
@pytest.mark.parametrize("version", VERSIONS["versions"])
def test_a_loaded_version_is_ready(wire: Wire, version: str) -> None:
    """The answer is 200 for each version that has answered."""
    wire.infer("versions", json_input("x", "INT64", np.array([0])), version=version)
    answer = wire.get(f"/v2/models/versions/versions/{version}/ready")
    assert answer.status == 200
    assert answer.json()["ready"] is True


def test_readiness_never_loads(wire: Wire) -> None:
    """A model without a request stays unready, with state and reason, however often it is probed."""
    for _ in range(3):
        answer = wire.get("/v2/models/spare_ready/ready")
        assert answer.status == 503
        body = answer.json()
        assert body["error"]
        assert body["reason"]
        assert (body["name"], body["ready"], body["state"]) == ("spare_ready", False, "UNAVAILABLE")


@pytest.mark.row("R-030")
def test_a_name_may_hold_dots_dashes_and_underscores(wire: Wire) -> None:
    """It works for metadata, inference and readiness."""
    model = "mo-del.v1_beta.2"
    values = np.array([1, 2], np.int32)
    assert wire.get(f"/v2/models/{model}").json()["name"] == model
    answer = wire.infer(model, json_input("INPUT0", "INT32", values))
    assert answer.json()["model_name"] == model
    assert answer.tensor().tolist() == [1, 2]
    assert wire.get(f"/v2/models/{model}/ready").status == 200


@pytest.mark.row("R-031")
def test_a_percent_encoded_name_is_decoded(wire: Wire) -> None:
    """%61dd_sub is add_sub."""
    assert wire.get("/v2/models/%61dd_sub").json()["name"] == "add_sub"
