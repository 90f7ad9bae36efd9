"""handler.edge.calls.messages: remote calls as jobs."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from core.dialects.grps import messages as grps_messages
from core.dialects.rpcs import RPCS
from core.errors import InvalidInput, ServingError
from core.operations import ModelRef
from core.schema import grps
from core.schema import open_inference as oip
from handler.edge.app import App
from handler.edge.calls.messages import QUICKLY_READ, MessageCodec
from handler.edge.jobs import RAW_QUICKLY_READ, Job
from handler.edge.timing import Timing
from handler.lifecycle.single_flight import Pending
from handler.lifecycle.usage import QUICK_RUNS
from tests.support.remote import question, raw, typed

METHODS = {method.rpc.name: method for method in reversed(RPCS)}
INFER, STREAM = METHODS["ModelInfer"], METHODS["ModelStreamInfer"]
X = np.array([1, 2.5], np.float32)
BODY = question("half_plus_three", raw("x", "FP32", X), id="1").SerializeToString()


def job(app: App, method: Any, body: bytes, *, json: bool = False) -> Any:
    """Returns the job of one message."""
    return Job(MessageCodec(method, body, json=json), app.registry, Timing())


def settle(asked: Job[Any]) -> bytes:
    """Returns the answer, however often the job has to wait."""
    while True:
        try:
            return asked.run()
        except Pending as pending:
            pending.future.result(30)


NUMBERS, FEW = np.zeros(40_000, np.float32), np.zeros(9, np.float32)
TYPED = question("m", typed("x", "FP32", NUMBERS)).SerializeToString()


@pytest.mark.parametrize(("body", "is_long"), [
    (question("m", raw("x", "FP32", NUMBERS)).SerializeToString(), False),
    (question("m", raw("x", "FP32", np.zeros(RAW_QUICKLY_READ // 4 + 1, np.float32))).SerializeToString(), True),
    (TYPED, True),
    (TYPED + question("m", raw("x", "FP32", NUMBERS)).SerializeToString(), True),
    (question("m", ({"name": "x", "datatype": "BYTES", "shape": [1]}, bytes(QUICKLY_READ))).SerializeToString(), True),
    (question("m", raw("x", "FP32", FEW)).SerializeToString() + b"\xff" * QUICKLY_READ, True),
    (TYPED[:-1], True),
])  # fmt: skip
def test_a_long_message_of_raw_numbers_is_quickly_read(body: bytes, *, is_long: bool) -> None:
    """Texts, numbers in fields of their own and other bytes take longer. So does the same message as JSON."""
    assert MessageCodec(INFER, body).is_long() is is_long
    assert MessageCodec(INFER, body, json=True).is_long()
    assert MessageCodec(STREAM, body).is_long()


LAST = b'{"inputs":[{"name":"x","datatype":"FP32","shape":["40000"],"contents":{"fp32Contents":[%s]}}],"modelName":"m"}'


@pytest.mark.parametrize(("body", "json"), [
    (TYPED, False),
    (question("m", raw("x", "FP32", NUMBERS)).SerializeToString(), False),
    (LAST % b",".join([b"0"] * 40_000), True),
])  # fmt: skip
def test_a_message_that_was_inflated_for_its_name_is_not_kept_while_it_waits(body: bytes, *, json: bool) -> None:
    """A thousandth of it has come over the network, and nothing counts the rest. It is inflated again to be read."""
    made = []

    def inflate() -> Any:
        array = np.frombuffer(body, np.uint8).copy()
        made.append(weakref.ref(array))
        return array.data

    codec = MessageCodec(INFER, b"", json=json, inflate=inflate)
    assert codec.named() == codec.known() == codec.named() == ModelRef("m")
    assert [each() for each in made] == [None]
    assert codec.read()[0].inputs[0].shape == (40_000,)
    assert len(made) == 2
    assert codec.size == len(body)


X_OF_GRPS = grps.GenericTensor(name="x", dtype="DT_FLOAT32", shape=[2], flat_float32=[1, 2.5])
PREDICT = grps.GrpsMessage(model="half_plus_three", gtensors={"tensors": [X_OF_GRPS]})


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize(("method", "body", "json"), [
    ("ModelInfer", BODY, False),
    ("Predict", PREDICT.SerializeToString(), False),
    ("Predict", json_format.MessageToJson(PREDICT, preserving_proto_field_name=True).encode(), True),
])  # fmt: skip
def test_a_message_is_let_go_once_it_is_answered(
    app: App, method: str, body: bytes, *, json: bool, closes: bool
) -> None:
    """With its codec, and without the cyclic collector. A stream keeps the codec of its last message, closed."""
    content = np.frombuffer(body, np.uint8).copy()
    seen = weakref.ref(content)
    codec = MessageCodec(METHODS[method], content.data, json=json)
    del content
    gc.disable()
    try:
        assert settle(Job(codec, app.registry, Timing()))
        known = codec.known()
        if closes:
            codec.close()
            assert codec.known() == known
        else:
            del codec
        assert seen() is None
    finally:
        gc.enable()


def test_a_job_is_quick_once_its_model_is_and_its_message_is_not_too_large_to_be_read_first(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method without a model is never quick."""
    monkeypatch.setattr("handler.lifecycle.usage.QUICK_NS", 10**12)
    for _ in range(QUICK_RUNS):
        assert not job(app, INFER, BODY).is_quick()
        settle(job(app, INFER, BODY))
    assert job(app, STREAM, BODY).is_quick()
    assert not job(app, METHODS["ServerReady"], b"").is_quick()
    assert not job(app, INFER, bytes(QUICKLY_READ + 1)).is_quick()


