"""Every element type passes JSON: both ends, exactness, zero dimensions, scalars, non-finite numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.catalogue import row
from tests.support.checks import LENGTHS, alive, refusal
from tests.support.server import Server
from tests.support.wire import Wire, json_input, same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES

INTEGERS = [name for name in JSON_DATATYPES if "INT" in name]
FLOATS = ["FP16", "FP32", "FP64"]
TEXTS = ["", "a", "nul\0in and at the end\0", "één", "日本", "🦜", '"\\/\b\f\n\r\t', "\u2028\ufeff\uffff", " ", "NaN"]


def extremes(datatype: str) -> NDArray[Any]:
    """Returns values of a type that a careless path loses."""
    dtype = np.dtype(DATATYPES[datatype].numpy)
    if datatype == "BOOL":
        return np.array([True, False, True])
    if datatype == "BYTES":
        return np.array([text.encode() for text in TEXTS], object)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        odd = [value for value in (2**53 + 1, -(2**53) - 1, 2**31, 2**32, 127, -1) if info.min <= value <= info.max]
        return np.array([info.min, info.max, info.min + 1, info.max - 1, 0, 1, *odd], dtype)
    floats = np.finfo(dtype)
    ends = [floats.max, floats.min, floats.tiny, floats.smallest_subnormal, floats.eps]
    return np.array([*ends, 0.0, -0.0, 1 / 3, 0.1, 1e-5, 65504.0, -1.0], dtype)


@pytest.mark.row("R-111")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
@pytest.mark.parametrize("blank", LENGTHS)
def test_every_value_comes_back_exactly(wire: Wire, datatype: str, blank: str) -> None:
    """The values are both ends of each integer type, denormals, signed zero, NUL and non-ASCII text."""
    values = extremes(datatype)
    answer = wire.infer(DATATYPES[datatype].model, json_input("INPUT0", datatype, values), blank=blank)
    assert same(answer.tensor(), values)


def test_a_float_is_written_with_the_digits_of_its_own_width(wire: Wire) -> None:
    """0.1 is FP32's 0.1, not the double beside it."""
    answer = wire.infer("vector_fp32", json_input("INPUT0", "FP32", np.array([0.1, 16777216.0], np.float32)))
    assert b"[0.1,16777216.0]" in answer.content.replace(b" ", b"")


@pytest.mark.row("R-112")
def test_fp16_is_numbers(wire: Wire) -> None:
    """They are accepted and answered, though the specification calls FP16 problematic."""
    answer = wire.infer("vector_fp16", json_input("INPUT0", "FP16", np.array([1.5, -2.0, 65504.0], np.float16)))
    assert answer.json()["outputs"][0]["data"] == [1.5, -2.0, 65504.0]


@pytest.mark.row("R-113")
@pytest.mark.parametrize(("datatype", "text"), [
    ("UINT64", "18446744073709551615"), ("UINT64", "9007199254740993"), ("INT64", "-9223372036854775808"),
    ("INT64", "9223372036854775807"),
])  # fmt: skip
def test_a_64_bit_integer_is_written_out(wire: Wire, datatype: str, text: str) -> None:
    """The text of the answer itself has every digit."""
    dtype = DATATYPES[datatype].numpy
    answer = wire.infer(f"vector_{datatype.lower()}", json_input("INPUT0", datatype, np.array([int(text)], dtype)))
    assert f"[{text}]".encode() in answer.content


@pytest.mark.row("R-114")
def test_a_boolean_is_true_or_false(wire: Wire) -> None:
    """It is not 1 or 0."""
    answer = wire.infer("vector_bool", json_input("INPUT0", "BOOL", np.array([True, False])))
    data = answer.json()["outputs"][0]["data"]
    assert data[0] is True
    assert data[1] is False


