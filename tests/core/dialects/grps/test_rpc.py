"""core.dialects.grps.rpc: what each remote call asks, how results come back, and that refusals are answers."""

import json
from typing import Any, Final

import numpy as np
import pytest
import yaml
from google.protobuf import json_format

from core import operations as ops
from core.dialects.grps import messages as grps_messages
from core.dialects.grps.rpc import GRPS_RPC, SERVICE
from core.errors import InvalidInput, ModelNotFound
from core.operations import IndexEntry, ModelInfo, ModelRef, Readiness, ServerInfo, State
from core.rpc import Form
from core.schema import pool
from core.schema.grps import GrpsMessage
from core.wire import Waits
from tests.support.grps_samples import UNTOLD, model, result, spec, tensor

METHODS: Final = {method.rpc.name: method for method in GRPS_RPC}
TEXT_MODEL: Final = model(spec("t", "BYTES", 1))
OK: Final = (200, "OK", 1)


def asked(name: str, **members: Any) -> tuple[Any, Any]:
    """Returns what a method makes of a message."""
    method = METHODS[name]
    return method.rpc.decode(method.read(GrpsMessage(**members).SerializeToString()))


def asked_json(name: str, value: Any) -> tuple[Any, Any]:
    """Returns what a method makes of a message in JSON."""
    method = METHODS[name]
    return method.rpc.decode(method.read_json(json.dumps(value).encode()))


def settled(asked: tuple[Any, Any], known: Any = TEXT_MODEL) -> tuple[Any, Any]:
    """Returns the operation in tensors, and the function that makes the answer from its result."""
    deferred, finish = asked
    assert isinstance(deferred, ops.Deferred)
    operation, phrase = deferred.decode(known)
    return operation, lambda found: finish(phrase(found))


def status(message: Any) -> tuple[int, str, int]:
    """Returns the members of an answer's status."""
    return message.status.code, message.status.msg, message.status.status


def test_the_table_has_every_method_of_the_service_in_order() -> None:
    """A method that the schema announces is served."""
    service = pool.POOL.FindServiceByName(SERVICE)
    assert [method.rpc.name for method in GRPS_RPC] == [method.name for method in service.methods]
    assert {method.service for method in GRPS_RPC} == {SERVICE}
    assert {method.request for method in GRPS_RPC} == {GrpsMessage}


