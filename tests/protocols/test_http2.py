"""`dragoman serve --http2`: every protocol on one port, with gRPC's own clients.

The gRPC and Connect suites run over it, too: TEST_HTTP2=1, see CONTRIBUTING.md.
"""

import queue
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.handler.calling import context, http
from tests.handler.edge.observe.test_access import function
from tests.support.connect_client import OIP, STREAM, WEB, Caller, envelope, judged, split
from tests.support.http2 import DATA, END_STREAM, HEADERS, RST_STREAM, Http2, asking, frame
from tests.support.raw import head as line
from tests.support.raw import opened, talk
from tests.support.remote import Remote, question, raw, tensors
from tests.support.server import ROOT, Server, serve_http2

X = raw("x", "FP32", np.array([1, 2.5], np.float32))
HALVES = [3.5, 4.25]
BIG = b"\xff" * 2_000_000
OWN = """
def predict(inputs, parameters):
    return inputs

def http(request):
    return 200, {"x-note": "\\ta "}, b"body"
"""
LIVE = "inference.GRPCInferenceService/ServerLive"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Has the models of this repository."""
    settings = {"REPOSITORY": str(ROOT / "models"), "MAX_BODY_BYTES": "1000000", "PAUSE_TIMEOUT": "0.5"}
    with serve_http2(tmp_path_factory.mktemp("http2") / "log", **settings) as running:
        yield running
    log = running.log.read_text()
    assert "Traceback" not in log
    assert "gRPC on 127.0.0.1" in log


@pytest.fixture
def remote(server: Server) -> Iterator[Remote]:
    """A connection of grpcio's."""
    with closing(Remote(server.netloc)) as connection:
        yield connection


def test_every_protocol_is_on_the_port(server: Server, remote: Remote) -> None:
    """REST over HTTP/1.1, Connect, and gRPC, one after the other."""
    body = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]}
    with server.wire() as wire:
        assert wire.post("/v2/models/half_plus_three/infer", body).json()["outputs"][0]["data"] == HALVES
    with closing(Caller(server.netloc)) as caller:
        called = caller.post("ModelInfer", "application/proto", question("half_plus_three", X).SerializeToString())
    assert (called.code, len(called.messages)) == (None, 1)
    assert tensors(remote.infer("half_plus_three", X))["y"].tolist() == HALVES


def test_a_stream_goes_both_ways(remote: Remote) -> None:
    """The next request is sent when the answer to the last one is there."""
    requests: queue.Queue[Any] = queue.Queue()
    answers = remote.stream(iter(requests.get, None))
    for number in ("1", "2", "3"):
        requests.put(question("half_plus_three", X, id=number))
        assert next(answers).infer_response.id == number
    requests.put(None)
    assert [*answers] == []


def test_a_stream_with_thousands_of_messages_does_not_stand_still(remote: Remote) -> None:
    """The client's permissions to send answers arrive behind the requests that it has sent meanwhile."""
    answers = remote.stream(question("half_plus_three", X, id=str(n)) for n in range(3000))
    assert len({answer.infer_response.id for answer in answers}) == 3000


@pytest.mark.parametrize(("path", "body", "code"), [
    ("inference.GRPCInferenceService/ModelInfer", BIG, "RESOURCE_EXHAUSTED"),
    ("inference.GRPCInferenceService/ModelInfer", b"\xff", "INVALID_ARGUMENT"),
    ("inference.GRPCInferenceService/Nothing", BIG, "UNIMPLEMENTED"),
    ("inference.GRPCInferenceService/TraceSetting", BIG, "UNIMPLEMENTED"),
    ("Unknown/Nothing", BIG, "UNIMPLEMENTED"),
])  # fmt: skip
def test_a_refusal_leaves_the_connection(remote: Remote, path: str, body: bytes, code: str) -> None:
    """Also where the refusal comes before the request's end. The id of the request is in the error's details."""
    with pytest.raises(grpc.RpcError) as refused:
        remote.channel.unary_unary(f"/{path}")(body, timeout=30, metadata=[("x-request-id", "mine")])
    error: Any = refused.value
    assert (error.code().name, "INTERNAL" in error.details()) == (code, False)
    assert dict(error.trailing_metadata())["grpc-status-details-bin"].endswith(
        b"google.rpc.RequestInfo\x12\x06\n\x04mine"
    )
    assert remote.ask("ServerLive", oip.ServerLiveRequest()).live


