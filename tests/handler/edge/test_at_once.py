"""handler.edge.at_once: an answer at once is the answer that ASGI gives."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from base64 import b64encode
from collections import Counter
from contextlib import closing
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.operations import ModelRef
from core.wire import HttpStream
from handler.edge.exchange import ALIGNMENT, CAME_KEY, PIECE, TRAILERS
from handler.edge.jobs import QUICKLY_READ, RAW_QUICKLY_READ
from handler.lifecycle.single_flight import Background
from handler.lifecycle.usage import QUICK_RUNS
from tests.handler.edge.client import BODY, INFER, ask, make
from tests.support.asgi import spoken
from tests.support.connect_client import envelope
from tests.support.remote import question, raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from handler.edge.app import App

JSON = (b"content-type", b"application/json")
V1 = "/v1/models/half_plus_three"
GRPS = json.dumps({"model": "half_plus_three", "ndarray": [1, 2.5]}).encode()
HEAD = json.dumps(
    {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
).encode()
BINARY = HEAD + b"\0\0\0\0"
LENGTH = (b"inference-header-content-length", b"%d" % len(HEAD))
CALL, LIVE = "/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ServerLive"
GRPS_LIVE = "/grps.protos.v1.GrpsService/CheckLiveness"
MESSAGE = question("half_plus_three", raw("x", "FP32", np.array([1, 2.5], np.float32))).SerializeToString()
CALL_JSON = json.dumps(
    {
        "modelName": "half_plus_three",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": ["2"], "contents": {"fp32Contents": [1, 2.5]}}],
    }
).encode()
INT8 = question("half_plus_three", raw("x", "INT8", np.array([1], np.int8))).SerializeToString()
PROTO, CONNECT_JSON, WEB, NATIVE = (
    (b"content-type", b"application/" + name) for name in (b"proto", b"json", b"grpc-web+proto", b"grpc")
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application whose model is proven quick."""
    monkeypatch.setattr("handler.lifecycle.usage.QUICK_NS", 10**12)
    with closing(make()) as app:
        prove(app)
        yield app


def prove(app: App) -> None:
    for _ in range(QUICK_RUNS + 1):
        assert ask(app, "POST", INFER, BODY + b" " * 200)[0] == 200


def whole(
    app: App, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = (), most: int = PIECE
) -> Any:
    """Returns (status, headers, body, trailers) of an answer at once; otherwise the value that `answer` returned."""
    assert app.whole_requests is not None
    head = app.whole_requests.head(scope(method, path, headers))
    if head is None:
        return None
    got: list[Any] = []
    found = app.whole_requests.answer(head, body, lambda *answer: got.append(answer), most)
    if found is not True:
        assert not got
        return found
    ((answer, more, parts),) = got
    return answer.status, dict([*answer.headers, *more]), b"".join(parts), answer.trailers