def test_no_tensor_is_made_before_it_is_known_which_thread_its_model_runs_in(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the decision nor the refusal makes the 1000 tensors of a message."""
    monkeypatch.setattr(grps_messages, "_tensor", lambda *_: pytest.fail("made"))
    tensors = grps.GenericTensorData(tensors=[grps.GenericTensor(dtype="DT_INT32", shape=[0])] * 1000)
    for model in ("half_plus_three", "nobody"):
        body = grps.GrpsMessage(model=model, gtensors=tensors).SerializeToString()
        asked = job(app, METHODS["Predict"], body)
        assert not asked.is_quick()
        with pytest.raises(ServingError, match="the request has 1000 tensors" if model != "nobody" else "nobody"):
            settle(asked)


def test_a_codec_returns_what_its_method_answers_in_place_of_an_error(app: App) -> None:
    """A method without such an answer fails with the error."""
    error = InvalidInput("no")
    assert job(app, INFER, BODY).codec.instead(error) is None
    assert job(app, METHODS["ModelReady"], b"").codec.instead(error) is None
    told = job(app, STREAM, BODY).codec.instead(error)
    assert told is not None
    assert oip.ModelStreamInferResponse.FromString(told).error_message == "no"


@pytest.mark.parametrize("model", ["nobody", "half_plus_three"])
@pytest.mark.parametrize("json", [True, False], ids=["json", "proto"])
def test_an_answer_in_place_of_an_error_has_the_requests_id(app: App, model: str, json: bool) -> None:  # noqa: FBT001 - both ways
    """The id is there for an unknown model and for tensors that do not fit."""
    message = question(model, typed("x", "FP32", X), id="7")
    message.inputs[0].shape[0] = 3
    body = json_format.MessageToJson(message).encode() if json else message.SerializeToString()
    asked = job(app, STREAM, body, json=json)
    with pytest.raises(ServingError) as error:
        settle(asked)
    told = asked.codec.instead(error.value)
    assert told is not None
    answer = oip.ModelStreamInferResponse()
    json_format.Parse(told, answer) if json else answer.MergeFromString(told)
    assert (answer.infer_response.id, answer.error_message) == ("7", error.value.message)
