"""Lambda events of any shape each get an answer in their own form, and do not affect the next event."""

from __future__ import annotations

import json
import logging
import random
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handler.aws import Function
from handler.edge.function.events import UnsupportedEvent
from tests.e2e.expected import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SAMPLES: dict[str, Any] = {path.stem: json.loads(path.read_bytes()) for path in EVENTS}
FORMS = {
    "REST": "rest-v1-infer-json",
    "HTTP": "http-v2-infer-json",
    "URL": "function-url-infer-json",
    "ALB": "alb-infer-json",
    "ALB of many values": "alb-multi-value-infer-binary",
}
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, float("nan"), 10**400, "", "x", "\ud800", "\r\nx: y", "\0", [], ["x"], [None], [[]]),
    *({}, {"x": None}, {"x": 1}, {"x": ["y"]}, {"x": "\udfff"}, {"\ud800": "x"}, {"x": [None]}, {"x": [1]}, "9" * 5000),
]
PLACES = """
    requestContext requestContext.stage requestContext.path requestContext.http requestContext.http.path
    requestContext.http.method requestContext.http.sourceIp requestContext.identity requestContext.identity.sourceIp
    requestContext.elb requestContext.timeEpoch requestContext.requestTimeEpoch requestContext.domainName headers
    headers.host headers.x-forwarded-port headers.x-forwarded-proto headers.content-encoding multiValueHeaders cookies
    rawPath rawQueryString path httpMethod queryStringParameters multiValueQueryStringParameters body isBase64Encoded
    version resource source
"""
NAMES = """
    source detail-type detail Records warmup warmer model_name model_version inputs requestContext version httpMethod
    rawPath path x
"""
MEMBERS, KEYS = PLACES.split(), NAMES.split()
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)),
    max_leaves=6,
)
odd = st.one_of(st.sampled_from(ODD), json_values)


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    """Sets what Lambda sets, and the sample models. Puts the root logger's level back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
        patch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
        level = logging.getLogger().level
        yield
        logging.getLogger().setLevel(level)


@pytest.fixture(scope="module")
def function(_environment: None) -> Iterator[Function]:
    """One instance that handles all events of this module."""
    made = Function()
    yield made
    made.close()


def put(event: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """Returns the event with another member, if the objects around it are there."""
    event = deepcopy(event)
    *outer, last = place.split(".")
    inner: Any = event
    for name in outer:
        inner = inner.get(name)
        if not isinstance(inner, dict):
            return event
    inner[last] = value
    return event


def check_form(answer: Any, event: dict[str, Any]) -> None:
    """Checks that API Gateway and load balancers would take an answer, and that the server has not failed."""
    assert json.loads(json.dumps(answer)) == answer
    assert 200 <= answer["statusCode"] < 600
    assert answer["statusCode"] != 500, answer
    assert isinstance(answer["body"], str)
    assert isinstance(answer["isBase64Encoded"], bool)
    headers = answer.get("headers") or {name: values[0] for name, values in answer["multiValueHeaders"].items()}
    assert all(isinstance(text, str) and text.isprintable() for text in headers.values())
    context = event.get("requestContext")
    if (
        isinstance(context, dict)
        and "elb" in context
        and "http" not in context
        and event.get("multiValueHeaders") is not None
    ):
        assert answer["multiValueHeaders"]["content-type"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", MEMBERS)
def test_a_member_of_any_value_gets_an_answer_in_the_events_form(function: Function, form: str, place: str) -> None:
    """Every member that is read, in every form, takes every odd value. Nothing is raised, and no answer is a 500."""
    for value in ODD:
        event = put(SAMPLES[FORMS[form]], place, value)
        check_form(function(event, None), event)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=st.sampled_from([*FORMS]), changes=st.lists(st.tuples(st.sampled_from(MEMBERS), odd), max_size=4))
@example(form="HTTP", changes=[("requestContext", {"http": {"method": "GET", "path": "/%00%ff"}})])
def test_members_of_any_values_get_an_answer(function: Function, form: str, changes: list[tuple[str, Any]]) -> None:
    """With several odd members at a time, an event is answered, or it is no longer an event of a known kind."""
    event = SAMPLES[FORMS[form]]
    for place, value in changes:
        event = put(event, place, value)
    try:
        answer = function(event, None)
    except UnsupportedEvent:
        assert not isinstance(event["requestContext"], dict) or not {"http", "elb"} & event["requestContext"].keys()
    else:
        check_form(answer, event)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    event=st.dictionaries(
        st.sampled_from(KEYS),
        odd | st.sampled_from(["aws.s3", "Object Created", "aws.events", "half_plus_three", "2.0", "GET"]),
    )
    | json_values
)
def test_an_event_of_any_shape_is_answered_or_refused_as_unsupported(function: Function, event: Any) -> None:
    """The one error that is raised lists the supported events: queues must not count such an event as done."""
    try:
        answer = function(event, None)
    except UnsupportedEvent:
        with pytest.raises(UnsupportedEvent, match="not understood; supported are API Gateway"):
            function(event, None)
        return
    json.dumps(answer)
    assert {"statusCode", "error", "warm", "checked", "outputs"} & answer.keys()


@pytest.mark.parametrize(
    "event",
    [
        {"model_name": None, "inputs": []},
        {"model_name": 5, "inputs": []},
        {"model_name": "\ud800", "inputs": []},
        {"model_name": "../../v2/repository/index", "inputs": []},
        {"model_name": "half_plus_three", "model_version": [1], "inputs": []},
        {"model_name": "half_plus_three", "model_version": True, "inputs": []},
        {"model_name": "half_plus_three", "inputs": None},
        {"model_name": "half_plus_three%2Fready", "inputs": []},
    ],
)
def test_a_malformed_direct_invocation_gets_an_error(function: Function, event: Any) -> None:
    """It is an object with one member, "error", as for any other failure of a direct invocation."""
    assert list(function(event, None)) == ["error"]


def test_answers_do_not_depend_on_the_events_before(function: Function) -> None:
    """Good and malformed events in any order have the answers of an instance that has seen no other event."""
    events = [SAMPLES[name] for name in (*FORMS.values(), "direct-invoke", "rest-v1-ready", "http-v2-infer-gzip")]
    drawn = random.Random(19)  # noqa: S311 - an order that can be repeated
    events += [
        put(SAMPLES[drawn.choice([*FORMS.values()])], drawn.choice(MEMBERS), drawn.choice(ODD)) for _ in range(40)
    ]
    fresh = []
    for event in events:
        alone = Function()
        fresh.append(without_times(alone(deepcopy(event), None)))
        alone.close()
    for _ in range(3):
        for index in drawn.sample(range(len(events)), len(events)):
            assert without_times(function(deepcopy(events[index]), None)) == fresh[index], events[index]


def without_times(answer: Any) -> Any:
    """Returns an answer without the headers that say how long it took, and which request it answers."""
    for name in ("headers", "multiValueHeaders"):
        if isinstance(answer.get(name), dict):
            answer[name].pop("server-timing", None)
            answer[name].pop("x-request-id", None)
    return answer


def repeated(form: str, *, gzip: bool, **headers: str) -> dict[str, Any]:
    """Returns an inference of 1,000 elements in a form, with these headers; `gzip`: its client accepts it."""
    event = deepcopy(SAMPLES[FORMS[form]])
    x = {"name": "x", "shape": [1000], "datatype": "FP32", "data": [1.0] * 1000}
    event |= {"body": json.dumps({"inputs": [x]}), "isBase64Encoded": False}
    more = headers | ({"accept-encoding": "gzip"} if gzip else {})
    outer = event["requestContext"].get("http") or event
    outer["path"] = "/v2/models/half_plus_three/infer"
    if "multiValueHeaders" in event:
        event["multiValueHeaders"] = {name: [text] for name, text in more.items()}
    event["headers"] = more
    return event


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_compressed_from_1_kb_where_no_gateway_does(function: Function, form: str) -> None:
    """A REST API's gateway compresses; HTTP APIs, Function URLs and load balancers do not."""
    answer = function(repeated(form, gzip=True), None)
    headers = answer.get("headers") or {name: values[0] for name, values in answer["multiValueHeaders"].items()}
    assert headers.get("content-encoding") == (None if form == "REST" else "gzip")
    assert answer["isBase64Encoded"] is (form != "REST")
    assert "content-encoding" not in json.dumps(function(repeated(form, gzip=False), None)).lower()


@pytest.mark.parametrize("form", FORMS)
def test_a_body_that_is_not_the_gzip_it_says_is_refused_where_no_gateway_inflates(
    function: Function, form: str
) -> None:
    """The rule is uvicorn's. A REST API that compresses has inflated the body, and leaves the label."""
    answer = function(repeated(form, gzip=False, **{"content-encoding": "gzip"}), None)
    assert answer["statusCode"] == (200 if form == "REST" else 400)
    assert ("the body is not gzip data" in answer["body"]) is (form != "REST")


def test_answers_of_remote_calls_are_compressed_from_1_kb_behind_an_http_api(function: Function) -> None:
    """Connect's answers follow the same rule as those of REST."""
    event = repeated("URL", gzip=True, **{"content-type": "application/json"})
    event["requestContext"]["http"]["path"] = "/inference.GRPCInferenceService/ModelInfer"
    event["body"] = json.dumps(
        {"modelName": "half_plus_three"}
        | {"inputs": [{"name": "x", "shape": ["1000"], "datatype": "FP32", "contents": {"fp32Contents": [1] * 1000}}]}
    )
    answer = function(event, None)
    assert (answer["statusCode"], answer["headers"].get("content-encoding")) == (200, "gzip")
