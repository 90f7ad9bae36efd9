"""core.dialects.v2.infer by itself: the inferences that requests decode to, and the answers of results.

What clients see of them through a server is in the tests of the protocols.
"""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import operations as ops
from core.dialects.v2 import infer as v2_infer
from core.dtype import DATATYPES
from core.encoding import simd
from core.errors import InvalidInput
from core.operations import InferResult
from core.tensor import Tensor
from core.wire import Call, HttpRequest, Options
from tests.support.samples import told

HEADER = b"inference-header-content-length"


PATH = {"model": "m"}


X = {"name": "x", "shape": [2], "datatype": "FP32"}


RAW = np.array([1, 2], "<f4").tobytes()


def post(body: Any, *, tail: bytes = b"", **options: bool) -> Call:
    """Returns an inference request of an object, and of binary parts behind it."""
    head = json.dumps(body).encode()
    headers = {HEADER: b"%d" % len(head)} if tail else {}
    return Call(HttpRequest("POST", "/v2/models/m/infer", headers, head + tail, Options(**options)), PATH)  # type: ignore[arg-type] # a bool


def result(datatype: str, elements: Any) -> InferResult:
    row = DATATYPES[datatype]
    array = np.empty(len(elements), row.numpy)
    array[:] = elements
    return InferResult("m", "1", (Tensor("y", row, array),))


@pytest.mark.parametrize(("body", "message"), [
    ([], "the body is .*expected an object"),
    ({}, "'inputs' is missing"),
    ({"inputs": [1]}, r"inputs\[0\] is 1"),
    ({"inputs": [{}]}, r"'name' of inputs\[0\] is missing"),
    ({"id": 1, "inputs": []}, "'id' is 1"),
    ({"parameters": 1, "inputs": []}, "'parameters' of the request is 1"),
    ({"parameters": {"binary_data_output": 1}, "inputs": []}, "'binary_data_output' of the request is 1"),
    ({"inputs": [X | {"datatype": "FLOAT"}]}, "'datatype' of input 'x' is 'FLOAT'; expected one of BOOL"),
    ({"inputs": [X]}, "neither 'data' nor 'binary_data_size'"),
    ({"inputs": [X | {"parameters": {"binary_data_size": -1}}]}, "'binary_data_size' of input 'x' is -1"),
    ({"inputs": [X | {"parameters": {"binary_data_size": 8}, "data": [1, 2]}]}, "both 'data' and"),
    ({"inputs": [X | {"parameters": {"binary_data_size": 8}}]}, "needs 8 bytes of binary data; 0 are left"),
    ({"inputs": [X | {"parameters": {"shared_memory_region": "r"}}]}, "shares no memory"),
    ({"inputs": [X | {"datatype": "BF16", "data": [1, 2]}]}, "BF16, which JSON numbers cannot carry"),
    ({"inputs": [], "outputs": {}}, "'outputs' is {}"),
    ({"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 0}}]}, "'classification' of output"),
])  # fmt: skip
def test_what_is_wrong_in_a_body_is_named(body: Any, message: str) -> None:
    """The refusal has the member, the value, and what was expected."""
    with pytest.raises(InvalidInput, match=message):
        v2_infer.decode(post(body))


def test_a_number_that_a_double_may_have_changed_is_read_again() -> None:
    """It may be in a long list of numbers that holds a fraction, or be an integer of more than 64 bits."""
    x = {"name": "x", "shape": [3000], "datatype": "INT64", "data": [2**53 + 1, 1.0] + [7] * 2998}
    operation, _ = v2_infer.decode(post({"inputs": [x]}))
    assert operation.inputs[0].array[:2].tolist() == [2**53 + 1, 1]
    with pytest.raises(InvalidInput, match="has 18446744073709551616, which is out of range for UINT64"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "UINT64", "data": [1, 2**64]}]}))
    with pytest.raises(InvalidInput, match=r"has 1e\+300 where INT64 needs integers"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "INT64", "data": [1, 1e300]}]}))


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=6),
    dumps=st.sampled_from([json.dumps, partial(json.dumps, ensure_ascii=False)]),
    pad=st.sampled_from([0, simd.WORTH_SIMD]),
    nested=st.booleans(),
)
def test_any_texts_come_back_as_they_were(*, texts: list[str], dumps: Any, pad: int, nested: bool) -> None:
    """They may be in a short or a long body, nested, escaped or not, and are the same as bytes and as JSON."""
    shape = [1, len(texts)] if nested else [len(texts)]
    x = {"name": "x", "shape": shape, "datatype": "BYTES", "data": [texts] if nested else texts}
    body = dumps({"inputs": [x], "parameters": {"binary_data_output": False}}).encode().rjust(pad)
    operation, reply = v2_infer.decode(Call(HttpRequest("POST", "/v2/models/m/infer", {}, body), PATH))
    (tensor,) = operation.inputs
    assert tensor.array.reshape(-1).tolist() == [text.encode() for text in texts]
    for each in (tensor, tensor._replace(name="x")):
        (output,) = told(reply(InferResult("m", "1", (each,))))["outputs"]
        assert output == {"name": "x", "shape": shape, "datatype": "BYTES", "data": texts}


