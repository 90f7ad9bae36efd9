"""core.dialects.v2.rpc_json, core.encoding.proto_json: proto3's JSON against protobuf's own reader and writer."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core import operations
from core.dialects.v2 import rpc_infer as v2_rpc_infer
from core.dialects.v2 import rpc_json as v2_rpc_json
from core.dtype import DATATYPES
from core.encoding import jsonio, proto_json
from core.errors import InvalidInput, ServingError
from core.operations import InferResult, ModelRef
from core.schema import open_inference as oip
from core.tensor import Tensor, from_raw

SAMPLES: Final[dict[str, list[Any]]] = {
    "BOOL": [True, False, True], "INT8": [-128, 0, 127], "INT16": [-32768, 0, 32767], "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 2**53 + 1, 2**63 - 1], "UINT8": [0, 1, 255], "UINT16": [0, 1, 65535],
    "UINT32": [0, 1, 2**32 - 1], "UINT64": [0, 2**53 + 1, 2**64 - 1], "FP32": [0.1, -3.4e38, 1e-45],
    "FP64": [0.1, -1.7976931348623157e308, 5e-324], "BYTES": [b"", b"\xff\0", "é".encode()],
}  # fmt: skip
LONG: Final = 3000
"""The number of elements from which a text goes to the reader of long texts."""


def tensor(datatype: str, values: list[Any], shape: tuple[int, ...] | None = None) -> Tensor:
    of = DATATYPES[datatype]
    array = np.empty(len(values), of.numpy)
    array[:] = values
    return Tensor("y", of, array.reshape((len(values),) if shape is None else shape))


def question(datatype: str, values: list[Any], **members: Any) -> oip.ModelInferRequest:
    """Returns a typed request of one input."""
    contents = oip.InferTensorContents(**{DATATYPES[datatype].contents: values})
    tensors = [
        oip.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=[len(values)], contents=contents)
    ]
    return oip.ModelInferRequest(model_name="m", inputs=tensors, **members)


def printed(message: Any, **options: Any) -> bytes:
    """Returns the message as protobuf prints it."""
    return json_format.MessageToJson(message, indent=None, **options).encode()


def body(datatype: str, contents: Any, count: int = 3, **members: Any) -> bytes:
    """Returns a document of one input with any contents."""
    own = {"name": "x", "datatype": datatype, "shape": [count], "contents": contents}
    return json.dumps({"modelName": "m", "inputs": [own], **members}).encode()


def decoded(text: bytes) -> tuple[operations.Infer, Callable[[InferResult], bytes]]:
    """Returns the operation, and the function that makes the answer from its result."""
    return v2_rpc_json.decode(v2_rpc_json.read(text))


def streamed(text: bytes) -> tuple[operations.Stream, Callable[[Any], Iterator[bytes]]]:
    """Returns the same for a stream."""
    return v2_rpc_json.decode_streamed(v2_rpc_json.read(text))


def proto_json_name(datatype: str) -> str:
    """Returns the field of a datatype's elements, as JSON spells it."""
    name: str = oip.InferTensorContents.DESCRIPTOR.fields_by_name[DATATYPES[datatype].contents].json_name
    return name


def read(text: bytes) -> NDArray[Any]:
    (only,) = decoded(text)[0].inputs
    return only.array


def refused(text: bytes) -> str:
    """Returns the text of the refusal."""
    with pytest.raises(InvalidInput) as error:
        decoded(text)
    return error.value.message


def both(message: oip.ModelInferRequest, result: InferResult) -> tuple[oip.ModelInferResponse, oip.ModelInferResponse]:
    """Returns the answers to a request in JSON and to its protobuf form."""
    text = decoded(printed(message))[1](result)
    of_proto = v2_rpc_infer.decode(v2_rpc_infer.read(message.SerializeToString()))[1](result)
    return json_format.Parse(text, oip.ModelInferResponse()), oip.ModelInferResponse.FromString(of_proto)


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BYTES"])
def test_shared_memory_is_refused_by_its_name(datatype: str) -> None:
    """An input in shared memory has no contents, which are not counted."""
    region = {"shared_memory_region": {"stringParam": "r"}}
    own = {"name": "x", "datatype": datatype, "shape": [3], "parameters": region}
    text = refused(json.dumps({"modelName": "m", "inputs": [own]}).encode())
    assert text == "input 'x' has 'shared_memory_region': this server shares no memory with its clients"