def scope(method: str, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """Returns a scope as uvicorn makes it. The scope of a gRPC call is that of HTTP/2."""
    base = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    base |= {"headers": [*headers], "client": ("127.0.0.1", 1), "root_path": ""}
    return base | {"extensions": {TRAILERS: {}}} if NATIVE in headers else base


def by_asgi(app: App, method: str, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Any:
    request = {"type": "http.request", "body": body, "more_body": False}
    start, *pieces = asyncio.run(spoken(app, scope(method, path, headers), request))
    trailers = tuple(pieces.pop()["headers"]) if start.get("trailers") else ()
    return start["status"], dict(start["headers"]), b"".join(piece["body"] for piece in pieces), trailers


def without_times(answer: Any) -> Any:
    status, headers, body, trailers = answer
    headers = {name: re.sub(rb"dur=[0-9.]+", b"", value) for name, value in headers.items()}
    return status, headers, body, [(name, re.sub(rb"dur=[0-9.]+", b"", value)) for name, value in trailers]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", INFER, BODY, (JSON,)),
        ("POST", INFER, BINARY, (LENGTH,)),
        ("POST", INFER, BODY[:-1], (JSON,)),
        ("POST", INFER, BODY.replace(b"FP32", b"INT8"), (JSON,)),
        ("POST", INFER, BODY.replace(b"2.5", b"1e39"), (JSON,)),
        ("POST", INFER, b"", (JSON,)),
        ("POST", INFER, BINARY, ((LENGTH[0], b"999999"),)),
        ("POST", f"{V1}:predict", b'{"instances": [1, 2]}', (JSON,)),
        ("POST", f"{V1}:predict", b'{"instances": "x"}', (JSON,)),
        ("POST", f"{V1}:classify", b"{}", (JSON,)),
        ("GET", "/v2/health/live", b"", ()),
        ("HEAD", "/v2/health/live", b"", ()),
        ("POST", CALL, MESSAGE, (PROTO,)),
        ("POST", CALL, MESSAGE, (PROTO, (b"connect-timeout-ms", b"1500"))),
        ("POST", CALL, CALL_JSON, (CONNECT_JSON,)),
        ("POST", CALL, envelope(MESSAGE), (WEB,)),
        ("POST", CALL, envelope(MESSAGE), (NATIVE,)),
        ("POST", CALL, envelope(MESSAGE), (NATIVE, (b"grpc-timeout", b"2S"))),
        ("POST", LIVE, envelope(b""), (NATIVE,)),
        ("POST", LIVE, b"{}", (CONNECT_JSON,)),
        *(("POST", CALL, body, (kind,)) for body in (INT8, MESSAGE[:-1]) for kind in (PROTO, CONNECT_JSON)),
        *(("POST", CALL, envelope(body), (kind,)) for body in (INT8, MESSAGE[:-1]) for kind in (WEB, NATIVE)),
        ("POST", CALL, b"", (NATIVE,)),
        ("POST", CALL, envelope(MESSAGE)[:-1], (NATIVE,)),
        ("POST", CALL, envelope(MESSAGE, MESSAGE), (WEB,)),
        ("POST", CALL, envelope(MESSAGE, flags=1), (NATIVE,)),
        ("POST", CALL, envelope(MESSAGE, flags=2), (NATIVE,)),
        ("POST", CALL, bytes(4), (NATIVE,)),
        ("POST", GRPS_LIVE, envelope(b"\xff"), (NATIVE,)),
        ("POST", GRPS_LIVE, b"\xff", (PROTO,)),
    ],
)
def test_a_whole_request_has_the_answer_of_asgi(quick: App, method: str, path: str, body: bytes, headers: Any) -> None:
    """Its headers are the same ones, with the client's id, and it counts alike."""
    headers = (*headers, (b"x-request-id", b"mine"))
    expected = by_asgi(quick, method, path, body, headers)  # a route is remembered when it was found once
    before = counted(quick)
    assert without_times(whole(quick, method, path, body, headers)) == without_times(expected)
    first = counted(quick)
    by_asgi(quick, method, path, body, headers)
    second = counted(quick)
    assert first - before == second - first
    assert first.total() > before.total()


