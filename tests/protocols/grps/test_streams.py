"""All answers of a stream arrive in their order, as soon as they are made."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.grps_client import JSON, Http, Rpc, ok, refusal, split

MANY, TIMES = 1000, 10
SUCCESS = {"code": 200, "msg": "OK", "status": "SUCCESS"}
TEXTS = [str(number) for number in range(MANY)]


@pytest.mark.row("GRPS-090")
def test_streams_of_a_thousand_messages_arrive_whole_over_http(http: Http) -> None:
    """Ten of them run in a row, on one connection."""
    for _ in range(TIMES):
        documents = http.documents({"model": "stream", "str_data": str(MANY)})
        assert [document["str_data"] for document in documents] == TEXTS
        assert all(document["status"] == SUCCESS for document in documents)


@pytest.mark.row("GRPS-091")
def test_streams_of_a_thousand_messages_arrive_whole_over_grpc(rpc: Rpc) -> None:
    """Ten of them run in a row, on one connection."""
    for _ in range(TIMES):
        messages = list(rpc.stream(model="stream", str_data=str(MANY)))
        assert [message.str_data for message in messages] == TEXTS
        assert all(message.status.code == 200 for message in messages)


@pytest.mark.row("GRPS-092")
def test_a_model_that_does_not_stream_gives_one_message(http: Http, rpc: Rpc) -> None:
    """GRPS's servers send none."""
    assert http.documents({"model": "text", "str_data": "a"}) == [{"status": SUCCESS, "str_data": "a"}]
    assert b"".join(http.stream(b"\xff", model="octets")) == b"\xff"
    (message,) = rpc.stream(model="text", str_data="a")
    assert ok(message).str_data == "a"


@pytest.mark.row("GRPS-093")
def test_a_model_that_yields_nothing_gives_no_message(http: Http, rpc: Rpc) -> None:
    """It is not a failure."""
    assert list(http.stream({"model": "stream", "str_data": "0"})) == []
    assert list(rpc.stream(model="stream", str_data="0")) == []


@pytest.mark.row("GRPS-094")
def test_a_message_comes_before_the_next_is_made(http: Http, rpc: Rpc, tmp_path: Path) -> None:
    """The model waits for a file that is written when the first has come."""
    gate = tmp_path / "http"
    chunks = http.stream({"model": "gated", "str_data": str(gate)})
    assert json.loads(next(chunks))["str_data"] == "first"
    gate.touch()
    assert [json.loads(chunk)["str_data"] for chunk in chunks] == ["second"]
    gate = tmp_path / "grpc"
    messages = rpc.stream(model="gated", str_data=str(gate))
    assert next(messages).str_data == "first"
    gate.touch()
    assert [message.str_data for message in messages] == ["second"]


@pytest.mark.row("GRPS-095", "GRPS-096")
def test_a_failure_on_the_way_is_the_last_message(http: Http, rpc: Rpc, tmp_path: Path) -> None:
    """It follows all answers that had been made; the call itself ends well."""
    gate = tmp_path / "gate"
    gate.write_text("x")
    *made, failed = http.documents({"model": "gated", "str_data": str(gate)})
    assert [document["str_data"] for document in made] == ["first", "second"]
    assert list(failed) == ["status"]
    assert (failed["status"]["code"], failed["status"]["status"]) == (500, "FAILURE")
    assert failed["status"]["msg"] == "model 'gated' raised RuntimeError"
    *messages, last = rpc.stream(model="gated", str_data=str(gate))
    assert [message.str_data for message in messages] == ["first", "second"]
    assert refusal(last, 500) == "model 'gated' raised RuntimeError"


@pytest.mark.row("GRPS-097")
@pytest.mark.parametrize(("document", "code"), [
    ({"model": "nope", "str_data": "a"}, 404),
    ({"model": "broken", "str_data": "a"}, 503),
    ({"model": "stream"}, 400),
    ({"model": "pairs", "str_data": "a"}, 400),
    ({"model": "stream", "str_data": "x"}, 500),
])  # fmt: skip
def test_a_failure_before_the_first_message_is_told_by_the_status_line(
    http: Http, rpc: Rpc, document: Any, code: int
) -> None:
    """Over gRPC, the only message has it."""
    body = json.dumps(document).encode()
    http.call("POST", "infer/predict?streaming=true", body, {"Content-Type": JSON}).refusal(code)
    (message,) = rpc.stream(**document)
    refusal(message, code)


@pytest.mark.row("GRPS-098")
@pytest.mark.parametrize("said", ["true", "TRUE", "True"])
def test_a_stream_is_asked_for_in_any_case(http: Http, said: str) -> None:
    """The answer's transfer coding shows the stream."""
    assert len(http.documents({"model": "stream", "str_data": "3"}, streaming=said)) == 3


@pytest.mark.row("GRPS-099")
@pytest.mark.parametrize("said", ["1", "false", "", "yes"])
def test_nothing_else_asks_for_a_stream(http: Http, said: str) -> None:
    """The answer is one document with a length; a model of several answers refuses."""
    answer = http.predict({"model": "text", "str_data": "a"}, streaming=said)
    assert answer.content() == {"str_data": "a"}
    assert "content-length" in answer.headers
    assert "stream" in http.predict({"model": "stream", "str_data": "3"}, streaming=said).refusal(400)
    assert http.predict({"model": "stream", "str_data": "1"}, streaming=said).content() == {"str_data": "0"}


@pytest.mark.row("GRPS-101")
def test_every_message_has_the_form_that_its_outputs_fit(http: Http, rpc: Rpc) -> None:
    """Bytes stand unchanged between documents."""
    chunks = b"".join(http.stream({"model": "changes", "str_data": "a"}))
    head, _, tail = chunks.partition(b"\xff\xfe")
    assert split(head)[0]["str_data"] == "a"
    assert split(tail)[0]["gtensors"]["tensors"][0]["flat_string"] == ["a", "b"]
    kinds = [message.WhichOneof("data_oneof") for message in rpc.stream(model="changes", str_data="a")]
    assert kinds == ["str_data", "bin_data", "gtensors"]


@pytest.mark.row("GRPS-102")
def test_who_leaves_a_stream_harms_nobody(http: Http, rpc: Rpc) -> None:
    """Clients do so over and over, with answers in flight."""
    for _ in range(5):
        messages = rpc.channel.unary_stream("/grps.protos.v1.GrpsService/PredictStreaming")(
            b"\x12\x06stream\x22\x06100000", timeout=30
        )
        next(messages)
        messages.cancel()
        chunks = http.stream({"model": "stream", "str_data": "100000"})
        next(chunks)
        http.connection.close()
    assert len(http.documents({"model": "stream", "str_data": "10"})) == 10
