"""core.dialects.v2.content_types: what MLServer's content types change, over REST, protobuf and protobuf's JSON."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from core.dialects import V2
from core.dialects.v2 import rpc_infer, rpc_json
from core.dtype import BYTES, DATATYPES
from core.errors import InvalidInput
from core.operations import InferResult
from core.router import Router
from core.schema.open_inference import ModelInferRequest, ModelInferResponse
from core.tensor import Tensor
from core.wire import Call, HttpRequest
from tests.support.samples import told

ROUTER = Router(V2)
CONTENT = [b"\xff\x00", b"abc"]
CODED = [base64.b64encode(element).decode() for element in CONTENT]
NUMBER = Tensor("n", DATATYPES["FP32"], np.array([1.5], np.float32))


def output(*elements: bytes) -> Tensor:
    """A vector of BYTES called y."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return Tensor("y", BYTES, array)


def document(kind: Any, elements: list[str], **more: Any) -> dict[str, Any]:
    """A request with one BYTES input of a content type."""
    parameters = {} if kind is None else {"parameters": {"content_type": kind}}
    x = {"name": "x", "shape": [len(elements)], "datatype": "BYTES", "data": elements, **parameters}
    return {"inputs": [x], **more}


def rest(asked: dict[str, Any], *outputs: Tensor) -> tuple[list[Any], list[Any]]:
    """The elements that a model gets, and the outputs that the client reads."""
    path = "/v2/models/m/infer"
    route, values = ROUTER.find("POST", path)
    infer, reply = route.decode(Call(HttpRequest("POST", path, {}, json.dumps(asked).encode()), values))
    answer = told(reply(InferResult("m", "1", outputs)))  # type: ignore[arg-type] # no stream
    return infer.inputs[0].array.tolist(), answer["outputs"]  # type: ignore[union-attr] # an Infer


def message(asked: dict[str, Any]) -> ModelInferRequest:
    """The same request in protobuf, its content explicit."""
    made = ModelInferRequest(model_name="m")
    for tensor in asked["inputs"]:
        x = made.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        x.contents.bytes_contents.extend(element.encode() for element in tensor["data"])
        for name, value in tensor.get("parameters", {}).items():
            x.parameters[name].string_param = value
    for tensor in asked.get("outputs", ()):
        y = made.outputs.add(name=tensor["name"])
        for name, value in tensor.get("parameters", {}).items():
            y.parameters[name].string_param = value
    for name, value in asked.get("parameters", {}).items():
        made.parameters[name].string_param = value
    return made


def wanted(kind: str) -> dict[str, Any]:
    return {"outputs": [{"name": "y", "parameters": {"content_type": kind}}, {"name": "n"}]}


