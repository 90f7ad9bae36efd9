"""Odd names, headers, methods, queries and lengths are each answered in their protocol, and nothing is echoed raw."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.support.asgi import Local, application

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wire import Answer

ROOT = Path(__file__).parents[2]
INFER = "/v2/models/half_plus_three/infer"
X = {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}
BODY = json.dumps({"inputs": [X]}).encode()
RIGHT = [3.5, 4.0, 5.5]
SERVICE = "/inference.GRPCInferenceService"
FORBIDDEN = "\r\n\0\x85"


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    """The application of the sample models, in this process."""
    client = Local(application(ROOT / "models"))
    yield client
    client.close()


def check(answer: Answer) -> None:
    """Checks that the server has not failed; the client has checked the messages and the headers' lines."""
    assert answer.status < 600
    assert answer.status != 500, answer.content[:300]
    if answer.headers.get("content-type") == "application/json" and answer.content:
        text = json.dumps(answer.json(), ensure_ascii=False)
        assert not set(FORBIDDEN) & set(text)


WORDS = """
    %2F .. %2e%2e . %2e %00 a%00b %c0%ae%c0%ae %c0%af %e2%80%a8 %E2%80%AE %C2%85 %0d%0aX:y %ff %ED%A0%80 a%2Fb iris%2F1
    %5c..%5c ;a iris;v=1 iris%3Fx ~ iris. %2569ris iris%20 %20iris iris%00 IRIS %EF%BC%8E%EF%BC%8E : :: %3A
    iris%3Apredict -1 0x1 1e3 %D9%A3 +1 99999999999999999999 latest
"""
NAMES = WORDS.split()
PLACES = [
    ("POST", "/v2/models/{}/infer"),
    ("POST", "/v2/models/iris/versions/{}/infer"),
    ("POST", "/v2/repository/models/{}/load"),
    ("POST", "/v2/repository/models/{}/unload"),
    ("GET", "/v2/models/{}"),
    ("GET", "/v2/models/{}/versions/{}/ready"),
    ("GET", "/v2/models/{}/config"),
    ("GET", "/v2/models/{}/stats"),
    ("GET", "/v1/models/{}"),
    ("GET", "/v1/models/iris/versions/{}"),
    ("POST", "/v1/models/{}:predict"),
    ("POST", "/v1/models/iris/labels/{}:predict"),
    ("POST", "/grps/v1/infer/{}"),
    ("GET", "/{}"),
    ("GET", "/models/{}"),
    ("POST", f"{SERVICE}/{{}}"),
    ("POST", "/{}/ModelInfer"),
]


@pytest.mark.parametrize(("method", "place"), PLACES)
def test_an_odd_name_in_a_path_is_refused(local: Local, method: str, place: str) -> None:
    """Encoded slashes, dots, control characters, overlong and broken UTF-8 name nothing and reach no file."""
    for name in [*NAMES, "a" * 60_000, "%61" * 20_000, "%C3%A9" * 200, "9" * 5000]:
        answer = local.call(method, place.replace("{}", name), BODY if method == "POST" else b"")
        check(answer)
        assert answer.status >= 400, (place, name)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "get", "", "X" * 3000, "G\u00e9T"])
@pytest.mark.parametrize(
    "path", ["/v2", INFER, "/v1/models/iris", "/grps/v1/health/live", f"{SERVICE}/ServerLive", "/"]
)
def test_a_method_that_no_route_has_is_refused_with_those_it_has(local: Local, method: str, path: str) -> None:
    """405 names the methods (RFC 9110 15.5.6); GRPS's and V1's own texts have their own statuses."""
    answer = local.call(method, path)
    check(answer)
    assert answer.status in {400, 404, 405}
    assert answer.status != 405 or answer.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/models/iris", "/v1/models/iris", "/grps/v1/health/live", "/", "/docs", "/openapi.json", INFER]
)
def test_head_has_the_head_of_get_and_no_body(local: Local, path: str) -> None:
    """Clients ask for it to learn a length."""
    got, head = local.call("GET", path), local.call("HEAD", path)
    assert (head.status, head.body) == (got.status, b"")
    assert head.headers["content-type"] == got.headers["content-type"]