@pytest.mark.parametrize(("datatype", "data"), [
    *(row("R-115", datatype, data, name=datatype) for datatype in FLOATS for data in ([1, -2, 0], [1, 2.5, 3])),
    row("R-115", "FP64", [2**53, 10**25], name="beyond 64 bits"),
    *(row("R-207", datatype, [1.0, 2], name=datatype) for datatype in INTEGERS),
])  # fmt: skip
def test_a_number_may_be_written_as_the_other_kind(wire: Wire, datatype: str, data: list[Any]) -> None:
    """1 is 1.0, alone and among fractions, and 1.0 is 1; another test refuses 1.5 as an integer."""
    head = {"name": "INPUT0", "datatype": datatype, "shape": [len(data)], "data": data}
    assert wire.infer(f"vector_{datatype.lower()}", head).tensor().tolist() == list(map(float, data))


@pytest.mark.row("R-111", "R-113")
@pytest.mark.parametrize("blank", LENGTHS)
@pytest.mark.parametrize(("datatype", "digits"), [("INT64", "-9007199254740993"), ("UINT64", "18446744073709551615")])
def test_a_great_integer_is_exact_beside_a_zero_fraction(wire: Wire, datatype: str, digits: str, blank: str) -> None:
    """If the list were read as doubles, it would lose its last digits."""
    text = body(datatype, f"[{digits}, 1.0]", 2) + blank.encode()
    answer = wire.post(f"/v2/models/vector_{datatype.lower()}/infer", text)
    assert answer.tensor().tolist() == [int(digits), 1]


EMPTY_SHAPES = [[0, 3], [2, 0], [0]]


@pytest.mark.row("R-116")
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES", "BOOL"])
@pytest.mark.parametrize("shape", EMPTY_SHAPES)
@pytest.mark.parametrize("nested", [False, True])
def test_a_dimension_of_zero_comes_back(wire: Wire, datatype: str, shape: list[int], *, nested: bool) -> None:
    """The shape is the same, and data is []."""
    values = np.empty(shape, DATATYPES[datatype].numpy)
    answer = wire.infer(DATATYPES[datatype].model, json_input("INPUT0", datatype, values, nested=nested))
    (output,) = answer.json()["outputs"]
    assert output["shape"] == shape
    assert output["data"] == []


@pytest.mark.row("R-116")
@pytest.mark.parametrize(("shape", "sums"), [([0, 3], []), ([2, 0], [0.0, 0.0])])
def test_a_model_calculates_with_a_dimension_of_zero(wire: Wire, shape: list[int], sums: list[float]) -> None:
    """The model computes row sums of a matrix without rows, or without columns."""
    answer = wire.infer("zero_dims", {"name": "matrix", "datatype": "FP32", "shape": shape, "data": []})
    tensors = answer.tensors()
    assert tensors["sums"].tolist() == sums
    assert list(tensors["same"].shape) == shape


@pytest.mark.row("R-117")
@pytest.mark.parametrize("model", ["scalar", "scalar_by_settings", "identity_fp32"])
def test_a_scalar_comes_back_as_one(wire: Wire, model: str) -> None:
    """It has shape [] and one element."""
    answer = wire.infer(model, {"name": "INPUT0", "datatype": "FP32", "shape": [], "data": [2.5]})
    (output,) = answer.json()["outputs"]
    assert output["shape"] == []
    assert output["data"] == [2.5]


TOKENS = "[NaN, Infinity, -Infinity, 1.5]"


def body(datatype: str, data: str, count: int) -> bytes:
    """Returns a request whose data is text, since Python's json would not write all of it."""
    head = f'{{"name": "INPUT0", "datatype": "{datatype}", "shape": [{count}], "data": {data}}}'
    return f'{{"inputs": [{head}]}}'.encode()


def special(datatype: str) -> NDArray[Any]:
    """Returns NaN, both infinities and a number."""
    return np.array([np.nan, np.inf, -np.inf, 1.5], DATATYPES[datatype].numpy)


@pytest.mark.row("R-140", "R-141")
@pytest.mark.parametrize("datatype", FLOATS)
def test_tokens_of_other_json_writers_are_read(wire: Wire, datatype: str) -> None:
    """json.dumps and rapidjson write NaN and Infinity bare; the answer is still strict JSON."""
    answer = wire.post(f"/v2/models/vector_{datatype.lower()}/infer", body(datatype, TOKENS, 4))
    assert same(answer.tensor(), special(datatype))


