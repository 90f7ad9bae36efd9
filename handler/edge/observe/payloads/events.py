"""KServe's CloudEvents of an inference (pkg/logger), in the two forms that CloudEvents 1.0 has for them.

Over HTTP the attributes are headers, and the payload is the body (binary content mode). In files an event is a line of
JSON (structured content mode): a payload of JSON is included unchanged, any other one in base64.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import orjson

from core.encoding import jsonio
from core.encoding.proto_json import from_bytes
from core.records import NamedTuple
from core.wire import Part

REQUEST: Final = "org.kubeflow.serving.inference.request"
RESPONSE: Final = "org.kubeflow.serving.inference.response"
JSON: Final = "application/json"
IN_HEADERS: Final = "".join(map(chr, range(0x21, 0x7F))).translate({ord(each): None for each in '"%'})
"""The characters that a header holds unescaped ("HTTP Protocol Binding for CloudEvents" 3.1.3.2)."""
SEEN: Final = 256
"""The most characters of an attribute that a client has made up."""


class CloudEvent(NamedTuple):
    """`attributes`: CloudEvents', without those that are empty. `kind`, `encoding`: the payload's, "" if not known."""

    attributes: Mapping[str, str]
    kind: str
    encoding: str
    payload: Part

    @property
    def size(self) -> int:
        return len(self.payload)

    def headers(self) -> dict[str, str]:
        """Returns the headers of the event in binary content mode."""
        found = {f"ce-{name}": quote(value, safe=IN_HEADERS) for name, value in self.attributes.items()}
        found["content-type"] = quote(self.kind or "application/octet-stream", safe=IN_HEADERS + " ")
        if self.encoding:
            found["content-encoding"] = quote(self.encoding, safe=IN_HEADERS)
        return found

    def line(self) -> bytes:
        """Returns the event in structured content mode, without a line end."""
        found: dict[str, Any] = dict(self.attributes)
        if self.kind:
            found["datacontenttype"] = self.kind
        if self.encoding:
            found["contentencoding"] = self.encoding
        return jsonio.dumps(found | self._data())

    def _data(self) -> dict[str, Any]:
        payload = bytes(self.payload)
        if not self.encoding and self.kind.partition(";")[0].strip() in (JSON, ""):
            try:
                orjson.loads(payload)
            except orjson.JSONDecodeError:
                pass
            else:  # a line end is a blank in JSON
                return {"data": jsonio.verbatim(payload.replace(b"\n", b" ").replace(b"\r", b" "))}
        return {"data_base64": from_bytes(payload)}


def stamp(ns: int) -> str:
    """Returns nanoseconds since the epoch as RFC 3339 has them.

    >>> stamp(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    return (
        datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ns // 1000 % 10**6:06d}Z"
    )
