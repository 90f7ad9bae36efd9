"""tritonclient.http.aio, unmodified: the calls of the synchronous client over aiohttp."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.http import InferRequestedOutput
from tritonclient.http.aio import InferenceServerClient as Client
from tritonclient.utils import InferenceServerException

from tests.protocols.v2.test_tritonclient import as_sent, both, given
from tests.protocols.v2.test_values import extremes, special
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.server import Server

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)


def run(server: Server, work: Callable[[Client], Awaitable[None]]) -> None:
    """Run one coroutine with a client of its own."""

    async def main() -> None:
        async with Client(server.netloc) as client:
            await work(client)

    asyncio.run(main())


@pytest.mark.row("R-512")
def test_everything_but_inference(server: Server) -> None:
    """Health, metadata, repository, configuration, statistics."""

    async def work(client: Client) -> None:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        await client.load_model("spare_aio")
        assert await client.is_model_ready("spare_aio")
        await client.unload_model("spare_aio")
        assert not await client.is_model_ready("spare_aio")
        assert (await client.get_server_metadata())["name"] == "dragoman"
        assert (await client.get_model_metadata("add_sub"))["name"] == "add_sub"
        assert (await client.get_model_config("add_sub"))["name"] == "add_sub"
        assert "add_sub" in {entry["name"] for entry in await client.get_model_repository_index()}
        assert (await client.get_inference_statistics("add_sub"))["model_stats"]

    run(server, work)


@pytest.mark.row("R-512")
def test_infer_by_default(server: Server) -> None:
    """Twenty at once."""

    async def work(client: Client) -> None:
        results = await asyncio.gather(*(client.infer("add_sub", both(), request_id=str(n)) for n in range(20)))
        assert [result.get_response()["id"] for result in results] == [str(n) for n in range(20)]
        assert all(np.array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT) for result in results)

    run(server, work)


@pytest.mark.row("R-512")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
@pytest.mark.parametrize("binary", [False, True])
def test_every_datatype(server: Server, datatype: str, *, binary: bool) -> None:
    """Binary and JSON, to the bit."""
    values = extremes(datatype)

    async def work(client: Client) -> None:
        outputs = [InferRequestedOutput("OUTPUT0", binary_data=binary)]
        own = [given("INPUT0", datatype, values, binary=binary)]
        result = await client.infer(DATATYPES[datatype].model, own, outputs=outputs)
        assert same(as_sent(result.as_numpy("OUTPUT0")), values)

    run(server, work)


@pytest.mark.row("R-512")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compression(server: Server, coding: str) -> None:
    """Both ways."""
    values = np.arange(5000, dtype=np.float32)

    async def work(client: Client) -> None:
        result = await client.infer(
            "vector_fp32",
            [given("INPUT0", "FP32", values)],
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )
        assert np.array_equal(result.as_numpy("OUTPUT0"), values)

    run(server, work)


@pytest.mark.row("R-512", "R-513")
def test_non_finite_numbers_through_json(server: Server) -> None:
    """NaN and infinities there and back."""

    async def work(client: Client) -> None:
        outputs = [InferRequestedOutput("OUTPUT0", binary_data=False)]
        own = [given("INPUT0", "FP32", special("FP32"), binary=False)]
        assert same((await client.infer("vector_fp32", own, outputs=outputs)).as_numpy("OUTPUT0"), special("FP32"))

    run(server, work)


@pytest.mark.row("R-512", "R-510")
def test_errors_have_status_and_text(server: Server) -> None:
    """404 and 400, in the exception; the client goes on."""

    async def work(client: Client) -> None:
        with pytest.raises(InferenceServerException, match="unheard_of") as unknown:
            await client.infer("unheard_of", both())
        with pytest.raises(InferenceServerException, match="INPUT1") as bad:
            await client.infer("add_sub", both()[:1])
        assert [raised.value.status() for raised in (unknown, bad)] == ["404", "400"]
        assert (await client.infer("versions", [given("x", "INT64", np.array([0]))], model_version="2")).as_numpy("y")

    run(server, work)
