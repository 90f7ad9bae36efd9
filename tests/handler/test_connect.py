"""handler.edge.connect: Connect and gRPC-Web on the application in this process, and through the Lambda function."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import json
import struct
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

from core.schema import grps, health
from core.schema import open_inference as oip
from handler.aws import Function
from handler.edge import connect
from handler.edge.app import App
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.support.remote import question, raw, tensors, typed
from tests.support.zoo.python import LOADS_LATE, PYTHON_MODELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ROOT = Path(__file__).parents[2]
OIP, GRPS, HEALTH = "inference.GRPCInferenceService", "grps.protos.v1.GrpsService", "grpc.health.v1.Health"
PROTO, JSON, STREAM, STREAM_JSON, WEB, TEXT = (
    "application/proto",
    "application/json",
    "application/connect+proto",
    "application/connect+json",
    "application/grpc-web+proto",
    "application/grpc-web-text",
)
X = np.array([1, 2.5], np.float32)
MESSAGE = question("half_plus_three", raw("x", "FP32", X), id="1")
BODY = MESSAGE.SerializeToString()
HALVES = [3.5, 4.25]
ENDLESS = '''
"""Counts for as long as somebody listens, and notes when nobody does."""
import pathlib
import numpy as np

metadata = {"inputs": [], "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    number = 0
    try:
        while True:
            yield {"y": np.array([number])}
            number += 1
    finally:
        pathlib.Path(__file__).with_name("left").touch()
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The sample models and python models that give many answers, that fail, and that are not loaded yet."""
    for folder in (ROOT / "models").iterdir():
        if folder.is_dir():
            (tmp_path / folder.name).symlink_to(folder)
    models = {"yields": PYTHON_MODELS["yields"], "late": LOADS_LATE, "endless": ENDLESS}
    for name, source in models.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(source)
    return tmp_path


def settings(repository: Path, **more: str) -> Settings:
    """Of a server that may run code."""
    own = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_ALLOW_CODE": "true"}
    return Settings.from_env(own | {name: value for name, value in more.items() if value})


