"""One id of a request, from the client's header to the line of the log to the body of the error."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import closing
from typing import Any
from urllib.parse import unquote

import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from handler.edge import rpc
from handler.edge.function.events import scope_of
from handler.edge.observe.record import sent_in
from tests.handler.calling import http
from tests.handler.edge.beside import served
from tests.handler.edge.calls.connect.client import TEXT, call, untext
from tests.handler.edge.client import INFER, ask, make
from tests.handler.edge.observe.test_access import Context, function, lines
from tests.handler.edge.observe.test_refusals import KEYS, LARGE, SERVICE, named
from tests.support.asgi import spoken
from tests.support.connect_client import JSON, PROTO, STREAM, WEB, envelope, split
from tests.support.ports import free_port

OWN = 'client-1"\\{}'
"""An id whose characters mean something in JSON."""
INVALID = ("", "x" * 129, "a b")
DETAILS = "grpc-status-details-bin"
Found = tuple[str | None, str | None, Any]
"""The id in the answer's header or trailers; that in its error; the rest of the error."""


def own_members(body: bytes) -> tuple[str | None, Any]:
    """The id that a JSON error ends with."""
    members = json.loads(body)
    assert "request_id" not in members or [*members][-1] == "request_id"
    return members.pop("request_id", None), members


def connect_details(error: dict[str, Any]) -> tuple[str | None, Any]:
    """The id in Connect's details, as googleapis' own class reads it."""
    if "details" not in error:
        return None, error
    (detail,) = error.pop("details")
    assert detail["type"] == "google.rpc.RequestInfo"
    assert not detail["value"].endswith("=")
    info = error_details_pb2.RequestInfo.FromString(base64.b64decode(detail["value"] + "=="))
    assert detail["debug"] == {"requestId": info.request_id}
    return info.request_id, error


def status_details(found: bytes | str | None, code: str, text: str) -> str | None:
    """The id in google.rpc.Status, whose code and text clients compare with the call's. In text it is base64."""
    if found is None:
        return None
    if isinstance(found, str):
        assert not found.endswith("=")
        found, text = base64.b64decode(found + "=="), unquote(text)
    status = status_pb2.Status.FromString(found)
    assert (str(status.code), status.message) == (code, text)
    (detail,) = status.details
    info = error_details_pb2.RequestInfo()
    assert detail.Unpack(info)
    return info.request_id


def over_http(path: str, body: bytes = b"{}", kind: str = JSON) -> Any:
    def sent(app: Any, own: str) -> Found:
        headers = [(b"content-type", kind.encode()), *([(b"x-request-id", own.encode())] if own else [])]
        _, answered, content = ask(app, "POST", path, body, headers=headers)
        found = connect_details(json.loads(content)) if path.startswith(SERVICE) else own_members(content)
        return answered["x-request-id"], *found

    return sent


def over_calls(method: str, kind: str, body: bytes) -> Any:
    def sent(app: Any, own: str) -> Found:
        answer = call(app, method, kind, body, x_request_id=own)
        head = answer.headers["x-request-id"]
        if kind == STREAM:
            return head, *connect_details(answer.end["error"])
        content = untext(answer.body) if kind == TEXT else answer.body
        trailers = dict(line.split(": ", 1) for line in split(content)[-1][1].decode().splitlines())
        details = trailers.pop(DETAILS, None)
        return head, status_details(details, trailers["grpc-status"], trailers["grpc-message"]), trailers

    return sent


def over_asgi(app: Any, own: str) -> Found:
    """GRPC over HTTP/2, as the server of `--http2` speaks it."""
    headers = {"x_request_id": own, "te": "trailers"}
    sent = asyncio.run(native(app, envelope(named("nobody")), headers))
    trailers = {name.decode(): value.decode() for name, value in sent[-1]["headers"]}
    details, head, _ = trailers.pop(DETAILS, None), trailers.pop("x-request-id"), trailers.pop("server-timing")
    return head, status_details(details, trailers["grpc-status"], trailers["grpc-message"]), trailers


async def native(app: Any, body: bytes, headers: dict[str, str]) -> list[Any]:
    given = {"content-type": "application/grpc", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "method": "POST", "path": SERVICE + "ModelInfer", "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
        "extensions": {"http.response.trailers": {}},
    }  # fmt: skip
    return await spoken(app, scope, {"type": "http.request", "body": body})


