"""Requests with too many parts, in every protocol, are counted and refused before anything is built from them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format

from core.bounds import LONGEST_CALL, MOST_EMPTY, MOST_EMPTY_ROWS, MOST_FILLED, MOST_MESSAGES, MOST_PARTS, MOST_REFUSED
from core.dialects.v1 import examples, odd_rows
from core.encoding import jsonio
from core.encoding.structure import MOST_ARRAYS
from core.schema.open_inference import ModelInferRequest
from tests.handler.edge.client import INFER, ask, make
from tests.support.asgi import spoken
from tests.support.connect_client import GRPS, OIP, envelope, split

if TYPE_CHECKING:
    from pathlib import Path

    from handler.edge.app import App

JSON, PROTO, STREAM = "application/json", "application/proto", "application/connect+proto"
MODEL = b"\x0a\x0fhalf_plus_three"
X = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
MANY = MOST_PARTS + 1
GENERATE = "/v2/models/half_plus_three/generate"
PREDICT = "/v1/models/half_plus_three:predict"
INFER_RPC, STREAM_RPC = f"/{OIP}/ModelInfer", f"/{OIP}/ModelStreamInfer"


def post(app: App, path: str, body: Any, content_type: str = JSON, query: bytes = b"") -> tuple[int, str]:
    """Returns the status and the text of the answer."""
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    headers = [(b"content-type", content_type.encode())]
    status, _, text = ask(app, "POST", path, content, headers=headers, query_string=query)
    return status, text.decode(errors="replace")


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (INFER, {"inputs": [{}] * MANY}, "4097 inputs"),
        (INFER, {"inputs": [X], "outputs": [{"name": "y"}] * MANY}, "4097 outputs"),
        (INFER, {"inputs": [X], "parameters": {str(each): 0 for each in range(MANY)}}, "4097 parameters"),
        (INFER, {"inputs": [X | {"parameters": {str(each): 0 for each in range(MANY)}}]}, "4097 parameters"),
        (GENERATE, {str(each): 0 for each in range(MANY)}, "4097 members"),
        (f"{GENERATE}_stream", {str(each): 0 for each in range(MANY)}, "4097 members"),
        (GENERATE, {"x": 1, "parameters": {str(each): 0 for each in range(MANY)}}, "4097 parameters"),
        ("/grps/v1/infer/predict", {"gtensors": {"tensors": [{}] * MANY}}, "4097 tensors"),
        ("/grps/v1/infer/predict", {"gmap": {"s_i64": {str(each): 1 for each in range(MANY)}}}, "4097 values"),
        (INFER, b'{"a":[' + b"[]," * MOST_ARRAYS + b"0]}", "arrays and objects"),
        (PREDICT, b'{"instances":[' + b"[]," * MOST_ARRAYS + b"0]}", '"the JSON has 262146 arrays and objects'),
        (PREDICT, b'{"instances":[' + b"{}," * MOST_ARRAYS + b"0]}", "arrays and objects"),
        ("/v2/repository/index", b"{" + b" " * LONGEST_CALL + b"}", "a request without tensors"),
    ],
)  # fmt: skip
def test_rest_counts_before_it_makes(app: App, path: str, body: Any, told: str) -> None:
    """A body of too many inputs, outputs, parameters, values or arrays is 400, one of too many bytes 413."""
    status, text = post(app, path, body, query=b"model=half_plus_three")
    assert status == (413 if "without tensors" in told else 400), text
    assert told in text


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"inputs": [{}] * MANY}, "4097 inputs"),
        ({"outputs": [{}] * MANY}, "4097 outputs"),
        ({"parameters": {str(each): {} for each in range(MANY)}}, "4097 parameters"),
        ({"inputs": [{"parameters": {str(each): {} for each in range(MANY)}}]}, "4097 parameters"),
        ({"outputs": [{"parameters": {str(each): {} for each in range(MANY)}}]}, "4097 parameters"),
        ({"inputs": [{"name": "x", "shape": ["1"] * MANY}]}, "4097 dimensions"),
    ],
)
def test_connect_counts_json_before_protobuf_makes_messages(
    app: App, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], told: str
) -> None:
    """A document with too many parts never reaches protobuf's parser."""
    monkeypatch.setattr(json_format, "ParseDict", lambda *_, **__: pytest.fail("parsed"))
    status, text = post(app, INFER_RPC, {"modelName": "half_plus_three"} | body)
    assert status == 400
    assert told in text