@pytest.fixture
def app(repository: Path) -> Iterator[App]:
    """With threads."""
    made = App(settings(repository))
    yield made
    made.close()


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    parts: list[bytes]

    @property
    def envelopes(self) -> list[tuple[int, bytes]]:
        """Flags and message of each."""
        return split(self.body)

    @property
    def end(self) -> dict[str, Any]:
        """What a Connect stream ends with."""
        (flags, last) = self.envelopes[-1]
        assert flags == 2
        found: dict[str, Any] = json.loads(last)
        return found

    @property
    def trailers(self) -> dict[str, str]:
        """What gRPC-Web ends with."""
        (flags, last) = self.envelopes[-1]
        assert flags == 128
        return dict(line.split(": ", 1) for line in last.decode().splitlines())

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code and text of a refusal by Connect."""
        assert self.headers["content-type"] == JSON
        found = json.loads(self.body)
        return self.status, found["code"], found["message"]


def split(body: bytes) -> list[tuple[int, bytes]]:
    """Envelopes, the last of which ends with the body."""
    found = []
    while body:
        flags, size = struct.unpack_from(">BI", body)
        found.append((flags, body[5 : 5 + size]))
        assert len(found[-1][1]) == size
        body = body[5 + size :]
    return found


def envelope(*messages: bytes, flags: int = 0) -> bytes:
    """All in a row."""
    return b"".join(struct.pack(">BI", flags, len(message)) + message for message in messages)


def untext(body: bytes) -> bytes:
    """Base64 in pieces with padding of their own."""
    pieces = [piece for piece in body.split(b"=") if piece]
    return b"".join(base64.b64decode(piece + b"=" * (-len(piece) % 4)) for piece in pieces)


async def exchange(
    app: Any,
    path: str,
    content_type: str,
    body: bytes = b"",
    *,
    verb: str = "POST",
    query: str = "",
    stays: Callable[[list[Any]], Awaitable[None]] | None = None,
    **headers: str,
) -> Answer:
    """One call. `stays`: waits, with what has been sent so far at hand, until the client goes; else it stays."""
    given = {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    inbox = [{"type": "http.request", "body": body[:7], "more_body": True}, {"type": "http.request", "body": body[7:]}]
    sent: list[Any] = []

    async def receive() -> Any:
        if inbox:
            return inbox.pop(0)
        await (asyncio.Event().wait() if stays is None else stays(sent))
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": verb,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }
    await app(scope, receive, send)
    start, *parts = sent
    content = [part["body"] for part in parts]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(content), content)


def call(app: Any, method: str, content_type: str, body: bytes = b"", service: str = OIP, **more: Any) -> Answer:
    """One call from beginning to end."""
    return asyncio.run(asyncio.wait_for(exchange(app, f"/{service}/{method}", content_type, body, **more), 60))


def counting(number: int, **parameters: Any) -> bytes:
    """A request to the model that gives many answers."""
    told = {name: oip.InferParameter(**value) for name, value in parameters.items()}
    return question("yields", raw("n", "INT64", np.array([number])), id="9", parameters=told).SerializeToString()


def streamed(answer: Answer) -> list[oip.ModelStreamInferResponse]:
    """The answers of ModelStreamInfer, without the end."""
    return [oip.ModelStreamInferResponse.FromString(message) for _, message in answer.envelopes[:-1]]


def test_connect_answers_one_bare_message(app: App) -> None:
    """While its model is being loaded, and then loaded and quick."""
    for _ in range(40):
        answer = call(app, "ModelInfer", PROTO, BODY)
        assert (answer.status, answer.headers["content-type"]) == (200, PROTO)
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES


def test_connect_answers_json_with_json(app: App) -> None:
    """Typed tensors, and messages without any."""
    asked = {"modelName": "half_plus_three", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]}
    asked["inputs"][0]["contents"] = {"fp32Contents": [1, 2.5]}  # type: ignore[index] # of a literal
    answer = call(app, "ModelInfer", JSON, json.dumps(asked).encode())
    assert json.loads(answer.body)["outputs"][0]["contents"] == {"fp32Contents": HALVES}
    assert json.loads(call(app, "ServerLive", JSON, b"{}").body) == {"live": True}


def test_a_safe_method_may_be_a_get(app: App) -> None:
    """An inference, too."""
    text = base64.urlsafe_b64encode(BODY).decode().rstrip("=")
    answer = call(app, "ModelInfer", "", verb="GET", query=f"connect=v1&encoding=proto&base64=1&message={text}")
    assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES
    asked = quote('{"name": "half_plus_three"}')
    answer = call(app, "ModelMetadata", "", verb="GET", query=f"encoding=json&message={asked}")
    assert json.loads(answer.body)["versions"] == ["123"]
    assert call(app, "RepositoryModelLoad", "", verb="GET").status == 405


@pytest.mark.parametrize("content_type", [WEB, TEXT, "application/grpc-web"])
def test_grpc_web_answers_an_envelope_and_trailers(app: App, content_type: str) -> None:
    """In base64 where that was asked for."""
    body = envelope(BODY)
    answer = call(app, "ModelInfer", content_type, base64.b64encode(body) if content_type == TEXT else body)
    assert answer.status == 200
    plain = answer._replace(body=untext(answer.body)) if content_type == TEXT else answer
    message = oip.ModelInferResponse.FromString(plain.envelopes[0][1])
    assert tensors(message)["y"].tolist() == HALVES
    assert plain.trailers == {"grpc-status": "0"}


def test_both_protocols_are_compressed_both_ways(app: App) -> None:
    """From a size on."""
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


def test_a_refusal_has_the_form_of_its_protocol(app: App) -> None:
    """Code and text, with a status for Connect alone."""
    told = "the 1 bytes of the request are not a ModelInferRequest"
    assert call(app, "ModelInfer", PROTO, b"\x0a").error == (400, "invalid_argument", told)
    answer = call(app, "ModelInfer", WEB, envelope(b"\x0a"))
    assert (answer.status, answer.trailers) == (200, {"grpc-status": "3", "grpc-message": told})
    answer = call(app, "PredictStreaming", STREAM, b"\0", GRPS)
    assert answer.end["error"]["code"] == "invalid_argument"
    assert call(app, "Nothing", PROTO).error[:2] == (404, "unimplemented")
    assert call(app, "Nothing", "text/plain", service="no.Service").error[:2] == (404, "unimplemented")
    assert call(app, "ModelInfer", "text/plain").error[:2] == (415, "unknown")
    assert call(app, "ModelInfer", PROTO, verb="PUT").error[:2] == (405, "unknown")


@pytest.mark.parametrize("body", [b"", envelope(BODY, BODY)], ids=["none", "two"])
def test_one_message_is_neither_none_nor_two(app: App, body: bytes) -> None:
    """Of a stream as of a method with one answer."""
    assert call(app, "ModelInfer", WEB, body).trailers["grpc-status"] == "12"
    assert call(app, "PredictStreaming", STREAM, body, GRPS).end["error"]["code"] == "unimplemented"
    assert call(app, "Watch", WEB, body, HEALTH).trailers["grpc-status"] == "12"


def test_an_answer_in_place_of_an_error_is_an_answer(app: App) -> None:
    """As the method has it over gRPC."""
    body = oip.ModelReadyRequest(name="nobody").SerializeToString()
    answer = call(app, "ModelReady", PROTO, body)
    assert (answer.status, answer.body) == (200, b"")
    answer = call(app, "Predict", JSON, b'{"model": "nobody"}', GRPS)
    assert (answer.status, json.loads(answer.body)["status"]["status"]) == (200, "FAILURE")


def test_native_grpc_is_told_where_to_go(app: App) -> None:
    """With a status that its clients understand."""
    answer = call(app, "ModelInfer", "application/grpc+proto", envelope(BODY))
    assert (answer.status, answer.headers["grpc-status"], answer.body) == (200, "12", b"")


def test_what_nobody_expected_is_logged_and_told_without_its_words(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A TimeoutError that is not the client's deadline as well."""
    told = "internal error: the server's log has the details"
    for error in (ZeroDivisionError("a secret"), TimeoutError("a secret")):

        def fail(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(Registry, "use", fail)
        assert call(app, "ModelInfer", PROTO, BODY, connect_timeout_ms="60000").error == (500, "internal", told)
        (answer,) = streamed(call(app, "ModelStreamInfer", STREAM, envelope(BODY)))
        assert (answer.error_message, answer.infer_response.id) == (told, "1")
    assert "a secret" in caplog.text


class Content(bytearray):
    """Bytes whose end shows."""


@pytest.mark.parametrize("content_type", [PROTO, WEB, STREAM])
def test_a_refused_body_is_let_go_at_once(app: App, content_type: str) -> None:
    """And not when the cyclic collector happens to run: many are large."""
    content = Content(b"\0\0\0\0\3abc")
    bodies, body = [memoryview(content)], weakref.ref(content)
    del content
    path, refused = (GRPS, "PredictStreaming") if content_type == STREAM else (OIP, "ModelInfer")
    stays, sent = asyncio.Event(), []

    async def receive() -> Any:
        if not bodies:
            await stays.wait()
        return {"type": "http.request", "body": bodies.pop()}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        headers = [(b"content-type", content_type.encode())]
        await app({"type": "http", "method": "POST", "path": f"/{path}/{refused}", "headers": headers}, receive, send)
        await asyncio.wait_for(until(lambda: body() is None), 30)

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
    assert sent


def test_reading_text_is_work_that_is_bounded(repository: Path) -> None:
    """As inference is: a large one waits for a thread, or is turned away."""
    app = App(settings(repository, DRAGOMAN_THREADS="1", DRAGOMAN_QUEUE="1"))
    hold = threading.Event()
    text = base64.b64encode(envelope(b"\x7a\xff\xff\x7f" + bytes(2**21 - 1)))

    async def main() -> tuple[Answer, Answer]:
        workers: Any = app._workers
        busy = asyncio.gather(workers.run(hold.wait), workers.run(hold.wait))
        await asyncio.sleep(0)
        turned_away = await exchange(app, f"/{OIP}/ServerLive", TEXT, text)
        hold.set()
        await busy
        return turned_away, await exchange(app, f"/{OIP}/ServerLive", TEXT, text)

    turned_away, answered = asyncio.run(asyncio.wait_for(main(), 60))
    assert turned_away._replace(body=untext(turned_away.body)).trailers["grpc-status"] == "14"
    assert answered._replace(body=untext(answered.body)).trailers == {"grpc-status": "0"}
    app.close()


@pytest.mark.parametrize("content_type", [STREAM, WEB])
def test_a_stream_has_every_answer_in_its_order(app: App, content_type: str) -> None:
    """Of a model that gives many, to each of several requests."""
    answer = call(app, "ModelStreamInfer", content_type, envelope(counting(3), BODY, counting(2)))
    found = [tensors(message.infer_response)["y"].tolist() for message in streamed(answer)]
    assert found == [[0], [1], [2], HALVES, [0], [1]]
    assert len(answer.parts) == len(found) + 1
    assert "content-length" not in answer.headers


def test_a_stream_of_json_is_answered_with_json(app: App) -> None:
    """Envelopes hold either."""
    asked = {"modelName": "yields", "inputs": [{"name": "n", "datatype": "INT64", "shape": ["1"]}]}
    asked["inputs"][0]["contents"] = {"int64Contents": ["2"]}  # type: ignore[index] # of a literal
    answer = call(app, "ModelStreamInfer", STREAM_JSON, envelope(json.dumps(asked).encode()))
    found = [json.loads(message)["inferResponse"]["outputs"][0]["contents"] for _, message in answer.envelopes[:-1]]
    assert found == [{"int64Contents": ["0"]}, {"int64Contents": ["1"]}]


def test_a_refusal_in_a_stream_of_json_has_the_requests_id(app: App) -> None:
    """However far the request came."""
    tensor = {"name": "x", "datatype": "FP32", "shape": ["1"]}
    asked = [
        {"modelName": "nobody", "id": "1"},
        {"modelName": "half_plus_three", "id": "2", "inputs": [{**tensor, "contents": {"fp32Contents": [1, 2]}}]},
        {"modelName": "half_plus_three", "id": "3", "inputs": [tensor], "rawInputContents": ["!"]},
    ]
    answer = call(app, "ModelStreamInfer", STREAM_JSON, envelope(*(json.dumps(each).encode() for each in asked)))
    found = [json.loads(message) for _, message in answer.envelopes[:-1]]
    assert [each["inferResponse"] for each in found] == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    assert all(each["errorMessage"] for each in found)


def test_a_model_that_fails_amid_a_stream_ends_its_answers_and_not_the_exchange(app: App) -> None:
    """The protocol's own answer tells it."""
    body = envelope(counting(2, fail={"bool_param": True}), b"\x0a", BODY)
    answer = call(app, "ModelStreamInfer", STREAM, body)
    first, second, failed, unread, last = streamed(answer)
    assert [tensors(one.infer_response)["y"].tolist() for one in (first, second)] == [[0], [1]]
    assert "no more" in failed.error_message
    assert failed.infer_response.id == "9"
    assert "not a ModelInferRequest" in unread.error_message
    assert tensors(last.infer_response)["y"].tolist() == HALVES
    assert answer.end == {}


def test_a_stream_that_is_cut_ends_after_what_came_whole(app: App) -> None:
    """With an error."""
    answer = call(app, "ModelStreamInfer", STREAM, envelope(BODY, BODY)[:-1])
    assert len(streamed(answer)) == 1
    assert answer.end["error"]["code"] == "invalid_argument"


def test_an_error_that_has_no_answer_ends_the_stream(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in its end."""
    method = connect.METHODS["/inference.GRPCInferenceService/ModelStreamInfer"]
    plain = method._replace(rpc=method.rpc._replace(instead=None))
    monkeypatch.setitem(connect.METHODS, "/inference.GRPCInferenceService/ModelStreamInfer", plain)
    answer = call(app, "ModelStreamInfer", STREAM, envelope(counting(1, fail={"bool_param": True}), BODY))
    assert len(streamed(answer)) == 1
    assert answer.end["error"]["code"] == "internal"
    assert "no more" in answer.end["error"]["message"]


def test_grps_streams_too(app: App) -> None:
    """One message for each answer."""
    tensor = grps.GenericTensor(name="n", dtype="DT_INT64", shape=[1], flat_int64=[3])
    message = grps.GrpsMessage(model="yields", gtensors=grps.GenericTensorData(tensors=[tensor]))
    answer = call(app, "PredictStreaming", STREAM, envelope(message.SerializeToString()), GRPS)
    found = [grps.GrpsMessage.FromString(content) for _, content in answer.envelopes[:-1]]
    assert [list(one.gtensors.tensors[0].flat_int64) for one in found] == [[0], [1], [2]]


def test_what_is_too_large_is_refused_in_every_form(repository: Path) -> None:
    """Announced, sent, inflated, and announced by an envelope."""
    app = App(settings(repository, DRAGOMAN_MAX_BODY_BYTES="100"))
    big = gzip.compress(bytes(1000))
    for answer in (
        call(app, "ModelInfer", PROTO, bytes(101)),
        call(app, "ModelInfer", PROTO, b"", content_length="101"),
        call(app, "ModelInfer", PROTO, big, content_encoding="gzip"),
    ):
        assert answer.error[:2] == (429, "resource_exhausted")
    for body, more in ((bytes(101), {}), (envelope(big, flags=1), {"grpc_encoding": "gzip"}), (b"\0\0\0\0\x65", {})):
        assert call(app, "ModelInfer", WEB, body, **more).trailers["grpc-status"] == "8"
    answer = call(app, "ModelStreamInfer", STREAM, b"\0\0\0\0\x65")
    assert answer.end["error"]["code"] == "resource_exhausted"
    app.close()


def test_text_that_is_no_base64_is_refused(app: App) -> None:
    """As text."""
    answer = call(app, "ModelInfer", TEXT, b"!")
    assert answer._replace(body=base64.b64decode(answer.body)).trailers["grpc-status"] == "3"


@pytest.mark.parametrize("content_type", [PROTO, WEB])
def test_a_deadline_is_kept_while_a_model_is_being_loaded(app: App, repository: Path, content_type: str) -> None:
    """The answer comes before it, as unavailable; the load goes on, and who comes later finds the model."""
    body = question("late", typed("x", "INT32", np.array([1], np.int32))).SerializeToString()
    if content_type == PROTO:
        answer = call(app, "ModelInfer", PROTO, body, connect_timeout_ms="1000")
        status, code, text = answer.error
        assert (status, code) == (503, "unavailable")
    else:
        answer = call(app, "ModelInfer", WEB, envelope(body), grpc_timeout="1S")
        assert answer.trailers["grpc-status"] == "14"
        text = answer.trailers["grpc-message"]
    assert "model 'late' has been loading" in text
    (repository / "late" / "1" / "gate").touch()
    answer = call(app, "ModelInfer", PROTO, body, connect_timeout_ms="60000")
    assert list(oip.ModelInferResponse.FromString(answer.body).outputs[0].contents.int_contents) == [1]
    assert (repository / "late" / "1" / "loads").read_text() == "x"


def test_a_deadline_ends_a_stream_and_its_model(app: App, repository: Path) -> None:
    """What was told before stands."""
    body = envelope(question("endless").SerializeToString())
    answer = call(app, "ModelStreamInfer", STREAM, body, connect_timeout_ms="300")
    assert answer.end["error"] == {"code": "deadline_exceeded", "message": "no answer within 300 ms"}
    until_left(repository)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    while not condition():  # noqa: ASYNC110 - a file or a list has no event
        await asyncio.sleep(0.005)


def until_left(repository: Path) -> None:
    """Wait until the endless model has noticed that nobody listens."""
    asyncio.run(asyncio.wait_for(until((repository / "endless" / "1" / "left").exists), 30))


def test_a_client_that_goes_stops_its_model(app: App, repository: Path) -> None:
    """Nobody counts for nobody."""

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 5)

    answer = call(app, "ModelStreamInfer", STREAM, envelope(question("endless").SerializeToString()), stays=stays)
    assert len(answer.parts) >= 4
    until_left(repository)


def test_a_client_that_goes_before_it_has_asked_is_told_nothing(app: App) -> None:
    """There is nobody to tell."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", PROTO.encode())]
    scope = {"type": "http", "method": "POST", "path": f"/{OIP}/ModelInfer", "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert sent == []


def test_who_watches_is_told_of_every_change_until_it_goes(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said twice."""
    monkeypatch.setattr(connect, "WATCH_SECONDS", 0.01)
    body = envelope(health.HealthCheckRequest(service="half_plus_three").SerializeToString())

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 2)
        await exchange(app, f"/{OIP}/ModelInfer", PROTO, BODY)
        await until(lambda: len(sent) >= 3)

    answer = call(app, "Watch", STREAM, body, HEALTH, stays=stays)
    found = [health.HealthCheckResponse.FromString(message).status for _, message in answer.envelopes]
    assert found == [2, 1]


def test_who_watches_what_is_not_there_is_told_so(app: App) -> None:
    """And the stream goes on."""

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 2)

    body = envelope(health.HealthCheckRequest(service="nobody").SerializeToString())
    answer = call(app, "Watch", WEB, body, HEALTH, stays=stays)
    assert [health.HealthCheckResponse.FromString(message).status for _, message in answer.envelopes] == [3]


def test_a_job_has_nothing_to_phrase_before_it_was_run(app: App) -> None:
    """That would be a mistake in this project."""
    method = connect.METHODS[f"/{OIP}/ModelInfer"]
    kind = connect.connect.KINDS[PROTO.encode()]
    asked = connect.connect.Question(method, kind, None, None, gzipped=True, deflates=False)
    job = connect._Job(app, asked, connect.Frame(gzip.compress(BODY), compressed=True), 1024)
    with pytest.raises(AssertionError):
        job.phrase(None)


def test_a_load_is_answered_when_it_is_done(app: App) -> None:
    """Its result is that of the call."""
    body = oip.RepositoryModelLoadRequest(model_name="half_plus_three").SerializeToString()
    assert call(app, "RepositoryModelLoad", PROTO, body).status == 200
    ready = call(app, "ModelReady", JSON, b'{"name": "half_plus_three"}')
    assert json.loads(ready.body) == {"ready": True}


def test_grpc_is_not_imported_for_it() -> None:
    """Protobuf is enough."""
    script = """
import asyncio, sys
from handler import asgi
sent = []
async def receive(): return {"type": "http.request", "body": b""}
async def send(message): sent.append(message)
headers = [(b"content-type", b"application/proto")]
scope = {"type": "http", "method": "POST", "path": "/inference.GRPCInferenceService/ServerLive", "headers": headers}
assert "handler.edge.connect" not in sys.modules and "google.protobuf" not in sys.modules
asyncio.run(asgi.app(scope, receive, send))
assert sent[1]["body"] == b"\\x08\\x01", sent
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "connectrpc") or name.endswith("json_format")])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


