"""core.dialects.v1.inputs: rows and columns become tensors, with and without a signature that declares the inputs."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bounds import MOST_FILLED, MOST_PARTS
from core.dialects.v1.inputs import UNNAMED, from_columns, from_rows
from core.dialects.v1.values import Irregular, is_named
from core.dtype import BYTES
from core.errors import InvalidInput, TooLarge
from core.tensor import Tensor
from tests.support.samples import nested
from tests.support.v1_samples import binding, listed

ONE = {"x": binding("tensor_x")}
TWO = {"b": binding("tensor_b", "INT64"), "a": binding("tensor_a")}
TEXT = {"s": binding("s", "BYTES")}
IMAGE = {"image_bytes": binding("jpeg", "UINT8", (-1, -1), encoded=True)}
DEFAULTS = {"x": binding("x", shape=(-1,)), "scale": binding("scale", shape=(-1,), default=2.0)}
ITEM = "Failed to process element: {} of 'instances' list. Error: INVALID_ARGUMENT: "


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(InvalidInput) as refusal:
        call(*arguments)
    return refusal.value.message


def test_columns_are_whole_tensors_under_the_models_names() -> None:
    """They have the signature's order; names that it does not have are ignored; sizes may differ."""
    tensors = from_columns({"a": [[1.5], [2.5]], "z": "foreign", "b": 7}, TWO)
    assert [t.name for t in tensors] == ["tensor_b", "tensor_a"]
    assert listed(tensors) == {"tensor_b": 7, "tensor_a": [[1.5], [2.5]]}
    assert tensors[0].array.dtype == np.int64


@pytest.mark.parametrize("value", [3, [3.0], [[1, 2]], []])
def test_the_only_input_needs_no_name(value: Any) -> None:
    """A number becomes a scalar."""
    (tensor,) = from_columns(value, ONE)
    assert tensor.array.tolist() == value
    assert from_columns({"x": value}, ONE)[0].array.tolist() == value


def test_a_binary_value_is_a_value_and_no_object_of_names() -> None:
    """Objects that merely resemble one are not."""
    assert is_named({"b64": 5})
    assert is_named({})
    assert not is_named({"b64": "YQ=="})
    assert listed(from_columns({"b64": "YQ=="}, TEXT)) == {"s": b"a"}
    assert refused(from_columns, {"b64": 5}, TEXT) == "Missing named input: s in 'inputs' object."


def test_rows_are_stacked_along_a_first_axis() -> None:
    """They are values, lists, or objects of them with keys in any order."""
    assert listed(from_rows([1, 2, 3], ONE)) == {"tensor_x": [1, 2, 3]}
    assert listed(from_rows([[1], [2]], ONE)) == {"tensor_x": [[1], [2]]}
    assert listed(from_rows([{"x": 1}, {"x": 2}], ONE)) == {"tensor_x": [1, 2]}
    tensors = from_rows([{"a": 0.5, "b": [1]}, {"b": [2], "a": 1.5}], TWO)
    assert listed(tensors) == {"tensor_b": [[1], [2]], "tensor_a": [0.5, 1.5]}
    assert listed(from_rows(["a", {"b64": "YQ=="}], TEXT)) == {"s": [b"a", b"a"]}
    assert listed(from_rows([{"s": {"b64": "YQ=="}}], TEXT)) == {"s": [b"a"]}


TABLE = {
    "age": binding("age", shape=(-1, 1)),
    "sex": binding("sex", "BYTES", shape=(-1, 1)),
    "fare": binding("fare", shape=(-1, 1), default=7.5),
}


def test_scalars_are_rows_of_a_tables_columns() -> None:
    """Exporters make each column of a DataFrame an input [-1, 1]. Numbers and text mix, and defaults are repeated."""
    expected = {"age": [[22], [30]], "sex": [[b"m"], [b"f"]], "fare": [[7.5], [7.5]]}
    assert listed(from_rows([{"age": 22, "sex": "m"}, {"age": 30, "sex": "f"}], TABLE)) == expected
    assert listed(from_rows([{"age": [22], "sex": ["m"]}, {"age": [30], "sex": ["f"]}], TABLE)) == expected
    columns = {"age": np.array([22, 30]), "sex": ["m", "f"], "fare": [[7.5], [7.5]]}
    assert listed(from_columns(columns, TABLE)) == expected


