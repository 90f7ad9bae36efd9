"""The tests cover paths, methods, content types and bodies."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.grps_client import JSON, OCTETS, Http
from tests.support.server import HOST, Server

BODY = json.dumps({"model": "text", "str_data": "a"}).encode()
ANY, ONE = ["GET", "HEAD", "POST"], ["POST"]
PATHS = {
    **{f"health/{word}": ANY for word in ("online", "offline", "live", "ready")}, "infer/predict": ONE,
    "metadata/server": ANY, "metadata/model": ONE,
}  # fmt: skip
REFUSED = [
    (method, path)
    for path, allowed in PATHS.items()
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")
    if method not in allowed
]


@pytest.mark.row("GRPS-020")
@pytest.mark.parametrize(("method", "path"), REFUSED)
def test_any_other_method_is_405_with_what_is_allowed(http: Http, method: str, path: str) -> None:
    """The refusal is JSON."""
    answer = http.call(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == ", ".join(PATHS[path])
    if method != "HEAD":
        answer.refusal(405)


@pytest.mark.row("GRPS-021")
@pytest.mark.parametrize("path", [
    "", "health", "health/", "health/x", "health/live/", "health/live/x", "infer/predict/", "Infer/Predict",
    "metadata/server/", "monitor/series/?name=*qps", "monitor/metrics/", "js/jquery_min", "v2", "%2e%2e/health/live",
])  # fmt: skip
def test_any_other_path_is_404(http: Http, path: str) -> None:
    """The refusal is JSON, and GRPS's scripts are not there."""
    http.call("POST" if path.startswith("infer") else "GET", path, b"").refusal(404)


@pytest.mark.row("GRPS-022")
@pytest.mark.parametrize(
    "kind", [JSON, "Application/JSON", "application/json; charset=utf-8", "application/json;charset=UTF-8"]
)
def test_json_is_json_whatever_its_case_and_parameters(http: Http, kind: str) -> None:
    """GRPS's servers refuse them."""
    assert http.predict(json.loads(BODY), {"Content-Type": kind}).content() == {"str_data": "a"}


@pytest.mark.row("GRPS-023")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "x"])
def test_any_other_content_type_is_400(http: Http, kind: str) -> None:
    """The text is GRPS's."""
    for path in ("infer/predict", "infer/predict?streaming=true"):
        assert http.call("POST", path, BODY, {"Content-Type": kind}).refusal(400) == "Unsupported content type."
        assert http.call("POST", path, BODY).refusal(400) == "No content type in headers."


@pytest.mark.row("GRPS-024")
@pytest.mark.parametrize("kind", [JSON, OCTETS])
def test_an_empty_body_is_400(http: Http, kind: str) -> None:
    """The text is GRPS's."""
    answer = http.call("POST", "infer/predict?model=text", b"", {"Content-Type": kind})
    assert answer.refusal(400) == "The http body is empty."


@pytest.mark.row("GRPS-025")
@pytest.mark.parametrize("body", [
    b"{", b"x", b"\xff\xfe", b"[]", b"5", b'"a"', b"null", b"{}", b'{"model": "text"}', BODY + b"x", b"[" * 9999,
])  # fmt: skip
def test_what_is_no_message_is_400(http: Http, body: bytes) -> None:
    """The status is never 500, and there is no traceback."""
    http.call("POST", "infer/predict", body, {"Content-Type": JSON}).refusal(400)


@pytest.mark.row("GRPS-026")
def test_answers_are_compressed_for_who_asks_and_requests_inflated(http: Http) -> None:
    """An unknown coding is refused."""
    text = "a" * 5000
    body = gzip.compress(json.dumps({"model": "text", "str_data": text}).encode())
    headers = {"Content-Type": JSON, "Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    answer = http.call("POST", "infer/predict", body, headers)
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["str_data"] == text
    http.call("POST", "infer/predict", body, {**headers, "Content-Encoding": "br"}).refusal(415)


@pytest.mark.row("GRPS-027")
def test_a_body_beyond_the_limit_is_413(launch: Callable[..., Server], zoo: Path) -> None:
    """The limit holds for the bytes that come and for those that they inflate to."""
    server = launch(rpc=True, REPOSITORY=str(zoo), MAX_BODY_BYTES="1000")
    with Http(HOST, server.port) as http:
        large = json.dumps({"model": "text", "str_data": "a" * 2000}).encode()
        http.call("POST", "infer/predict", large, {"Content-Type": JSON}).refusal(413)
        packed = {"Content-Type": JSON, "Content-Encoding": "gzip"}
        http.call("POST", "infer/predict", gzip.compress(large), packed).refusal(413)
        assert http.predict({"model": "text", "str_data": "a"}).content() == {"str_data": "a"}


@pytest.mark.row("GRPS-028")
def test_a_connection_is_kept(http: Http) -> None:
    """It survives successes and refusals."""
    http.call("GET", "health/live")
    socket = http.connection.sock
    http.call("GET", "nowhere").refusal(404)
    http.predict({"model": "text", "str_data": "a"}).content()
    assert http.connection.sock is socket
