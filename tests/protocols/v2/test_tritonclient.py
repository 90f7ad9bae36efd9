"""tritonclient.http, unmodified, synchronous: every call that a client of this server can make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.protocols.v2.test_values import FLOATS, extremes, special
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES, LABELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tests.support.server import Server

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    """A client as the documentation makes it."""
    with triton.InferenceServerClient(server.netloc) as made:
        yield made


def given(name: str, datatype: str, values: NDArray[Any], *, binary: bool = True) -> triton.InferInput:
    """An input."""
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def both(*, binary: bool = True) -> list[triton.InferInput]:
    """The inputs of add_sub."""
    return [given("INPUT0", "INT32", LEFT, binary=binary), given("INPUT1", "INT32", RIGHT, binary=binary)]


def round_trip(client: triton.InferenceServerClient, datatype: str, values: NDArray[Any], *, binary: bool) -> Any:
    """What an identity gives back."""
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=binary)]
    own = [given("INPUT0", datatype, values, binary=binary)]
    return as_sent(client.infer(DATATYPES[datatype].model, own, outputs=outputs).as_numpy("OUTPUT0"))


def as_sent(found: NDArray[Any]) -> NDArray[Any]:
    """BYTES of a JSON answer are `str` in this client, `bytes` of a binary one."""
    if found.dtype != object:
        return found
    flat = [text.encode() if isinstance(text, str) else text for text in found.ravel()]
    return np.array([*flat, None], object)[:-1].reshape(found.shape)


@pytest.mark.row("R-500")
def test_health(client: triton.InferenceServerClient) -> None:
    """Live, ready, and a model that is ready once it is loaded."""
    assert client.is_server_live()
    assert client.is_server_ready()
    client.load_model("add_sub")
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("add_sub", "1")
    assert not client.is_model_ready("unheard_of")
    assert not client.is_model_ready("add_sub", "2")


@pytest.mark.row("R-501")
def test_metadata(client: triton.InferenceServerClient) -> None:
    """Of the server, a model and a version."""
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    body = client.get_model_metadata("add_sub")
    assert [port["name"] for port in body["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.get_model_metadata("versions", "2")["name"] == "versions"


@pytest.mark.row("R-502")
def test_infer_by_default(client: triton.InferenceServerClient) -> None:
    """Binary in, binary out, no content-type."""
    result = client.infer("add_sub", both())
    assert np.array_equal(result.as_numpy("OUTPUT0"), LEFT + RIGHT)
    assert np.array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT)
    assert result.get_response()["model_version"] == "1"


@pytest.mark.row("R-503")
@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_infer_binary_and_json(client: triton.InferenceServerClient, *, binary_in: bool, binary_out: bool) -> None:
    """In and out, with one output asked for and an id."""
    outputs = [triton.InferRequestedOutput("OUTPUT1", binary_data=binary_out)]
    result = client.infer("add_sub", both(binary=binary_in), outputs=outputs, request_id="номер 1")
    assert np.array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT)
    assert result.as_numpy("OUTPUT0") is None
    assert result.get_response()["id"] == "номер 1"
    assert ("data" in result.get_output("OUTPUT1")) is not binary_out


@pytest.mark.row("R-504")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_binary(client: triton.InferenceServerClient, datatype: str) -> None:
    """To the bit."""
    values = extremes(datatype)
    assert same(round_trip(client, datatype, values, binary=True), values)


@pytest.mark.row("R-504", "N-01")
def test_bf16_binary(client: triton.InferenceServerClient) -> None:
    """With ml_dtypes, as this client wants it."""
    values = np.array([1.0, -2.5, 3e38, np.inf], ml_dtypes.bfloat16)
    assert same(round_trip(client, "BF16", values, binary=True), values)


@pytest.mark.row("R-505")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_json(client: triton.InferenceServerClient, datatype: str) -> None:
    """Exact through decimal text, too."""
    values = extremes(datatype)
    assert same(round_trip(client, datatype, values, binary=False), values)


@pytest.mark.row("R-506")
@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [False, True])
def test_compression(
    client: triton.InferenceServerClient, request_coding: str | None, response_coding: str | None, *, binary: bool
) -> None:
    """Every pair, on an answer that is worth compressing."""
    values = np.arange(5000, dtype=np.float32)
    result = client.infer(
        "vector_fp32",
        [given("INPUT0", "FP32", values, binary=binary)],
        outputs=[triton.InferRequestedOutput("OUTPUT0", binary_data=binary)],
        request_compression_algorithm=request_coding,
        response_compression_algorithm=response_coding,
    )
    assert np.array_equal(result.as_numpy("OUTPUT0"), values)


@pytest.mark.row("R-507")
@pytest.mark.parametrize("version", ["1", "2", "10"])
def test_model_version(client: triton.InferenceServerClient, version: str) -> None:
    """The version asked for runs and is named."""
    result = client.infer("versions", [given("x", "INT64", np.array([0]))], model_version=version)
    assert result.as_numpy("y").tolist() == [int(version)]
    assert result.get_response()["model_version"] == version


@pytest.mark.row("R-508")
def test_everything_that_infer_takes(client: triton.InferenceServerClient) -> None:
    """Sequence, priority, timeout, custom parameters, headers, query."""
    result = client.infer(
        "py_echo_parameters",
        [given("x", "FP32", np.ones(2, np.float32))],
        sequence_id=9,
        sequence_start=True,
        sequence_end=True,
        priority=2,
        timeout=10_000_000,
        parameters={"own": "value"},
        headers={"X-Request-Id": "1"},
        query_params={"a": "b"},
    )
    assert json.loads(result.as_numpy("parameters")[0])["own"] == "value"


@pytest.mark.row("R-509")
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
@pytest.mark.parametrize("binary", [False, True])
def test_empty_tensors(client: triton.InferenceServerClient, datatype: str, *, binary: bool) -> None:
    """np.empty(0) goes there and back."""
    values = np.empty((0, 3), DATATYPES[datatype].numpy)
    assert round_trip(client, datatype, values, binary=binary).shape == (0, 3)


@pytest.mark.row("R-510")
def test_an_unknown_model_has_status_and_text(client: triton.InferenceServerClient) -> None:
    """404, in the exception."""
    with pytest.raises(InferenceServerException, match="unheard_of") as raised:
        client.infer("unheard_of", both())
    assert raised.value.status() == "404"


@pytest.mark.row("R-510")
def test_a_bad_request_has_status_and_text(client: triton.InferenceServerClient) -> None:
    """400, in the exception."""
    with pytest.raises(InferenceServerException, match="INPUT1") as raised:
        client.infer("add_sub", both()[:1])
    assert raised.value.status() == "400"


@pytest.mark.row("R-510")
def test_shared_memory_is_refused(client: triton.InferenceServerClient) -> None:
    """400 from infer, 404 from the extension."""
    own = triton.InferInput("INPUT0", [4], "INT32")
    own.set_shared_memory("region", 16)
    with pytest.raises(InferenceServerException, match="shared") as raised:
        client.infer("vector_int32", [own])
    assert raised.value.status() == "400"
    with pytest.raises(InferenceServerException) as raised:
        client.get_system_shared_memory_status()
    assert raised.value.status() == "404"


@pytest.mark.row("R-511")
def test_async_infer(client: triton.InferenceServerClient) -> None:
    """Several requests on their way."""
    requests = [client.async_infer("add_sub", both(), request_id=str(number)) for number in range(5)]
    results = [request.get_result() for request in requests]
    assert [result.get_response()["id"] for result in results] == ["0", "1", "2", "3", "4"]
    assert all(np.array_equal(result.as_numpy("OUTPUT0"), LEFT + RIGHT) for result in results)


@pytest.mark.row("R-513")
@pytest.mark.parametrize("datatype", FLOATS)
def test_non_finite_numbers_through_json(client: triton.InferenceServerClient, datatype: str) -> None:
    """Bare tokens there, written by rapidjson; strings back, which become numbers again."""
    assert same(round_trip(client, datatype, special(datatype), binary=False), special(datatype))


@pytest.mark.row("R-514")
def test_repository(client: triton.InferenceServerClient) -> None:
    """Index, load, unload."""
    client.load_model("spare_triton")
    states = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert states["spare_triton"] == "READY"
    client.unload_model("spare_triton")
    assert not client.is_model_ready("spare_triton")
    with pytest.raises(InferenceServerException, match="unheard_of"):
        client.load_model("unheard_of")


@pytest.mark.row("R-515")
@pytest.mark.parametrize("binary", [False, True])
def test_class_count(client: triton.InferenceServerClient, *, binary: bool) -> None:
    """The best two, with labels."""
    scores = np.array([0.1, 0.5, -1.0, 0.25], np.float32)
    outputs = [triton.InferRequestedOutput("scores", binary_data=binary, class_count=2)]
    result = client.infer("classifier", [given("features", "FP32", scores)], outputs=outputs)
    found = [element.decode() if isinstance(element, bytes) else element for element in result.as_numpy("scores")]
    assert [text.split(":")[1:] for text in found] == [["1", LABELS[1]], ["3", LABELS[3]]]


@pytest.mark.row("R-516")
def test_model_configuration(client: triton.InferenceServerClient) -> None:
    """What perf_analyzer reads."""
    config = client.get_model_config("add_sub")
    assert config["name"] == "add_sub"
    assert [(port["name"], port["data_type"], port["dims"]) for port in config["input"]] == [
        ("INPUT0", "TYPE_INT32", [16]),
        ("INPUT1", "TYPE_INT32", [16]),
    ]


@pytest.mark.row("R-517")
def test_statistics(client: triton.InferenceServerClient) -> None:
    """Of one model, one version, all models."""
    client.infer("add_sub", both())
    for statistics in (
        client.get_inference_statistics("add_sub"),
        client.get_inference_statistics("add_sub", "1"),
        client.get_inference_statistics(),
    ):
        (own,) = [entry for entry in statistics["model_stats"] if entry["name"] == "add_sub"]
        assert own["inference_stats"]["success"]["count"] > 0
