"""core.dialects.grps.json_read: the meaning of JSON texts, held against protobuf's own reader where that has one."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.grps.content import Binary, GrpsQuestion, Map, Numbers, Tensors, Text
from core.dialects.grps.json_read import NO_FIELD, OCTETS_ONLY, camel, document, read
from core.encoding.simd import WORTH_SIMD
from core.errors import InvalidInput, ServingError
from core.schema.grps import GenericMapData, GenericTensor, GrpsMessage
from tests.support.grps_samples import OWN, by_name, filled, same
from tests.support.grps_samples import read as read_message
from tests.support.samples import SHAPES

BLANKS = [b"", b" " * WORTH_SIMD]
"""Blank space to put behind a document: long texts have their own readers."""


def asked(value: Any, blank: bytes = b"", **more: Any) -> GrpsQuestion:
    """Returns what a document says."""
    return read(json.dumps(value).encode() + blank, **more)


def theirs(value: Any) -> GrpsQuestion:
    """Returns what protobuf's reader makes of a document."""
    message = json_format.ParseDict(value, GrpsMessage(), ignore_unknown_fields=True)
    return read_message(message.SerializeToString())


def alike(left: GrpsQuestion, right: GrpsQuestion) -> bool:
    """Returns whether the model and the content are equal."""
    contents = (left.content, right.content)
    if left.model != right.model or type(left.content) is not type(right.content):
        return False
    if isinstance(left.content, Tensors) and isinstance(right.content, Tensors):
        pairs: Any = zip(left.content.tensors, right.content.tensors, strict=True)
        return all(same(*pair) for pair in pairs)
    if isinstance(left.content, Map) and isinstance(right.content, Map):
        by_key = [{(e.field, e.tensor.name): e.tensor for e in content.entries} for content in contents]  # type: ignore[union-attr]
        return by_key[0].keys() == by_key[1].keys() and all(same(by_key[0][k], by_key[1][k]) for k in by_key[0])
    return contents[0] == contents[1]


def gtensors(**members: Any) -> dict[str, Any]:
    """Returns a request with one tensor, of which these members are changed."""
    tensor = {"name": "x", "dtype": "DT_INT32", "shape": [2], "flat_int32": [1, 2], **members}
    return {"gtensors": {"tensors": [{name: value for name, value in tensor.items() if value is not ...}]}}


RIGHT = [
    {"str_data": "żółw"}, {"strData": ""},
    {"model": "m-1", "str_data": "a", "status": {"code": 1}, "unheard_of": [1, {"a": None}]}, {"gtensors": {}},
    {"gtensors": {"tensors": []}}, {"gtensors": {"tensors": None}, "str_data": None, "gmap": None, "model": None},
    gtensors(), gtensors(name=...), gtensors(name=None, shape=None, flat_int32=[5]),
    gtensors(dtype=4, shape=["2"], flat_int32=["1", 2]), gtensors(dtype=4.0, shape=[2.0]),
    gtensors(dtype="4", shape=["1", 2.0, 1]),
    gtensors(dtype="DT_INT64", flat_int64=["9223372036854775807", "-9223372036854775808"], flat_int32=[1]),
    gtensors(dtype="DT_FLOAT32", flatFloat32=["NaN", "-Infinity"], flat_int32=...),
    gtensors(dtype="DT_FLOAT64", flat_float64=[1e300, 1], flat_int32=...),
    gtensors(dtype="DT_FLOAT16", shape=[0], flat_int32=...),
    gtensors(dtype="DT_STRING", flat_string=["", "żółw"], flat_int32=...),
    gtensors(dtype="DT_UINT8", shape=[], flat_uint8=[255], flat_int32=...), {"gmap": {}},
    {"gmap": {"s_s": {"a": "", "b": "żółw"}, "s_b": {"c": "/w=="}, "s_i32": {"d": -1}, "s_i64": {"e": "-5", "f": 6}}},
    {"gmap": {"sS": {"a": ""}, "sB": {"b": "_w"}, "sI32": {"c": "7"}, "sF": {"d": "NaN"}, "sD": {"e": 0.1, "f": "1"}}},
    {"gmap": {"s_f": {"a": 0.1, "": 16777217}, "s_d": {"b": "-Infinity"}}},
]  # fmt: skip


@pytest.mark.parametrize("blank", BLANKS, ids=["short", "long"])
@pytest.mark.parametrize("value", RIGHT, ids=range(len(RIGHT)))
def test_a_message_says_what_protobufs_reader_says(value: Any, blank: bytes) -> None:
    """The cases are both spellings, enumerations by name and number, integers as "2" and 2.0, and unknown members."""
    assert alike(asked(value, blank), theirs(value))


