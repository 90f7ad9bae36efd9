"""kserve's InferenceRESTClient, unmodified.

Importing kserve registers `inference.*` in protobuf's default pool, so no test in this process may import
tritonclient.grpc; tritonclient.http has no protobuf and is at peace with it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from tests.support.wire import same

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kserve import InferResponse
    from numpy.typing import NDArray

    from tests.support.server import Server

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's httpx obeys the environment's proxies, on the loopback, too."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def run(server: Server, work: Callable[[InferenceRESTClient, str], Awaitable[Any]]) -> Any:
    """Run one coroutine with a client of its own and the server's base URL."""

    async def main() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=30)) as client:
            return await work(client, f"http://{server.netloc}")

    return asyncio.run(main())


def given(name: str, datatype: str, values: NDArray[Any], *, binary: bool) -> InferInput:
    """An input."""
    made = InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def infer(server: Server, model: str, inputs: list[InferInput], **more: Any) -> InferResponse:
    """One inference."""
    request = InferRequest(model, inputs, **more)
    return run(server, lambda client, url: client.infer(url, request, model_name=model))


def both(*, binary: bool) -> list[InferInput]:
    """The inputs of add_sub."""
    return [given("INPUT0", "INT32", LEFT, binary=binary), given("INPUT1", "INT32", RIGHT, binary=binary)]


def binary_outputs(**choice: bool) -> list[RequestedOutput]:
    """Outputs, each binary or not."""
    return [RequestedOutput(name, {"binary_data": binary}) for name, binary in choice.items()]


@pytest.mark.row("R-550")
def test_the_server_is_live(server: Server) -> None:
    """The body is read."""
    assert run(server, lambda client, url: client.is_server_live(url)) is True


@pytest.mark.row("R-550")
def test_the_server_is_ready(server: Server) -> None:
    """The body is read."""
    assert run(server, lambda client, url: client.is_server_ready(url)) is True


@pytest.mark.row("R-550")
def test_a_model_is_ready_after_its_first_inference(server: Server) -> None:
    """The status is read."""
    infer(server, "add_sub", both(binary=True))
    assert run(server, lambda client, url: client.is_model_ready(url, "add_sub")) is True


@pytest.mark.row("R-551")
def test_an_unknown_model_is_not_ready(server: Server) -> None:
    """False, no exception."""
    assert run(server, lambda client, url: client.is_model_ready(url, "unheard_of")) is False


@pytest.mark.row("R-552")
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "parameters", [{}, {"parameters": {"binary_data_output": True}}], ids=["json_out", "binary_out"]
)
def test_infer(server: Server, *, binary: bool, parameters: dict[str, Any]) -> None:
    """JSON and binary, in and out, with the id that the client makes up."""
    response = infer(server, "add_sub", both(binary=binary), request_id="7", **parameters)
    assert response.id == "7"
    assert np.array_equal(response.get_output_by_name("OUTPUT0").as_numpy(), LEFT + RIGHT)
    assert np.array_equal(response.get_output_by_name("OUTPUT1").as_numpy(), LEFT - RIGHT)


@pytest.mark.row("R-552")
def test_infer_with_mixed_outputs(server: Server) -> None:
    """One output binary, the other JSON."""
    outputs = binary_outputs(OUTPUT1=True, OUTPUT0=False)
    response = infer(server, "add_sub", both(binary=True), request_outputs=outputs)
    assert [output.name for output in response.outputs] == ["OUTPUT1", "OUTPUT0"]
    assert np.array_equal(response.get_output_by_name("OUTPUT1").as_numpy(), LEFT - RIGHT)
    assert np.array_equal(response.get_output_by_name("OUTPUT0").as_numpy(), LEFT + RIGHT)


@pytest.mark.row("R-553")
def test_fp16_binary(server: Server) -> None:
    """The client refuses FP16 in JSON itself."""
    values = np.array([1.5, -65504.0, 6e-8], np.float16)
    own = [given("INPUT0", "FP16", values, binary=True)]
    response = infer(server, "vector_fp16", own, request_outputs=binary_outputs(OUTPUT0=True))
    assert same(response.outputs[0].as_numpy(), values)


@pytest.mark.row("R-554")
@pytest.mark.parametrize("binary", [False, True])
def test_bytes(server: Server, *, binary: bool) -> None:
    """Text beyond ASCII, and none at all."""
    values = np.array(["één".encode(), b"", "日本".encode()], object)
    own = [given("INPUT0", "BYTES", values, binary=binary)]
    response = infer(server, "vector_bytes", own, request_outputs=binary_outputs(OUTPUT0=binary))
    found = response.outputs[0].as_numpy().tolist()
    assert [text if isinstance(text, bytes) else text.encode() for text in found] == values.tolist()


@pytest.mark.row("R-554", "R-326")
def test_an_empty_binary_tensor(server: Server) -> None:
    """The client sends data: null and binary_data_size 0, without the header."""
    own = [given("INPUT0", "FP32", np.empty(0, np.float32), binary=True)]
    assert infer(server, "vector_fp32", own).outputs[0].shape == [0]


@pytest.mark.row("R-555")
def test_uint64(server: Server) -> None:
    """Every digit of the largest."""
    values = np.array([2**64 - 1, 2**53 + 1, 0], np.uint64)
    response = infer(server, "vector_uint64", [given("INPUT0", "UINT64", values, binary=False)])
    assert same(response.outputs[0].as_numpy(), values)


NON_FINITE = np.array([np.nan, np.inf, -np.inf, 1.5], np.float32)


@pytest.mark.row("R-556")
def test_nan_through_json(server: Server) -> None:
    """The client's orjson writes null for all three; NaN comes back in a form that it can read."""
    response = infer(server, "vector_fp32", [given("INPUT0", "FP32", NON_FINITE, binary=False)])
    expected = np.array([np.nan, np.nan, np.nan, 1.5], np.float32)
    assert same(response.outputs[0].as_numpy(), expected)


@pytest.mark.row("R-556")
def test_infinities_come_back_as_json(server: Server) -> None:
    """Sent binary, answered as JSON: all three survive."""
    response = infer(server, "vector_fp32", [given("INPUT0", "FP32", NON_FINITE, binary=True)])
    assert same(response.outputs[0].as_numpy(), NON_FINITE)


@pytest.mark.row("R-557")
def test_nan_binary(server: Server) -> None:
    """Sent and answered as bytes."""
    own = [given("INPUT0", "FP32", NON_FINITE, binary=True)]
    response = infer(server, "vector_fp32", own, parameters={"binary_data_output": True})
    assert same(response.outputs[0].as_numpy(), NON_FINITE)


@pytest.mark.row("R-558")
@pytest.mark.parametrize(
    ("model", "status", "text"),
    [("unheard_of", 404, "unheard_of"), ("vector_fp32", 400, "INPUT1"), ("fails", 400, "index")],
)
def test_the_text_of_an_error_is_seen(server: Server, model: str, status: int, text: str) -> None:
    """The client shows it only if the content-type is exactly application/json."""
    with pytest.raises(httpx.HTTPStatusError, match=text) as raised:
        infer(server, model, both(binary=True))
    assert raised.value.response.status_code == status


@pytest.mark.row("R-558")
def test_the_text_of_a_failing_model_is_seen(server: Server) -> None:
    """500 with the protocol's error object."""
    own = [given("index", "INT64", np.array([7]), binary=True)]
    with pytest.raises(httpx.HTTPStatusError, match="fails") as raised:
        infer(server, "fails", own)
    assert raised.value.response.status_code == 500
    assert json.loads(raised.value.response.content)["error"]