@pytest.mark.parametrize("shape", [(-1,), (-1, 2), (-1, -1), (-1, -1, -1), None, ()])
def test_scalars_stay_scalars_for_other_inputs(shape: Any) -> None:
    """The engine refuses them, or takes them as they are."""
    (found,) = from_rows([1, 2], {"x": binding("x", shape=shape)})
    assert found.array.shape == (2,)


def test_a_model_without_inputs_takes_rows_and_columns_of_nothing() -> None:
    """The model does not have an input that could get a value."""
    assert from_columns({}, {}) == from_rows([{}, {}], {}) == ()
    assert refused(from_rows, [1], {}).startswith("instances is a plain list, but expecting list of objects")


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(shape=shapes, data=st.data())
def test_rows_are_columns_for_every_regular_array(shape: tuple[int, ...], data: st.DataObject) -> None:
    """They may have names or not, be lists or the parser's arrays, and the model may declare its inputs or not."""
    count = math.prod(shape)
    flat = data.draw(st.lists(st.integers(-(2**24), 2**24), min_size=count, max_size=count))
    lists, array = nested(flat, shape), np.array(flat).reshape(shape)
    for bindings in (ONE, None):
        columns = [from_columns(value, bindings) for value in (lists, array)]
        rows = [from_rows(value, bindings) for value in (lists, array)]
        for (tensor,) in [*columns, *rows]:
            assert tensor.name == ("tensor_x" if bindings else UNNAMED)
            assert tensor.datatype.name == ("FP32" if bindings else "INT64")
            assert tensor.array.shape == shape
            assert tensor.array.tolist() == lists
        named = [from_columns({"x": lists}, bindings), from_columns({"x": array}, bindings)]
        named += [from_rows([{"x": row} for row in lists], bindings)]
        if len(shape) > 1:
            named += [from_rows([{"x": row} for row in array], bindings)]
        for (tensor,) in named:
            assert tensor.name == ("tensor_x" if bindings else "x")
            assert tensor.array.tolist() == lists


