"""gRPC adds refusals that are answers, even for bytes that are not a message."""

from typing import Any

import grpc
import pytest

from tests.support.grps_client import SERVICE, Message, Rpc, ok, refusal

METHODS = ["Predict", "Online", "Offline", "CheckLiveness", "CheckReadiness", "ServerMetadata", "ModelMetadata"]


@pytest.mark.row("GRPS-110")
@pytest.mark.parametrize("body", [b"\xff", b"\x22\x05a", b"\x22\1\xff", b"\x2a\2\x0a\xff", b"\0"])
@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_are_refused_in_the_status(rpc: Rpc, method: str, body: bytes) -> None:
    """Clients look there."""
    refusal(rpc.ask(method, body), 400)


@pytest.mark.row("GRPS-110")
@pytest.mark.parametrize("body", [b"\xff", b"\x22\x05a"])
def test_a_stream_for_bytes_that_are_no_message_is_one_refusal(rpc: Rpc, body: bytes) -> None:
    """The stream ends after it."""
    (message,) = rpc.stream(body)
    refusal(message, 400)


@pytest.mark.row("GRPS-111")
def test_a_method_that_is_not_there_is_unimplemented(rpc: Rpc) -> None:
    """The refusal is gRPC's own."""
    with pytest.raises(grpc.RpcError) as refused:
        rpc.ask("Train")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.row("GRPS-112")
def test_the_last_content_of_a_message_counts(rpc: Rpc) -> None:
    """Protobuf counts the last of several exclusive fields."""
    body = Message(model="text", bin_data=b"b").SerializeToString() + Message(str_data="a").SerializeToString()
    assert ok(rpc.ask("Predict", body)).str_data == "a"


@pytest.mark.row("GRPS-113")
def test_large_messages_go_both_ways(rpc: Rpc) -> None:
    """They have 32 MiB."""
    data = bytes(range(256)) * (128 * 1024)
    assert ok(rpc.ask("Predict", model="octets", bin_data=data)).bin_data == data


@pytest.mark.row("GRPS-114")
def test_unknown_fields_are_ignored(rpc: Rpc) -> None:
    """They may be of every kind."""
    more = b"\xa8\x06\x05" + b"\xa2\x06\1x" + b"\xad\x06" + bytes(4) + b"\xa1\x06" + bytes(8)
    message: Any = Message(model="text", str_data="a").SerializeToString() + more
    assert ok(rpc.ask("Predict", message)).str_data == "a"


@pytest.mark.row("GRPS-115")
def test_reflection_and_health_know_the_service(rpc: Rpc) -> None:
    """GRPS's own servers do not have these."""
    listed = rpc.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(
        iter([b"\x3a\0"]), timeout=30
    )
    assert SERVICE.encode() in next(iter(listed))