@pytest.mark.parametrize(
    "name", [f.name for m in (GrpsMessage, GenericTensor, GenericMapData) for f in m.DESCRIPTOR.fields]
)
def test_lower_camel_case_is_protobufs(name: str) -> None:
    """Every member can be spelled so."""
    found = [m.DESCRIPTOR.fields_by_name.get(name) for m in (GrpsMessage, GenericTensor, GenericMapData)]
    assert {field.json_name for field in found if field} == {camel(name)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", OWN, **by_name)
def test_every_type_is_read_in_every_shape(datatype: Any, shape: tuple[int, ...]) -> None:
    """The rule holds if the text is long enough for the quick reader, too."""
    whole = filled(datatype, shape)
    data = [x.decode() if isinstance(x, bytes) else x for x in whole.array.reshape(-1).tolist()]
    value = {"name": "t", "dtype": datatype.grps, "shape": list(shape), datatype.grps_field: data}
    for blank in BLANKS:
        content = asked({"gtensors": {"tensors": [value]}}, blank).content
        assert isinstance(content, Tensors)
        assert same(content.tensors[0], whole)


def test_long_arrays_of_numbers_never_become_lists() -> None:
    """They stand beside a shape, or are an ndarray."""
    numbers = np.arange(WORTH_SIMD, dtype=np.float32).reshape(2, -1)
    value = gtensors(
        dtype="DT_FLOAT32", shape=[2, WORTH_SIMD // 2], flat_int32=..., flat_float32=numbers.ravel().tolist()
    )
    content = asked(value).content
    assert isinstance(content, Tensors)
    assert np.array_equal(content.tensors[0].array, numbers)
    content = asked({"ndarray": numbers.tolist()}).content
    assert isinstance(content, Numbers)
    assert np.array_equal(content.array, numbers)


def test_digits_beyond_a_double_are_kept_beside_fractions() -> None:
    """The quick reader would make doubles of all."""
    value = gtensors(dtype="DT_INT64", shape=[2], flat_int32=..., flat_int64=[2**53 + 1, 1.0])
    for blank in BLANKS:
        content = asked(value, blank).content
        assert isinstance(content, Tensors)
        assert content.tensors[0].array.tolist() == [2**53 + 1, 1]


@pytest.mark.parametrize("name", ["flat_double", "flatDouble"])
def test_the_name_of_the_interface_document_is_an_alias(name: str) -> None:
    """As other pairs of spellings, the two are not possible together."""
    for members in ({name: [0.5]}, {name: [0.5], "flat_float64": None}, {name: None, "flat_float64": [0.5]}):
        content = asked(gtensors(dtype="DT_FLOAT64", shape=[1], flat_int32=..., **members)).content
        assert isinstance(content, Tensors)
        assert content.tensors[0].array.tolist() == [0.5]
    for other in ("flat_float64", "flatFloat64"):
        both = gtensors(dtype="DT_FLOAT64", shape=[1], flat_int32=..., **{name: [0.5], other: [1.5]})
        with pytest.raises(InvalidInput, match="'flat_double' and 'flat_float64' are the same member"):
            asked(both)


def test_bytes_stand_in_json_for_who_has_no_other_content_type() -> None:
    """They are base64. Over HTTP, there is such a content type, and GRPS's text says so."""
    assert asked({"bin_data": "/w=="}, binary=True).content == Binary(b"\xff")
    assert asked({"binData": ""}, binary=True).content == Binary(b"")
    with pytest.raises(InvalidInput, match=f"^{OCTETS_ONLY}$"):
        asked({"bin_data": "/w=="})


def test_bytes_that_are_not_base64_are_refused_by_their_own_name() -> None:
    """They are not a value of the map s_b."""
    with pytest.raises(InvalidInput, match=r"^'bin_data' is '\*'; expected base64$"):
        asked({"bin_data": "*"}, binary=True)


def test_what_is_there_counts_and_not_whether_it_is_true() -> None:
    """An empty text and a zero are data."""
    assert asked({"str_data": ""}).content == Text("")
    content = asked({"ndarray": 0}).content
    assert isinstance(content, Numbers)
    assert content.array.tolist() == 0


WRONG = [
    (b"", "is not JSON"), (b"{", "is not JSON"), (b"\xff", "is not UTF-8"),
    (b'{"str_data": "\\ud800"}', "lone surrogate"),
    (b'{"str_data": "a", "x": NaN}', "the body is not JSON: send NaN and infinities as the strings"),
    (b'{"str_data": "a", "x": [1, {"y": -Infinity}]}', "NaN and infinities"),
    (b'{"str_data": "a", "x": Inf}', "is not JSON"),
    (b'{"gtensors": {"tensors": [{"dtype": 8, "flat_float64": [1e999]}]}}', "1e999, which is out of range for FP64"),
    (b"[1]", r"the body is \[1\]; expected an object"), (b"null", "the body is null; expected an object"),
    (b"{}", f"^{NO_FIELD}$"), (b'{"str_data": null}', f"^{NO_FIELD}$"),
    (b'{"model": 5, "str_data": "a"}', "'model' is 5; expected a string"),
    (b'{"str_data": 5}', "'str_data' is 5; expected a string"),
    (b'{"str_data": ["a"]}', "'str_data' is .*; expected a string"),
    (b'{"str_data": "a", "strData": "a"}', "'str_data' and 'strData' are the same member"),
    (b'{"str_data": "a", "gmap": {}}', "the message has both 'str_data' and 'gmap'"),
    (b'{"str_data": "a", "ndarray": 1}', "the message has both 'str_data' and 'ndarray'"),
    (b'{"ndarray": []}', "'ndarray' is"), (b'{"gtensors": []}', r"'gtensors' is \[\]; expected an object"),
    (b'{"gtensors": {"tensors": {}}}', "'tensors' is {}; expected an array"),
    (b'{"gtensors": {"tensors": [1]}}', r"'tensors\[0\]' is 1; expected an object"),
    (b'{"gmap": [1]}', r"'gmap' is \[1\]; expected an object"),
    (b'{"gmap": {"s_s": ["a"]}}', "'s_s' is .*; expected an object"),
    (b'{"gmap": {"s_s": {"k": 1}}}', "input 'k' has 1 where s_s needs a string"),
    (b'{"gmap": {"s_b": {"k": "*"}}}', "input 'k' has .* where s_b needs base64"),
    (b'{"gmap": {"s_b": {"k": [1]}}}', "where s_b needs a string"),
    (b'{"gmap": {"s_i32": {"k": 2147483648}}}', "input 'k' has 2147483648, .* range for INT32"),
    (b'{"gmap": {"s_i64": {"k": "9223372036854775808"}}}', "out of range for INT64"),
    (b'{"gmap": {"s_i32": {"k": null}}}', "input 'k' has null where INT32 needs integers"),
    (b'{"gmap": {"s_f": {"k": 1e39}}}', "out of range for FP32"),
    (b'{"gmap": {"s_d": {"k": [1]}}}', "where FP64 needs numbers"),
]  # fmt: skip
WRONG_TENSORS = [
    ({"name": 5}, "'name' is 5; expected a string"),
    ({"dtype": "FP32"}, "input 'x' has 'FP32' as dtype; expected one of DT_UINT8,"),
    ({"dtype": 0}, "input 'x' has 'DT_INVALID' as dtype"),
    ({"dtype": 10}, "input 'x' has 10 as dtype"),
    ({"dtype": -1}, "input 'x' has -1 as dtype"),
    ({"dtype": True}, "input 'x' has true as dtype"),
    ({"dtype": "10"}, "input 'x' has '10' as dtype"),
    ({"dtype": "-4"}, "input 'x' has '-4' as dtype"),
    ({"dtype": 4.5}, "input 'x' has 4.5 as dtype"),
    ({"dtype": ...}, "input 'x' has null as dtype"),
    ({"dtype": 4, "name": ...,  "shape": [3]}, r"input 'tensors\[0\]' has 2 elements; its shape \[3\] needs 3"),
    ({"shape": [-2]}, r"input 'x' has -2 in its shape; expected unsigned integers below 2\*\*32$"),
    ({"shape": [2.5]}, r"input 'x' has 2.5 in its shape; expected unsigned integers below 2\*\*32$"),
    ({"shape": [-2.0]}, "input 'x' has -2 in its shape"),
    ({"shape": ["2.0"]}, "input 'x' has '2.0' in its shape"),
    ({"shape": ["x"]}, "input 'x' has 'x' in its shape"),
    ({"shape": 2}, "input 'x' needs 'shape'"),
    ({"shape": [[2]]}, "in its shape"),
    ({"shape": [2**32]}, r"input 'x' has 4294967296 in its shape; expected unsigned integers below 2\*\*32$"),
    ({"shape": ["99999999999"]}, "in its shape"),
    ({"shape": [1] * 33}, "33 dimensions"),
    ({"flat_int32": [1, 2, 3]}, "input 'x' has 3 elements"),
    ({"flat_int32": ..., "flat_float32": [1, 2]}, "has the dtype DT_INT32 and 'flat_float32'; expected 'flat_int32'"),
    ({"flat_int32": None, "flatInt64": [1, 2]}, "has the dtype DT_INT32 and 'flatInt64'; expected 'flat_int32'"),
    ({"flat_int32": ..., "flat_double": [1, 2]}, "has the dtype DT_INT32 and 'flat_double'; expected 'flat_int32'"),
    ({"flat_int32": ..., "flat_string": "a"}, "has the dtype DT_INT32 and 'flat_string'; expected 'flat_int32'"),
    ({"flat_int32": [], "flatFloat64": [1, 2]}, "has the dtype DT_INT32 and 'flatFloat64'; expected 'flat_int32'"),
    ({"flat_int32": ..., "flat_float32": []}, "input 'x' has 0 elements"),
    ({"flatInt32": [1, 2]}, "'flat_int32' and 'flatInt32' are the same member"),
    ({"flat_int32": [[1, 2]]}, r"input 'x' has \[1, 2\] where INT32 needs integers"),
    ({"flat_int32": [1, 2**31]}, "input 'x' has 2147483648, which is out of range for INT32"),
]  # fmt: skip


@pytest.mark.parametrize("blank", BLANKS, ids=["short", "long"])
@pytest.mark.parametrize(("body", "told"), WRONG)
def test_a_text_that_is_no_request_is_refused_in_words_that_name_its_mistake(
    body: bytes, told: str, blank: bytes
) -> None:
    """The refusal is the same whatever the text's size."""
    with pytest.raises(InvalidInput, match=told):
        read(body + blank)


@pytest.mark.parametrize("blank", BLANKS, ids=["short", "long"])
@pytest.mark.parametrize(("members", "told"), WRONG_TENSORS)
def test_a_tensor_that_is_none_is_refused_by_its_name(members: dict[str, Any], told: str, blank: bytes) -> None:
    """A tensor without a name is refused by its position."""
    with pytest.raises(InvalidInput, match=told):
        asked(gtensors(**members), blank)


def test_the_members_alone_can_be_asked_for() -> None:
    """A request that is not a message of the five kinds needs them."""
    assert document(b'{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidInput, match="expected an object"):
        document(b"1")


keys = st.sampled_from(
    [
        "model", "str_data", "strData", "bin_data", "ndarray", "gtensors", "tensors", "name", "dtype", "DT_FLOAT32",
        "shape", "flat_int32", "flatInt32", "flat_float32", "flat_string", "gmap", "s_s", "s_b", "s_i64", "s_d",
    ]
)  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), keys,
    st.sampled_from([4, 7, 2**63, 2**64, 10**400, "NaN", "1", "\ud800", "\0"]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(keys, st.text(max_size=3)), inner)),
    max_leaves=12,
)