HEADERS: list[tuple[str, str | bytes, int]] = [
    ("accept-encoding", ",".join(["gzip;q=0.5"] * 6000), 200),
    ("accept-encoding", "gzip;q=nan, *;q=1e400, identity;q=-1", 200),
    ("accept-encoding", b"\xff\xfe;q=\xff", 200),
    ("content-encoding", ",".join(["identity"] * 7000), 200),
    ("content-encoding", ",".join(["gzip"] * 60), 415),
    ("content-encoding", b"\xff", 415),
    ("content-type", b"\xff\xfe/\x80; charset=utf-16", 200),
    ("content-type", "application/x-www-form-urlencoded; charset=utf-7", 200),
    ("content-type", "a/b;" + "x" * 60_000, 200),
    ("cookie", "a=b;" * 15_000, 200),
    ("range", "bytes=0-1", 200),
    ("if-none-match", "*", 200),
    ("if-modified-since", "Thu, 01 Jan 2099 00:00:00 GMT", 200),
    ("x-forwarded-proto", "javascript", 200),
    ("x-http-method-override", "DELETE", 200),
    ("inference-header-content-length", str(len(BODY)), 200),
    ("inference-header-content-length", str(len(BODY) + 1), 400),
    *(
        ("inference-header-content-length", text, 400)
        for text in ("-1", "+10", "0", "1e2", "0x10", "9" * 5000, b"\xb2")
    ),
    ("inference-header-content-length", " 80", 400),
]


@pytest.mark.parametrize(("name", "value", "status"), HEADERS)
def test_an_odd_header_changes_nothing_or_is_refused(local: Local, name: str, value: str | bytes, status: int) -> None:
    """Unknown headers are ignored, Range and If-* get whole answers, and lengths must be decimal numbers."""
    answer = local.call("POST", INFER, BODY, {name: value})
    check(answer)
    assert answer.status == status
    if status == 200:
        assert answer.json()["outputs"][0]["data"] == RIGHT


@pytest.mark.parametrize("size", [3, 200, 100_000])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"data":[7],', ""),
        ('"shape":[9],', ""),
        ('"name":"z",', ""),
        ('"n\\u0061me":"z",', ""),
        ('"datatype":"FP64",', ""),
    ],
)
def test_a_member_that_is_there_twice_is_refused_whatever_reads_the_body(
    local: Local, size: int, before: str, after: str
) -> None:
    """Small and large bodies have different readers, which must not see different requests."""
    data = json.dumps([1.0] * size)
    body = f'{{"inputs":[{{{before}"name":"x","shape":[{size}],"datatype":"FP32","data":{data}{after}}}]}}'
    answer = local.call("POST", INFER, body.encode())
    check(answer)
    name = before[1 : before.index('":')].replace("\\u0061", "a")
    assert answer.status == 400
    assert f"the JSON has the member '{name}' twice in one object" in answer.json()["error"]


SIZES: list[Any] = [-1, "12", 12.0, True, [12], 0, 11, 13, 2**31, 2**63, 2**70, "9" * 5000, {}]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size)[:8])
def test_a_wrong_size_of_binary_data_is_refused(local: Local, size: Any) -> None:
    """Nothing is read beyond the body, and nothing is allocated for a size that is merely claimed."""
    tensor = {"name": "x", "shape": [3], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor]}).encode()
    sent = {"inference-header-content-length": str(len(head))}
    answer = local.call("POST", INFER, head + struct.pack("<3f", 1, 2, 5), sent)
    check(answer)
    assert answer.status == 400