def test_calls_without_tensors_make_no_messages_of_long_json(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health of the process was once held up for half a minute by tensors that it does not need."""
    monkeypatch.setattr(json_format, "ParseDict", lambda *_, **__: pytest.fail("parsed"))
    few: dict[str, Any] = {"gtensors": {"tensors": [{}] * MANY}}
    assert "the JSON has 4100 values; a request without" in post(app, f"/{GRPS}/CheckLiveness", few)[1]
    monkeypatch.setattr(jsonio, "loads_exact", lambda _: pytest.fail("read"))
    for method in (f"{GRPS}/CheckLiveness", f"{GRPS}/CheckReadiness", "grpc.health.v1.Health/Check"):
        body = few | {"x": " " * LONGEST_CALL}
        assert "a request without tensors has at most" in post(app, f"/{method}", body)[1]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (INFER_RPC, MODEL + b"\x2a\x00" * MANY, "4097 inputs"),
        (INFER_RPC, MODEL + b"\x32\x00" * MANY, "4097 outputs"),
        (INFER_RPC, MODEL + b"\x3a\x00" * MANY, "4097 raw input contents"),
        (INFER_RPC, MODEL + b"\x2a\x00" * LONGEST_CALL, "more than 4096 values of 'inputs'"),
        (INFER_RPC, MODEL + b"\xf8\x07\x01" * LONGEST_CALL, "more than 4096 values of field 127"),
    ],
)
def test_messages_are_counted_before_python_sees_their_parts(app: App, path: str, body: bytes, told: str) -> None:
    """The fields of a long message are counted before protobuf reads it."""
    status, text = post(app, path, body, PROTO)
    assert status == 400
    assert told in text


@pytest.mark.parametrize("shape", [[MOST_EMPTY_ROWS + 1, 0], [0, MOST_EMPTY + 1], [2**62, 0], [300, 300, 0, 1]])
def test_a_tensor_without_elements_claims_few_rows(app: App, shape: list[int]) -> None:
    """A hundred bytes of a shape would else be gigabytes of empty rows, or of a sum over the axis of 0."""
    tensor = X | {"shape": shape, "data": []}
    of_rpc = {"name": "x", "datatype": "FP32", "shape": shape, "contents": {}}
    of_grps = {"name": "x", "dtype": "DT_FLOAT32", "shape": [min(each, 2**32 - 1) for each in shape]}
    proto = ModelInferRequest(
        model_name="half_plus_three",
        inputs=[{"name": "x", "datatype": "FP32", "shape": shape}],
        raw_input_contents=[b""],
    )
    found = [
        post(app, INFER, {"inputs": [tensor]}),
        post(app, INFER, {"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"classification": 1}}]}),
        post(app, INFER_RPC, {"modelName": "half_plus_three", "inputs": [of_rpc]}),
        post(app, INFER_RPC, proto.SerializeToString(), PROTO),
        post(app, "/grps/v1/infer/predict", {"gtensors": {"tensors": [of_grps]}}, query=b"return-ndarray=true"),
    ]
    assert [(status, "input 'x' has no elements in its shape" in text) for status, text in found] == [(400, True)] * 5


@pytest.mark.parametrize("shape", [[0], [0, 3, 512, 512], [1000, 0]])
def test_an_empty_batch_is_answered(app: App, shape: list[int]) -> None:
    """Whatever its other sizes are within reason."""
    status, text = post(app, INFER, {"inputs": [X | {"shape": shape, "data": []}]})
    assert (status, json.loads(text)["outputs"][0]["shape"]) == (200, shape)


def test_a_stream_in_one_body_has_a_most_of_messages(app: App) -> None:
    """Messages beyond the limit are refused before the first is answered."""
    body = envelope(MODEL) * (MOST_MESSAGES + 1)
    *answers, (_, end) = split(post_bytes(app, STREAM_RPC, body))
    assert answers == []
    assert json.loads(end)["error"]["code"] == "resource_exhausted"


@pytest.mark.parametrize("message", [b"", b"\x0a\x06nobody", MODEL])
def test_a_stream_ends_after_so_many_refusals_in_a_row(app: App, message: bytes) -> None:
    """An empty message, an unknown model and a request without inputs cost their sender next to nothing."""
    *answers, (_, end) = split(post_bytes(app, STREAM_RPC, envelope(message) * 100))
    assert len(answers) == MOST_REFUSED + 1
    assert json.loads(end)["error"]["code"] == "resource_exhausted"


def post_bytes(app: App, path: str, body: bytes) -> bytes:
    """Returns the whole body of a streamed answer, in bytes."""
    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"content-type", STREAM.encode())]}
    call = spoken(app, scope, {"type": "http.request", "body": body})
    return b"".join(message.get("body", b"") for message in asyncio.run(asyncio.wait_for(call, 60)))


def test_the_row_that_does_not_fit_is_found_without_looking_at_each(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """Rows are checked by the hundred; only those around the odd one are checked one by one."""
    calls: list[int] = []
    checked = odd_rows.elements
    monkeypatch.setattr(
        odd_rows, "elements", lambda flat, datatype: (calls.append(len(flat)), checked(flat, datatype))[1]
    )
    status, text = post(app, PREDICT, {"instances": [[1.5]] * 100_000 + [[1.5, 2]]})
    assert status == 400
    assert "Failed to process element: 100000 of" in text
    assert len(calls) < 100_000 / odd_rows.ROWS + 2 * odd_rows.ROWS


def test_features_that_no_example_has_are_looked_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A two-byte example does not cost work for each feature, and the size of the filled-in defaults is bounded."""
    app = make(_classifier(tmp_path))
    calls: list[str] = []
    row = examples._row
    monkeypatch.setattr(examples, "_row", lambda name, *rest: (calls.append(name), row(name, *rest))[1])
    assert post(app, "/v1/models/m:classify", {"context": {"x": 1.5}, "examples": [{}] * 1000})[0] == 200
    assert calls == ["x"]
    many = [{}] * (MOST_FILLED // examples.OF_ELEMENT + 1)
    status, text = post(app, "/v1/models/m:classify", {"context": {"x": 1.5}, "examples": many})
    assert (status, "the defaults of missing inputs would fill" in text) == (413, True)
    app.close()


@pytest.mark.parametrize("text", ["u" * 9000, {"b64": "dXU=" * 3000}])
def test_texts_that_examples_share_count_with_their_length(tmp_path: Path, text: Any) -> None:
    """One text would be copied for each example, and an example takes two bytes."""
    app = make(_classifier(tmp_path, "BYTES", "classes"))
    status, answer = post(app, "/v1/models/m:classify", {"context": {"x": text}, "examples": [{}] * 1000})
    assert (status, "the defaults of missing inputs would fill" in answer) == (413, True)
    app.close()


def _classifier(folder: Path, datatype: str = "FP32", output: str = "scores") -> Path:
    signature = {"method": "classify", "inputs": {"x": {"tensor": "x", "shape": [1]}}, "outputs": {output: "y"}}
    settings = {"signatures": {"serving_default": signature}}
    from onnx import helper, save  # noqa: PLC0415 - for this model alone

    from tests.support.zoo.models import graph  # noqa: PLC0415 - the same

    node = helper.make_node("Identity", ["x"], ["y"])
    (folder / "m" / "1").mkdir(parents=True)
    model = graph("m", [node], [("x", datatype, ["n", 1])], [("y", datatype, ["n", 1])])
    save(model, folder / "m" / "1" / "model.onnx")
    (folder / "m" / "model-settings.json").write_text(json.dumps(settings))
    return folder