@pytest.fixture
def function(repository: Path) -> Iterator[Callable[..., Any]]:
    """The Lambda function behind a REST API that takes every type for binary; it gives status, headers and body."""
    made = Function(settings(repository, AWS_LAMBDA_FUNCTION_NAME="dragoman"))

    def ask(path: str, content_type: str, body: bytes | None = None, **more: Any) -> Answer:
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
        answer = made(event, None)
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
    """Text as text, so that it needs no gateway that knows of bytes; all else in base64."""
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
    """Its query as the gateway hands it over: decoded."""
    text = base64.b64encode(BODY).decode()
    query = {"connect": ["v1"], "encoding": ["proto"], "base64": ["1"], "message": [text]}
    answer = function(f"/{OIP}/ModelInfer", "", multiValueQueryStringParameters=query)
    assert tensors(oip.ModelInferResponse.FromString(answer.body))["y"].tolist() == HALVES


@pytest.mark.parametrize("content_type", [JSON, PROTO, WEB, TEXT])
def test_an_answer_that_a_function_cannot_carry_is_refused_in_the_clients_own_form(
    function: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    """Lambda's runtime would end the instance."""
    monkeypatch.setattr("handler.aws.WORTH_MEASURING", 10)
    monkeypatch.setattr("handler.aws.LARGEST_RESPONSE", 10)
    body = BODY if content_type in (PROTO, JSON) else envelope(BODY)
    answer = function(f"/{OIP}/ModelInfer", content_type, base64.b64encode(body) if content_type == TEXT else body)
    if content_type in (PROTO, JSON):
        assert (answer.status, json.loads(answer.body)["code"]) == (429, "resource_exhausted")
        return
    trailers = split(untext(answer.body) if content_type == TEXT else answer.body)[-1][1]
    assert answer.status == 200
    assert b"grpc-status: 8" in trailers
    assert b"10 are possible" in trailers


def test_a_function_answers_a_watch_once(function: Callable[..., Answer]) -> None:
    """It cannot wait, and nobody would get to read it before its end."""
    answer = function(f"/{HEALTH}/Watch", STREAM_JSON, envelope(b"{}"))
    assert [message for _, message in answer.envelopes] == [b'{"status": "SERVING"}', b"{}"]


def test_a_function_compresses_what_its_gateway_cannot(function: Callable[..., Answer]) -> None:
    """From a size that comes near what it may answer."""
    for size, flags in ((1000, 0), (300_000, 1)):
        message = question("half_plus_three", raw("x", "FP32", np.zeros(size, np.float32))).SerializeToString()
        packed = envelope(gzip.compress(message), flags=1)
        headers = {"connect-content-encoding": "gzip"}
        answer = function(f"/{OIP}/ModelStreamInfer", STREAM, packed, headers=headers)
        assert answer.envelopes[0][0] == flags
        assert answer.end == {}
