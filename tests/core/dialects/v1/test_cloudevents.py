"""core.dialects.v1.cloudevents: requests in events of both forms, and answers in events of the same form."""

import base64
import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects import V1
from core.dialects.v1.cloudevents import opened
from core.encoding import jsonio
from core.errors import InvalidInput
from core.router import Router
from core.wire import JSON, Call, HttpRequest, HttpResponse, UnsupportedType
from tests.support.samples import told
from tests.support.v1_samples import model, output, result, signature

EVENT = {"specversion": "1.0", "id": "7", "source": "me", "type": "ask"}
HEADERS = {b"ce-" + name.encode(): value.encode() for name, value in EVENT.items()}
STRUCTURED = {b"content-type": b"application/cloudevents+json"}
ANSWER = HttpResponse(200, (JSON,), (b'{"predictions":', b"[NaN]}"))


def call(headers: Mapping[bytes, bytes], body: Any = b"", name: str = "m") -> Call:
    """Returns a request for a model; objects become JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call(HttpRequest("POST", "/v1/models/m:predict", headers, content), {"model": name})


def data(body: Any, headers: Mapping[bytes, bytes] = STRUCTURED) -> bytes:
    """Returns the data that the dialect reads."""
    return bytes(opened(call(headers, body))[0])


def refused(headers: Mapping[bytes, bytes], body: Any = b"") -> str:
    with pytest.raises(InvalidInput) as refusal:
        opened(call(headers, body))
    return refusal.value.message


def check_attributes(found: Mapping[str, str]) -> None:
    """Checks the attributes of an answer of model m."""
    assert found["specversion"] == "1.0"
    assert found["source"] == "io.kserve.inference.m"
    assert found["type"] == "io.kserve.inference.response"
    assert UUID(found["id"]).version == 4
    assert datetime.fromisoformat(found["time"]).tzinfo == UTC


@pytest.mark.parametrize("headers", [{}, {b"content-type": b"application/json"}, {b"ce-id": b"1"}])
def test_a_body_that_is_no_event_passes_untouched(headers: Mapping[bytes, bytes]) -> None:
    """Its answer is untouched, too; specversion alone makes a request an event."""
    body, finish = opened(call(headers, b"{"))
    assert bytes(body) == b"{"
    assert finish(ANSWER) is ANSWER


def test_a_binary_event_has_its_attributes_in_headers() -> None:
    """The body is the data, and the answer's body is the answer."""
    body, finish = opened(call(HEADERS | {b"content-type": b"application/json"}, b'{"instances": [1]}'))
    assert bytes(body) == b'{"instances": [1]}'
    response = finish(ANSWER)
    assert (response.status, response.parts) == (ANSWER.status, ANSWER.parts)
    assert response.headers[0] == JSON
    attributes = {name.decode(): value.decode() for name, value in response.headers[1:]}
    assert all(name.startswith("ce-") for name in attributes)
    check_attributes({name.removeprefix("ce-"): value for name, value in attributes.items()})


def test_a_structured_event_is_one_object() -> None:
    """So is the answer, and its data is the answer's text unchanged."""
    body, finish = opened(call(STRUCTURED, EVENT | {"data": {"instances": [1]}, "own": "extension"}))
    assert json.loads(bytes(body)) == {"instances": [1]}
    response = finish(ANSWER)
    assert (response.status, response.headers) == (200, ((b"content-type", b"application/cloudevents+json"),))
    event = told(response)
    check_attributes(event)
    assert event["datacontenttype"] == "application/json"
    assert b'"data":{"predictions":[NaN]}' in b"".join(response.parts)


def test_every_answer_is_an_event_of_its_own() -> None:
    """No two answers have the same id."""
    _, finish = opened(call(STRUCTURED, EVENT | {"data": {}}))
    assert told(finish(ANSWER))["id"] != told(finish(ANSWER))["id"]


@pytest.mark.parametrize("content_type", [b"Application/CloudEvents+JSON", b"application/cloudevents+json; charset=x"])
def test_a_structured_event_is_known_by_its_media_type(content_type: bytes) -> None:
    """Case and parameters do not matter."""
    assert data(EVENT | {"data": 5}, {b"content-type": content_type}) == b"5"
    assert data(EVENT | {"data": 5}, HEADERS | {b"content-type": content_type}) == b"5"


def test_a_compressed_event_is_read() -> None:
    """The rule holds in both forms."""
    coding = {b"content-encoding": b"gzip"}
    event = gzip.compress(json.dumps(EVENT | {"data": {"a": 1}}).encode())
    assert data(event, STRUCTURED | coding) == b'{"a":1}'
    assert data(gzip.compress(b"{}"), HEADERS | coding) == b"{}"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_data_of_a_structured_event_are_read_without_loss(value: Any) -> None:
    """The cases are integers of 64 bits, infinities and all text."""
    assert jsonio.loads_lists(data(EVENT | {"data": value})) == value


def test_numbers_that_json_does_not_have_stay_what_they_are() -> None:
    """They are bare tokens."""
    body = json.dumps(EVENT)[:-1].encode()
    assert data(body + b', "data": [NaN, -Infinity]}') == b"[NaN,-Infinity]"