def test_one_method_streams_and_those_that_ask_change_nothing() -> None:
    """Online and Offline change state."""
    assert [name for name, method in METHODS.items() if method.form is Form.STREAM] == ["PredictStreaming"]
    safe = {name for name, method in METHODS.items() if method.safe}
    assert safe == {"CheckLiveness", "CheckReadiness", "ServerMetadata", "ModelMetadata"}
    assert {name for name, method in METHODS.items() if method.rpc.waits is Waits.MODEL} == {
        "Predict", "PredictStreaming"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Predict", "PredictStreaming"])
def test_the_model_is_the_one_that_the_message_names(name: str) -> None:
    """It is known before the tensors are read. No name means the default model."""
    for selector in ("m-7", ""):
        method = METHODS[name]
        question = method.read(GrpsMessage(model=selector, str_data="a").SerializeToString())
        assert method.rpc.ref is not None
        assert method.rpc.ref(question) == ModelRef(selector, dashed=True)
        assert method.rpc.decode(question)[0].ref == ModelRef(selector, dashed=True)  # type: ignore[union-attr]


def test_a_prediction_is_answered_in_the_form_of_its_request() -> None:
    """The version whose spec made the tensors answers."""
    operation, answer = settled(asked("Predict", str_data="a"))
    assert isinstance(operation, ops.Infer)
    assert operation.ref == ModelRef("m", "7")
    assert operation.inputs[0].array.tolist() == [b"a"]
    message = GrpsMessage.FromString(answer(result(tensor("t", "BYTES", [b"b"]))))
    assert status(message) == OK
    assert message.str_data == "b"


def test_a_stream_has_a_message_for_each_answer() -> None:
    """Each message is made when it is asked for."""
    operation, answer = settled(asked("PredictStreaming", bin_data=b"a"))
    assert isinstance(operation, ops.Stream)
    results = (result(tensor("t", "BYTES", [b"%d" % index])) for index in range(3))
    messages = answer(results)
    assert GrpsMessage.FromString(next(messages)).bin_data == b"0"
    assert next(results).outputs[0].array.tolist() == [b"1"]
    assert [GrpsMessage.FromString(message).bin_data for message in messages] == [b"2"]


@pytest.mark.parametrize("name", ["Predict", "PredictStreaming"])
def test_in_json_a_message_is_read_in_both_spellings_and_written_in_proto3s(name: str) -> None:
    """Bytes are base64 in JSON."""
    for body in ({"strData": "a", "model": "m-7"}, {"str_data": "a", "model": "m-7"}):
        deferred, _ = asked_json(name, body)
        assert deferred.ref == ModelRef("m-7", dashed=True)
        _, answer = settled((deferred, lambda answer: answer))
        found = result(tensor("y", "INT64", [2**53 + 1]))
        (text,) = [answer(found)] if name == "Predict" else list(answer((found,)))
        assert json.loads(text)["gtensors"]["tensors"] == [
            {"name": "y", "dtype": "DT_INT64", "shape": [1], "flatInt64": ["9007199254740993"]}
        ]
        json_format.Parse(text, GrpsMessage())
    operation, answer = settled(asked_json(name, {"binData": "/w=="}))
    infer = operation if name == "Predict" else operation.infer
    assert infer.inputs[0].array.tolist() == [b"\xff"]


def test_nested_lists_are_read_in_json_alone() -> None:
    """The same holds over HTTP."""
    operation, answer = settled(asked_json("Predict", {"ndarray": [[1, 2]]}), model(spec("x", "FP32", 1, 2)))
    assert operation.inputs[0].array.tolist() == [[1.0, 2.0]]
    assert "gtensors" in json.loads(answer(result(tensor("y", "FP32", [1]))))
    with pytest.raises(InvalidInput, match="ndarray is for JSON alone"):
        settled(asked("Predict", ndarray={}))


@pytest.mark.parametrize("name", ["Predict", "PredictStreaming"])
@pytest.mark.parametrize("count", [2, 1000])
def test_more_tensors_than_inputs_are_refused_before_any_is_made(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for reading a message is negligible. A model that does not declare its inputs accepts any number."""
    monkeypatch.setattr(grps_messages, "_tensor", lambda *_: pytest.fail("made"))
    tensors = [{"name": "x", "dtype": 7, "shape": [0]}] * count
    question = asked(name, gtensors={"tensors": tensors})
    with pytest.raises(InvalidInput, match=f"^the request has {count} tensors; model 'm' has 1: \\['t'\\]$"):
        settled(question)
    monkeypatch.undo()
    operation, _ = settled(question, UNTOLD)
    assert len((operation if name == "Predict" else operation.infer).inputs) == count


@pytest.mark.parametrize(("name", "operation", "found"), [
    ("Online", ops.SetOnline(online=True), None),
    ("Offline", ops.SetOnline(online=False), None),
    ("CheckLiveness", ops.ServerLive(), Readiness(ready=True)),
    ("CheckReadiness", ops.ServerReady(), Readiness(ready=True)),
])  # fmt: skip
def test_health_is_asked_for_and_told_in_the_status(name: str, operation: Any, found: Any) -> None:
    """The content of the message does not matter."""
    for members in ({}, {"str_data": "a"}):
        asked_for, phrase = asked(name, **members)
        assert asked_for == operation
        assert status(phrase(found)) == OK


def test_who_is_not_ready_is_unavailable() -> None:
    """The status is 503; GRPS's python server answers 403 by mistake."""
    _, phrase = asked("CheckReadiness")
    told = phrase(Readiness(ready=False, state=State.LOADING, reason="models not loaded: m"))
    assert status(told) == (503, "Service Unavailable: models not loaded: m", 2)


def test_metadata_is_a_text_of_yaml() -> None:
    """It describes the server, or the model that str_data names."""
    operation, phrase = asked("ServerMetadata")
    assert operation == ops.ServerOverview()
    told = phrase((ServerInfo("s", "0.1"), [IndexEntry("m", "7", State.READY)]))
    assert status(told) == OK
    assert yaml.safe_load(told.str_data)["models"][0]["name"] == "m"
    operation, phrase = asked("ModelMetadata", str_data="m-7")
    assert operation == ops.ModelMetadata(ModelRef("m-7", dashed=True))
    told = phrase(ModelInfo(TEXT_MODEL, ("7",)))
    assert status(told) == OK
    assert yaml.safe_load(told.str_data)["inputs"][0]["dtype"] == "DT_STRING"


@pytest.mark.parametrize(
    ("members", "text"), [({}, "No model name."), ({"model": "m"}, "No model name."), ({"str_data": ""}, "is empty")]
)
def test_a_request_for_metadata_without_a_name_is_refused(members: Any, text: str) -> None:
    """The text is GRPS's."""
    with pytest.raises(InvalidInput, match=text):
        asked("ModelMetadata", **members)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_refusal_is_an_answer_of_every_method(name: str) -> None:
    """The rule includes requests that could not be read. The code is HTTP's."""
    instead = METHODS[name].rpc.instead
    assert instead is not None
    assert status(instead(None, ModelNotFound("no"))) == (404, "no", 2)
    with pytest.raises(InvalidInput, match="the 1 bytes of the request are not a GrpsMessage") as refused:
        METHODS[name].read(b"\xff")
    assert status(instead(None, refused.value))[0] == 400


def test_floats_of_a_large_answer_are_those_of_the_model() -> None:
    """The client finds them in its message."""
    values = np.arange(100_000, dtype=np.float32)
    _, answer = settled(asked("Predict", str_data="a"))
    message = GrpsMessage.FromString(answer(result(tensor("y", "FP32", values))))
    assert np.array_equal(np.array(message.gtensors.tensors[0].flat_float32, np.float32), values)