@pytest.mark.parametrize("copies", [1, LONG])
@pytest.mark.parametrize("preserve", [False, True], ids=["lowerCamel", "as_written"])
@pytest.mark.parametrize("datatype", SAMPLES)
def test_what_protobuf_prints_is_read_to_the_bit(datatype: str, preserve: bool, copies: int) -> None:  # noqa: FBT001 - both ways
    """The cases are every datatype and both spellings of the fields, short and long."""
    message = question(datatype, SAMPLES[datatype] * copies)
    text = printed(message, preserving_proto_field_name=preserve)
    (expected,) = v2_rpc_infer.decode(v2_rpc_infer.read(message.SerializeToString()))[0].inputs
    found = read(text)
    assert found.dtype == expected.array.dtype
    assert found.tolist() == expected.array.tolist()


@pytest.mark.parametrize("copies", [1, LONG])
@pytest.mark.parametrize("datatype", SAMPLES)
def test_protobuf_reads_answers_as_those_of_its_own_form(datatype: str, copies: int) -> None:
    """The rule holds for every datatype."""
    values = SAMPLES[datatype] * copies
    result = InferResult("m", "7", (tensor(datatype, values),))
    found, expected = both(question("BOOL", [True], id="é"), result)
    assert found == expected
    assert found.outputs[0].contents.ListFields()


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("asked", [{}, {"binary_data_output": oip.InferParameter(bool_param=True)}])
def test_a_raw_answer_is_one_in_json_too(datatype: str, asked: dict[str, Any]) -> None:
    """The rule holds for a raw request, for a client that asks for it, and for a datatype without a field."""
    values: list[Any] = [b"a"] if datatype == "BYTES" else [1]
    result = InferResult("m", "7", (tensor(datatype, values), tensor("FP16", [0.5])))
    message = question("BOOL", [True], parameters=asked)
    found, expected = both(message, result)
    assert found == expected
    assert len(found.raw_output_contents) == 2


def test_outputs_are_raw_in_json_too_where_the_model_asks_for_it() -> None:
    """Whatever the form of the request."""
    found, expected = both(question("BOOL", [True]), InferResult("m", "7", (tensor("FP32", [1.5]),), raw=True))
    assert found == expected
    assert len(found.raw_output_contents) == 1


@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("stripped", [False, True])
def test_raw_contents_are_base64_of_either_kind(alphabet: Callable[[bytes], bytes], stripped: bool) -> None:  # noqa: FBT001 - both ways
    """Padding is optional; such a request has a raw answer."""
    raw = np.array([np.nan, -1, 3e38], np.float32).tobytes()
    text = alphabet(raw).decode()
    own = {"name": "x", "datatype": "FP32", "shape": ["3"]}
    for spelling in v2_rpc_json.RAW:
        document = {"modelName": "m", "inputs": [own], spelling: [text.rstrip("=") if stripped else text]}
        operation, phrase = decoded(json.dumps(document).encode())
        assert operation.inputs[0].array.tobytes() == raw
        answer = json.loads(phrase(InferResult("m", "1", (tensor("FP32", [1.5]),))))
        assert answer["rawOutputContents"] == [base64.b64encode(np.float32(1.5).tobytes()).decode()]


@pytest.mark.parametrize("contents", [
    None,
    {},
    {"fp32Contents": []},
    {"fp64_contents": None, "fp32Contents": None},
    {field.json_name: [] for field in oip.InferTensorContents.DESCRIPTOR.fields},
    {"odd": 1},
])  # fmt: skip
def test_contents_without_elements_beside_raw_ones_say_nothing(contents: Any) -> None:
    """An empty array is absent in proto3's JSON. protobuf reads the document as the same request."""
    text = body("FP32", contents, 1, rawInputContents=["AACAPw=="])
    assert read(text).tolist() == [1.0]
    message = json_format.Parse(text, oip.ModelInferRequest(), ignore_unknown_fields=True).SerializeToString()
    assert v2_rpc_infer.decode(v2_rpc_infer.read(message))[0].inputs[0].array.tolist() == [1.0]


@pytest.mark.parametrize("datatype", ["BOOL", "INT64", "FP32", "BYTES"])
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_nothing_is_answered_as_nothing(datatype: str, shape: tuple[int, ...]) -> None:
    """The answer has its shape."""
    result = InferResult("m", "7", (tensor(datatype, [], shape),))
    found, expected = both(question("BOOL", [True]), result)
    assert found == expected