@given(st.one_of(values, st.dictionaries(keys, values)), st.sampled_from(BLANKS), st.booleans())
def test_any_json_is_read_or_refused(value: Any, blank: bytes, binary: bool) -> None:  # noqa: FBT001 - drawn
    """The result does not depend on the size."""
    found = []
    for body in (json.dumps(value).encode(), json.dumps(value).encode() + blank):
        try:
            found.append(read(body, binary=binary))
        except ServingError as error:
            found.append(error.message)  # type: ignore[arg-type]
    left, right = found
    if isinstance(left, str) or isinstance(right, str):
        assert left == right
    elif isinstance(left.content, Numbers) and isinstance(right.content, Numbers):
        assert np.array_equal(left.content.array, right.content.array, equal_nan=True)
    else:
        assert alike(left, right)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Only the protocol's own errors are raised."""
    with suppress(ServingError):
        assert isinstance(read(body), GrpsQuestion)


def test_a_long_array_is_counted_before_its_elements_are_looked_at() -> None:
    """The refusal is about their number, not about the first element that is not a text."""
    data = [0, *["a"] * 5000]
    tensor = {"name": "x", "dtype": "DT_STRING", "shape": [1], "flat_string": data}
    with pytest.raises(InvalidInput, match="5001 elements"):
        read(json.dumps({"gtensors": {"tensors": [tensor]}}).encode())
