"""handler.edge.calls.connect: calls with many answers."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from core.schema import grps, health
from core.schema import open_inference as oip
from handler.edge.app import App
from handler.edge.calls import call as call_module
from handler.edge.calls import connect
from tests.handler.edge.calls.connect.client import BODY, HALVES, call, exchange, settings, streamed, until
from tests.support.connect_client import GRPS, HEALTH, OIP, PROTO, STREAM, STREAM_JSON, WEB, envelope
from tests.support.remote import question, raw, tensors


def counting(number: int, **parameters: Any) -> bytes:
    """Returns a request to the model that answers many times."""
    told = {name: oip.InferParameter(**value) for name, value in parameters.items()}
    return question("yields", raw("n", "INT64", np.array([number])), id="9", parameters=told).SerializeToString()


@pytest.mark.parametrize("content_type", [STREAM, WEB])
def test_a_stream_has_every_answer_in_its_order(repository: Path, content_type: str) -> None:
    """The answers to several requests come in order, however many each has, if the server keeps the order."""
    app = App(settings(repository, DRAGOMAN_STREAM_ORDER="request", DRAGOMAN_THREADS="4"))
    answer = call(app, "ModelStreamInfer", content_type, envelope(counting(3), BODY, counting(2)))
    app.close()
    found = [tensors(message.infer_response)["y"].tolist() for message in streamed(answer)]
    assert found == [[0], [1], [2], HALVES, [0], [1]]
    assert len(answer.parts) == len(found) + 1
    assert "content-length" not in answer.headers


def meeting(*, late: bool) -> list[oip.ModelInferRequest]:
    """Requests that have to meet in their model. `late`: the first one is answered after the second."""
    told = [{"late": oip.InferParameter(bool_param=late and not number)} for number in range(2)]
    return [question("meets", parameters=parameters, id=str(number)) for number, parameters in enumerate(told)]


def answered_ids(repository: Path, content_type: str, body: bytes, **headers: str) -> list[str]:
    """The ids of a stream's answers, from a server with four threads."""
    app = App(settings(repository, DRAGOMAN_THREADS="4"))
    answer = call(app, "ModelStreamInfer", content_type, body, **headers)
    app.close()
    if content_type == STREAM_JSON:
        return [json.loads(message)["inferResponse"]["id"] for _, message in answer.envelopes[:-1]]
    return [message.infer_response.id for message in streamed(answer)]


def test_requests_of_a_stream_are_worked_on_side_by_side(repository: Path) -> None:
    """An answer that is ready is sent before that of an earlier request."""
    messages = meeting(late=True)
    for content_type, write in ((STREAM, proto), (WEB, proto), (STREAM_JSON, json_of)):
        assert answered_ids(repository, content_type, envelope(*map(write, messages))) == ["1", "0"]


def proto(message: oip.ModelInferRequest) -> bytes:
    return message.SerializeToString()


def json_of(message: oip.ModelInferRequest) -> bytes:
    return json_format.MessageToJson(message).encode()


def test_compressed_requests_of_a_stream_are_answered_in_their_order(repository: Path) -> None:
    """They are worked on side by side all the same. Their ids are not known in time."""
    body = envelope(*(gzip.compress(proto(message)) for message in meeting(late=False)), flags=1)
    assert answered_ids(repository, STREAM, body, connect_content_encoding="gzip") == ["0", "1"]


def test_a_stream_of_json_is_answered_with_json(app: App) -> None:
    """The envelopes of the answers hold JSON."""
    asked = {"modelName": "yields", "inputs": [{"name": "n", "datatype": "INT64", "shape": ["1"]}]}
    asked["inputs"][0]["contents"] = {"int64Contents": ["2"]}  # type: ignore[index] # of a literal
    answer = call(app, "ModelStreamInfer", STREAM_JSON, envelope(json.dumps(asked).encode()))
    found = [json.loads(message)["inferResponse"]["outputs"][0]["contents"] for _, message in answer.envelopes[:-1]]
    assert found == [{"int64Contents": ["0"]}, {"int64Contents": ["1"]}]


def test_a_refusal_in_a_stream_of_json_has_the_requests_id(app: App) -> None:
    """An unknown model, a wrong shape and wrong bytes are refused with the id."""
    tensor = {"name": "x", "datatype": "FP32", "shape": ["1"]}
    asked = [
        {"modelName": "nobody", "id": "1"},
        {"modelName": "half_plus_three", "id": "2", "inputs": [{**tensor, "contents": {"fp32Contents": [1, 2]}}]},
        {"modelName": "half_plus_three", "id": "3", "inputs": [tensor], "rawInputContents": ["!"]},
    ]
    answer = call(app, "ModelStreamInfer", STREAM_JSON, envelope(*(json.dumps(each).encode() for each in asked)))
    found = [json.loads(message) for _, message in answer.envelopes[:-1]]
    found.sort(key=lambda each: str(each["inferResponse"]["id"]))
    ended = {"triton_final_response": {"boolParam": True}}
    named = [{"modelName": each["modelName"], "id": each["id"], "parameters": ended} for each in asked]
    assert [each["inferResponse"] for each in found] == named
    assert all(each["errorMessage"] for each in found)