def message(text: bytes) -> str:
    """Returns a message as a query writes it."""
    return base64.urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("connect=v1&encoding=json&message=%7B%22name%22%3A%22iris%22%7D", 200),
        (f"encoding=json&base64=1&compression=gzip&message={message(gzip.compress(b'{}', mtime=0))}", 200),
        ("", 400),
        ("encoding=json&message=%zz%ff%00", 400),
        ("encoding=proto&base64=1&message=!!!", 400),
        ("encoding=proto&base64=1&message=" + "A" * 60_000, 400),
        ("encoding=json&base64=1&compression=gzip&message=" + message(b"{}"), 400),
        ("encoding=json&compression=br&message={}", 501),
        ("encoding=xml&message={}", 415),
        ("connect=v2&encoding=json&message={}", 400),
        ("a&" * 30_000, 400),
        ("encoding=json&base64=1&compression=gzip&message=" + message(gzip.compress(b" " * 20_000, mtime=0)[:-9]), 400),
    ],
)
def test_a_connect_call_by_get_is_answered_or_refused(local: Local, query: str, status: int) -> None:
    """The query holds the message: its encoding, its base64 and its compression may each be wrong."""
    answer = local.call("GET", f"{SERVICE}/ModelReady?{query}")
    check(answer)
    assert answer.status == status


@pytest.mark.parametrize("method", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_a_method_with_effects_is_not_called_by_get(local: Local, method: str) -> None:
    """A link or a picture on a web page must not load and unload models."""
    query = "connect=v1&encoding=json&message=" + quote('{"modelName":"iris"}')
    assert local.call("GET", f"{SERVICE}/{method}?{query}").status == 405
    assert local.call("GET", "/v2/repository/models/iris/unload").status == 405


ENVELOPES = [
    *(b"", b"{}", b"\0\0\0\0\2{}", b"\0\xff\xff\xff\xff{}", b"\2\0\0\0\2{}", b"\1\0\0\0\2{}", b"\x80\0\0\0\0"),
    *(b"AAAAAAJ7fQ==", b"=====", b"A" * 10_001, b"\0" * 4, b"\xff" * 50),
]
MEDIA_TYPES = """
    application/connect+json application/connect+proto application/grpc-web application/grpc-web+proto
    application/grpc-web-text application/grpc-web-text+proto application/grpc application/json application/proto
    text/plain APPLICATION/JSON application/json,application/proto
"""
KINDS = MEDIA_TYPES.split()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["ServerLive", "ModelStreamInfer", "ModelInfer", "RepositoryIndex"])
def test_an_odd_envelope_is_refused_in_its_protocol(local: Local, kind: str, method: str) -> None:
    """The cases are lengths beyond the body, unknown flags, text that is not base64, and a foreign content type."""
    for body in ENVELOPES:
        check(local.call("POST", f"{SERVICE}/{method}", body, {"content-type": kind}, stays=True))


@pytest.mark.parametrize("path", ["/", "/docs", "/nothing", "/openapi.json"])
@pytest.mark.parametrize("host", ["[", "]", "[::1", "a b", "<script>", "x" * 60_000, "a:b:c", "", "x?y#z", b"\xff"])
def test_the_site_believes_no_host(local: Local, path: str, host: str | bytes) -> None:
    """A page shows the client's Host only if it is a valid host."""
    answer = local.call("GET", path, b"", {"host": host, "accept": "text/html"})
    check(answer)
    assert b"<script>" not in answer.content
    assert b"x?y#z" not in answer.content


ROW = ["a", "1", "2", "3"]
TEXT = {"name": "text", "shape": [1, 4], "datatype": "BYTES", "data": ROW}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/numbers/infer", {"inputs": [TEXT]}),
        ("/v1/models/numbers:predict", {"instances": [ROW]}),
        ("/v1/models/flowers:predict", {"instances": [ROW]}),
    ],
)
def test_a_request_that_an_onnx_model_cannot_work_on_writes_nothing_beside_the_log(
    local: Local, capfd: pytest.CaptureFixture[str], path: str, body: Any
) -> None:
    """ONNX Runtime has lines of its own for it, which no setting of the log bounds or puts into its form."""
    answer = local.call("POST", path, json.dumps(body).encode())
    assert (answer.status, "is not a number" in answer.content.decode()) == (400, True)
    assert "onnxruntime" not in capfd.readouterr().err
