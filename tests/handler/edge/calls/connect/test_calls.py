"""handler.edge.calls.connect: calls with one answer."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest

from core.dialects.connect import protocol
from core.dialects.connect.envelopes import Frame
from core.errors import ModelFailed
from core.operations import ModelRef
from core.schema import open_inference as oip
from handler.edge.calls import codec as codec_module
from handler.edge.calls import connect
from handler.edge.flight import NO_LIMIT
from handler.edge.idling import Idling
from handler.lifecycle.registry import Registry
from handler.lifecycle.usage import QUICK_RUNS
from tests.handler.edge.calls.connect.client import BODY, HALVES, ROOT, TEXT, call, streamed, untext
from tests.handler.edge.client import ask
from tests.support.asgi import spoken
from tests.support.connect_client import GRPS, HEALTH, JSON, OIP, PROTO, STREAM, WEB, envelope
from tests.support.remote import question, raw, tensors

if TYPE_CHECKING:
    from handler.edge.app import App


def test_connect_answers_one_bare_message(app: App) -> None:
    """The answer is the message, while the model is being loaded and when it is quick."""
    for _ in range(40):
        answer = call(app, "ModelInfer", PROTO, BODY)
        assert (answer.status, answer.headers["content-type"]) == (200, PROTO)
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES


@pytest.mark.parametrize(("version", "lacks"), [("1.1", "needs HTTP/2"), ("2", "needs trailers")])
def test_native_grpc_is_refused_with_what_its_server_lacks(app: App, version: str, lacks: str) -> None:
    """A server may speak HTTP/2 and know no trailers."""
    headers = [(b"content-type", b"application/grpc")]
    _, answer, _ = ask(app, "POST", f"/{OIP}/ServerLive", envelope(b""), headers=headers, http_version=version)
    assert (answer["grpc-status"], lacks in answer["grpc-message"]) == ("12", True)


def test_connect_answers_json_with_json(app: App) -> None:
    """Messages with and without tensors are answered in JSON."""
    asked = {"modelName": "half_plus_three", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]}
    asked["inputs"][0]["contents"] = {"fp32Contents": [1, 2.5]}  # type: ignore[index] # of a literal
    answer = call(app, "ModelInfer", JSON, json.dumps(asked).encode())
    assert json.loads(answer.body)["outputs"][0]["contents"] == {"fp32Contents": HALVES}
    assert json.loads(call(app, "ServerLive", JSON, b"{}").body) == {"live": True}


def test_a_safe_method_may_be_a_get(app: App) -> None:
    """An inference may be a GET, and a load may not."""
    text = base64.urlsafe_b64encode(BODY).decode().rstrip("=")
    answer = call(app, "ModelInfer", "", verb="GET", query=f"connect=v1&encoding=proto&base64=1&message={text}")
    assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES
    asked = quote('{"name": "half_plus_three"}')
    answer = call(app, "ModelMetadata", "", verb="GET", query=f"encoding=json&message={asked}")
    assert json.loads(answer.body)["versions"] == ["123"]
    assert call(app, "RepositoryModelLoad", "", verb="GET").status == 405


@pytest.mark.parametrize(("method", "query", "status"), [
    ("ServerLive", "encoding=json&message={}", 200),
    ("ServerLive", "encoding=xml&message=", 415),
    ("RepositoryModelLoad", "", 405),
    ("Nothing", "", 404),
])  # fmt: skip
def test_head_is_a_get_without_its_body(app: App, method: str, query: str, status: int) -> None:
    """The head says how long the body would be. A refusal has none either."""
    got, head = (call(app, method, "", verb=verb, query=query) for verb in ("GET", "HEAD"))
    assert (got.status, head.status, head.body) == (status, status, b"")
    assert head.headers["content-type"] == got.headers["content-type"] == JSON
    assert int(head.headers["content-length"]) - len(got.body) in {0, len("HEAD") - len("GET")}


@pytest.mark.parametrize("content_type", [WEB, TEXT, "application/grpc-web"])
def test_grpc_web_answers_an_envelope_and_trailers(app: App, content_type: str) -> None:
    """The answer is in base64 where the request was."""
    body = envelope(BODY)
    answer = call(app, "ModelInfer", content_type, base64.b64encode(body) if content_type == TEXT else body)
    assert answer.status == 200
    plain = answer._replace(body=untext(answer.body)) if content_type == TEXT else answer
    message = oip.ModelInferResponse.FromString(plain.envelopes[0][1])
    assert tensors(message)["y"].tolist() == HALVES
    assert plain.trailers == {"grpc-status": "0"}


@pytest.mark.parametrize("content_type", [WEB, "application/grpc-web"])
def test_a_request_in_bytes_may_accept_an_answer_in_text(app: App, content_type: str) -> None:
    """A browser that sends bytes may be unable to read them: the type of the body decides how it is read."""
    answer = call(app, "ModelInfer", content_type, envelope(BODY), accept="application/grpc-web-text")
    assert answer.headers["content-type"].startswith("application/grpc-web-text")
    plain = answer._replace(body=untext(answer.body))
    assert tensors(oip.ModelInferResponse.FromString(plain.envelopes[0][1]))["y"].tolist() == HALVES


def test_both_protocols_are_compressed_both_ways(app: App) -> None:
    """Messages and envelopes are inflated, and large answers are compressed."""
    zeros = np.zeros(5000, np.float32)
    message = question("half_plus_three", raw("x", "FP32", zeros)).SerializeToString()
    packed = gzip.compress(message)
    answer = call(app, "ModelInfer", PROTO, packed, content_encoding="gzip", accept_encoding="gzip, br")
    assert answer.headers["content-encoding"] == "gzip"
    found = tensors(oip.ModelInferResponse.FromString(gzip.decompress(answer.body)))
    assert found["y"].tolist() == [3.0] * 5000
    answer = call(app, "ModelInfer", WEB, envelope(packed, flags=1), grpc_encoding="gzip")
    assert answer.headers["grpc-encoding"] == "gzip"
    flags, content = answer.envelopes[0]
    assert flags == 1
    assert gzip.decompress(content) == oip.ModelInferResponse.FromString(gzip.decompress(content)).SerializeToString()
    coded = {"connect_content_encoding": "gzip", "connect_accept_encoding": "gzip"}
    answer = call(app, "ModelStreamInfer", STREAM, envelope(packed, flags=1), **coded)
    assert answer.envelopes[0][0] == 1
    assert answer.end == {}


def test_a_compressed_message_proves_its_model_quick_for_plain_ones(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that counts is that of the inflated message."""
    monkeypatch.setattr("handler.lifecycle.usage.QUICK_NS", 10**12)
    message = question("half_plus_three", raw("x", "FP32", np.zeros(5000, np.float32))).SerializeToString()
    for _ in range(QUICK_RUNS):
        assert call(app, "ModelInfer", PROTO, gzip.compress(message), content_encoding="gzip").status == 200
    assert app.registry.is_quick(ModelRef("half_plus_three"), len(message))


