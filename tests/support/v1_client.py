"""A client of V1 over HTTP that sends requests and parses answers without the product's code."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from tests.support.wire import Answer

MODELS: Final = "/v1/models"
LONG: Final = 20_000
"""A length beyond the one at which another reader of JSON takes over."""
NUMBER: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(-?(?:\d[-+.\deE]*|Infinity)|NaN)')
"""A JSON text's numbers, and its strings, which may look like numbers."""


class Asks(Protocol):
    """A connection, or the application in process."""

    def call(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer: ...


def text_of(document: Any) -> bytes:
    """Returns bytes unchanged, anything else as JSON, with NaN and infinities as bare tokens."""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def post(asks: Asks, target: str, document: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return asks.call("POST", f"{MODELS}/{target}", text_of(document), headers)


def get(asks: Asks, target: str, headers: Mapping[str, str] | None = None) -> Answer:
    return asks.call("GET", f"{MODELS}/{target}", headers=headers)


def predict(asks: Asks, model: str, document: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """Makes a prediction; `model` may have a version or a label behind it."""
    return post(asks, f"{model}:predict", document, headers)


def read(answer: Answer, status: int = 200) -> Any:
    """Returns the document of an answer with its status and type; NaN and infinities may stand in it bare."""
    assert answer.status == status, (answer.status, answer.content[:1000])
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.content.decode("utf-8"))


def rows(asks: Asks, model: str, instances: Any, **more: Any) -> Any:
    """Returns the predictions for rows."""
    document = read(predict(asks, model, {"instances": instances, **more}))
    assert list(document) == ["predictions"]
    return document["predictions"]


def columns(asks: Asks, model: str, inputs: Any, **more: Any) -> Any:
    """Returns the outputs for columns; those of a list may be named in KServe's way, too."""
    document = read(predict(asks, model, {"inputs": inputs, **more}))
    assert set(document) <= {"outputs", "predictions"}
    assert "predictions" not in document or isinstance(inputs, list)
    return document["outputs"]


def results(asks: Asks, target: str, signature: str, examples: Any, **more: Any) -> Any:
    """Returns the results of `model:classify` or `model:regress`."""
    document = read(post(asks, target, {"signature_name": signature, "examples": examples, **more}))
    assert list(document) == ["results"]
    return document["results"]


def numbers(answer: Answer) -> list[str]:
    """Returns the numbers of an answer as they are written."""
    return [match[1] for match in NUMBER.finditer(answer.content.decode()) if match[1]]


def statuses(document: Any) -> dict[str, str]:
    """Returns version -> state, in the order of the answer; every entry has all its members."""
    found = {}
    for entry in document["model_version_status"]:
        assert set(entry) == {"version", "state", "status"}
        assert set(entry["status"]) == {"error_code", "error_message"}
        assert entry["state"] in {"START", "LOADING", "AVAILABLE", "UNLOADING", "END"}
        found[entry["version"]] = entry["state"]
    return found


def alive(asks: Asks) -> None:
    """Assert that the server calculates."""
    assert rows(asks, "half_plus_two", [1.0, 2.0, 5.0]) == [2.5, 3.0, 4.5]