@pytest.mark.row("R-142")
@pytest.mark.parametrize("datatype", FLOATS)
def test_non_finite_numbers_are_answered_as_strings(wire: Wire, datatype: str) -> None:
    """NumPy reads them back, as all clients do."""
    answer = wire.infer(f"vector_{datatype.lower()}", json_input("INPUT0", datatype, special(datatype)))
    assert answer.json()["outputs"][0]["data"] == ["NaN", "Infinity", "-Infinity", 1.5]


@pytest.mark.row("R-142")
def test_non_finite_numbers_can_be_set_to_null(zoo: Path, launch: Callable[..., Server]) -> None:
    """Some clients only know null."""
    with launch(REPOSITORY=str(zoo), NON_FINITE="null").wire() as wire:
        answer = wire.infer("vector_fp32", json_input("INPUT0", "FP32", special("FP32")))
        assert answer.json()["outputs"][0]["data"] == [None, None, None, 1.5]


@pytest.mark.row("R-143")
@pytest.mark.parametrize("datatype", FLOATS)
def test_strings_and_null_are_read_as_non_finite_numbers(wire: Wire, datatype: str) -> None:
    """Null is NaN, even nested."""
    texts = '["NaN", "Infinity", "-Infinity", 1.5, null]'
    expected = np.append(special(datatype), np.array([np.nan], special(datatype).dtype))
    model = f"/v2/models/vector_{datatype.lower()}/infer"
    assert same(wire.post(model, body(datatype, texts, 5)).tensor(), expected)
    nested = f"[[{texts[1:-1]}]]".encode()
    text = body(datatype, texts, 5).replace(b"[5]", b"[1, 5]").replace(texts.encode(), nested)
    answer = wire.post(f"/v2/models/identity_{datatype.lower()}/infer", text)
    assert same(answer.tensor(), expected.reshape(1, 5))


NEIGHBOURS: list[tuple[str, Any, list[Any]]] = [
    ("BOOL", [0, 1], [False, True]), ("BOOL", [0.0, 1.0], [False, True]), ("BOOL", ["true", "false"], [True, False]),
    ("FP32", ["1.5"], [1.5]), ("FP32", [True, False], [1.0, 0.0]), ("FP64", ["-1e3", " 1 "], [-1000.0, 1.0]),
    ("INT32", ["7"], [7]), ("INT64", [True, False], [1, 0]), ("UINT8", [True, 0], [1, 0]),
    ("INT64", [1, 1e3], [1, 1000]), ("INT64", [True, 5], [1, 5]), ("FP32", [True, 1.5], [1.0, 1.5]),
    ("BYTES", [1, 2.5], [b"1", b"2.5"]), ("BYTES", [True], [b"true"]), ("FP32", [1e39], [float("inf")]),
    ("FP16", [70000], [float("inf")]), ("FP64", [10**400], [float("inf")]),
]  # fmt: skip


@pytest.mark.row("R-207")
@pytest.mark.parametrize(("datatype", "data", "right"), NEIGHBOURS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_neighbouring_element_type_is_right_or_refused(
    wire: Wire, datatype: str, data: list[Any], right: list[Any], blank: str
) -> None:
    """It is converted to the same value, or 400 names the input: never another value."""
    head = {"name": "INPUT0", "datatype": datatype, "shape": [len(data)], "data": data}
    answer = wire.infer(f"vector_{datatype.lower()}", head, blank=blank)
    if answer.status == 200:
        assert answer.tensor().tolist() == right
    else:
        assert "INPUT0" in refusal(answer, 400)
    alive(wire)


@pytest.mark.parametrize("data", ["[1e400]", "[-1e999, 1.0]"])
def test_a_number_beyond_fp64_is_infinite_or_refused(wire: Wire, data: str) -> None:
    """JSON has no bounds: the value is rounded by IEEE, or refused with 400."""
    answer = wire.post("/v2/models/vector_fp64/infer", body("FP64", data, data.count(",") + 1))
    if answer.status == 200:
        assert np.isinf(answer.tensor()[0])
    else:
        refusal(answer, 400)
    alive(wire)