@pytest.mark.parametrize(("asked", "seen", "answered", "kind"), [
    (document("base64", CODED), CONTENT, CODED, "base64"),
    (document("base64", ["YQ", "-_8="]), [b"a", b"\xfb\xff"], CODED, "base64"),
    (document("str", CODED), CODED, None, None),
    (document("base64", CODED, **wanted("str")), CONTENT, None, "str"),
    (document(None, CODED, **wanted("base64")), CODED, CODED, "base64"),
    (document("datetime", ["2024-01-02"], **wanted("datetime")), ["2024-01-02"], None, "datetime"),
    (document("str", ["a"], **wanted("np")), ["a"], None, "np"),
    (document("unheard_of", CODED, **wanted("pd")), CODED, None, None),
    (document(None, ["a"], parameters={"content_type": "pd"}), ["a"], None, None),
    (document(None, CODED, parameters={"other": "base64"}), CODED, None, None),
    (document(None, CODED), CODED, None, None),
])  # fmt: skip
def test_base64_is_decoded_and_what_is_asked_for_comes_back(
    asked: dict[str, Any], seen: list[Any], answered: list[str] | None, kind: str | None
) -> None:
    """In every form of a request; numbers have no content type unless the client asks for one."""
    seen = [element.encode() if isinstance(element, str) else element for element in seen]
    elements = CONTENT if answered is None else [element.encode() for element in answered]
    outputs = (output(*CONTENT), NUMBER)
    request = message(asked)
    infer, phrase = rpc_infer.decode(rpc_infer.ProtoRequest(request, []))
    assert infer.inputs[0].array.tolist() == seen
    y, n = ModelInferResponse.FromString(phrase(InferResult("m", "1", outputs))).outputs
    assert list(y.contents.bytes_contents) == elements
    assert y.parameters["content_type"].string_param == (kind or "")
    assert not n.parameters
    spelled = {"modelName": "m", **asked, "inputs": [
        {**{key: value for key, value in x.items() if key != "data"},
         "parameters": {k: {"stringParam": v} for k, v in x.get("parameters", {}).items()},
         "contents": {"bytesContents": [base64.b64encode(element.encode()).decode() for element in x["data"]]}}
        for x in asked["inputs"]]}  # fmt: skip
    spelled |= {"outputs": [
        {**y, "parameters": {k: {"stringParam": v} for k, v in y.get("parameters", {}).items()}}
        for y in asked.get("outputs", ())]}  # fmt: skip
    spelled["parameters"] = {k: {"stringParam": v} for k, v in asked.get("parameters", {}).items()}
    infer, write = rpc_json.decode(rpc_json.read(json.dumps(spelled).encode()))
    assert infer.inputs[0].array.tolist() == seen
    first = json.loads(write(InferResult("m", "1", outputs)))["outputs"][0]
    assert [base64.b64decode(element) for element in first["contents"]["bytesContents"]] == elements
    assert first.get("parameters") == ({"content_type": {"stringParam": kind}} if kind else None)
    if answered is not None:
        found, (y, n) = rest(asked, *outputs)
        assert (found, y["data"], y["parameters"]["content_type"]) == (seen, answered, kind)
        assert "parameters" not in n


def test_text_is_text_for_clients_with_content_types_alone() -> None:
    """MLServer's codecs would leave it as bytes over gRPC; other clients' answers stay as they are."""
    text = output(b"a", "é".encode())
    for asked in (document("str", ["x"]), document(None, ["x"], parameters={"content_type": "pd"})):
        assert rest(asked, text)[1][0]["parameters"] == {"content_type": "str"}
    for asked in (document(None, ["x"]), document(None, ["x"], parameters={"a": 1}), document(None, ["x"], outputs=[])):
        assert "parameters" not in rest(asked, text)[1][0]


def test_an_output_has_the_type_that_is_asked_for_if_its_datatype_can() -> None:
    """Also beside the size of its binary part."""
    y = {"name": "n", "parameters": {"content_type": "np", "binary_data": True}}
    path = "/v2/models/m/infer"
    route, values = ROUTER.find("POST", path)
    body = json.dumps(document("str", ["x"], outputs=[y])).encode()
    _, reply = route.decode(Call(HttpRequest("POST", path, {}, body), values))
    head = reply(InferResult("m", "1", (NUMBER,))).parts[0]  # type: ignore[arg-type,union-attr] # no stream
    assert json.loads(head)["outputs"][0]["parameters"] == {"content_type": "np", "binary_data_size": 4}
    y["parameters"] = {"content_type": "base64"}
    assert "parameters" not in rest(document("str", ["x"], outputs=[y]), NUMBER)[1][0]


@pytest.mark.parametrize(("asked", "text"), [
    (document("base64", ["YQ==", "*"]), "input 'x' is of content_type 'base64' and has '*', which is not base64"),
    (document("base64", ["é"]), r"input 'x' is of content_type 'base64' and has '\\xc3\\xa9', which is not base64"),
    (document(5, ["a"]), "parameter 'content_type' is 5; expected text"),
])  # fmt: skip
def test_a_wrong_content_type_is_refused(asked: dict[str, Any], text: str) -> None:
    """The input and the element are named."""
    with pytest.raises(InvalidInput, match=f"^{text.replace('*', '[*]')}$".replace("\\\\x", r"\\x")):
        rest(asked, output())
