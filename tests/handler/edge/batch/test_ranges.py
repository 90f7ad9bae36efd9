"""handler.edge.batch.ranges: a number beyond its input's range is an error of its record; an infinite one is not."""

import json
import math
from typing import Any

import numpy as np
import pytest

from core.dtype import DATATYPES
from core.errors import InvalidInput
from core.signature import Binding, Method, Signature
from core.tensor import Tensor, TensorSpec
from handler.edge.batch.json_lines import JsonBlock
from handler.edge.batch.tables import ArrayBlock, ColumnBlock, CsvBlock
from handler.edge.batch.terms import BatchTerms
from tests.handler.edge.batch.test_tables import UNKNOWN, csv, terms

ROW = terms(x=("FP32", (-1, 2)))
TWO = terms(a="FP32", b="FP64")


def lines(*rows: Any) -> JsonBlock:
    return JsonBlock([json.dumps(row).encode() for row in rows])


@pytest.mark.parametrize(("of", "block", "told"), [
    (ROW, lines([1, 1e300]), "input 'x' has 1e+300, which is out of range for FP32"),
    (ROW, lines([1, 2], [-1e39, math.inf]), "input 'x' has -1e+39, which is out of range for FP32"),
    (ROW, lines({"x": [1e300, 1]}), "input 'x' has 1e+300, which is out of range for FP32"),
    (ROW, csv("1,1e300"), "input 'x' has 1e+300, which is out of range for FP32"),
    (ROW, csv("1,1e300", "p", "q"), "input 'x' has 1e+300, which is out of range for FP32"),
    (ROW, ArrayBlock(np.array([[1, 1e300]])), "input 'x' has 1e+300, which is out of range for FP32"),
    (ROW, ColumnBlock({"p": np.array([1.0]), "q": np.array([1e300])}, 1), "input 'x' has 1e+300, which is out of"),
    (TWO, csv("1e300,1", "a", "b"), "input 'a' has 1e+300, which is out of range for FP32"),
    (TWO, ColumnBlock({"a": [1e300], "b": [1e300]}, 1), "input 'a' has 1e+300, which is out of range for FP32"),
    (TWO, lines({"a": 1, "b": 1}, {"a": 1e300, "b": 1}), "input 'a' has 1e+300, which is out of range for FP32"),
    (terms(a="FP16"), csv("70000", "a"), "input 'a' has 70000.0, which is out of range for FP16"),
    (terms(a="BF16"), csv("1e39", "a"), "input 'a' has 1e+39, which is out of range for BF16"),
])  # fmt: skip
def test_a_number_out_of_range_is_refused(of: BatchTerms, block: Any, told: str) -> None:
    """V1 would make it infinite, and the answer would be NaN."""
    with pytest.raises(InvalidInput) as refused:
        block.call(of)
    assert told in refused.value.message


@pytest.mark.parametrize(("of", "block"), [
    (ROW, lines([1, math.inf])),
    (ROW, lines({"x": [-math.inf, 1]})),
    (ROW, csv("1,inf")),
    (ROW, ArrayBlock(np.array([[np.inf, 3e38]]))),
    (TWO, csv("inf,1e300", "a", "b")),
    (TWO, ColumnBlock({"a": [math.inf], "b": [1e300]}, 1)),
    (terms(a="BF16"), CsvBlock([b"inf"], ("a",))),
    (UNKNOWN, lines([1, math.inf])),
])  # fmt: skip
def test_infinities_are_numbers(of: BatchTerms, block: Any) -> None:
    """An input of FP64 holds every number of a record."""
    assert any(np.isinf(as_numbers(tensor)).any() for tensor in block.call(of).infer.inputs)


def as_numbers(tensor: Tensor) -> Any:
    bits = tensor.array
    return (bits.astype(np.uint32) << 16).view(np.float32) if bits.dtype == np.uint16 else bits


def test_the_rows_name_an_input_by_its_alias() -> None:
    """The tensor of the model has another name. A default may be infinite."""
    size, most = (TensorSpec(name, DATATYPES["FP32"], (-1, 1)) for name in ("t:0", "u:0"))
    default = Tensor(most.name, most.datatype, np.array([np.inf], np.float32))
    bindings = {"size": Binding(size), "most": Binding(most, default=default)}
    specs = tuple(binding.spec for binding in bindings.values())
    spec = ROW.spec._replace(inputs=specs, signatures={"serving_default": Signature(Method.PREDICT, bindings, {})})
    of = BatchTerms(spec)
    with pytest.raises(InvalidInput, match="input 'size' has 1e[+]300, which is out of range for FP32"):
        lines({"size": 1e300}).call(of)
    for block in (lines({"size": 1}), ColumnBlock({"size": [1.0]}, 1)):
        assert block.call(of).infer.inputs[1].array.tolist() == [[math.inf]]