def counted(app: App) -> Counter[Any]:
    """Returns the counts of requests, bytes, failures and inferences."""
    counts: Counter[Any] = Counter(app.observer.counts.refusals)
    for key, tally in app.observer.counts.tallies.items():
        counts += Counter({key: sum(tally.times.steps), (key, "bytes"): tally.received + tally.sent})
    (model,) = app.registry.statistics(ModelRef("half_plus_three"), Background())
    for version in app.registry.known():
        for protocol, each in version.traffic.lately()[0].items():
            counts += Counter({("failures", protocol): each.failures, ("runs", protocol): sum(each.times.values())})
    return counts + Counter(app.observer.counts.failures) + Counter(model=model.inference_count)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", "/nowhere", b"", ()),
        ("GET", INFER, b"", ()),
        ("GET", "/v2/models/half_plus_three", b"", ()),
        ("POST", "/v2/models/nobody/infer", BODY, ()),
        ("POST", "/v2/models/iris/infer", BODY, ()),
        ("POST", INFER, BODY + b" " * 200_000, ()),
        ("POST", INFER, gzip.compress(BODY, mtime=0), ((b"content-encoding", b"gzip"),)),
        ("POST", "/v2/repository/models/iris/load", b"", ()),
        ("POST", CALL, b"", ()),
        ("GET", LIVE, b"", ()),
        ("POST", "/inference.GRPCInferenceService/Nothing", b"", (PROTO,)),
        ("POST", "/inference.GRPCInferenceService/ModelStreamInfer", envelope(MESSAGE), (NATIVE,)),
        ("POST", CALL, MESSAGE, (PROTO, (b"connect-timeout-ms", b"999"))),
        ("POST", CALL, MESSAGE, (PROTO, (b"connect-timeout-ms", b"soon"))),
        ("POST", CALL, gzip.compress(MESSAGE, mtime=0), (PROTO, (b"content-encoding", b"gzip"))),
        ("POST", CALL, b64encode(envelope(MESSAGE)), ((b"content-type", b"application/grpc-web-text"),)),
        ("POST", CALL, question("nobody").SerializeToString(), (PROTO,)),
        ("POST", CALL, MESSAGE + bytes(200_000), (PROTO,)),
    ],
)
def test_what_may_wait_comes_by_asgi(quick: App, method: str, path: str, body: bytes, headers: Any) -> None:
    """Nothing has been answered, and nothing counts."""
    by_asgi(quick, method, path, body, headers)
    before = counted(quick)
    assert not whole(quick, method, path, body, headers)
    assert counted(quick) == before


def test_each_answer_has_an_id_of_its_own(quick: App) -> None:
    """The client has sent none, and repeats its head."""
    rest: Any = quick.whole_requests
    head, ids = rest.head(scope("POST", INFER)), []
    for _ in range(2):
        rest.answer(head, BODY, lambda _answer, more, _parts: ids.append(dict(more)[b"x-request-id"]), PIECE)
    assert len({*ids}) == 2


