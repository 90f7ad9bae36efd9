"""The tests cover HTTP around an inference: content types, encodings, bodies in pieces, connections."""

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.checks import alive, refusal
from tests.support.server import HOST, Server
from tests.support.wire import COMPRESS, Wire, json_input

PATH = "/v2/models/vector_int32/infer"
VALUES = np.array([1, 2, 3], np.int32)
BODY = json.dumps({"inputs": [json_input("INPUT0", "INT32", VALUES)]}).encode()

CONTENT_TYPES = [
    None, "application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain",
    "application/octet-stream", "multipart/form-data; boundary=x", "nonsense;;",
]  # fmt: skip


@pytest.mark.row("R-150")
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_the_content_type_is_not_looked_at(wire: Wire, content_type: str | None) -> None:
    """The client tritonclient sends none, and curl -d a form's."""
    headers = {"Content-Type": content_type} if content_type else {}
    assert wire.post(PATH, BODY, headers).tensor().tolist() == [1, 2, 3]


@pytest.mark.row("R-151")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_request_is_decoded(wire: Wire, encoding: str) -> None:
    """Deflate is zlib's format, as HTTP defines it."""
    answer = wire.post(PATH, COMPRESS[encoding](BODY), {"Content-Encoding": encoding})
    assert answer.tensor().tolist() == [1, 2, 3]


@pytest.mark.row("R-151")
@pytest.mark.parametrize("encoding", ["GZIP", "Deflate", "identity"])
def test_the_name_of_an_encoding_has_no_case(wire: Wire, encoding: str) -> None:
    """Identity means no encoding."""
    packed = COMPRESS.get(encoding.lower(), bytes)(BODY)
    assert wire.post(PATH, packed, {"Content-Encoding": encoding}).tensor().tolist() == [1, 2, 3]


