"""core.dialects.grps.inputs: which input of a model each form of content becomes, and which contents are refused."""

from typing import Any

import numpy as np
import pytest

from core.dialects.grps.content import MAP_FIELDS, Binary, Map, MapEntry, Numbers, Tensors, Text
from core.dialects.grps.inputs import bound
from core.dtype import DATATYPES
from core.errors import InvalidInput
from tests.support.grps_samples import FP32, UNTOLD, model, same, spec, string, tensor

PAIR = model(spec("a", "FP32", -1), spec("b", "INT32", 2))


def entry(field: str, name: str, value: Any) -> MapEntry:
    """Returns one value of a map."""
    if isinstance(value, bytes):
        return MapEntry(field, string(name, value))
    return MapEntry(field, tensor(name, MAP_FIELDS[field].name, value)._replace(array=np.array(value)))


def only(content: Any, *inputs: Any) -> Any:
    """Returns the only input of a model that has these inputs, or that declares none."""
    (found,) = bound(content, model(*inputs) if inputs else UNTOLD)
    return found


def test_named_tensors_are_the_inputs_of_their_names() -> None:
    """They come in any order; the engine finds names that the model does not have."""
    named = tensor("b", "INT32", [1, 2]), tensor("a", "FP32", [0.5]), tensor("c", "FP64", [1])
    assert bound(Tensors(named), PAIR) == named
    assert bound(Tensors(named), UNTOLD) == named
    assert bound(Tensors(()), PAIR) == ()


def test_tensors_without_names_are_the_inputs_in_their_order() -> None:
    """If the model declares no inputs, the names are the positions."""
    plain = tensor("", "FP32", [0.5]), tensor("", "INT32", [1, 2])
    assert [found.name for found in bound(Tensors(plain), PAIR)] == ["a", "b"]
    assert [found.name for found in bound(Tensors(plain), UNTOLD)] == ["input-0", "input-1"]


def test_scalars_are_rows_of_a_tables_columns() -> None:
    """Tensors [rows], with and without names, the lists of ndarray, and the values of a map for one row."""
    table = model(spec("age", "FP32", -1, 1), spec("sex", "BYTES", -1, 1))
    age, sex = tensor("age", "FP32", [22, 30]), string("sex", b"m")
    sexes = sex._replace(array=np.array([b"m", b"f"], object))
    for content in (Tensors((age, sexes)), Tensors((age._replace(name=""), sexes._replace(name="")))):
        assert [found.array.tolist() for found in bound(content, table)] == [[[22], [30]], [[b"m"], [b"f"]]]
    row = Map((entry("s_f", "age", 22.0), entry("s_s", "sex", b"m")))
    assert [found.array.tolist() for found in bound(row, table)] == [[[22]], [[b"m"]]]
    assert only(Numbers(np.array([1, 2], np.float32)), spec("x", "FP32", -1, 1)).array.tolist() == [[1], [2]]


@pytest.mark.parametrize(("given", "wanted", "values"), [
    ("UINT8", "BOOL", [1, 0]), ("INT32", "UINT16", [65535]), ("INT64", "UINT32", [2**32 - 1]),
    ("INT64", "UINT64", [2**63 - 1]), ("FP32", "BF16", [1.0]),
])  # fmt: skip
@pytest.mark.parametrize("name", ["x", ""])
def test_a_tensor_becomes_the_narrower_type_that_the_protocol_lacks(
    given: str, wanted: str, values: Any, name: str
) -> None:
    """The rule holds by name and by position."""
    found = only(Tensors((tensor(name, given, values),)), spec("x", wanted, -1))
    expected = [0x3F80] if wanted == "BF16" else values
    assert same(found, tensor("x", wanted, expected))


@pytest.mark.parametrize(("given", "wanted"), [("INT32", "INT64"), ("FP64", "FP32"), ("INT16", "UINT16")])
def test_any_other_type_stays_what_it_is_for_the_engine_to_refuse(given: str, wanted: str) -> None:
    """The protocol has its own types for these."""
    assert only(Tensors((tensor("x", given, [1]),)), spec("x", wanted, -1)).datatype is DATATYPES[given]