def test_a_scalar_has_no_shape_and_a_model_may_answer_nothing() -> None:
    """Empty fields are omitted, as protobuf omits them."""
    found, expected = both(question("BOOL", [True]), InferResult("m", "7", (tensor("INT64", [1], ()),)))
    assert found == expected
    assert json.loads(decoded(body("BOOL", {"boolContents": [True]}, 1))[1](InferResult("m", "7", ()))) == {
        "modelName": "m",
        "modelVersion": "7",
    }


def test_everything_else_of_a_request_is_read_as_protobuf_reads_it() -> None:
    """The test covers version, id, parameters and outputs; unknown members are skipped."""
    text = body(
        "FP32", {"fp32Contents": [1, 2, 3], "unheardOf": 1}, modelVersion="3", id="9",
        parameters={"p": {"int64Param": "5"}},
        outputs=[{"name": "y", "parameters": {"classification": {"int64Param": 2}}}], unheardOf={"a": [1]},
    )  # fmt: skip
    operation, phrase = decoded(text)
    assert operation.ref == ModelRef("m", "3")
    assert operation.parameters == {"p": 5}
    assert operation.outputs == (operations.RequestedOutput("y", 2),)
    assert json.loads(phrase(InferResult("m", "3", ())))["id"] == "9"


@pytest.mark.parametrize("filler", [[], [0.25] * LONG], ids=["short", "long"])
def test_numbers_may_be_quoted_and_floats_need_not_be_finite(filler: list[float]) -> None:
    """Both may be mixed."""
    values = [*filler, "NaN", "-Infinity", "Infinity", "1.5", "-2e3", 7]
    found = read(body("FP64", {"fp64Contents": values}, len(values)))
    assert np.isnan(found[len(filler)])
    assert found[len(filler) + 1 :].tolist() == [-np.inf, np.inf, 1.5, -2000.0, 7.0]
    assert np.array_equal(found[: len(filler)], np.array(filler))
    assert read(body("FP32", {"fp32Contents": ["NaN", "2"]}, 2)).tolist()[1] == 2.0


@pytest.mark.parametrize("copies", [1, LONG])
@pytest.mark.parametrize("values", [["-0"], ["-0", "1.5"], ["0", "-0", 2], ["-0.0", "-0e1"], [-0.0]])
def test_a_zero_keeps_its_sign_in_quotes(values: list[Any], copies: int) -> None:
    """Protobuf reads the same signs."""
    count = len(values) * copies
    text = body("FP32", {"fp32Contents": values * copies}, count)
    expected = json_format.Parse(text, oip.ModelInferRequest()).inputs[0].contents.fp32_contents
    assert read(text).tobytes() == np.array(expected, np.float32).tobytes()
    assert not read(body("INT32", {"intContents": ["-0"] * copies}, copies)).any()


@pytest.mark.parametrize("copies", [1, LONG])
@pytest.mark.parametrize(("datatype", "values", "told"), [
    ("FP32", [[1], [2]], r"\[1\] where FP32 needs numbers"),
    ("FP32", [["1"], ["2"]], r"\['1'\] where FP32 needs numbers"),
    ("FP32", ["[1]", "[2]"], r"'\[1\]' where FP32 needs numbers"),
    ("INT64", [1, [2]], r"\[2\] where INT64 needs integers"),
    ("INT32", [1, []], r"\[\] where INT32 needs integers"),
    ("FP64", [1, {}], "{} where FP64 needs numbers"),
    ("BOOL", [1, 0], "1 where BOOL needs booleans"),
    ("BOOL", [1.0], "1.0 where BOOL needs booleans"),
    ("BOOL", [True, 1], "1 where BOOL needs booleans"),
    ("BOOL", ["true"], "'true' where BOOL needs booleans"),
    ("BOOL", [[True]], r"\[true\] where BOOL needs booleans"),
])  # fmt: skip
def test_elements_that_protobuf_refuses_are_refused(datatype: str, values: list[Any], told: str, copies: int) -> None:
    """The refusal names the first, in a text of any length."""
    count = len(values) * copies
    text = body(datatype, {proto_json_name(datatype): values * copies}, count)
    with pytest.raises(json_format.ParseError):
        json_format.Parse(text, oip.ModelInferRequest())
    with pytest.raises(InvalidInput, match=f"'x' has {told}"):
        decoded(text)