def test_a_body_announced_too_large_is_refused_at_once(server: Server, wire: Wire) -> None:
    """The 413 does not wait for a body that will not be read."""
    with socket.create_connection((HOST, server.port), 10) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n"
        connection.sendall(head.encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 413
        assert json.loads(response.read())["error"]
    alive(wire)


def test_the_limit_of_a_body_is_a_setting(zoo: Path, launch: Callable[..., Server]) -> None:
    """A body of the limit is read; one more byte is 413, plain, chunked or inflated."""
    with launch(REPOSITORY=str(zoo), MAX_BODY_BYTES="1000").wire() as wire:
        assert wire.post(PATH, BODY.ljust(1000)).status == 200
        refusal(wire.post(PATH, BODY.ljust(1001)), 413)
    with launch(REPOSITORY=str(zoo), MAX_BODY_BYTES="1000").wire() as wire:
        refusal(wire.call("POST", PATH, iter([BODY.ljust(600), b" " * 600])), 413)
    with launch(REPOSITORY=str(zoo), MAX_BODY_BYTES="1000").wire() as wire:
        assert wire.post(PATH, gzip.compress(BODY.ljust(1000)), {"Content-Encoding": "gzip"}).status == 200
        refusal(wire.post(PATH, gzip.compress(BODY.ljust(1001)), {"Content-Encoding": "gzip"}), 413)


LARGE = json_input("n", "INT64", np.array([1000]))
NOT_COMPRESSED = ["", "identity", "gzip;q=0", "gzip;q=0, deflate;q=0", "br", "gzip;q=0.0, identity"]
NEGOTIATED = [
    *NOT_COMPRESSED, "gzip", "deflate", "gzip, deflate, br", "gzip;q=0.5, deflate;q=1.0", "*", "*;q=0", "identity;q=0",
    "GZIP", ";;q=,,", "gzip;q=nonsense", "gzip;q=-1", "x" * 5000,
]  # fmt: skip


@pytest.mark.row("R-155")
@pytest.mark.parametrize("accepted", NEGOTIATED, ids=[text[:30] or "empty" for text in NEGOTIATED])
def test_any_accept_encoding_gives_a_right_answer(wire: Wire, accepted: str) -> None:
    """It is encoded as the answer says, and unencoded if the client forbids encoding."""
    answer = wire.infer("counts", LARGE, headers={"Accept-Encoding": accepted})
    assert answer.tensor().tolist() == [list(range(1000))]
    if accepted in NOT_COMPRESSED:
        assert "content-encoding" not in answer.headers


@pytest.mark.row("R-156")
@pytest.mark.parametrize(("accepted", "encoding"), [
    ("gzip", "gzip"), ("deflate", "deflate"), ("gzip;q=0.5, deflate;q=1.0", "deflate"),
    ("deflate;q=0.1, gzip;q=0.9", "gzip"), ("br, gzip;q=0.1", "gzip"), ("gzip;q=0, deflate", "deflate"),
])  # fmt: skip
def test_a_large_answer_is_compressed_when_asked(wire: Wire, accepted: str, encoding: str) -> None:
    """The coding is the one that the client likes best."""
    answer = wire.infer("counts", LARGE, headers={"Accept-Encoding": accepted})
    assert answer.headers["content-encoding"] == encoding
    assert len(answer.body) < len(answer.content)
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.tensor().tolist() == [list(range(1000))]


def test_a_small_answer_is_not_compressed(wire: Wire) -> None:
    """Compression only costs time below about a kilobyte."""
    assert "content-encoding" not in wire.post(PATH, BODY, {"Accept-Encoding": "gzip"}).headers


@pytest.mark.row("R-157")
def test_a_chunked_request_is_read(wire: Wire) -> None:
    """Chunks of one byte are read, too."""
    assert wire.call("POST", PATH, iter([BODY[:10], BODY[10:]])).tensor().tolist() == [1, 2, 3]
    assert wire.call("POST", PATH, iter([BODY[i : i + 1] for i in range(len(BODY))])).tensor().tolist() == [1, 2, 3]


@pytest.mark.row("R-158")
def test_a_megabyte_of_json_is_answered(wire: Wire) -> None:
    """The answer is right, and as long as the request."""
    values = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    answer = wire.infer("vector_fp32", json_input("INPUT0", "FP32", values))
    assert len(answer.body) > 1_000_000
    assert np.array_equal(answer.tensor(), values)


@pytest.mark.row("R-159")
@pytest.mark.parametrize(("path", "body", "status"), [
    ("/v2/models/unheard_of/infer", BODY, 404),
    ("/v2/nothing", b"x", 404),
    ("/v2/health/live", b"x", 405),
    (PATH, b"x", 400),
])  # fmt: skip
def test_keep_alive_survives_errors_with_a_large_body(wire: Wire, path: str, body: bytes, status: int) -> None:
    """The next requests of a pooled client are answered, whether or not the body was read."""
    for _ in range(3):
        refusal(wire.call("POST", path, body.ljust(300_000)), status)
        alive(wire)


def test_a_connection_cut_inside_a_body_hurts_nobody(server: Server, wire: Wire) -> None:
    """The client leaves in the middle."""
    for _ in range(5):
        with socket.create_connection((HOST, server.port), 10) as connection:
            connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode() + BODY)
    alive(wire)


@pytest.mark.row("R-160")
def test_forty_requests_at_once_are_not_mixed_up(server: Server) -> None:
    """Every answer has the id and the values of its own question."""
    barrier = threading.Barrier(40)
    wrong: list[int] = []

    def ask(number: int) -> None:
        values = np.full(4000, number, np.int32)  # long enough for the reader of long texts
        with server.wire() as own:
            barrier.wait()
            for turn in range(3):
                answer = own.infer("vector_int32", json_input("INPUT0", "INT32", values), id=f"{number}-{turn}")
                if answer.json()["id"] != f"{number}-{turn}" or answer.tensor().tolist() != values.tolist():
                    wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.row("R-161")
def test_headers_of_others_are_accepted(wire: Wire) -> None:
    """They are tracing, request ids, CloudEvents, and bytes beyond ASCII."""
    headers = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-request-id": "abc", "ce-id": "1",
        "ce-specversion": "1.0", "ce-type": "org.kserve.serving.inference.request", "ce-source": "test",
        "x-odd": "caf\xe9", "triton-grpc-error": "true",
    }  # fmt: skip
    assert wire.post(PATH, BODY, headers).tensor().tolist() == [1, 2, 3]