@pytest.mark.parametrize(("shape", "expected"), [((), ()), ((-1,), (1,)), ((1, 1), (1, 1)), ((2,), (1,)), (None, (1,))])
def test_a_text_is_one_element_of_the_inputs_rank(shape: Any, expected: tuple[int, ...]) -> None:
    """The engine checks whether its dimensions are 1."""
    for content, wanted in ((Text("żółw"), "żółw".encode()), (Binary(memoryview(b"\xff")), b"\xff")):
        found = only(content, spec("t", "BYTES", *(shape or ()), rank=shape is not None))
        assert (found.name, found.datatype.name, found.array.shape) == ("t", "BYTES", expected)
        assert found.array.item() == wanted
        assert type(found.array.item()) is bytes


@pytest.mark.parametrize(
    ("shape", "expected"), [((), (3,)), ((-1,), (3,)), ((1, 3), (1, 3)), ((1, 1, -1), (1, 1, 3)), (None, (3,))]
)
def test_bytes_are_a_vector_of_uint8_along_the_last_axis(shape: Any, expected: tuple[int, ...]) -> None:
    """The input is of that type."""
    found = only(Binary(b"abc"), spec("u", "UINT8", *(shape or ()), rank=shape is not None))
    assert (found.datatype.name, found.array.shape, found.array.tobytes()) == ("UINT8", expected, b"abc")


def test_nested_numbers_are_the_only_input_in_their_own_shape() -> None:
    """They become FP32."""
    array = np.ones((2, 3), np.float32)
    for inputs in ((spec("x", "FP32", -1, 3),), ()):
        assert only(Numbers(array), *inputs).array is array


def test_a_model_that_does_not_say_its_inputs_gets_one_of_the_contents_kind() -> None:
    """Its name is the one that KServe and MLServer use."""
    contents = Text("a"), Binary(b"a"), Numbers(np.ones(1, np.float32))
    found = [only(content) for content in contents]
    assert [each.name for each in found] == ["input-0"] * 3
    assert [each.datatype.name for each in found] == ["BYTES", "BYTES", "FP32"]


def test_what_is_optional_is_left_to_those_who_name_it() -> None:
    """A single value goes to the only required input, unless every input is optional. So do tensors without names."""
    text = spec("t", "BYTES", 1)
    assert only(Text("a"), spec("o", "FP32", 1, optional=True), text).name == "t"
    assert only(Text("a"), text._replace(optional=True)).name == "t"
    sides = [spec(name, "FP32", 1, optional=name in "ac") for name in "abcd"]
    assert [found.name for found in bound(several("", ""), model(*sides))] == ["b", "d"]
    assert [found.name for found in bound(several(*[""] * 4), model(*sides))] == ["a", "b", "c", "d"]
    with pytest.raises(InvalidInput, match="the request has 3 tensors, without names; model 'm' has 4"):
        bound(several("", "", ""), model(*sides))


INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL"]
FLOATS = ["FP16", "FP32", "FP64"]


@pytest.mark.parametrize("field", ["s_i32", "s_i64"])
@pytest.mark.parametrize("wanted", [*INTEGERS, *FLOATS, "BF16"])
def test_an_integer_of_a_map_is_any_number(field: str, wanted: str) -> None:
    """It becomes one element, in the input's rank."""
    found = only(Map((entry(field, "x", 1),)), spec("x", wanted, 1, -1))
    assert same(found, tensor("x", wanted, [0x3F80 if wanted == "BF16" else 1], 1, 1))


@pytest.mark.parametrize("field", ["s_f", "s_d"])
@pytest.mark.parametrize("wanted", [*FLOATS, "BF16"])
def test_a_float_of_a_map_is_a_float(field: str, wanted: str) -> None:
    """It becomes a float of any width that holds it."""
    found = only(Map((entry(field, "x", 0.5),)), spec("x", wanted))
    assert same(found, tensor("x", wanted, [0x3F00 if wanted == "BF16" else 0.5])._replace(array=found.array))
    assert found.array.shape == ()
    assert found.array.item() == (0x3F00 if wanted == "BF16" else 0.5)


