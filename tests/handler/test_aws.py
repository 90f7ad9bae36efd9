"""handler.aws and function.events: the events that platforms send; tests/e2e sends them through the real runtime."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from core.errors import InvalidInput
from handler.aws import Function
from handler.edge.function import answers
from handler.edge.function.events import Kind, UnsupportedEvent, kind_of, normalised, s3_objects
from tests.e2e.expected import ANSWERS, EVENTS, gist
from tests.handler.calling import context, http, infer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets the variables of Lambda and of the sample models; puts the root logger's level back."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def function() -> Iterator[Function]:
    """One instance, whose event loop ends with it."""
    made = Function()
    yield made
    made.close()


@pytest.mark.parametrize(
    "path", [path for path in EVENTS if not path.stem.startswith("s3")], ids=lambda path: path.stem
)
def test_every_sample_event_is_answered(function: Function, path: Path) -> None:
    """`sam local invoke -e` and the real runtime answer alike; S3's event is in stores/s3/test_store."""
    answer = function(json.loads(path.read_text(encoding="utf-8")), None)
    json.dumps(answer)
    assert gist(answer) == ANSWERS[path.stem]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({}, Kind.WARM_UP),
        ({"warmer": True, "concurrency": 3}, Kind.WARM_UP),
        ({"source": "aws.scheduler"}, Kind.WARM_UP),
        ({"model_name": "m", "inputs": []}, Kind.DIRECT),
        (
            {
                "source": "aws.s3",
                "detail-type": "Object Created",
                "detail": {"bucket": {"name": "b"}, "object": {"key": "k"}},
            },
            Kind.S3,
        ),
        ({"requestContext": {"elb": {}}, "httpMethod": "GET"}, Kind.HTTP),
    ],
)
def test_events_are_told_apart(event: Any, kind: Kind) -> None:
    """Each has members that the others lack."""
    assert kind_of(event) is kind


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "text",
        5,
        {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]},
        {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectRemoved:Delete"}]},
        {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}]},
        {"Records": 5},
        {"requestContext": {"routeKey": "$connect"}},
        {"requestContext": 1},
        {"source": "aws.s3", "detail-type": "Object Created"},
    ],
)
def test_an_event_that_is_not_understood_is_refused_with_what_is(function: Function, event: Any) -> None:
    """The error is raised, so that a queue does not count the event as done."""
    with pytest.raises(UnsupportedEvent, match="not understood; supported are API Gateway"):
        function(event, None)


def test_keys_of_s3_events_are_decoded() -> None:
    """S3 encodes them like forms."""
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    event = {"Records": [record | {"s3": {"bucket": {"name": "b"}, "object": {"key": "a+b/%C3%A9"}}}]}
    assert s3_objects(event) == [("b", "a b/é")]


@pytest.mark.parametrize(
    ("path", "stage", "base", "rest", "root"),
    [
        ("/prod/v2", "prod", "", "/v2", "/prod"),
        ("/prod", "prod", "", "/", "/prod"),
        ("/production/v2", "prod", "", "/production/v2", ""),
        ("/v2/x", "$default", "", "/v2/x", ""),
        ("/api/v2", "prod", "/api", "/v2", "/api"),
        ("/v2x/v2", "prod", "/v2", "/v2x/v2", ""),
        ("/prod/v2/x", "prod", "/api", "/v2/x", "/prod"),
        ("/v2/v2/models", "v2", "/api", "/v2/models", "/v2"),
        (None, "$default", "", "/", ""),
    ],
)
def test_stage_or_base_path_is_cut_off_at_a_segments_end(
    path: Any, stage: str, base: str, rest: str, root: str
) -> None:
    """HTTP APIs leave it in the path. A mapping's path stands there instead, unless the API's own address was asked."""
    event, found, *_ = normalised({"requestContext": {"http": {"path": path}, "stage": stage}}, base)
    assert (event["requestContext"]["http"]["path"], found) == (rest, root)


@pytest.mark.parametrize(
    ("event", "rest", "root"),
    [
        ({"path": "/v2", "requestContext": {"path": "/Prod/v2", "stage": "Prod"}}, "/v2", "/Prod"),
        ({"path": "/", "requestContext": {"path": "/Prod", "stage": "Prod"}}, "/", "/Prod"),
        ({"path": "/", "requestContext": {"path": "/Prod/", "stage": "Prod"}}, "/", "/Prod"),
        ({"path": "/v2", "requestContext": {"path": "/other", "stage": "Prod"}}, "/v2", ""),
        ({"path": "/v2", "requestContext": {}}, "/v2", ""),
        ({"version": "1.0", "path": "/dev/v2", "requestContext": {"stage": "dev"}}, "/v2", "/dev"),
        ({"path": None, "requestContext": {"elb": {}}}, "/", ""),
    ],
)
def test_a_rest_api_names_its_stage_beside_the_path(event: dict[str, Any], rest: str, root: str) -> None:
    """Payload 1.0 of an HTTP API has it in the path."""
    found, found_root, *_ = normalised(event, "")
    assert (found["path"], found_root) == (rest, root)