def test_a_body_over_the_limit_is_refused_by_asgi() -> None:
    """The limit is the same one."""
    with closing(make(MAX_BODY_BYTES="3")) as app:
        assert ask(app, "GET", "/v2/health/live")[0] == 200
        assert whole(app, "GET", "/v2/health/live", b"123")[0] == 200
        assert whole(app, "GET", "/v2/health/live", b"1234") is False


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [(INFER, BODY, (JSON,)), (CALL, MESSAGE, (PROTO,)), (CALL, envelope(MESSAGE), (NATIVE,))],
)
def test_a_long_answer_is_sent_by_an_application(
    quick: App, path: str, body: bytes, headers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been made: the model runs once. Its client may read slowly."""
    request = "POST", path, body, (*headers, (b"x-request-id", b"mine"))
    before = counted(quick)
    expected = by_asgi(quick, *request)
    first = counted(quick)
    most = len(expected[2])
    assert whole(quick, *request, most)[2] == expected[2]
    monkeypatch.setattr("handler.edge.exchange.PIECE", 10)
    second = counted(quick)
    sending = whole(quick, *request, most - 1)
    assert counted(quick)["model"] == second["model"] + 1
    assert without_times(by_asgi(sending, *request)) == without_times(expected)
    assert counted(quick) - second == second - first == first - before


def test_an_error_of_our_own_is_phrased_and_logged(
    quick: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server writes what it gets: an exception would end the connection."""
    monkeypatch.setattr("handler.edge.rest.HttpCodec.ref", lambda _: 1 / 0)
    monkeypatch.setattr("handler.edge.calls.codec.EnvelopeCodec.ref", lambda _: 1 / 0)
    for path, key, body in ((INFER, "error", BODY), (CALL, "code", MESSAGE)):
        by_asgi(quick, "POST", LIVE, b"", (PROTO,))
        status, headers, answer, _ = whole(quick, "POST", path, body, (PROTO,))
        assert (status, headers[b"content-type"]) == (500, b"application/json")
        assert key in json.loads(answer)
        assert "ZeroDivisionError" in caplog.text
        assert b"division" not in answer
        caplog.clear()


def test_a_header_that_would_be_two_is_an_error_of_our_own(quick: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of it is written."""
    finish = "handler.edge.rest.HttpCodec.finish"

    def broken(*_arguments: Any, **_options: Any) -> Any:
        from core.wire import HttpResponse  # noqa: PLC0415 - of this test alone

        return HttpResponse(200, ((b"a", b"b\r\nc: d"),))

    monkeypatch.setattr(finish, broken)
    status, headers, *_ = whole(quick, "POST", INFER, BODY)
    assert status == 500
    assert not {b"a", b"c"} & headers.keys()


def test_only_callers_that_are_known_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key counts after its first request, with its rights and its models. All refusals come by ASGI."""
    monkeypatch.setattr("handler.lifecycle.usage.QUICK_NS", 10**12)
    keys = {
        name: f"{name} sha256:{sha256(f'dgm_{name}_secret'.encode()).hexdigest()} {rights}"
        for name, rights in [("one", "infer"), ("two", "infer models=iris"), ("three", "read"), ("four", "admin")]
    }
    with closing(make(AUTH="keys", KEYS="; ".join(keys.values()))) as app:

        def asked(name: str) -> Any:
            key = [(b"x-api-key", f"dgm_{name}_secret".encode())]
            by_asgi(app, "POST", INFER, BODY, key)
            return whole(app, "POST", INFER, BODY, key)

        for _ in range(QUICK_RUNS + 1):
            asked("one")
        assert asked("one")[0] == 200
        assert [asked(name) for name in ("two", "three", "nobody")] == [False, False, False]
        assert not whole(app, "POST", INFER, BODY)
        assert not whole(app, "POST", INFER, BODY, [(b"x-api-key", b"dgm_one_secret")] * 2)
        assert not whole(app, "GET", "/v2/models/half_plus_three", b"", [(b"x-api-key", b"dgm_one_secret")])


@pytest.mark.parametrize("settings", [{"CORS_ORIGINS": "*"}])
def test_pages_of_other_sites_are_answered_by_asgi(settings: dict[str, str]) -> None:
    """The gate adds headers to their answers."""
    with closing(make(**settings)) as app:
        ask(app, "GET", "/v2/health/live")
        assert whole(app, "GET", "/v2/health/live") is False


def test_an_observer_of_messages_has_all_requests_by_asgi(tmp_path: Any) -> None:
    """A payload log takes the messages of ASGI."""
    with closing(make(PAYLOAD_LOG=tmp_path.as_uri())) as app:
        assert app.whole_requests is None


def test_a_stream_that_was_begun_at_once_ends_with_its_client(quick: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has not received the request's messages when the stream begins."""
    made = []

    def long() -> Iterator[bytes]:
        while len(made) < 5000:
            time.sleep(0.001)
            made.append(b"x")
            yield b"x"

    monkeypatch.setattr("handler.edge.rest.HttpCodec.finish", lambda *_, **__: HttpStream(200, (), long()))
    sending = whole(quick, "POST", INFER, BODY)
    pieces = [{"type": "http.request", "body": piece, "more_body": piece != b"}"} for piece in (BODY[:-1], b"}")]
    start, *_ = asyncio.run(spoken(sending, scope("POST", INFER), *pieces, leaves=True))
    assert start["status"] == 200
    assert len(made) < 5000


@pytest.mark.parametrize(
    ("path", "headers", "most"),
    [
        (INFER, (JSON,), QUICKLY_READ),
        (INFER, (LENGTH,), RAW_QUICKLY_READ),
        (INFER, (LENGTH, (b"content-encoding", b"gzip")), 0),
        (CALL, (PROTO,), RAW_QUICKLY_READ),
        (CALL, (WEB,), RAW_QUICKLY_READ),
        (CALL, (CONNECT_JSON,), QUICKLY_READ),
        (CALL, (PROTO, (b"connect-timeout-ms", b"5000")), RAW_QUICKLY_READ),
    ],
)
def test_requests_that_may_be_quick_wait_for_their_bodies(quick: App, path: str, headers: Any, most: int) -> None:
    """Numbers are read in place. Others are read quickly if they are short."""
    by_asgi(quick, "POST", LIVE, b"", (PROTO,))
    for size in (1, 1000, QUICKLY_READ, QUICKLY_READ + 1, RAW_QUICKLY_READ, RAW_QUICKLY_READ + 1):
        assert (room(quick, path, headers, size) is not None) is (size <= most)


def test_a_deadline_counts_from_the_head_of_a_call_that_waited_for_its_body(quick: App) -> None:
    """Little time is left of the second one, so that it comes by ASGI. The third one is refused without any work."""
    rest, headers = quick.whole_requests, [PROTO, (b"connect-timeout-ms", b"5000")]
    by_asgi(quick, "POST", CALL, MESSAGE, headers)
    assert rest is not None
    head, written = rest.head(scope("POST", CALL, headers)), []
    for seconds, is_answered in ((3.9, True), (4.1, False)):
        came = time.perf_counter_ns() - int(seconds * 1e9)
        assert (
            rest.answer(head, MESSAGE, lambda answer, _more, _parts: written.append(answer), PIECE, came) is is_answered
        )
    assert [answer.status for answer in written] == [200]
    before = counted(quick)["model"]
    waited = scope("POST", CALL, headers) | {CAME_KEY: time.perf_counter_ns() - 5 * 10**9}
    start, piece = asyncio.run(spoken(quick, waited, {"type": "http.request", "body": MESSAGE, "more_body": False}))
    assert (start["status"], json.loads(piece["body"])["code"]) == (504, "deadline_exceeded")
    assert counted(quick)["model"] == before


def room(app: App, path: str, headers: Any, size: int) -> Any:
    """Returns the memory for a body of this size."""
    assert app.whole_requests is not None
    head = app.whole_requests.head(scope("POST", path, [*headers, (b"content-length", b"%d" % size)]))
    return None if head is None else app.whole_requests.room(head, size)


def test_a_request_that_would_be_refused_does_not_wait_for_its_body() -> None:
    """Its body is too long, its caller is not known, or there are too many bytes in flight."""
    with closing(make(MAX_BODY_BYTES="3")) as app:
        by_asgi(app, "POST", INFER, BODY, ())
        assert [room(app, INFER, (), size) is not None for size in (3, 4)] == [True, False]
    with closing(make(AUTH="keys", KEYS=f"one sha256:{sha256(b'dgm_one_secret').hexdigest()} infer")) as app:
        assert room(app, INFER, ((b"x-api-key", b"dgm_one_secret"),), 3) is None
        by_asgi(app, "POST", INFER, BODY, ((b"x-api-key", b"dgm_one_secret"),))
        assert room(app, INFER, ((b"x-api-key", b"dgm_one_secret"),), 3) is not None
        assert room(app, INFER, (), 3) is None
    with closing(make(BYTES_IN_FLIGHT="1MB")) as app:
        by_asgi(app, "POST", INFER, BODY, ())
        held = room(app, INFER, (LENGTH,), 400_000)
        held.grow(400_000)
        assert room(app, INFER, (LENGTH,), 200_000) is None
        held.end()
        assert room(app, INFER, (LENGTH,), 200_000) is not None


def test_tensors_lie_aligned_behind_their_head(quick: App) -> None:
    """As in a body that comes by ASGI. A message of protobuf ends so."""
    by_asgi(quick, "POST", LIVE, b"", (PROTO,))
    for path, headers, at in ((INFER, (LENGTH,), len(HEAD)), (CALL, (PROTO,), 99_990)):
        found = room(quick, path, headers, 99_990)
        assert np.frombuffer(found.view[at - 1 :], np.uint8)[:1].ctypes.data % ALIGNMENT == ALIGNMENT - 1


def test_the_time_of_a_body_counts(quick: App) -> None:
    """A request begins with its head."""
    app: Any = quick.whole_requests
    head = app.head(scope("POST", INFER))
    ended: list[int] = []

    def end(record: Any) -> None:
        ended.append(record.came)

    app._tools = app._tools._replace(observer=SimpleNamespace(end=end))
    app.answer(head, BODY, lambda *_: None, PIECE, 12345)
    before = time.perf_counter_ns()
    app.answer(head, BODY, lambda *_: None, PIECE)
    assert ended[0] == 12345
    assert before < ended[1] < time.perf_counter_ns()