def test_a_call_with_too_many_metadata_is_refused(remote: Remote) -> None:
    """By a code of gRPC, as over `--grpc-port`."""
    with pytest.raises(grpc.RpcError) as refused:
        remote.channel.unary_unary(f"/{LIVE}")(b"", timeout=30, metadata=[(f"key-{each}", "a") for each in range(300)])
    error: Any = refused.value
    assert (error.code(), error.details()) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "the request has more than 256 headers",
    )


@pytest.mark.parametrize("size", [2, 40_000], ids=["at once", "by ASGI"])
def test_the_id_and_the_times_of_a_call_are_in_its_trailing_metadata(remote: Remote, size: int) -> None:
    """Streams have them there, too. As over `--grpc-port`, the initial metadata have neither."""
    body = question("half_plus_three", raw("x", "FP32", np.zeros(size, np.float32))).SerializeToString()
    mine = {"timeout": 30, "metadata": [("x-request-id", "mine")]}
    _, unary = remote.call("ModelInfer").with_call(body, **mine)
    stream = remote.channel.stream_stream(f"/{OIP}/ModelStreamInfer")(iter([body]), **mine)
    assert len([*stream]) == 1
    for call in (unary, stream):
        head, trailers = dict(call.initial_metadata()), dict(call.trailing_metadata())
        assert not {"x-request-id", "server-timing"} & {*head}
        assert trailers["x-request-id"] == "mine"
        assert "infer;dur=" in trailers["server-timing"]


def test_a_client_that_does_not_ask_for_trailers_has_them(server: Server) -> None:
    """Some clients of gRPC leave out the header for it. The status of their calls is in the trailers."""
    with Http2(int(server.netloc.rpartition(":")[2])) as client:
        client.send(asking(1, "POST", f"/{LIVE}", ("content-type", "application/grpc"), ends=False))
        client.send(frame(DATA, 1, bytes(5), END_STREAM))
        heads = [client.of(1, HEADERS), client.of(1, HEADERS)]
    assert [head is not None and b"grpc-status\x010" in head.payload for head in heads] == [False, True]


def streaming(kind: str, *headers: tuple[str, str]) -> bytes:
    """Returns the head of a stream that goes on."""
    return asking(1, "POST", f"/{OIP}/ModelStreamInfer", ("content-type", kind), *headers, ends=False)


def asked(number: int, flags: int = 0) -> bytes:
    """Returns a frame with one request of a stream."""
    return frame(DATA, 1, envelope(question("half_plus_three", X, id=str(number)).SerializeToString()), flags)


@pytest.mark.parametrize("kind", [STREAM, WEB])
def test_a_stream_of_connect_goes_both_ways(server: Server, kind: str) -> None:
    """The next request is sent when the last one is answered, also after more than PAUSE_TIMEOUT."""
    with Http2(int(server.netloc.rpartition(":")[2])) as client:
        client.send(streaming(kind))
        for number in (1, 2):
            client.send(asked(number))
            answer = client.of(1, DATA)
            assert answer is not None
            ((_, message),) = split(answer.payload)
            assert oip.ModelStreamInferResponse.FromString(message).infer_response.id == str(number)
            time.sleep(1)
        client.send(asked(3, END_STREAM))
        rest = client.answer(1)[1]
    assert len(judged(200, {"content-type": kind}, rest).messages) == 1


@pytest.mark.parametrize("kind", [STREAM, WEB])
def test_a_stream_of_connect_that_is_refused_ends(server: Server, kind: str) -> None:
    """By its head, or by a message of it. The client could still send others."""
    for sent in (
        [streaming(kind, ("connect-content-encoding", "zz"), ("grpc-encoding", "zz"))],
        [streaming(kind), frame(DATA, 1, b"\x07" + bytes(4))],
    ):
        with Http2(int(server.netloc.rpartition(":")[2])) as client:
            client.send(*sent)
            found = judged(200, {"content-type": kind}, client.answer(1)[1])
        assert found.code == ("unimplemented" if len(sent) == 1 else "invalid_argument")


def test_a_stream_that_is_refused_ends(remote: Remote) -> None:
    """The client could still send messages."""
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(b"\x1a\xff")
    call: Any = remote.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as refused:
        next(call(iter(requests.get, None), timeout=30))
    requests.put(None)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_connection_lasts(remote: Remote) -> None:
    """Its end is announced before zttp would break it off, at the 4097th request."""
    ask: Any = remote.channel.unary_unary(f"/{LIVE}")
    for _ in range(50):
        calls = [ask.future(b"", timeout=60) for _ in range(100)]
        assert {call.result() for call in calls} == {b"\x08\x01"}