@pytest.mark.parametrize("stage", ["v1", "v2", "grps", "prod"])
@pytest.mark.parametrize("form", ["REST", "V1", "V2"])
def test_a_stage_can_have_the_name_of_a_protocol(function: Function, form: str, stage: str) -> None:
    """Only the stage is cut off, and not the protocol's own prefix after it."""
    path, body = "/v1/models/half_plus_three:predict", '{"instances": [1]}'
    context = {"stage": stage, "path": f"/{stage}{path}"}
    older = {"httpMethod": "POST", "headers": {}, "body": body, "requestContext": context}
    whole = http("POST", f"/{stage}{path}", body)
    whole["requestContext"]["stage"] = stage
    events = {"REST": older | {"path": path}, "V1": older | {"path": f"/{stage}{path}", "version": "1.0"}, "V2": whole}
    answer = function(events[form], None)
    assert (answer["statusCode"], json.loads(answer["body"])) == (200, {"predictions": [3.5]})


@pytest.mark.parametrize("label", ["a/b", "a:predict", "é@%2F"])
def test_a_label_that_is_percent_encoded_is_the_label(function: Function, label: str) -> None:
    """Function URLs and load balancers pass paths as clients have sent them."""
    path = f"/v1/models/iris/labels/{quote(label, safe='')}:predict"
    older = {"httpMethod": "POST", "path": path, "body": "{}", "requestContext": {"elb": {}}}
    for event in (http("POST", path, "{}"), older):
        assert json.loads(function(event, None)["body"]) == {"error": f"Unrecognized servable version label: {label}"}


def test_the_site_knows_the_stage_in_front_of_it(function: Function) -> None:
    """Its links would break otherwise."""
    event = http("GET", "/stage/")
    event["requestContext"]["stage"] = "stage"
    assert function(event, None)["statusCode"] == 200


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {"Host": "[::1]:3000"},
        {"host": "a:b"},
        {"X-Forwarded-Port": "x"},
        {"x": None},
        {"host": "a:80", "x-forwarded-port": "443"},
    ],
)
def test_odd_headers_do_not_keep_a_request_from_its_answer(function: Function, headers: Any) -> None:
    """Mangum raises on each of these."""
    assert function(http("GET", "/v2/health/live", headers=headers), None)["statusCode"] == 200
    multi = None if headers is None else {name: [value] for name, value in headers.items()}
    event = {"resource": "/", "path": "/v2/health/live", "httpMethod": "GET", "requestContext": {}, "body": None}
    assert function({**event, "headers": headers, "multiValueHeaders": multi}, None)["statusCode"] == 200


def test_a_body_that_is_not_the_base64_it_says_is_400(function: Function) -> None:
    """The answer has the protocol's own form."""
    answer = function(http("POST", "/v2/models/half_plus_three/infer", "no base64!", isBase64Encoded=True), None)
    assert answer["statusCode"] == 400
    (told,) = json.loads(answer["body"]).values()
    assert re.match("the event's body is not base64, as isBase64Encoded says: [^ ]", told)
    assert answer["headers"]["server-timing"].endswith("start;desc=cold")
    with pytest.raises(InvalidInput):
        normalised(http("POST", "/", "x", isBase64Encoded=True), "")


def test_binary_answers_are_base64_and_text_is_text(function: Function) -> None:
    """The content type decides."""
    event = infer()
    event["body"] = json.dumps(json.loads(event["body"]) | {"parameters": {"binary_data_output": True}})
    answer = function(event, None)
    assert answer["isBase64Encoded"]
    assert base64.b64decode(answer["body"]).endswith(b"\x00\x00\x60\x40")
    assert not function(infer(), None)["isBase64Encoded"]