@pytest.mark.parametrize(("instances", "message"), [
    (5, "Expecting 'instances' to be an list/array"),
    (np.array(5), "Expecting 'instances' to be an list/array"),
    (np.empty((0, 2)), "No values in 'instances' array"),
    ([[[1, 2]], [[1], [2]]], ITEM.format(1) + "Expecting shape [1,2] but got: [2,1]"),
    ([[[1], [2]], [[1, 2], [1]]],
     ITEM.format(1) + "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    ([1, "a"], ITEM.format(1) + 'JSON Value: "a" Type: String is not of expected type: float'),
    ([1, {"x": 1}], "Expecting value/list but got object at item 1 of input list"),
    ([{"x": 1}, 5], "Expecting object but got list at item 1 of input list"),
    ([{"b64": 5}], ITEM.format(0) + "JSON object: does not have named input: b64"),
    ([{"x": 1}, {"x": [1]}], ITEM.format(1) + "Expecting shape [] but got: [1]"),
    ([{"x": 1}, {"x": {"y": 1}}],
     ITEM.format(1) + 'JSON Value: {"y": 1} Type: Object is not of expected type: float'),
])  # fmt: skip
def test_the_first_row_that_differs_is_named(instances: Any, message: str) -> None:
    """The refusal has the form of the rows before it."""
    assert refused(from_rows, instances, ONE) == message


@pytest.mark.parametrize("value", [{"b64": 5}, {"b64": "YQ==", "x": 1}, {}])
def test_an_object_that_is_not_binary_is_named_as_the_value_of_its_input(value: Any) -> None:
    """Its row is an object, as it has to be: the fault is the value's."""
    text = ITEM.format(1) + f"JSON Value: {json.dumps(value)} not formatted correctly for base64 data"
    assert refused(from_rows, [{"s": {"b64": "YQ=="}}, {"s": value}], TEXT) == text
    assert refused(from_rows, [{"s": ["a"]}, {"s": [value]}], TEXT) == text


def test_every_row_has_exactly_the_inputs() -> None:
    """The refusal lists the expected names, sorted and bounded."""
    text = ITEM.format(1) + 'JSON object: {"a": 1} keys must be equal to: a,b'
    assert refused(from_rows, [{"a": 1, "b": 2}, {"a": 1}], TWO) == text
    many = {f"{number:05}": binding("x") for number in range(1000)}
    assert len(refused(from_rows, [{}], many)) < 512
    assert refused(from_rows, [{"x" * 1000: 1}], ONE).endswith("named input: " + "x" * 256)


def test_a_plain_value_is_not_enough_for_many_inputs() -> None:
    """The refusal lists their names, sorted."""
    told = "as multiple input tensors required as per tensorinfo_map: a, b"
    assert refused(from_rows, [1, 2], TWO) == f"instances is a plain list, but expecting list of objects {told}"
    assert refused(from_columns, [1, 2], TWO) == f"inputs is a plain value/list, but expecting an object {told}"
    assert refused(from_columns, {"a": 1}, TWO) == "Missing named input: b in 'inputs' object."


def test_a_default_stands_for_an_input_that_is_left_out() -> None:
    """It is repeated for each row. If all other inputs have defaults, the remaining one does not need a name."""
    assert listed(from_columns({"x": [1.0, 2.0]}, DEFAULTS)) == {"x": [1, 2], "scale": [2, 2]}
    assert listed(from_columns([1.0], DEFAULTS)) == {"x": [1], "scale": [2]}
    assert listed(from_columns({}, {"scale": DEFAULTS["scale"]})) == {"scale": [2]}
    assert listed(from_columns({"x": [1.0], "scale": [3.0]}, DEFAULTS)) == {"x": [1], "scale": [3]}
    assert listed(from_rows([1.0, 5.0], DEFAULTS)) == {"x": [1, 5], "scale": [2, 2]}
    assert listed(from_rows([{"x": 1}, {"x": 5}], DEFAULTS)) == {"x": [1, 5], "scale": [2, 2]}
    assert listed(from_rows([{"x": 1, "scale": 3}], DEFAULTS)) == {"x": [1], "scale": [3]}
    assert "keys must be equal to: scale,x" in refused(from_rows, [{"x": 1, "scale": 3}, {"x": 1}], DEFAULTS)


@pytest.mark.parametrize(("columns", "shapes"), [
    ({"x": [1.0, 2.0], "y": [3.0]}, "'x' has shape [2] and 'y' [1]"),
    ({"x": 1.0, "y": 3.0}, "'x' has shape []"),
    ({"x": [1.0, 2.0], "y": 3.0}, "'x' has shape [2] and 'y' []"),
])  # fmt: skip
def test_a_default_that_cannot_be_repeated_is_not_blamed(columns: dict[str, Any], shapes: str) -> None:
    """The refusal names the inputs that were sent, whose numbers of rows differ or that have none."""
    more = DEFAULTS | {"y": binding("y", shape=(-1,))}
    assert refused(from_columns, columns, more) == (
        "input 'scale' is missing, and its default is repeated for each row: expected the same number of rows in all "
        f"other inputs; {shapes}"
    )


@pytest.mark.parametrize("shape", [None, (), (-1, -1, -1)])
def test_a_default_that_is_no_examples_is_taken_whole(shape: Any) -> None:
    """Its rank may be any: the tensor's own or another."""
    bindings = {"x": binding("x"), "scale": binding("scale", shape=shape, default=2.0)}
    assert listed(from_rows([1.0, 5.0], bindings)) == {"x": [1, 5], "scale": 2}


def test_where_every_input_has_a_default_one_alone_needs_no_name() -> None:
    """With several, the meaning would not be clear."""
    one = {"scale": binding("scale", default=2.0)}
    assert listed(from_columns(5.0, one)) == {"scale": 5}
    assert listed(from_columns({}, one)) == {"scale": 2}
    two = {name: binding(name, default=2.0) for name in ("p", "q")}
    assert refused(from_columns, 5.0, two).endswith("tensorinfo_map: p, q")


@pytest.mark.parametrize(("value", "datatype", "array"), [
    (True, "BOOL", True),
    ([1, 2], "INT64", [1, 2]),
    ([1, 2.5], "FP64", [1, 2.5]),
    ([[]], "FP64", [[]]),
    (["a", {"b64": "YQ=="}], "BYTES", [b"a", b"a"]),
    (np.array([[1.5]]), "FP64", [[1.5]]),
    (np.array([2**64 - 1], np.uint64), "UINT64", [2**64 - 1]),
])  # fmt: skip
def test_what_a_model_does_not_say_follows_from_the_values(value: Any, datatype: str, array: Any) -> None:
    """The only input has KServe's name for it, or the client's own."""
    (tensor,) = from_columns(value, None)
    assert (tensor.name, tensor.datatype.name, tensor.array.tolist()) == (UNNAMED, datatype, array)
    (tensor,) = from_columns({"own": value}, None)
    assert (tensor.name, tensor.datatype.name, tensor.array.tolist()) == ("own", datatype, array)


def test_rows_of_a_model_that_says_nothing_are_alike() -> None:
    """The first row's names hold for all rows; values of several kinds have no common datatype."""
    assert listed(from_rows([{"p": 1, "q": "a"}, {"q": "b", "p": 2}], None)) == {"p": [1, 2], "q": [b"a", b"b"]}
    assert refused(from_rows, [{"p": 1}, {"q": 1}], None) == ITEM.format(1) + (
        "JSON object: does not have named input: q"
    )
    assert refused(from_rows, [1, [2]], None) == ITEM.format(1) + "Expecting shape [] but got: [1]"
    assert refused(from_rows, [1, "a"], None) == "JSON Value: 1 Type: Number is not of expected type: string"


def test_encoded_strings_become_their_bytes_along_a_last_axis() -> None:
    """They are base64 or text. One alone, none, and empty ones are accepted, too."""
    raw = {"b64": "AP8="}
    (tensor,) = from_columns({"image_bytes": [raw, "ab"]}, IMAGE)
    assert (tensor.name, tensor.datatype.name) == ("jpeg", "UINT8")
    assert tensor.array.tolist() == [[0, 255], [97, 98]]
    assert listed(from_rows([{"image_bytes": raw}], IMAGE)) == {"jpeg": [[0, 255]]}
    assert listed(from_columns(raw, IMAGE)) == {"jpeg": [0, 255]}
    assert from_columns([], IMAGE)[0].array.shape == (0, 0)
    assert from_columns([["", ""]], IMAGE)[0].array.shape == (1, 2, 0)


def test_encoded_strings_of_one_request_are_equally_long() -> None:
    """They become the rows of one array. The refusal has the client's name of the input."""
    text = "input 'image_bytes' has strings of 1 and of 3 bytes"
    assert refused(from_rows, ["abc", "d"], IMAGE).startswith(text)
    assert refused(from_rows, [{"image_bytes": "abc"}, {"image_bytes": "d"}], IMAGE).startswith(text)
    assert refused(from_columns, [1], IMAGE) == "JSON Value: 1 Type: Number is not of expected type: string"


@pytest.mark.parametrize(
    "rows", [[np.array([1, 2]), np.array([1])], [np.array([1, 2]), np.array([1.5, 2.5])], [np.array([1, 2]), "text"]]
)
def test_arrays_of_the_parser_that_differ_are_left_to_the_exact_reading(rows: list[Any]) -> None:
    """The exact reader names the row; numpy would broadcast or convert."""
    assert refused(from_rows, [{"x": row} for row in rows], ONE) == "rows of different kinds"


def test_an_array_of_the_parser_that_does_not_fit_is_refused_as_a_whole() -> None:
    """The exact reader names the row."""
    with pytest.raises(InvalidInput) as refusal:
        from_rows(np.array([[1, 300]]), {"x": binding("x", "INT8")})
    assert not isinstance(refusal.value, Irregular)
    assert refusal.value.message.startswith("JSON Value: 300 Type: Number is not of expected type: int8")


def test_a_default_is_never_written_to() -> None:
    """All requests share it."""
    default = Tensor("s", BYTES, np.array(b"x", object))
    bindings = {"n": binding("n", "INT64", (-1,)), "s": binding("s", "BYTES", (-1,))._replace(default=default)}
    _, repeated = from_rows([1, 2, 3], bindings)
    assert repeated.array.tolist() == [b"x"] * 3
    assert not repeated.array.flags.writeable
    assert bindings["s"].default is default


def test_the_inputs_of_a_model_that_declares_none_are_counted() -> None:
    """Each becomes a tensor, whatever the model does with it."""
    many = {str(each): 1 for each in range(MOST_PARTS + 1)}
    for read, value in ((from_columns, many), (from_rows, [many])):
        assert refused(read, value, None) == "the request has 4097 inputs; at most 4096 are accepted"
        many.popitem()
        assert len(read(value, None)) == MOST_PARTS
        many["last"] = 1


def test_defaults_count_with_their_texts() -> None:
    """Each row would get its copy in the model and in the answer."""
    default = Tensor("s", BYTES, np.array(b"x" * 10_000, object))
    bindings = {"n": binding("n", "INT64", (-1,)), "s": binding("s", "BYTES", (-1,))._replace(default=default)}
    rows = MOST_FILLED // 10_000
    with pytest.raises(TooLarge, match=rf"would fill {rows * 10_064} bytes; at most {MOST_FILLED} are filled"):
        from_columns({"n": [1] * rows}, bindings)
    assert from_columns({"n": [1] * (rows - 100)}, bindings)[1].array.shape == (rows - 100,)