def test_strings_and_bytes_of_a_map_are_bytes() -> None:
    """Bytes may also become a vector of UINT8."""
    content = Map((entry("s_s", "t", b"a"), entry("s_b", "b", b"\xff"), entry("s_b", "u", b"ab")))
    found = bound(content, model(spec("t", "BYTES", 1), spec("b", "BYTES"), spec("u", "UINT8", 1, -1)))
    assert [each.array.tolist() for each in found] == [[b"a"], b"\xff", [[97, 98]]]


def test_a_model_that_does_not_say_its_inputs_gets_what_the_maps_say() -> None:
    """They are vectors of one element, as for an input that the model does not have."""
    values = {"s_s": b"a", "s_b": b"\xff", "s_i32": 1, "s_i64": 2, "s_f": 0.5, "s_d": 0.25}
    content = Map(tuple(entry(field, field, value) for field, value in values.items()))
    for known in (UNTOLD, PAIR):
        found = bound(content, known)
        assert [each.datatype for each in found] == list(MAP_FIELDS.values())
        assert [each.array.tolist() for each in found] == [[value] for value in values.values()]


def several(*names: str) -> Tensors:
    """Returns tensors of one element each."""
    return Tensors(tuple(tensor(name, "FP32", [1]) for name in names))


@pytest.mark.parametrize(("content", "known", "told"), [
    (several("a", ""), PAIR, "tensor 1 of 2 has no name"),
    (several("", "b"), UNTOLD, "tensor 0 of 2 has no name"),
    (several(""), PAIR, r"the request has 1 tensor, without names; model 'm' has 2: \['a', 'b'\]"),
    (several("", "", ""), PAIR, "the request has 3 tensors, without names"),
    (Text("a"), PAIR, r"str_data is for one input; model 'm' has 2: \['a', 'b'\]"),
    (Binary(b"a"), PAIR, "bin_data is for one input"),
    (Numbers(np.ones(1, np.float32)), PAIR, "ndarray is for one input"),
    (Text("a"), model(), "str_data is for one input; model 'm' has 0"),
    (Text("1"), model(spec("x", "UINT8", -1)), "input 'x' is UINT8; str_data can be BYTES"),
    (Binary(b"1234"), model(spec("x", "FP32", -1)), "input 'x' is FP32; bin_data can be BYTES or UINT8"),
    (Binary(b"1"), model(spec("x", "INT8", -1)), "input 'x' is INT8; bin_data can be"),
    (Numbers(np.ones(1, FP32.numpy)), model(spec("x", "FP64", -1)), "input 'x' is FP64; ndarray can be FP32"),
    (Map((entry("s_i32", "x", 1),)), model(spec("x", "BYTES", 1)), "input 'x' is BYTES; s_i32 can be a number"),
    (Map((entry("s_f", "x", 1.0),)), model(spec("x", "INT32", 1)), "input 'x' is INT32; s_f can be a float"),
    (Map((entry("s_d", "x", 1.0),)), model(spec("x", "BOOL", 1)), "input 'x' is BOOL; s_d can be a float"),
    (Map((entry("s_s", "x", b"1"),)), model(spec("x", "UINT8", 1)), "input 'x' is UINT8; s_s can be BYTES"),
    (Map((entry("s_b", "x", b"1"),)), model(spec("x", "INT32", 1)), "input 'x' is INT32; s_b can be BYTES or U"),
    (Map((entry("s_i32", "x", 256),)), model(spec("x", "UINT8", 1)), "input 'x' has 256, .* range for UINT8"),
    (Map((entry("s_d", "x", 1e300),)), model(spec("x", "FP32", 1)), r"input 'x' has 1e\+300, .* range for FP32"),
    (several("x"), model(spec("x", "BOOL", 1)), None),
])  # fmt: skip
def test_what_can_be_no_input_of_the_model_is_refused(content: Any, known: Any, told: str | None) -> None:
    """The refusal has the name of the input, or all names. A type that merely differs is left to the engine."""
    if told is None:
        assert bound(content, known)[0].datatype is FP32
        return
    with pytest.raises(InvalidInput, match=told):
        bound(content, known)
