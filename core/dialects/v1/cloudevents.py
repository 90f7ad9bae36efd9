"""CloudEvents over HTTP, as KServe reads and writes them: a request in an event is answered by an event of its form.

Binary: attributes in ce-* headers, the body is the data. Structured: one JSON object with the attributes and "data".
Neither other formats nor batches are read. Source: CloudEvents' HTTP protocol binding, section 3; KServe's dataplane.
"""

import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from core.dialects.v1.request import Finish
from core.encoding import jsonio
from core.errors import InvalidInput, given, shown
from core.wire import Call, HttpResponse, UnsupportedType

VERSION: Final = b"ce-specversion"
EVENTS: Final = b"application/cloudevents"
"""The beginning of the media types of events, of batches of them, too."""
STRUCTURED: Final = EVENTS + b"+json"
TYPE: Final = "io.kserve.inference.response"
SOURCE: Final = "io.kserve.inference."
VERSIONS: Final = ("1.0", "0.3")
REQUIRED: Final = ("id", "source", "type")
ATTRIBUTES: Final = ("specversion", *REQUIRED)


def opened(call: Call) -> tuple[bytes | memoryview, Finish]:
    """Returns an event's data and a function that wraps the answer in an event of the same form.

    A body that is not an event is returned unchanged, and so is its answer. A structured event may have the headers of
    a binary one, too (3.2.3). Raises InvalidInput, UnsupportedType.
    """
    headers, body = call.request.headers, call.request.content()
    kind = headers.get(b"content-type", b"").lower()
    if kind.startswith(EVENTS):
        if not kind.startswith(STRUCTURED):
            expected = f"one event, as {STRUCTURED.decode()} or with its attributes in headers"
            raise UnsupportedType(f"Content-Type is {shown(kind)}; expected {expected}")
        return _data(jsonio.loads_lists(body)), lambda response: _structured(response, call.path["model"])
    if VERSION in headers:
        sent = {name: headers.get(b"ce-" + name.encode()) for name in ATTRIBUTES}
        _check({name: value.decode("latin-1") for name, value in sent.items() if value is not None})
        return body, lambda response: _binary(response, call.path["model"])
    return body, lambda response: response


def _check(event: Mapping[str, Any]) -> None:
    if event.get("specversion") not in VERSIONS:
        raise InvalidInput(f"the event's specversion is {given(event.get('specversion'))}; expected {VERSIONS[0]}")
    for name in REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise InvalidInput(f"the event's {name} is {given(event.get(name))}; expected text that is not empty")


def _data(event: Any) -> bytes:
    if not isinstance(event, dict):
        raise InvalidInput(f"the event is {shown(event)}; expected an object")
    _check(event)
    if "data_base64" in event:
        try:
            return binascii.a2b_base64(event["data_base64"], strict_mode=True)
        except (TypeError, ValueError):  # binascii.Error among them
            raise InvalidInput("the event's data_base64 is not base64 text") from None
    if "data" not in event:
        raise InvalidInput("the event has no data")
    from core.encoding.exact_json import dumps_exact  # noqa: PLC0415 - for structured events

    return dumps_exact(event["data"])


def _attributes(model: str) -> dict[str, str]:
    from uuid import uuid4  # noqa: PLC0415 - 2 ms of cold start

    return {
        "specversion": VERSIONS[0],
        "id": str(uuid4()),
        "source": SOURCE + model,
        "type": TYPE,
        "time": datetime.now(UTC).isoformat(),
    }


def _binary(response: HttpResponse, model: str) -> HttpResponse:
    headers = [(b"ce-" + name.encode(), _header(value)) for name, value in _attributes(model).items()]
    return response._replace(headers=(*response.headers, *headers))


def _header(value: str) -> bytes:
    """Percent-encodes the characters that a header cannot hold (section 3.1.3.2)."""
    plain = "".join(c if "!" <= c <= "~" and c not in '"%' else "".join(f"%{b:02X}" for b in c.encode()) for c in value)
    return plain.encode()


def _structured(response: HttpResponse, model: str) -> HttpResponse:
    data = jsonio.verbatim(b"".join(response.parts))
    event = {**_attributes(model), "datacontenttype": "application/json", "data": data}
    return HttpResponse(response.status, ((b"content-type", STRUCTURED),), (jsonio.dumps(event),))