@pytest.mark.parametrize("copies", [1, LONG])
def test_integers_of_64_bits_keep_every_digit(copies: int) -> None:
    """They may be quoted, bare, or both."""
    highest = 2**63 - 1
    for values in ([str(highest), "-1"], [highest, -1], [str(highest), -1]):
        text = body("INT64", {"int64Contents": values * copies}, 2 * copies)
        assert read(text).tolist() == [highest, -1] * copies
    assert read(body("UINT64", {"uint64Contents": [str(2**64 - 1), "0"] * copies}, 2 * copies)).max() == 2**64 - 1


@pytest.mark.parametrize("copies", [1, LONG])
def test_quoted_integers_keep_every_digit_beside_what_only_a_double_holds(copies: int) -> None:
    """proto3's JSON quotes integers of 64 bits. The refusal of one beyond them has its digits."""
    values = [str(2**53 + 1), "1.0"] * copies
    assert read(body("INT64", {"int64Contents": values}, len(values))).tolist() == [2**53 + 1, 1] * copies
    for datatype, wrong in (("UINT64", 2**64), ("INT64", 2**64), ("INT64", -(2**64)), ("INT8", 10**30)):
        text = body(datatype, {proto_json_name(datatype): [str(wrong), "1"] * copies}, 2 * copies)
        with pytest.raises(InvalidInput, match=f"'x' has {wrong}, which is out of range for {datatype}"):
            decoded(text)


def test_numbers_that_lost_digits_on_the_way_are_read_again() -> None:
    """A double among long integers makes the quick reader convert all of them to doubles."""
    values = [2**53 + 1, 1.0] * LONG
    assert read(body("INT64", {"int64Contents": values}, len(values))).tolist() == [2**53 + 1, 1] * LONG


@pytest.mark.parametrize(("text", "told"), [
    (b"", "not JSON"),
    (b"[]", "expected an object"),
    (b'{"modelName": 1}', "not a ModelInferRequest in JSON"),
    (b'{"inputs": {}}', "not a ModelInferRequest in JSON"),
    (b'{"inputs": [null]}', "not a ModelInferRequest in JSON"),
    (b'{"inputs": [1]}', "not a ModelInferRequest in JSON"),
    (b'{"inputs": ["x"]}', "inputs\\[0\\] is 'x'; expected an object"),
    (b'{"outputs": [{"name": "y"}, "z"]}', "outputs\\[1\\] is 'z'; expected an object"),
    (b'{"modelName": "m", "model_name": "n"}', "'model_name' and 'modelName' are the same member"),
    (body("FP8", {}), "FP8"),
    (body("FP16", {}), "'x' is FP16, which has no typed contents"),
    (body("FP32", []), "'x' has 'contents' \\[\\]"),
    (body("FP32", {"fp32Contents": 1}), "'x' has 1 as 'fp32Contents'"),
    (body("FP32", {"fp64Contents": [1, 2, 3]}), "'x' is FP32 and has 'fp64Contents'; expected 'fp32Contents'"),
    (body("FP32", {"fp32Contents": [1], "fp32_contents": [1]}), "'fp32Contents' in two spellings"),
    (body("FP32", None), "0 elements"),
    (body("FP32", {"fp32Contents": [1, None, 2]}), "'x' has null"),
    (body("FP32", {"fp32Contents": ["1", "x", "2"]}), "'x' has 'x' where FP32"),
    (body("FP32", {"fp32Contents": ["1,2", "3"]}), "'x' has '1,2'|2 elements"),
    (body("INT64", {"int64Contents": [" 1", "2", "3"]}), "'x' has ' 1' where INT64 needs integers"),
    (body("INT64", {"int64Contents": ["1", "2\t", "3"]}), "'x' has '2.t' where INT64 needs integers"),
    (body("INT64", {"int64Contents": [1, "2\n", 3]}), "'x' has '2.n' where INT64 needs integers"),
    (body("FP32", {"fp32Contents": ["1", "2", "03"]}), "'x' has '03' where FP32 needs numbers"),
    (body("FP32", {"fp32Contents": ["1", "2", "[3]"]}), "'x' has '\\[3\\]'"),
    (body("FP32", {"fp32Contents": ["1", "2", '"3"']}), "'x' has"),
    (body("FP32", {"fp32Contents": ["1", "2", "\ud800"]}), "surrogate|'x' has"),
    (body("FP32", {"fp32Contents": [1, 2, "1e999"]}), "'x' has 1e999"),
    (body("INT32", {"intContents": ["1", "2", "1.5"]}), "'x' has 1.5 where INT32"),
    (body("BYTES", {"bytesContents": ["YQ==", "!", ""]}), "'x' has '!', which is not base64"),
    (body("BYTES", {"bytesContents": [1] * 3}), "'x' has 1, which is not base64"),
    (body("BYTES", {"bytesContents": [1] * LONG * 3}, LONG * 3), "'x' has 1, which is not base64"),
    (body("FP32", {"fp32Contents": [1, 2, 3]}, rawInputContents=["AAAA"]), "'contents' beside 'rawInputContents'"),
    (body("FP32", {"boolContents": [1]}, rawInputContents=["AAAA"]), "'contents' beside 'rawInputContents'"),
    (body("FP32", [], rawInputContents=["AAAA"]), "'x' has 'contents' \\[\\]; expected an object"),
    (body("FP32", {"fp32Contents": ""}, rawInputContents=["AAAA"]), "'x' has '' as 'fp32Contents'; expected an array"),
    (body("FP32", {}, rawInputContents=["AAAA", "AAAA"]), "'rawInputContents' has 2 entries for 1 input"),
    (body("FP32", {}, rawInputContents="AAAA"), "rawInputContents.*expected one array"),
    (body("FP32", {}, rawInputContents=["A"]), "rawInputContents.*not base64"),
    (body("FP32", {}, rawInputContents=[["A"]]), "rawInputContents.*not base64"),
    (body("FP32", {}, rawInputContents=["AAAA"], raw_input_contents=[]), "expected one array"),
    (b'{"inputs":[{"name":%b,"shape":[1]}]}' % (b"[" * 990 + b"]" * 990), "inputs\\[0\\].name is .*expected a string"),
])  # fmt: skip
def test_what_is_no_request_is_refused_by_name(text: bytes, told: str) -> None:
    """The refusal names the input, the value, and what was expected."""
    with pytest.raises(InvalidInput, match=told):
        decoded(text)