def test_an_answer_that_lambda_cannot_carry_is_refused_with_size_limit_and_remedy(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime would otherwise end the instance."""
    assert answers.LARGEST_RESPONSE == 6_291_556
    assert function(infer(size=1000), None)["statusCode"] == 200
    monkeypatch.setattr("handler.edge.function.answers.LARGEST_RESPONSE", 3000)
    answer = function(infer(size=1000), None)
    assert answer["statusCode"] == 413
    error = json.loads(answer["body"])["error"]
    assert "at most 3000 are possible" in error
    assert "ask for fewer outputs" in error
    assert ", infer;dur=" in answer["headers"]["server-timing"]


@pytest.mark.parametrize("headers", ["headers", "multiValueHeaders"])
def test_a_load_balancer_takes_a_megabyte(function: Function, headers: str) -> None:
    """It would answer a larger document with a 502 of its own. The document has what the text says."""
    event = {
        "path": "/v2/models/half_plus_three/infer",
        "httpMethod": "POST",
        "requestContext": {"elb": {}},
        headers: {},
    }
    for size, status in ((250_000, 200), (300_000, 413)):
        answer = function(event | {"body": infer(size=size)["body"]}, None)
        assert answer["statusCode"] == status
        assert len(json.dumps(answer)) <= 2**20
    assert "1048576 are possible" in answer["body"]


@pytest.mark.parametrize(("id_", "size", "count"), [
    ("", 1_300_000, "6500\\d{3}"), ('"' * 3_150_000, 1, "6300\\d{3}"),
    ('"' * 1_600_000, 1, ""), ("a" * 6_291_400, 1, ""),
])  # fmt: skip
def test_a_direct_answer_is_measured_as_the_runtime_writes_it(
    function: Function, id_: str, size: int, count: str
) -> None:
    """Python's JSON has a blank behind each comma: 5.2 MB become 6.5. Each quote is escaped once. A refusal counts."""
    x = {"name": "x", "shape": [size], "datatype": "FP32", "data": [1] * size}
    answer = function({"model_name": "half_plus_three", "id": id_, "inputs": [x]}, None)
    refusal = rf"the answer has {count} bytes as Lambda counts them; at most 6291556 are possible"
    assert re.match(refusal, answer["error"]) if count else answer["id"] == id_
    assert function.app is not None
    assert [status for _, status in function.app.observer.counts.tallies] == [413 if count else 200]


def test_a_header_of_a_model_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Models answer whole requests with headers of their own."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    source = "def http(request):\n    return 200, {'x-long': 'x' * 40_000}, 'y' * 6_260_000\n"
    (tmp_path / "m/1/model.py").write_text(f"{source}def predict(inputs, parameters):\n    return inputs\n")
    (tmp_path / "m/model-settings.json").write_text('{"http": {"path": "/own"}}')
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "true")
    with closing(Function()) as function:
        assert function(http("POST", "/own"), context(30))["statusCode"] == 413


OLDER: dict[str, Any] = {"httpMethod": "POST", "path": "/own", "headers": {}}
ELB: dict[str, Any] = {"elb": {"targetGroupArn": "arn"}}