@given(st.binary(max_size=30))
def test_data_may_be_base64(raw: bytes) -> None:
    """The alphabet is the standard one; data_base64 takes precedence over data."""
    coded = base64.b64encode(raw).decode()
    assert data(EVENT | {"data_base64": coded}) == raw
    assert data(EVENT | {"data": 5, "data_base64": coded}) == raw


@pytest.mark.parametrize("coded", [5, None, "a", "a b=", "_-8=", "\u00e9", ["YQ=="]])
def test_what_is_no_base64_is_refused(coded: Any) -> None:
    """It is never read as something else."""
    assert refused(STRUCTURED, EVENT | {"data_base64": coded}) == "the event's data_base64 is not base64 text"


def test_a_structured_event_may_have_the_headers_of_a_binary_one() -> None:
    """The content type decides on the form, as section 3 of the HTTP binding requires."""
    body, finish = opened(call(HEADERS | STRUCTURED, EVENT | {"data": {"instances": [1]}}))
    assert json.loads(body) == {"instances": [1]}
    assert dict(finish(ANSWER).headers) == STRUCTURED


@pytest.mark.parametrize(
    "kind", ["application/cloudevents-batch+json", "Application/CloudEvents+avro", "application/cloudevents"]
)
@pytest.mark.parametrize("headers", [{}, HEADERS])
def test_batches_and_other_formats_of_events_are_refused(kind: str, headers: Mapping[bytes, bytes]) -> None:
    """The refusal has the status 415, and names the form that is read."""
    with pytest.raises(UnsupportedType) as refusal:
        opened(call({**headers, b"content-type": kind.encode()}, [EVENT | {"data": 1}]))
    expected = "expected one event, as application/cloudevents+json or with its attributes in headers"
    assert (refusal.value.status, refusal.value.message) == (415, f"Content-Type is '{kind.lower()}'; {expected}")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_both_versions_of_the_specification_are_taken(version: str) -> None:
    """The answer has the newer one."""
    assert data(EVENT | {"specversion": version, "data": 1}) == b"1"
    _, finish = opened(call(HEADERS | {b"ce-specversion": version.encode()}))
    assert dict(finish(ANSWER).headers)[b"ce-specversion"] == b"1.0"


@pytest.mark.parametrize("version", ["2.0", "", "1", "1.0\u00e9"])
def test_another_version_is_refused(version: str) -> None:
    """The refusal quotes it, in both forms."""
    text = f"the event's specversion is '{version}'; expected 1.0"
    assert refused(HEADERS | {b"ce-specversion": version.encode("latin-1")}) == text
    assert refused(STRUCTURED, EVENT | {"specversion": version, "data": 1}) == text


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_an_attribute_that_every_event_has_may_not_be_missing_or_empty(name: str) -> None:
    """The rule holds in both forms; in a structured event the attribute must be text."""
    without = {key: value for key, value in HEADERS.items() if key != b"ce-" + name.encode()}
    assert refused(without) == f"the event's {name} is missing; expected text that is not empty"
    empty = without | {b"ce-" + name.encode(): b""}
    assert refused(empty) == f"the event's {name} is ''; expected text that is not empty"
    for value, shown in ((None, "missing"), ("", "''"), (5, "5")):
        event = EVENT | {name: value, "data": 1}
        assert refused(STRUCTURED, event) == f"the event's {name} is {shown}; expected text that is not empty"
    assert "specversion is missing" in refused(STRUCTURED, {"data": 1})


@pytest.mark.parametrize(("body", "text"), [
    (b"[1]", "the event is [1]; expected an object"),
    (EVENT, "the event has no data"),
    (b"", "the body is not JSON"),
    (b"\xff", "the JSON is not UTF-8"),
])  # fmt: skip
def test_a_structured_event_that_is_none_is_refused(body: Any, text: str) -> None:
    """The refusal names what the body is instead."""
    assert refused(STRUCTURED, body).startswith(text)


@pytest.mark.parametrize("name", ["a b", '"quoted"', "50%", "\u65e5\u672c", "tab\t", "plain-1.0", "\U0001f99c"])
def test_a_header_holds_any_models_name(name: str) -> None:
    """The name is percent-encoded where a header requires it. A structured answer does not need that."""
    _, finish = opened(call(HEADERS, name=name))
    source = dict(finish(ANSWER).headers)[b"ce-source"].decode("ascii")
    assert not set(source) & set(' "\t')
    assert unquote(source) == f"io.kserve.inference.{name}"
    _, finish = opened(call(STRUCTURED, EVENT | {"data": 1}, name))
    assert told(finish(ANSWER))["source"] == f"io.kserve.inference.{name}"


def test_a_route_opens_the_event_and_closes_its_answer() -> None:
    """The test covers the whole way of a request."""
    spec = model(serving_default=signature({"x": "x"}, {"y": "y"}))
    route, values = Router(V1).find("POST", "/v1/models/m:predict")
    body = json.dumps(EVENT | {"data": {"instances": [1.0]}}).encode()
    operation, _ = route.decode(Call(HttpRequest("POST", "/v1/models/m:predict", STRUCTURED, body), values))
    _, reply = operation.decode(spec)  # type: ignore[union-attr] # a Deferred
    assert told(reply(result(output("y", "FP32", [2.5]))))["data"] == {"predictions": [2.5]}