def test_an_input_without_raw_contents_is_refused_in_jsons_spelling() -> None:
    """Protobuf's name of the field would be a stranger in the client's document."""
    inputs = [{"name": name, "datatype": "FP32", "shape": [1]} for name in ("x", "y")]
    text = json.dumps({"modelName": "m", "inputs": inputs, "rawInputContents": ["AACAPw=="]}).encode()
    assert refused(text) == "input 'y' has no entry in 'rawInputContents': there are 1 for 2 inputs"


def test_a_long_array_of_texts_that_are_no_numbers_is_refused_by_the_first() -> None:
    """The rule holds for any number of them."""
    assert "'no'" in refused(body("FP32", {"fp32Contents": ["1"] * LONG + ["no"]}, LONG + 1))


@pytest.mark.parametrize("wants_end", [False, True])
def test_a_streams_answers_say_which_is_the_last(wants_end: bool) -> None:  # noqa: FBT001 - both ways
    """Protobuf's form does the same."""
    asked = {"triton_enable_empty_final_response": oip.InferParameter(bool_param=wants_end)}
    message = question("BOOL", [True], id="4", model_version="7", parameters=asked)
    result = InferResult("m", "7", (tensor("FP32", [1.5]),))
    for results in ((result,), [result, result]):
        _, phrase = streamed(printed(message))
        _, of_proto = v2_rpc_infer.decode_streamed(v2_rpc_infer.read(message.SerializeToString()))
        found = [json_format.Parse(text, oip.ModelStreamInferResponse()) for text in phrase(results)]
        assert found == [oip.ModelStreamInferResponse.FromString(part) for part in of_proto(results)]
    operation, _ = streamed(printed(message))
    assert operation.infer.ref == ModelRef("m", "7")


@pytest.mark.parametrize("text", [
    body("FP32", {"fp32Contents": ["no"]}, 1, id="4"),
    body("FP32", {"fp32Contents": [1]}, 2, id="4"),
    body("NONE", {}, id="4"),
    body("INT64", {"int64Contents": [2**70]}, 1, id="4"),
    json.dumps({"id": "4", "inputs": [{"name": "x"}], "rawInputContents": ["="]}).encode(),
])  # fmt: skip
def test_a_request_whose_tensors_are_refused_has_told_its_id(text: bytes) -> None:
    """A stream's refusal repeats it."""
    request = v2_rpc_json.read(text)
    for decode in (v2_rpc_json.decode, v2_rpc_json.decode_streamed):
        with pytest.raises(InvalidInput):
            decode(request._replace(raw=[*request.raw], contents=[*request.contents]))
    assert request.message.id == "4"