@pytest.mark.parametrize(
    "event",
    [
        http("POST", "/own"),
        OLDER | {"resource": "/{proxy+}", "requestContext": {"stage": "Prod"}},
        OLDER | {"version": "1.0", "requestContext": {"stage": "$default"}},
        OLDER | {"requestContext": ELB},
        OLDER | {"requestContext": ELB, "multiValueHeaders": {}},
    ],
    ids=["HTTP 2.0", "REST", "HTTP 1.0", "ALB", "ALB of many values"],
)
def test_a_header_of_a_model_can_have_any_character_of_latin_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: dict[str, Any]
) -> None:
    """As on a server. Mangum reads headers as UTF-8."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    source = "def http(request):\n    return 200, {'x-name': 'caf\u00e9'}, 'y'\n"
    (tmp_path / "m/1/model.py").write_text(f"{source}def predict(inputs, parameters):\n    return inputs\n", "utf-8")
    (tmp_path / "m/model-settings.json").write_text('{"http": {"path": "/own"}}')
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "true")
    with closing(Function()) as function:
        answer = function(event, context(30))
    headers = answer.get("headers") or {name: value for name, (value,) in answer["multiValueHeaders"].items()}
    assert (answer["statusCode"], answer["body"], headers["x-name"]) == (200, "y", "café")


@pytest.mark.parametrize("event", [http("POST", "/v2", "no base64!", isBase64Encoded=True), infer(size=100)])
def test_a_page_of_another_site_can_read_refusals(monkeypatch: pytest.MonkeyPatch, event: dict[str, Any]) -> None:
    """Those of the function itself, too: a browser hides the others, with their remedies."""
    monkeypatch.setenv("DRAGOMAN_CORS_ORIGINS", "https://a.example")
    monkeypatch.setattr("handler.edge.function.answers.LARGEST_RESPONSE", 100)
    with closing(Function()) as function:
        answer = function(event | {"headers": {"origin": "https://a.example"}}, None)
        assert answer["statusCode"] in (400, 413)
        assert answer["headers"]["access-control-allow-origin"] == "https://a.example"


STEPS = """
import time, numpy as np
metadata = {"inputs": [{"name": "n", "datatype": "FP32", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}
def predict(inputs, parameters):
    yield {"y": np.array([0])}
    time.sleep(float(inputs["n"][0]))
    yield {"y": np.array([1])}
"""


@pytest.mark.parametrize(("timeout", "left"), [("0.2", 30), ("", 0.8)])
def test_each_answer_of_a_stream_has_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, timeout: str, left: float
) -> None:
    """DRAGOMAN_TIMEOUT, and the function's own time. The client gets what there is, and the reason as an event."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").write_text(STEPS)
    for name, text in (("REPOSITORY", str(tmp_path)), ("ALLOW_CODE", "true"), ("TIMEOUT", timeout), ("PRELOAD", "m")):
        monkeypatch.setenv(f"DRAGOMAN_{name}", text)
    with closing(Function()) as function:
        begun = time.monotonic()
        answer = function(http("POST", "/v2/models/m/generate_stream", '{"n": [20]}'), context(left))
        assert time.monotonic() - begun < 10
        first, second = answer["body"].strip().split("\n\n")
        assert (answer["statusCode"], json.loads(first.removeprefix("data: "))["y"]) == (200, 0)
        assert "did not answer" in json.loads(second.removeprefix("data: "))["error"]


def test_behind_a_load_balancer_with_many_values_the_refusal_says_where_the_time_went_as_well(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mangum's headers are lists there."""
    monkeypatch.setattr("handler.edge.function.answers.LARGEST_FOR_ALB", 5)
    event = {"path": "/v2", "httpMethod": "GET", "requestContext": {"elb": {}}, "body": ""}
    told = [
        function({**event, headers: {}}, None)["headers"]["server-timing"]
        for headers in ("headers", "multiValueHeaders")
    ]
    assert [value.rpartition("=")[2] for value in told] == ["cold", "warm"]


def test_refusals_are_timed_only_where_answers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """DRAGOMAN_SERVER_TIMING holds for all answers."""
    monkeypatch.setenv("DRAGOMAN_SERVER_TIMING", "false")
    monkeypatch.setattr("handler.edge.function.answers.LARGEST_RESPONSE", 5)
    function = Function()
    for event in (http("GET", "/v2"), http("POST", "/v2", "no base64!", isBase64Encoded=True)):
        assert "server-timing" not in function(event, None)["headers"]
    function.close()


def test_a_direct_invocation_is_answered_with_the_protocols_object(function: Function) -> None:
    """The rule includes failures."""
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    asked = {"model_name": "half_plus_three", "inputs": [x]}
    assert function(asked, None)["outputs"][0]["data"] == [3.5]
    assert function(asked | {"model_version": "123"}, None)["model_version"] == "123"
    assert "version 7 is not found" in function(asked | {"model_version": "7"}, None)["error"]
    binary = function(asked | {"parameters": {"binary_data_output": True}}, None)
    assert binary == {"error": "an answer to a direct invocation is JSON: do not ask for binary outputs"}


def test_a_direct_invocation_has_no_base_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes through no mapping of a gateway, whose path may begin as the protocol's own."""
    monkeypatch.setenv("DRAGOMAN_BASE_PATH", "v2")
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    with closing(Function()) as function:
        assert function({"model_name": "half_plus_three", "inputs": [x]}, None)["outputs"][0]["data"] == [3.5]
        assert function(http("GET", "/v2/v2/health/live"), None)["statusCode"] == 200


def test_wrong_settings_are_told_to_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception at import would be a 502 without a reason, and another start at each request."""
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "maybe")
    function = Function()
    answer = function(http("GET", "/v2/health/ready"), None)
    assert answer["statusCode"] == 503
    assert "DRAGOMAN_ALLOW_CODE is 'maybe'" in json.loads(answer["body"])["error"]
    status = json.loads(function(http("GET", "/grps/v1/health/ready"), None)["body"])["status"]
    assert (status["code"], "DRAGOMAN_ALLOW_CODE" in status["msg"]) == (503, True)
    refused = json.loads(function(http("POST", "/grpc.health.v1.Health/Check"), None)["body"])
    assert refused["code"] == "failed_precondition"
    with pytest.raises(UnsupportedEvent, match="not configured"):
        function({}, None)
    function.close()


def test_model_code_may_take_the_event_loop_away(function: Function) -> None:
    """asyncio.run() leaves the thread without one; a closed loop is replaced."""
    asyncio.run(asyncio.sleep(0))
    assert function(http("GET", "/v2/health/live"), None)["statusCode"] == 200
    function._loop.close()
    assert function(http("GET", "/v2/health/live"), None)["statusCode"] == 200


def test_preloaded_models_are_loaded_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The init phase has the whole CPU."""
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "*")
    function = Function()
    assert function(http("GET", "/v2/models/iris/ready"), None)["statusCode"] == 200
    function.close()
