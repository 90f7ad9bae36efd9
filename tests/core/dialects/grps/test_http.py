"""core.dialects.grps.http: its routes, the operation of each, and the form of answers and refusals."""

import json
from typing import Any

import pytest
import yaml

from core import operations as ops
from core.dialects import GRPS
from core.dialects.grps.http import EMPTY_NAME, NO_NAME
from core.errors import InvalidInput, ModelNotFound, ModelUnavailable, TooLarge
from core.operations import IndexEntry, ModelInfo, ModelRef, Readiness, ServerInfo, State
from core.router import Router
from core.wire import Call, HttpRequest, HttpResponse, MethodNotAllowed, RouteNotFound
from tests.support.grps_samples import model, spec

ROUTER = Router(GRPS)
OK = {"code": 200, "msg": "OK", "status": "SUCCESS"}
JSON = {b"content-type": b"application/json"}
HEALTH = ["online", "offline", "live", "ready"]


def asked(path: str, body: bytes = b"", method: str = "POST", headers: Any = JSON) -> tuple[Any, Any]:
    """Returns what a route makes of a request."""
    route, values = ROUTER.find(method, f"/grps/v1/{path}")
    return route.decode(Call(HttpRequest(method, f"/grps/v1/{path}", headers, body), values))


def told(response: Any, status: int = 200) -> Any:
    assert isinstance(response, HttpResponse)
    assert response.status == status
    assert response.headers[0] == (b"content-type", b"application/json")
    return json.loads(b"".join(response.parts))


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize(("path", "operation", "result"), [
    ("health/online", ops.SetOnline(online=True), None),
    ("health/offline", ops.SetOnline(online=False), None),
    ("health/live", ops.ServerLive(), Readiness(ready=True)),
    ("health/ready", ops.ServerReady(), Readiness(ready=True)),
])  # fmt: skip
def test_health_is_asked_for_without_looking_at_a_body(path: str, operation: Any, result: Any, method: str) -> None:
    """Each route answers with the status of success."""
    found, reply = asked(path, b"{", method, {})
    assert found == operation
    assert told(reply(result)) == {"status": OK}


def test_who_is_not_ready_is_unavailable() -> None:
    """The reason follows GRPS's text."""
    _, reply = asked("health/ready")
    response = reply(Readiness(ready=False, state=State.UNAVAILABLE, reason="set offline"))
    assert told(response, 503) == {
        "status": {"code": 503, "msg": "Service Unavailable: set offline", "status": "FAILURE"}
    }
    assert (b"retry-after", b"1") in response.headers


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_servers_metadata_is_a_text_of_yaml(method: str) -> None:
    """It stands beside the status."""
    operation, reply = asked("metadata/server", b"", method)
    assert operation == ops.ServerOverview()
    answer = told(reply((ServerInfo("s", "0.1"), [IndexEntry("m", "7", State.READY)])))
    assert answer["status"] == OK
    document = yaml.safe_load(answer["str_data"])
    assert (document["name"], document["version"]) == ("s", "0.1")
    assert document["models"] == [{"name": "m", "version": "7", "state": "READY"}]


@pytest.mark.parametrize("body", [b'{"str_data": "m-7"}', b'{"strData": "m-7", "model": "x", "y": [1]}'])
def test_a_models_metadata_is_asked_for_by_its_selector(body: bytes) -> None:
    """The name is in str_data; the rest of the message does not count."""
    operation, reply = asked("metadata/model", body)
    assert operation == ops.ModelMetadata(ModelRef("m-7", dashed=True))
    answer = told(reply(ModelInfo(model(spec("x", "FP32", 1)), ("7",))))
    assert yaml.safe_load(answer["str_data"])["name"] == "m"


@pytest.mark.parametrize(("body", "headers", "text"), [
    (b"{}", JSON, f"^{NO_NAME}$"),
    (b'{"str_data": null}', JSON, f"^{NO_NAME}$"),
    (b'{"str_data": ""}', JSON, f"^{EMPTY_NAME}$"),
    (b'{"str_data": 5}', JSON, "'str_data' is 5; expected a string"),
    (b"", JSON, "is not JSON"),
    (b"[]", JSON, "expected an object"),
    (b"m-7", {b"content-type": b"application/octet-stream"}, "Unsupported content type."),
    (b'{"str_data": "m"}', {}, "No content type in headers."),
])  # fmt: skip
def test_a_request_for_metadata_without_a_name_is_refused(body: bytes, headers: Any, text: str) -> None:
    """The text is GRPS's where it has one."""
    with pytest.raises(InvalidInput, match=text):
        asked("metadata/model", body, "POST", headers)


def test_a_prediction_is_asked_for_by_post() -> None:
    """test_predict has the details."""
    operation, _ = asked("infer/predict", b'{"str_data": "a"}')
    assert isinstance(operation, ops.Deferred)
    with pytest.raises(InvalidInput, match="The http body is empty."):
        asked("infer/predict")


@pytest.mark.parametrize("path", ["health/live/", "metadata/server/", "infer/predict/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
def test_a_path_with_a_slash_behind_it_is_none(path: str, method: str) -> None:
    """GRPS's python server does not know such a path either, whatever the method is."""
    with pytest.raises(RouteNotFound, match=f"there is nothing at '/grps/v1/{path}'"):
        asked(path, b"", method)


@pytest.mark.parametrize("path", ["", "health", "health/x", "monitor", "Health/live", "infer/predict/x"])
def test_any_other_path_is_none(path: str) -> None:
    """The pages of GRPS's monitor are not served."""
    with pytest.raises(RouteNotFound):
        asked(path)


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "infer/predict", ["POST"]),
    ("GET", "metadata/model", ["POST"]),
    ("PUT", "health/live", ["GET", "HEAD", "POST"]),
    ("OPTIONS", "health/live", ["GET", "HEAD", "POST"]),
])  # fmt: skip
def test_any_other_method_is_not_allowed(method: str, path: str, allowed: list[str]) -> None:
    """The refusal lists the methods that are allowed."""
    with pytest.raises(MethodNotAllowed) as refused:
        asked(path, b"", method)
    assert refused.value.allowed == allowed
    response = GRPS.refuse(refused.value, method, path)
    assert told(response, 405)["status"]["status"] == "FAILURE"
    assert dict(response.headers)[b"allow"] == ", ".join(allowed).encode()


@pytest.mark.parametrize(("error", "code"), [
    (InvalidInput("no"), 400), (ModelNotFound("no"), 404), (TooLarge("no"), 413), (RouteNotFound("no"), 404),
])  # fmt: skip
def test_a_refusal_has_its_http_status_as_its_code(error: Any, code: int) -> None:
    """It also has one line of text."""
    assert told(GRPS.refuse(error, "POST", "/grps/v1"), code) == {
        "status": {"code": code, "msg": "no", "status": "FAILURE"}
    }


def test_who_is_to_come_later_is_told_when() -> None:
    """HTTP's own header has the time."""
    response = GRPS.refuse(ModelUnavailable("no", retry_after=3), "POST", "/grps/v1")
    assert dict(response.headers)[b"retry-after"] == b"3"
