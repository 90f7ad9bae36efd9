"""handler.edge.calls.connect through the Lambda function."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.schema import open_inference as oip
from handler.aws import Function
from tests.handler.calling import context
from tests.handler.edge.calls.connect.client import BODY, HALVES, TEXT, Answer, X, settings, untext
from tests.support.connect_client import HEALTH, JSON, OIP, PROTO, SECONDS, STREAM, STREAM_JSON, WEB, envelope, split
from tests.support.remote import question, raw, tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def function(repository: Path) -> Iterator[Callable[..., Any]]:
    """The Lambda function behind a REST API that treats every type as binary; it returns status, headers and body."""
    made = Function(settings(repository, AWS_LAMBDA_FUNCTION_NAME="dragoman"))

    def ask(path: str, content_type: str, body: bytes | None = None, of: Any = None, **more: Any) -> Answer:
        event = {
            "resource": "/{proxy+}",
            "path": path,
            "httpMethod": "GET" if body is None else "POST",
            "headers": {"content-type": content_type, **more.pop("headers", {})},
            "requestContext": {"stage": "Prod", "path": f"/Prod{path}"},
            "body": None if body is None else base64.b64encode(body).decode(),
            "isBase64Encoded": body is not None,
            **more,
        }
        answer = made(event, of)
        encoded = answer["isBase64Encoded"]
        content = base64.b64decode(answer["body"]) if encoded else answer["body"].encode()
        return Answer(answer["statusCode"], answer["headers"], content, [b"base64" if encoded else b"text"])

    yield ask
    made.close()


@pytest.mark.parametrize(
    ("method", "content_type", "form"),
    [
        ("ModelInfer", PROTO, b"base64"),
        ("ModelInfer", JSON, b"text"),
        ("ModelInfer", WEB, b"base64"),
        ("ModelInfer", TEXT, b"text"),
        ("ModelStreamInfer", STREAM, b"base64"),
        ("ModelStreamInfer", STREAM_JSON, b"base64"),
        ("ModelStreamInfer", WEB, b"base64"),
        ("ModelStreamInfer", TEXT, b"text"),
    ],
)
def test_every_content_type_comes_through_the_function(
    function: Callable[..., Answer], method: str, content_type: str, form: bytes
) -> None:
    """Text is answered as text, which does not need a gateway that supports bytes, and everything else in base64."""
    asked = {"modelName": "half_plus_three", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]}
    asked["rawInputContents"] = [base64.b64encode(X.tobytes()).decode()]
    message = json.dumps(asked).encode() if "json" in content_type else BODY
    body = message if content_type in (PROTO, JSON) else envelope(message)
    answer = function(f"/{OIP}/{method}", content_type, base64.b64encode(body) if content_type == TEXT else body)
    assert (answer.status, answer.parts) == (200, [form])
    content = answer.body
    if content_type == TEXT:
        content = untext(content)
    first = content if content_type in (PROTO, JSON) else split(content)[0][1]
    if "json" in content_type:
        document = json.loads(first)
        (found,) = document.get("inferResponse", document)["rawOutputContents"]
        assert np.frombuffer(base64.b64decode(found), np.float32).tolist() == HALVES
        return
    kind = oip.ModelInferResponse if method == "ModelInfer" else oip.ModelStreamInferResponse
    read = kind.FromString(first)
    assert tensors(getattr(read, "infer_response", read))["y"].tolist() == HALVES


def test_a_get_comes_through_the_function(function: Callable[..., Answer]) -> None:
    """The gateway passes the query on decoded."""
    text = base64.b64encode(BODY).decode()
    query = {"connect": ["v1"], "encoding": ["proto"], "base64": ["1"], "message": [text]}
    answer = function(f"/{OIP}/ModelInfer", "", multiValueQueryStringParameters=query)
    assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES


@pytest.mark.parametrize("content_type", [JSON, PROTO, WEB, TEXT])
def test_an_answer_that_a_function_cannot_carry_is_refused_in_the_clients_own_form(
    function: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    """The refusal names the limit instead of an answer at which Lambda's runtime would end the instance."""
    monkeypatch.setattr("handler.edge.function.answers.LARGEST_RESPONSE", 10)
    body = BODY if content_type in (PROTO, JSON) else envelope(BODY)
    answer = function(f"/{OIP}/ModelInfer", content_type, base64.b64encode(body) if content_type == TEXT else body)
    if content_type in (PROTO, JSON):
        assert (answer.status, json.loads(answer.body)["code"]) == (429, "resource_exhausted")
        return
    trailers = split(untext(answer.body) if content_type == TEXT else answer.body)[-1][1]
    assert answer.status == 200
    assert b"grpc-status: 8" in trailers
    assert b"10 are possible" in trailers


def test_a_clients_deadline_does_not_put_a_load_off(
    function: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the end of the function's time cuts a load off."""
    monkeypatch.setattr("handler.lifecycle.attempts.SETUP_SECONDS", 2 * SECONDS)
    headers = {"connect-timeout-ms": str(SECONDS * 1000)}
    answer = function(f"/{OIP}/ModelInfer", PROTO, BODY, context(9 * SECONDS), headers=headers)
    assert answer.status == 200


def test_a_function_answers_a_watch_once(function: Callable[..., Answer]) -> None:
    """A function ends the watch after the first state, because its answer is sent at its end."""
    answer = function(f"/{HEALTH}/Watch", STREAM_JSON, envelope(b"{}"))
    assert [message for _, message in answer.envelopes] == [b'{"status": "SERVING"}', b"{}"]


def test_a_function_compresses_what_its_gateway_cannot(function: Callable[..., Answer]) -> None:
    """Answers are compressed from a size near the function's limit on."""
    for size, flags in ((1000, 0), (300_000, 1)):
        message = question("half_plus_three", raw("x", "FP32", np.zeros(size, np.float32))).SerializeToString()
        packed = envelope(gzip.compress(message), flags=1)
        headers = {"connect-content-encoding": "gzip"}
        answer = function(f"/{OIP}/ModelStreamInfer", STREAM, packed, headers=headers)
        assert answer.envelopes[0][0] == flags
        assert answer.end == {}