def over_grpc(path: str, message: bytes) -> Any:
    """With gRPC's own client."""

    async def main(app: Any, own: str) -> Found:
        address = f"127.0.0.1:{free_port()}"
        server = rpc.RpcServer(app, address)
        await server.start()
        try:
            async with aio.insecure_channel(address) as channel:
                # A stream's client may fail by itself, with INTERNAL, if the call is refused before it has sent.
                method: Any = channel.unary_stream(path)
                with pytest.raises(aio.AioRpcError) as refused:
                    _ = [each async for each in method(message, metadata=[("x-request-id", own)] if own else ())]
            error = refused.value
            trailers: dict[str, Any] = dict(error.trailing_metadata() or ())
            head, details = trailers.pop("x-request-id"), trailers.pop(DETAILS, None)
            text = error.details() or ""
            return head, status_details(details, str(error.code().value[0]), text), (error.code(), text, *trailers)
        finally:
            await server.stop()

    return lambda app, own: asyncio.run(asyncio.wait_for(main(app, own), 60))


V1, PLATFORM = "/v1/models/nobody:predict", "/invocations"
CASES: dict[str, tuple[Any, dict[str, str]]] = {
    "v2": (over_http("/v2/models/nobody/infer"), {}),
    "v2 without a key": (over_http(INFER), KEYS),
    "v2 too large": (over_http(INFER, LARGE), {"MAX_BODY_BYTES": "2000"}),
    "v2 without a route": (over_http("/v2/odd"), {}),
    "v2 events": (over_http("/v2/models/nobody/generate_stream"), {}),
    "v1": (over_http(V1), {}), "v1 without a route": (over_http("/v1/odd"), {}),
    "grps": (over_http("/grps/v1/infer/predict", b'{"model":"nobody","ndarray":[1]}'), {}),
    "sagemaker": (over_http(PLATFORM, LARGE), {"PLATFORM": "sagemaker"}),
    "mlflow": (over_http(PLATFORM, LARGE), {"PLATFORM": "mlflow"}),
    "openai": (over_http("/v1/embeddings"), {}),
    "site": (over_http("/odd"), {}), "no site": (over_http("/odd"), {"SITE": "false"}),
    "metrics": (over_http("/metrics"), {}), "metrics without a key": (over_http("/metrics"), KEYS),
    "connect json": (over_http(SERVICE + "ModelInfer", b'{"modelName":"nobody"}'), {}),
    "connect": (over_http(SERVICE + "ModelInfer", named("nobody"), PROTO), {}),
    "connect without a key": (over_http(SERVICE + "ModelInfer", named("nobody"), PROTO), KEYS),
    "connect without a method": (over_http(SERVICE + "Odd", b"", PROTO), {}),
    "connect stream": (over_calls("ModelStreamInfer", STREAM, b"\0\0"), {}),
    "grpc-web": (over_calls("ModelInfer", WEB, envelope(b"\xff")), {}),
    "grpc-web stream": (over_calls("ModelStreamInfer", WEB, b"\0\0"), {}),
    "grpc-web text": (over_calls("ModelInfer", TEXT, base64.b64encode(envelope(b"\xff"))), {}),
    "grpc-web without a key": (over_calls("ModelInfer", WEB, envelope(b"\xff")), KEYS),
    "grpc over http/2": (over_asgi, {}),
    "grpc": (over_grpc(SERVICE + "ModelInfer", named("nobody")), {}),
    "grpc without a key": (over_grpc(SERVICE + "ModelInfer", named("nobody")), KEYS),
    "grpc without a method": (over_grpc(SERVICE + "Odd", b""), {}),
    "grpc stream": (over_grpc("/grpc.health.v1.Health/Watch", b"\xff"), {}),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_a_clients_id_is_in_the_line_and_in_the_error(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one that is valid the error is the same to the last member, and the id is the server's.

    OpenAI's errors do not have a place for it: that API's clients read it in the header.
    """
    asked, settings = CASES[what]
    with closing(make(LOG_FORMAT="json", **settings)) as app:
        heads, told, rests = zip(*(asked(app, own) for own in (OWN, *INVALID)), strict=True)
        assert [json.loads(line)["request_id"] for line in lines(app, capsys)] == [*heads]
    assert heads[0] == OWN
    assert not {OWN, *INVALID} & {*heads[1:]}
    assert told == (None if what == "openai" else OWN, None, None, None)
    assert rests[1:] == (rests[0],) * 3


@pytest.mark.parametrize(("path", "status"), [
    ("/v2/models/half_plus_three/ready", 503), ("/v1/models/nobody", 404), ("/grps/v1/health/ready", 503),
    ("/v1/models/half_plus_three/versions/9", 404),
])  # fmt: skip
def test_a_negative_answer_has_the_clients_id(path: str, status: int) -> None:
    """It is not the refusal of a request, but it says why. GRPS's own form has a place for the id in it."""
    with closing(make()) as app:
        app.registry.set_online(online=False)
        for own in (OWN, *INVALID):
            headers = [(b"x-request-id", own.encode())] if own else []
            found, _, content = ask(app, "GET", path, headers=headers)
            assert (found, own_members(content)[0]) == (status, OWN if own == OWN else None)


@pytest.mark.parametrize(("path", "more"), [
    (INFER, {}), ("/v1/models/nobody:predict", {}), ("/odd", {}), (SERVICE + "ModelInfer", {}),
    (INFER, {"isBase64Encoded": True, "body": "%"}), (SERVICE + "Odd", {"isBase64Encoded": True, "body": "%"}),
    (INFER, {"settings": "wrong"}),
])  # fmt: skip
def test_a_clients_id_goes_through_a_function(
    path: str, more: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the event does not become a request, and with settings that are wrong, which leaves no line."""
    is_wrong = more.pop("settings", "") == "wrong"
    with closing(function(DRAGOMAN_LOG_FORMAT="json", DRAGOMAN_AUTH="keys" if is_wrong else "none")) as made:
        for own in (OWN, ""):
            headers = {"content-type": JSON, **({"X-Request-Id": own} if own else {})}
            answer = made(http("POST", path, '{"model":"nobody"}') | {"headers": headers} | more, Context())
            members = json.loads(answer["body"])
            told, _ = connect_details(members) if path.startswith(SERVICE) else own_members(answer["body"])
            assert told == (own or None)
            if not is_wrong:
                (line,) = lines(made.app, capsys)
                assert answer["headers"]["x-request-id"] == json.loads(line)["request_id"] == own or "invocation-1"


@pytest.mark.parametrize("headers", [
    {"headers": {"x-request-id": OWN}}, {"multiValueHeaders": {"X-Request-ID": [OWN]}},
    {"headers": {"x-request-id": 7}, "multiValueHeaders": {"a": [], "x-request-id": OWN}},
])  # fmt: skip
def test_an_event_that_becomes_no_request_has_its_id(headers: Any) -> None:
    """Whatever its members are."""
    found = scope_of({"httpMethod": "GET", "path": "/v2", **headers}, "")["headers"]
    assert sent_in(found) == OWN.encode()


@pytest.mark.parametrize("headers", [
    {"headers": [OWN]}, {"headers": {"x-request-id": OWN}, "multiValueHeaders": {"X-Request-ID": ["-", OWN]}},
])  # fmt: skip
def test_an_event_that_becomes_no_request_has_no_id(headers: Any) -> None:
    """Its headers are not an object, or it has two ids."""
    found = scope_of({"httpMethod": "GET", "path": "/v2", **headers}, "")["headers"]
    assert sent_in(found) == b""


def two_ids_over_http(app: Any) -> None:
    headers = [(b"x-request-id", b"one"), (b"x-request-id", b"two")]
    assert ask(app, "GET", "/v2/odd", headers=headers)[0] == 404


def two_ids_over_grpc(app: Any) -> None:
    async def main(channel: aio.Channel, _: object) -> None:
        method: Any = channel.unary_unary(SERVICE + "ModelInfer")
        with pytest.raises(aio.AioRpcError) as refused:
            await method(named("nobody"), metadata=[("x-request-id", "one"), ("x-request-id", "two")])
        assert DETAILS not in dict(refused.value.trailing_metadata() or ())

    served(app, main)


@pytest.mark.parametrize("asked", [two_ids_over_http, two_ids_over_grpc])
def test_of_two_ids_neither_is_the_requests(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows which one a proxy has added."""
    with closing(make(LOG_FORMAT="json")) as app:
        asked(app)
        (line,) = lines(app, capsys)
        assert json.loads(line)["request_id"] not in {"one", "two", "one, two"}


@pytest.mark.parametrize(("sent", "shown"), [
    ("order-17", "order-17"), ('a"b', r'"a\"b"'), ('q"=x', r'"q\"=x"'), ("a=b", '"a=b"'), ("a\\b", r'"a\\b"'),
])  # fmt: skip
@pytest.mark.parametrize("path", [INFER, SERVICE + "ModelInfer"])
def test_an_id_that_would_be_another_field_is_quoted(
    path: str, sent: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In text, as every value that clients choose. The client gets it as it was."""
    with closing(make(ACCESS_LOG="true")) as app:
        headers = [(b"content-type", JSON.encode()), (b"x-request-id", sent.encode())]
        assert ask(app, "POST", path, b"{}", headers=headers)[1]["x-request-id"] == sent
        (line,) = lines(app, capsys)
        assert f" id={shown} reason=" in line
