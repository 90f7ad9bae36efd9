"""core.dialects.grps.outputs: the form in which outputs are answered, and outputs that no form carries."""

from typing import Any

import numpy as np
import pytest

from core.dialects.grps.content import Binary, Map, Numbers, Tensors, Text
from core.dialects.grps.outputs import NO_FLOATS, TWO_TENSORS, answered, as_ndarray
from core.errors import InvalidInput, ModelFailed
from core.tensor import Tensor
from tests.support.grps_samples import FP32, same, tensor

ONE = tensor("t", "BYTES", [b"a"])
BLOB = tensor("t", "BYTES", [b"\xff"])
VECTOR = tensor("u", "UINT8", [1, 255])
FLOATS = tensor("y", "FP32", [0.5, 1.5])
FORMS = (Text, Binary, Tensors, Numbers, Map)


@pytest.mark.parametrize(("asked", "outputs", "expected"), [
    (Text, [ONE], Text("a")),
    (Text, [tensor("t", "BYTES", [b"a"], 1, 1)], Text("a")),
    (Text, [tensor("t", "BYTES", [b""])], Text("")),
    (Text, [BLOB], Binary(b"\xff")),
    (Binary, [ONE], Binary(b"a")),
    (Binary, [BLOB], Binary(b"\xff")),
    (Binary, [VECTOR], Binary(b"\1\xff")),
    (Binary, [tensor("u", "UINT8", [1, 255], 1, 2)], Binary(b"\1\xff")),
    (Binary, [tensor("u", "UINT8", [], 0)], Binary(b"")),
    (Binary, [tensor("u", "BOOL", [True, False])], Binary(b"\1\0")),
    (Tensors, [BLOB], Binary(b"\xff")),
    (Numbers, [BLOB], Binary(b"\xff")),
    (Map, [], Map(())),
])  # fmt: skip
def test_the_form_of_the_request_is_the_form_of_the_answer_if_the_outputs_fit(
    asked: Any, outputs: list[Tensor], expected: Any
) -> None:
    """Bytes that are not text become bin_data, whatever the request's form was."""
    assert answered(outputs, asked) == expected


@pytest.mark.parametrize(("asked", "outputs"), [
    (Text, [tensor("t", "BYTES", [b"a", b"b"])]),
    (Text, [ONE, FLOATS]),
    (Text, [FLOATS]),
    (Text, []),
    (Binary, [tensor("u", "UINT8", [1, 2], 2, 1)]),
    (Binary, [tensor("u", "UINT8", [1])._replace(array=np.array(1, np.uint8))]),
    (Binary, [tensor("i", "INT8", [1, 2])]),
    (Binary, [ONE, VECTOR]),
    (Numbers, [FLOATS]),
    (Map, [FLOATS]),
    (Tensors, [ONE]),
    (Tensors, [VECTOR]),
    (Tensors, []),
])  # fmt: skip
def test_whatever_does_not_fit_is_answered_as_tensors(asked: Any, outputs: list[Tensor]) -> None:
    """The tensors have the model's own names, in their order."""
    content = answered(outputs, asked)
    assert isinstance(content, Tensors)
    assert all(same(*pair) for pair in zip(content.tensors, outputs, strict=True))


@pytest.mark.parametrize(("datatype", "value", "field", "expected"), [
    ("BYTES", b"a", "s_s", b"a"),
    ("BYTES", b"\xff", "s_b", b"\xff"),
    ("INT64", -(2**63), "s_i64", -(2**63)),
    ("UINT64", 2**63 - 1, "s_i64", 2**63 - 1),
    ("UINT32", 2**32 - 1, "s_i64", 2**32 - 1),
    ("INT32", -(2**31), "s_i32", -(2**31)),
    ("UINT16", 65535, "s_i32", 65535),
    ("INT16", -1, "s_i32", -1),
    ("INT8", -128, "s_i32", -128),
    ("UINT8", 255, "s_i32", 255),
    ("BOOL", True, "s_i32", 1),
    ("FP64", 1e300, "s_d", 1e300),
    ("FP32", 0.5, "s_f", 0.5),
    ("FP16", 65504.0, "s_f", 65504.0),
    ("BF16", 0x3F80, "s_f", 1.0),
])  # fmt: skip
def test_single_elements_are_values_of_a_map(datatype: str, value: Any, field: str, expected: Any) -> None:
    """The map is the narrowest that holds them, whatever their rank."""
    for shape in ((1,), (1, 1)):
        content = answered([tensor("y", datatype, [value], *shape)], Map)
        assert isinstance(content, Map)
        ((found, single),) = content.entries
        assert (found, single.name, single.array.shape, single.array.item()) == (field, "y", (), expected)


def test_single_elements_are_a_map_where_one_of_them_is_no_text() -> None:
    """The rule holds for every form of request: tensors could not carry it."""
    content = answered([tensor("a", "INT32", [1]), BLOB], Tensors)
    assert isinstance(content, Map)
    assert [entry.field for entry in content.entries] == ["s_i32", "s_b"]


@pytest.mark.parametrize("asked", FORMS)
@pytest.mark.parametrize("outputs", [[tensor("t", "BYTES", [b"a", b"\xff"])], [BLOB, FLOATS]])
def test_bytes_that_no_form_carries_are_the_models_failure(asked: Any, outputs: list[Tensor]) -> None:
    """They are neither a string nor a single element."""
    with pytest.raises(ModelFailed, match="output 't' has bytes that are not UTF-8"):
        answered(outputs, asked)


@pytest.mark.parametrize("asked", FORMS)
def test_a_dimension_beyond_32_bits_is_the_models_failure(asked: Any) -> None:
    """The protocol's shape is of uint32."""
    with pytest.raises(ModelFailed, match="output 'y' has a dimension beyond 32 bits"):
        answered([Tensor("y", FP32, np.empty((0, 2**32), np.float32))], asked)


def test_an_ndarray_is_the_only_output_and_fp32() -> None:
    """It keeps its own shape; bfloat16 also travels as FP32."""
    for outputs, expected in (([FLOATS], [0.5, 1.5]), ([tensor("y", "BF16", [0x3F80], 1, 1)], [[1.0]])):
        array = as_ndarray(outputs).array
        assert (array.dtype, array.tolist()) == (np.float32, expected)


@pytest.mark.parametrize(("outputs", "text"), [
    ([], NO_FLOATS),
    ([tensor("y", "FP64", [1])], NO_FLOATS),
    ([tensor("y", "FP16", [1])], NO_FLOATS),
    ([ONE, VECTOR], NO_FLOATS),
    ([FLOATS, FLOATS], TWO_TENSORS),
    ([FLOATS, ONE], TWO_TENSORS),
])  # fmt: skip
def test_any_other_output_is_no_ndarray(outputs: list[Tensor], text: str) -> None:
    """The refusal has the text of GRPS's servers."""
    with pytest.raises(InvalidInput, match=f"^{text}$"):
        as_ndarray(outputs)