def test_a_long_compressed_request_that_is_refused_has_its_id(app: App) -> None:
    """It is inflated to find the name of its model, and not kept so."""
    message = oip.ModelInferRequest(model_name="nobody", id="7", raw_input_contents=[b"0" * 200_000])
    body = envelope(gzip.compress(proto(message)), b"\x1f\x8b", flags=1)
    told, bad = streamed(call(app, "ModelStreamInfer", STREAM, body, connect_content_encoding="gzip"))
    assert (told.infer_response.id, told.infer_response.model_name) == ("7", "nobody")
    assert (bad.infer_response.id, "gzip" in bad.error_message) == ("", True)


def test_a_model_that_fails_amid_a_stream_ends_its_answers_and_not_the_exchange(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is an answer with the exception's class, the log has its text, and the next request is answered."""
    body = envelope(counting(2, fail={"bool_param": True}), b"\x0a", BODY)
    answer = call(app, "ModelStreamInfer", STREAM, body)
    found: dict[str, list[Any]] = {"9": [], "": [], "1": []}
    for one in streamed(answer):
        found[one.infer_response.id].append(one)
    first, second, failed = found["9"]
    (unread,), (last,) = found[""], found["1"]
    assert [tensors(one.infer_response)["y"].tolist() for one in (first, second)] == [[0], [1]]
    assert failed.error_message == "model 'yields' raised RuntimeError"
    assert "RuntimeError: no more" in caplog.text
    assert "not a ModelInferRequest" in unread.error_message
    assert tensors(last.infer_response)["y"].tolist() == HALVES
    assert answer.end == {}


def test_a_stream_that_is_cut_ends_after_what_came_whole(app: App) -> None:
    """The whole messages are answered, and the end has an error."""
    answer = call(app, "ModelStreamInfer", STREAM, envelope(BODY, BODY)[:-1])
    assert len(streamed(answer)) == 1
    assert answer.end["error"]["code"] == "invalid_argument"


def test_an_error_that_has_no_answer_ends_the_stream(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error stands in the stream's end."""
    path = f"/{OIP}/ModelStreamInfer"
    method = connect.Calls.methods[path]
    monkeypatch.setitem(connect.Calls.methods, path, method._replace(rpc=method.rpc._replace(instead=None)))
    answer = call(app, "ModelStreamInfer", STREAM, envelope(*[counting(1, fail={"bool_param": True})] * 2))
    assert len(streamed(answer)) == 1
    assert answer.end["error"] == {"code": "internal", "message": "model 'yields' raised RuntimeError"}


def test_an_unforeseen_error_ends_the_stream_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not one of the work's, which have answers of their own."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("handler.edge.dispatch.exchanges.answered", fail)
    answer = call(app, "ModelStreamInfer", STREAM, envelope(BODY))
    told = "internal error: the server's log has the details"
    assert answer.end["error"] == {"code": "internal", "message": told}
    assert "a secret" in caplog.text


def test_grps_streams_too(app: App) -> None:
    """PredictStreaming sends one message for each answer."""
    tensor = grps.GenericTensor(name="n", dtype="DT_INT64", shape=[1], flat_int64=[3])
    message = grps.GrpsMessage(model="yields", gtensors=grps.GenericTensorData(tensors=[tensor]))
    answer = call(app, "PredictStreaming", STREAM, envelope(message.SerializeToString()), GRPS)
    found = [grps.GrpsMessage.FromString(content) for _, content in answer.envelopes[:-1]]
    assert [list(one.gtensors.tensors[0].flat_int64) for one in found] == [[0], [1], [2]]


def test_a_deadline_ends_a_stream_and_its_model(app: App, repository: Path) -> None:
    """The end has the error, and the model's generator is closed."""
    body = envelope(question("endless").SerializeToString())
    answer = call(app, "ModelStreamInfer", STREAM, body, connect_timeout_ms="300")
    assert answer.end["error"] == {"code": "deadline_exceeded", "message": "no answer within 300 ms"}
    until_left(repository)


def until_left(repository: Path) -> None:
    """Waits until the endless model has noted that its client left."""
    asyncio.run(asyncio.wait_for(until((repository / "endless" / "1" / "left").exists), 30))


def test_a_client_that_goes_stops_its_model(app: App, repository: Path) -> None:
    """The model's generator is closed when the client leaves."""

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 5)

    answer = call(app, "ModelStreamInfer", STREAM, envelope(question("endless").SerializeToString()), stays=stays)
    assert len(answer.parts) >= 4
    until_left(repository)


def test_a_watch_answers_every_change_until_its_client_leaves(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same state is never sent twice."""
    monkeypatch.setattr(call_module, "WATCH_SECONDS", 0.01)
    body = envelope(health.HealthCheckRequest(service="half_plus_three").SerializeToString())

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 2)
        await exchange(app, f"/{OIP}/ModelInfer", PROTO, BODY)
        await until(lambda: len(sent) >= 3)

    answer = call(app, "Watch", STREAM, body, HEALTH, stays=stays)
    found = [health.HealthCheckResponse.FromString(message).status for _, message in answer.envelopes]
    assert found == [2, 1]


def test_a_watch_of_an_unknown_service_answers_and_goes_on(app: App) -> None:
    """The state is SERVICE_UNKNOWN."""

    async def stays(sent: list[Any]) -> None:
        await until(lambda: len(sent) >= 2)

    body = envelope(health.HealthCheckRequest(service="nobody").SerializeToString())
    answer = call(app, "Watch", WEB, body, HEALTH, stays=stays)
    assert [health.HealthCheckResponse.FromString(message).status for _, message in answer.envelopes] == [3]