def test_a_refusal_has_the_form_of_its_protocol(app: App) -> None:
    """Connect has a status of HTTP, and gRPC-Web has trailers."""
    told = "the 1 bytes of the request are not a ModelInferRequest"
    assert call(app, "ModelInfer", PROTO, b"\x0a").error == (400, "invalid_argument", told)
    answer = call(app, "ModelInfer", WEB, envelope(b"\x0a"))
    assert (answer.status, answer.trailers) == (200, {"grpc-status": "3", "grpc-message": told})
    answer = call(app, "PredictStreaming", STREAM, b"\0", GRPS)
    assert answer.end["error"]["code"] == "invalid_argument"
    assert call(app, "Nothing", PROTO).error[:2] == (404, "unimplemented")
    told = "shared memory is not offered: this server shares none with its clients; send tensors in requests"
    assert call(app, "SystemSharedMemoryStatus", PROTO).error == (404, "unimplemented", told)
    assert call(app, "Nothing", "text/plain", service="no.Service").error[:2] == (404, "unimplemented")
    assert call(app, "ModelInfer", "text/plain").error[:2] == (415, "unknown")
    assert call(app, "ModelInfer", PROTO, verb="PUT").error[:2] == (405, "unknown")


@pytest.mark.parametrize("body", [b"", envelope(BODY, BODY)], ids=["none", "two"])
def test_one_message_is_neither_none_nor_two(app: App, body: bytes) -> None:
    """A method with one request refuses a body of none or of two messages."""
    assert call(app, "ModelInfer", WEB, body).trailers["grpc-status"] == "12"
    assert call(app, "PredictStreaming", STREAM, body, GRPS).end["error"]["code"] == "unimplemented"
    assert call(app, "Watch", WEB, body, HEALTH).trailers["grpc-status"] == "12"


