"""Many stalled bodies, and answers that nobody reads, hold a bounded amount of memory, and release it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import Local, application
from tests.support.connect_client import envelope
from tests.support.raw import answer, crowd, head, opened, status, talk
from tests.support.server import Server, serve

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

BUDGET = 32_000_000
SIZE = 4_000_000
INFER = "/v2/models/vector_fp32/infer"
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [SIZE // 4], "parameters": {"binary_data_size": SIZE}}
OUTPUT = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
DOCUMENT = json.dumps({"inputs": [TENSOR], "outputs": [OUTPUT]}).encode()
BODY = DOCUMENT + bytes(SIZE)
LENGTHS = (f"Inference-Header-Content-Length: {len(DOCUMENT)}", f"Content-Length: {len(BODY)}")
REQUEST = head("POST", INFER, *LENGTHS) + BODY
WHOLE = head("POST", INFER, *LENGTHS, "Connection: close") + BODY
SLACK = 48_000_000
"""Room for memory outside the budget: the runtime's own buffers, sockets, the heap's fragments."""
FORMS = [
    (INFER, "application/json", 503, b'"error"'),
    ("/v1/models/vector_fp32:predict", "application/json", 503, b'"error"'),
    ("/grps/v1/infer/predict", "application/json", 503, b'"status"'),
    ("/inference.GRPCInferenceService/ModelInfer", "application/proto", 503, b'"unavailable"'),
    ("/inference.GRPCInferenceService/ModelInfer", "application/json", 503, b'"unavailable"'),
    ("/inference.GRPCInferenceService/ModelStreamInfer", "application/connect+proto", 200, b'"unavailable"'),
    ("/grps.protos.v1.GrpsService/Predict", "application/grpc-web+proto", 200, b"grpc-status: 14"),
]
"""Path, content-type, and status and a part of the refusal of the protocol."""


@pytest.fixture(scope="module")
def server(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a small budget, and little patience for clients that stop."""
    settings = {"BYTES_IN_FLIGHT": str(BUDGET), "PAUSE_TIMEOUT": "1.5"}
    with serve(tmp_path_factory.mktemp("server") / "log", REPOSITORY=str(zoo), **settings) as server:
        with server.wire() as wire:
            assert wire.get("/v2/models/vector_fp32").status == 200
        yield server


def resident(server: Server, name: str) -> int:
    """Returns the bytes in memory: VmRSS is the current value, VmHWM the highest."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def fill(connection: socket.socket) -> None:
    """Sends a whole request except its last byte."""
    connection.sendall(REQUEST[:-1])


def until(server: Server, expected: int, request: bytes) -> bytes:
    """Retries until the answer has this status, and returns the answer."""
    while status(got := talk(server.port, request)) != expected:
        time.sleep(0.05)
    return got


def test_stalled_and_whole_bodies_stay_within_the_budget(server: Server) -> None:
    """Twenty of each would hold four times the budget. The excess gets 503, and all memory is free afterwards."""
    assert status(talk(server.port, WHOLE)) == 200
    base = resident(server, "VmRSS")
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="ascii")
    with crowd(server.port, 20) as stalled, crowd(server.port, 20) as whole:
        for connection in stalled:
            fill(connection)
        statuses = set()
        for connection in whole:
            connection.sendall(REQUEST)
            statuses.add(status(answer(connection)))
    assert 503 in statuses
    assert resident(server, "VmHWM") - base < BUDGET + SLACK
    until(server, 200, WHOLE)


@pytest.mark.parametrize("length", [None, ""], ids=["announced", "chunked"])
@pytest.mark.parametrize(("path", "kind", "expected", "code"), FORMS)
def test_a_body_beyond_the_budget_is_refused_in_its_protocols_form(
    zoo: Path, path: str, kind: str, expected: int, code: bytes, length: str | None
) -> None:
    """The answer has Retry-After. It comes before the body if its size is announced, else while the body arrives."""
    local = Local(application(zoo, BYTES_IN_FLIGHT=str(BUDGET)))
    headers = {"content-type": kind} | ({} if length is None else {"content-length": length})
    try:
        with local.app.flight.holding(BUDGET):
            got = local.call("POST", path, bytes(200_000), headers, stays=True)
            small = local.call("POST", path, b"", headers, stays=True)
    finally:
        local.close()
    assert got.status == expected
    assert code in got.body
    assert b"requests and answers in flight hold 32 MB already: try again" in got.body
    assert "retry-after" in got.headers or b"retry-after" in got.body
    assert b"in flight" not in small.body


NUMBER = {"name": "n", "datatype": "INT64", "shape": [1]}
RPC = {"modelName": "counts", "inputs": [NUMBER | {"shape": ["1"]}]}


def asked(path: str, count: int) -> bytes:
    """Returns a request for so many numbers."""
    if path.startswith("/v1"):
        return json.dumps({"inputs": {"n": [count]}}).encode()
    if path.startswith("/v2"):
        return json.dumps({"inputs": [NUMBER | {"data": [count]}]} if "infer" in path else {"n": count}).encode()
    contents = {"contents": {"int64Contents": [count]}}
    message = json.dumps(RPC | {"inputs": [RPC["inputs"][0] | contents]}).encode()
    return envelope(message) if "Stream" in path else message


@pytest.mark.parametrize(
    ("path", "kind", "expected", "code"),
    [
        ("/v2/models/counts/infer", "application/json", 503, b'"error"'),
        ("/v2/models/counts/generate_stream", "application/json", 200, b'"error"'),
        ("/v1/models/counts:predict", "application/json", 503, b'"error"'),
        ("/inference.GRPCInferenceService/ModelInfer", "application/json", 503, b'"unavailable"'),
        ("/inference.GRPCInferenceService/ModelStreamInfer", "application/connect+json", 200, b'"unavailable"'),
    ],
)
def test_a_large_answer_to_a_small_request_is_refused_beyond_the_budget(
    zoo: Path, path: str, kind: str, expected: int, code: bytes
) -> None:
    """Its client could leave it unread. Small answers go on."""
    local = Local(application(zoo, BYTES_IN_FLIGHT=str(BUDGET)))
    headers = {"content-type": kind}
    try:
        assert local.call("POST", path, asked(path, 100_000), headers, stays=True).status == 200  # alone, it fits
        with local.app.flight.holding(BUDGET):
            large = local.call("POST", path, asked(path, 100_000), headers, stays=True)
            small = local.call("POST", path, asked(path, 3), headers, stays=True)
    finally:
        local.close()
    assert (large.status, code in large.body, b"in flight hold 32 MB already" in large.body) == (expected, True, True)
    assert (small.status, b"in flight" in small.body) == (200, False)


def test_what_a_stalled_body_holds_comes_back(server: Server) -> None:
    """Its connection ends after a pause, and others are taken again."""
    with opened(server.port) as connection:
        fill(connection)
        assert status(answer(connection)) == 408


def test_answers_that_are_not_read_stay_within_the_budget(server: Server) -> None:
    """Each answer takes half of the budget. It is released after a while if its client does not read it."""
    number = NUMBER | {"data": [SIZE]}
    numbers = {"name": "numbers", "parameters": {"binary_data": True}}
    document = json.dumps({"inputs": [number], "outputs": [numbers]}).encode()
    path, length = "/v2/models/counts/infer", f"Content-Length: {len(document)}"
    with crowd(server.port, 10) as clients:
        for connection in clients:
            connection.sendall(head("POST", path, length) + document)
        assert {status(connection.recv(4096)) for connection in clients} == {200, 503}
        until(server, 200, head("POST", path, length, "Connection: close") + document)
