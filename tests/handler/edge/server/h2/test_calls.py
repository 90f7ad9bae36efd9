"""handler.edge.server.h2.calls: calls of gRPC among the requests of HTTP/2."""

import asyncio
from typing import Any

import pytest

from core.errors import TooLarge
from handler.edge.server.h2 import calls

METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.mark.parametrize("media_type", [b"application/grpc", b"application/grpc+proto", b"Application/gRPC ; a=b"])
def test_a_type_of_grpc_is_one(media_type: bytes) -> None:
    """The media type of gRPC is known in all its spellings (RFC 9110 8.3.1)."""
    assert calls.is_call({"path": METHOD, "headers": [(b"content-type", media_type)]})


def test_every_call_gets_its_trailers() -> None:
    """Whether its client asks for them or not."""
    for headers in ([], [(b"te", b"trailers")]):
        scope = {"headers": headers}
        calls.with_trailers(scope)
        assert scope == {"headers": [(b"te", b"trailers")]}


def test_a_refused_call_has_a_status_of_grpc() -> None:
    """HTTP's status is 200, as that of each answer to a call."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(calls.CallRefusal(TooLarge("the headers are too large"))({}, asyncio.Event().wait, send))  # type: ignore[arg-type]
    assert (sent[0]["status"], sent[0]["trailers"]) == (200, True)
    assert dict(sent[-1]["headers"]) == {b"grpc-status": b"8", b"grpc-message": b"the headers are too large"}