def test_calls_are_counted_as_over_their_own_port(server: Server, remote: Remote) -> None:
    """By the codes of gRPC, not by HTTP's status 200; a failure in a stream by its model."""

    def counts() -> dict[str, float]:
        found = urllib.request.urlopen(f"http://{server.netloc}/metrics").read().decode()
        rows = (line.rpartition(" ") for line in found.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    wrong = question("half_plus_three", raw("z", "FP32", np.array([1], np.float32)))
    before = counts()
    remote.infer("half_plus_three", X)
    with pytest.raises(grpc.RpcError):
        remote.ask("ModelInfer", wrong)
    assert len([*remote.stream(iter([wrong, question("half_plus_three", X)]))]) == 2
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(question("half_plus_three", X).SerializeToString())
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    left: Any = remote.channel.stream_stream(path)(iter(requests.get, None))
    assert next(left)
    left.cancel()
    requests.put(None)
    rows = {
        'dragoman_requests_total{protocol="grpc",status="OK"}': 2,
        'dragoman_requests_total{protocol="grpc",status="INVALID_ARGUMENT"}': 1,
        'dragoman_requests_total{protocol="grpc",status="CANCELLED"}': 1,
        'nv_inference_request_failure{model="half_plus_three",reason="OTHER",version="123"}': 2,
    }
    cancelled = [*rows][2]
    while (after := counts()).get(cancelled, 0) == before.get(cancelled, 0):
        assert server.process.poll() is None
    assert {row: after[row] - before.get(row, 0) for row in rows} == rows
    assert not [row for row in after if 'protocol="grpc",status="200"' in row]


def test_a_deadline_holds(remote: Remote) -> None:
    """A watch would have no end."""
    call: Any = remote.channel.unary_stream("/grpc.health.v1.Health/Watch")
    with pytest.raises(grpc.RpcError) as late:
        [*call(b"", timeout=0.5)]
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_body_that_stops_is_refused(server: Server) -> None:
    """PAUSE_TIMEOUT holds here, too."""
    head = b"POST /v2/models/half_plus_three/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{"
    assert b" 408 " in talk(server.port, head).split(b"\r\n")[0]


def test_bytes_that_are_no_http2_end_their_connection_alone(server: Server, remote: Remote) -> None:
    """The log has no traceback: see the fixture."""
    for noise in (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 8,
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        with opened(server.port) as connection:
            connection.sendall(noise)
    assert remote.ask("ServerLive", oip.ServerLiveRequest()).live


def test_workers_share_the_port(tmp_path: Path) -> None:
    """Each speaks all protocols."""
    settings = {"REPOSITORY": str(ROOT / "models"), "WORKERS": "2"}
    with serve_http2(tmp_path / "log", **settings) as server:
        for _ in range(4):
            with closing(Remote(server.netloc)) as remote, server.wire() as wire:
                assert remote.ask("ServerReady", oip.ServerReadyRequest()).ready
                assert wire.get("/v2/health/ready").status == 200


@pytest.mark.parametrize(("missing", "more", "text"), [
    ("zttp", [], "`--http2` needs zttp"), ("uvicorn", [], "needs uvicorn"), ("", ["--lambda"], "--lambda has no"),
])  # fmt: skip
def test_what_it_cannot_do_is_refused(missing: str, more: list[str], text: str, tmp_path: Path) -> None:
    """The server says what to install, or which flag to leave out."""
    code = f"import sys; sys.modules[{missing!r}] = None; from handler.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "--repository", str(tmp_path), "--http2", *more]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, text in found.stderr) == (2, True), found.stderr


def test_a_header_with_blanks_at_its_edges_resets_no_stream(tmp_path: Path) -> None:
    """A Python model returned it. Every server sends the value without the blanks."""
    (tmp_path / "own" / "1").mkdir(parents=True)
    (tmp_path / "own" / "1" / "model.py").write_text(OWN)
    (tmp_path / "own" / "model-settings.json").write_text('{"http": {"path": "/own", "methods": ["GET"]}}')
    with serve_http2(tmp_path / "log", REPOSITORY=str(tmp_path), ALLOW_CODE="true") as server:
        with Http2(server.port) as client:
            client.send(asking(1, "GET", "/own"))
            head = client.of(1, HEADERS, RST_STREAM)
            assert head is not None
            assert (head.kind, b"\x06x-note\x01a" in head.payload) == (HEADERS, True)
        assert b"\r\nx-note: a\r\n" in talk(server.port, line("GET", "/own", "connection: close"))
    with closing(function(DRAGOMAN_REPOSITORY=str(tmp_path), DRAGOMAN_ALLOW_CODE="true")) as made:
        assert made(http("GET", "/own"), context(60))["headers"]["x-note"] == "a"