def test_an_answer_in_place_of_an_error_is_an_answer(app: App) -> None:
    """A method's own answer to an error has status 200, as over gRPC."""
    body = oip.ModelReadyRequest(name="nobody").SerializeToString()
    answer = call(app, "ModelReady", PROTO, body)
    assert (answer.status, answer.body) == (200, b"")
    answer = call(app, "Predict", JSON, b'{"model": "nobody"}', GRPS)
    assert (answer.status, json.loads(answer.body)["status"]["status"]) == (200, "FAILURE")


def test_native_grpc_is_refused_in_its_own_form(app: App) -> None:
    """The refusal has a grpc-status that its clients understand."""
    answer = call(app, "ModelInfer", "application/grpc+proto", envelope(BODY))
    assert (answer.status, answer.headers["grpc-status"], answer.body) == (200, "12", b"")


def test_an_unforeseen_error_is_logged_and_answered_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A TimeoutError of the model is an internal error and not the client's deadline."""
    told = "internal error: the server's log has the details"
    for error in (ZeroDivisionError("a secret"), TimeoutError("a secret")):

        def fail(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(Registry, "use", fail)
        assert call(app, "ModelInfer", PROTO, BODY, connect_timeout_ms="60000").error == (500, "internal", told)
        (answer,) = streamed(call(app, "ModelStreamInfer", STREAM, envelope(BODY)))
        assert (answer.error_message, answer.infer_response.id) == (told, "1")
    assert "a secret" in caplog.text


def test_a_client_that_leaves_before_its_body_gets_nothing(app: App) -> None:
    """The application sends no message."""
    headers = [(b"content-type", PROTO.encode())]
    scope = {"type": "http", "method": "POST", "path": f"/{OIP}/ModelInfer", "query_string": b"", "headers": headers}
    assert asyncio.run(spoken(app, scope, leaves=True)) == []


def test_an_error_before_a_compressed_message_was_read_stays_an_error() -> None:
    """No answer takes its place."""
    asked = protocol.Question(
        connect.Calls.methods[f"/{OIP}/ModelInfer"],
        protocol.KINDS[PROTO.encode()],
        None,
        None,
        coding=b"gzip",
        deflates=False,
    )
    codec = codec_module.EnvelopeCodec(
        asked, Frame(gzip.compress(BODY), b"gzip"), codec_module.CallOptions(10**6, 1024, NO_LIMIT, 1, Idling(1))
    )
    assert codec.instead(ModelFailed("early")) is None


def test_a_load_is_answered_when_it_is_done(app: App) -> None:
    """The model is ready when the call returns."""
    body = oip.RepositoryModelLoadRequest(model_name="half_plus_three").SerializeToString()
    assert call(app, "RepositoryModelLoad", PROTO, body).status == 200
    ready = call(app, "ModelReady", JSON, b'{"name": "half_plus_three"}')
    assert json.loads(ready.body) == {"ready": True}


def test_grpc_is_not_imported_for_it() -> None:
    """A call imports protobuf, but neither grpc nor a client of Connect."""
    script = """
import asyncio, sys
from handler import asgi
sent = []
async def receive(): return {"type": "http.request", "body": b""}
async def send(message): sent.append(message)
headers = [(b"content-type", b"application/proto")]
scope = {"type": "http", "method": "POST", "path": "/inference.GRPCInferenceService/ServerLive", "headers": headers}
assert "handler.edge.calls.connect" not in sys.modules and "google.protobuf" not in sys.modules
asyncio.run(asgi.app(scope, receive, send))
assert sent[1]["body"] == b"\\x08\\x01", sent
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "connectrpc") or name.endswith("json_format")])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
