"""A server and a model each describe themselves in one YAML document."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.checks import INTERNALS
from tests.support.grps_client import FLAT, Http, Rpc, ok, refusal

CARRIERS = {
    "BOOL": "DT_UINT8", "UINT8": "DT_UINT8", "UINT16": "DT_INT32", "UINT32": "DT_INT64", "UINT64": "DT_INT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64", "FP16": "DT_FLOAT16",
    "FP32": "DT_FLOAT32", "FP64": "DT_FLOAT64", "BYTES": "DT_STRING", "BF16": "DT_FLOAT32",
}  # fmt: skip


def asked(http: Http, rpc: Rpc, name: str) -> list[Any]:
    """Returns a model's document over HTTP and gRPC."""
    texts = [
        http.model_metadata({"str_data": name}).content()["str_data"],
        ok(rpc.ask("ModelMetadata", str_data=name)).str_data,
    ]
    return [yaml.safe_load(text) for text in texts]


@pytest.mark.row("GRPS-010")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_server_tells_its_models_in_one_document(http: Http, rpc: Rpc, method: str, zoo: Path) -> None:
    """It has the names of its interface and of every version, and no path."""
    for text in (http.call(method, "metadata/server").content()["str_data"], ok(rpc.ask("ServerMetadata")).str_data):
        found = yaml.safe_load(text)
        assert {"name", "version", "platform", "interface", "models"} <= set(found)
        listed = {(each["name"], each["version"]) for each in found["models"]}
        assert {("my-model", "1"), ("my-model", "2"), ("my-model", "10"), ("text", "1")} <= listed
        assert all(each["state"] in {"READY", "UNAVAILABLE", "LOADING"} for each in found["models"])
        assert str(zoo) not in text
        assert not INTERNALS.search(text)


@pytest.mark.row("GRPS-011")
@pytest.mark.parametrize(("name", "version"), [
    ("my-model", "10"), ("my-model-2", "2"), ("my-model-10", "10"), ("text", "1"), ("text-1", "1"),
])  # fmt: skip
def test_a_model_is_named_with_its_version_or_without(http: Http, rpc: Rpc, name: str, version: str) -> None:
    """A name without a version means the version that would answer."""
    for found in asked(http, rpc, name):
        assert found["name"] == name.removesuffix(f"-{version}")
        assert found["version"] == version
        assert version in found["versions"]


@pytest.mark.row("GRPS-012")
@pytest.mark.parametrize("datatype", list(CARRIERS))
def test_a_model_tells_its_tensors_in_the_protocols_types_and_its_own(http: Http, rpc: Rpc, datatype: str) -> None:
    """If the protocol lacks the type, the document has the type that carries it."""
    for found in asked(http, rpc, f"identity_{datatype.lower()}"):
        tensors = [
            {"name": n, "dtype": CARRIERS[datatype], "datatype": datatype, "shape": None} for n in ("INPUT0", "OUTPUT0")
        ]
        assert [*found["inputs"], *found["outputs"]] == tensors
        assert CARRIERS[datatype] in FLAT
        assert found["platform"] == "onnx_onnxv1"


@pytest.mark.row("GRPS-013")
def test_a_model_that_does_not_say_its_tensors_has_null_for_them(http: Http, rpc: Rpc) -> None:
    """A model that declares its tensors has their shapes."""
    for found in asked(http, rpc, "untold"):
        assert (found["inputs"], found["outputs"]) == (None, None)
    for found in asked(http, rpc, "pairs"):
        assert found["inputs"][0]["shape"] == [-1, 2]


@pytest.mark.row("GRPS-014")
@pytest.mark.parametrize("name", ["nope", "nope-1", "my-model-3", "../text", "-1", "text-1-1", "a\0b", "ż"])
def test_a_model_that_is_not_there_is_404(http: Http, rpc: Rpc, name: str) -> None:
    """The text is in the status."""
    http.model_metadata({"str_data": name}).refusal(404)
    refusal(rpc.ask("ModelMetadata", str_data=name), 404)


@pytest.mark.row("GRPS-015")
def test_a_request_without_a_name_is_400(http: Http, rpc: Rpc) -> None:
    """The text is GRPS's."""
    for document in ({}, {"model": "text"}, {"str_data": None}):
        assert http.model_metadata(document).refusal(400) == "No model name."
    assert refusal(rpc.ask("ModelMetadata", model="text"), 400) == "No model name."
    assert http.model_metadata({"str_data": ""}).refusal(400) == "The model name is empty."
    assert refusal(rpc.ask("ModelMetadata", str_data=""), 400) == "The model name is empty."


@pytest.mark.row("GRPS-016")
@pytest.mark.parametrize(("body", "headers"), [
    (b"{", {"Content-Type": "application/json"}),
    (b"", {"Content-Type": "application/json"}),
    (b"[]", {"Content-Type": "application/json"}),
    (b'{"str_data": "text"}', {"Content-Type": "text/plain"}),
    (b'{"str_data": "text"}', {}),
])  # fmt: skip
def test_what_is_no_request_for_metadata_is_400_in_json(http: Http, body: bytes, headers: dict[str, str]) -> None:
    """The answer is never HTML."""
    http.call("POST", "metadata/model", body, headers).refusal(400)


@pytest.mark.row("GRPS-017")
def test_metadata_of_a_model_that_cannot_load_is_503(http: Http, rpc: Rpc) -> None:
    """The text has the reason."""
    assert "broken" in http.model_metadata({"str_data": "broken"}).refusal(503)
    assert "broken" in refusal(rpc.ask("ModelMetadata", str_data="broken-1"), 503)