def test_binary_parts_follow_in_the_order_of_their_inputs() -> None:
    """JSON inputs between them do not take one."""
    size = {"parameters": {"binary_data_size": 8}}
    body = {"inputs": [X | size, X | {"name": "j", "data": [5, 6]}, X | {"name": "b"} | size]}
    operation, _ = v2_infer.decode(post(body, tail=RAW + RAW[::-1]))
    assert [t.array.tobytes() for t in operation.inputs] == [RAW, np.array([5, 6], "<f4").tobytes(), RAW[::-1]]


def test_a_binary_part_without_a_size_has_the_shapes() -> None:
    """OVMS's clients omit the size; only text needs it."""
    operation, _ = v2_infer.decode(post({"inputs": [X]}, tail=RAW))
    assert operation.inputs[0].array.tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="BYTES and needs 'binary_data_size'"):
        v2_infer.decode(post({"inputs": [X | {"datatype": "BYTES"}]}, tail=RAW))
    with pytest.raises(InvalidInput, match="1 bytes follow the last binary input"):
        v2_infer.decode(post({"inputs": [X]}, tail=RAW + b"x"))
    empty = {"name": "e", "shape": [3, 0], "datatype": "FP32"}
    for members in ([X, empty], [empty, X]):
        operation, _ = v2_infer.decode(post({"inputs": members}, tail=RAW))
        assert {t.name: t.array.size for t in operation.inputs} == {"x": 2, "e": 0}
    with pytest.raises(InvalidInput, match="input 'e' has neither 'data' nor 'binary_data_size'"):
        v2_infer.decode(post({"inputs": [empty]}))


def test_a_header_length_beyond_the_body_is_refused() -> None:
    """The refusal has both numbers."""
    call = Call(HttpRequest("POST", "/", {HEADER: b"3"}, b"{}"), PATH)
    with pytest.raises(InvalidInput, match="is 3, but the body has 2 bytes"):
        v2_infer.decode(call)


def test_a_raw_request_is_answered_in_binary() -> None:
    """The body is the input, whatever it contains."""
    operation, reply = v2_infer.decode(Call(HttpRequest("POST", "/", {HEADER: b"0"}, b"abc"), PATH))
    assert operation.raw == b"abc"
    assert dict(reply(result("FP32", [1, 2])).headers)[b"content-type"] == b"application/octet-stream"


def test_an_answer_has_no_member_without_a_value() -> None:
    """It has an id only if the request had one."""
    _, reply = v2_infer.decode(post({"inputs": []}))
    output = {"name": "y", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
    assert told(reply(result("FP32", [1, 2]))) == {"model_name": "m", "model_version": "1", "outputs": [output]}
    _, reply = v2_infer.decode(post({"inputs": [], "id": ""}))
    assert told(reply(result("FP32", [1, 2])))["id"] == ""


def test_an_outputs_own_wish_goes_over_the_requests() -> None:
    """The request's wish holds for outputs that do not state one."""
    wish = {"parameters": {"binary_data": False}}
    for outputs, binary in ([{"name": "y"}], True), ([{"name": "y"} | wish], False):
        body = {"inputs": [], "outputs": outputs, "parameters": {"binary_data_output": True}}
        _, reply = v2_infer.decode(post(body))
        assert (HEADER in dict(reply(result("FP32", [1, 2])).headers)) is binary


def test_what_json_cannot_carry_is_refused_with_the_remedy() -> None:
    """The cases are the bits of BF16, and bytes that are not text."""
    _, reply = v2_infer.decode(post({"inputs": []}))
    for datatype, element in (("BF16", 1), ("BYTES", b"\xff")):
        with pytest.raises(InvalidInput, match="ask for binary data"):
            reply(result(datatype, [element]))


def test_an_operator_may_want_null_for_what_is_not_finite() -> None:
    """Null then replaces the strings."""
    for policy, written in ("token", "NaN"), ("null", None):
        _, reply = v2_infer.decode(post({"inputs": []}, non_finite=policy))
        assert told(reply(result("FP32", [np.nan, 1])))["outputs"][0]["data"] == [written, 1.0]


def test_an_output_may_be_asked_for_as_its_classes() -> None:
    """The parameter is their number."""
    outputs = [{"name": "y", "parameters": {"classification": 2}}, {"name": "z"}]
    operation, _ = v2_infer.decode(post({"inputs": [], "outputs": outputs}))
    assert operation.outputs == (ops.RequestedOutput("y", 2), ops.RequestedOutput("z"))