@pytest.mark.parametrize("text", [
    body("FP32", {"fp32Contents": [1.5] * 3}),
    body("INT64", {"int64Contents": [2**53 + 1] * LONG}, LONG),
    json.dumps({"inputs": [{"name": "x", "datatype": "BOOL", "shape": [3]}], "rawInputContents": ["AAAA"]}).encode(),
], ids=["array", "exact", "raw"])  # fmt: skip
def test_of_a_request_that_has_become_tensors_only_the_message_is_left(text: bytes) -> None:
    """Its numbers and texts would otherwise be kept until it is answered."""
    request = v2_rpc_json.read(text)
    v2_rpc_json.decode(request)
    assert (request.raw, request.contents) == ([], [])
    assert request.message.inputs[0].name == "x"


@given(st.binary(max_size=60))
def test_base64_comes_back(content: bytes) -> None:
    """The JSON text has it."""
    text = json.loads(jsonio.dumps(proto_json.from_bytes(memoryview(content))))
    assert text == base64.b64encode(content).decode()
    assert proto_json.to_bytes(text) == content
    assert proto_json.to_bytes(text.rstrip("=").replace("+", "-").replace("/", "_")) == content


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=6), st.just("NaN")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from([*v2_rpc_json.ARRAYS, "name", "shape", "contents"]), st.text(max_size=3)),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)
members = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.just("x"), anything),
        "datatype": st.one_of(st.sampled_from([*DATATYPES]), anything),
        "shape": st.one_of(st.lists(st.integers(-1, 3), max_size=2), anything),
        "parameters": anything,
        "contents": st.one_of(st.dictionaries(st.sampled_from([*v2_rpc_json.ARRAYS]), anything, max_size=2), anything),
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "modelName": anything,
        "id": anything,
        "inputs": st.one_of(st.lists(members, max_size=2), anything),
        "outputs": anything,
        "parameters": anything,
        "rawInputContents": st.one_of(st.lists(st.sampled_from(["", "AAAA", "=", "-_"]), max_size=2), anything),
    },
)


@given(st.one_of(documents, anything).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
def test_any_document_is_a_request_or_refused(text: bytes) -> None:
    """Only the protocol's own errors are raised."""
    for decode in (decoded, streamed):
        with suppress(ServingError):
            decode(text)


@given(st.lists(st.floats(width=32), max_size=5))
def test_any_floats_come_back_as_they_were(values: list[float]) -> None:
    """Every bit is equal, except those of NaN."""
    array = np.array(values, np.float32)
    made = from_raw("y", DATATYPES["FP32"], array.shape, array.tobytes())
    _, phrase = decoded(body("BOOL", {"boolContents": [True]}, 1))
    answer = json.loads(phrase(InferResult("m", "1", (made,))))
    contents = answer["outputs"][0]["contents"]
    found = read(body("FP32", contents, len(values)))
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("others", [[], [0.1, float("nan"), float("inf")], [0.1] * 2000])
def test_protobuf_reads_the_largest_floats(others: list[float]) -> None:
    """It refuses their shortest digits, 3.4028235e38, which are beyond 32 bits as a double."""
    largest = float(np.finfo(np.float32).max)
    array = np.array([largest, -largest, *others], np.float32)
    _, phrase = decoded(body("BOOL", {"boolContents": [True]}, 1))
    made = Tensor("y", DATATYPES["FP32"], array)
    answer = json_format.Parse(phrase(InferResult("m", "1", (made,))), oip.ModelInferResponse())
    np.testing.assert_array_equal(np.array(answer.outputs[0].contents.fp32_contents, np.float32), array)


@pytest.mark.parametrize("datatype", ["INT64", "UINT64", "INT32", "FP32"])
def test_numbers_are_written_from_any_view(datatype: str) -> None:
    """A Python model may return every second element, or all of them backwards."""
    _, phrase = decoded(body("BOOL", {"boolContents": [True]}, 1))
    whole = np.arange(6).astype(DATATYPES[datatype].numpy)
    for view in (whole[::-1], whole[::2], whole.reshape(2, 3).T):
        text = phrase(InferResult("m", "1", (Tensor("y", DATATYPES[datatype], view),)))
        (output,) = json_format.Parse(text, oip.ModelInferResponse()).outputs
        assert list(getattr(output.contents, DATATYPES[datatype].contents)) == view.reshape(-1).tolist()


def test_integers_of_64_bits_are_written_as_strings() -> None:
    """An empty array stays empty."""
    for values in ([], [1], [2**63 - 1, -(2**63)]):
        assert json.loads(jsonio.dumps(proto_json.integers(np.array(values, np.int64)))) == list(map(str, values))
