"""kserve's InferenceGRPCClient, unmodified. Nothing in this process may import tritonclient.grpc beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferInput, InferRequest
from kserve.protocol.infer_type import RequestedOutput

from tests.protocols.v2.test_values import special
from tests.support.wire import same

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kserve import InferResponse
    from numpy.typing import NDArray

    from tests.support.server import Server

LEFT = np.arange(16, dtype=np.int32)


def run(server: Server, work: Callable[[InferenceGRPCClient], Awaitable[Any]]) -> Any:
    """Run one coroutine with a client of its own."""

    async def main() -> Any:
        async with InferenceGRPCClient(server.rpc_netloc) as client:
            return await work(client)

    return asyncio.run(main())


def given(name: str, datatype: str, values: NDArray[Any], *, binary: bool) -> InferInput:
    """An input, raw or typed."""
    made = InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def infer(server: Server, model: str, inputs: list[InferInput], **more: Any) -> InferResponse:
    """One inference."""
    return run(server, lambda client: client.infer(InferRequest(model, inputs, **more)))


def both(*, binary: bool) -> list[InferInput]:
    """The inputs of add_sub."""
    return [given(name, "INT32", LEFT, binary=binary) for name in ("INPUT0", "INPUT1")]


@pytest.mark.row("G-450")
def test_the_server_is_live(server: Server) -> None:
    """A flag."""
    assert run(server, lambda client: client.is_server_live()) is True


@pytest.mark.row("G-450")
def test_the_server_is_ready(server: Server) -> None:
    """A flag."""
    assert run(server, lambda client: client.is_server_ready()) is True


@pytest.mark.row("G-450")
def test_a_model_is_ready_or_not(server: Server) -> None:
    """Once it is loaded."""
    infer(server, "add_sub", both(binary=True))
    assert run(server, lambda client: client.is_model_ready("add_sub")) is True
    assert run(server, lambda client: client.is_model_ready("unheard_of")) is False


@pytest.mark.row("G-451")
@pytest.mark.parametrize("binary", [True, False])
def test_infer_raw_and_typed(server: Server, *, binary: bool) -> None:
    """As the client chooses."""
    response = infer(server, "add_sub", both(binary=binary), request_id="1")
    assert response.id == "1"
    assert [output.as_numpy().tolist() for output in response.outputs] == [(2 * LEFT).tolist(), [0] * 16]


@pytest.mark.row("G-451")
def test_only_the_outputs_that_were_asked_for(server: Server) -> None:
    """By name."""
    response = infer(server, "add_sub", both(binary=True), request_outputs=[RequestedOutput("OUTPUT1")])
    assert [output.name for output in response.outputs] == ["OUTPUT1"]


@pytest.mark.row("G-452")
def test_fp16(server: Server) -> None:
    """Raw, as the client knows."""
    values = np.array([1.5, -2.0, 65504.0], np.float16)
    response = infer(server, "identity_fp16", [given("INPUT0", "FP16", values, binary=True)])
    assert same(response.outputs[0].as_numpy(), values)


@pytest.mark.row("G-453")
@pytest.mark.parametrize("binary", [True, False])
def test_texts(server: Server, *, binary: bool) -> None:
    """Whatever alphabet."""
    values = np.array([b"a", "日本".encode(), b""], object)
    response = infer(server, "identity_bytes", [given("INPUT0", "BYTES", values, binary=binary)])
    found = [text.encode() if isinstance(text, str) else text for text in response.outputs[0].as_numpy()]
    assert found == values.tolist()


@pytest.mark.row("G-454")
@pytest.mark.parametrize("binary", [True, False])
def test_nan(server: Server, *, binary: bool) -> None:
    """And infinities."""
    values = special("FP32")
    response = infer(server, "identity_fp32", [given("INPUT0", "FP32", values, binary=binary)])
    assert same(response.outputs[0].as_numpy(), values)


@pytest.mark.row("G-455")
def test_an_unknown_model_is_not_found(server: Server) -> None:
    """And not tried again."""
    with pytest.raises(grpc.RpcError) as refused:
        infer(server, "unheard_of", both(binary=True))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
