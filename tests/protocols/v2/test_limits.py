"""Requests that are small and could take endless time must cost time in proportion to their bytes.

The bounds are far above the cost of a linear path and far below that of a quadratic one.
"""

import json
import time
from typing import Any

import numpy as np
import pytest

from tests.support.checks import alive, refusal
from tests.support.wire import Answer, Wire, json_input

SECONDS = 20.0  # a busy machine needs four at most, and quadratic work minutes


def timed(wire: Wire, model: str, body: bytes) -> Answer:
    """Returns the answer, which must come in time."""
    begun = time.monotonic()
    answer = wire.post(f"/v2/models/{model}/infer", body)
    assert time.monotonic() - begun < SECONDS
    return answer


def tensor(datatype: str, data: str, count: int) -> bytes:
    """Returns a request whose data is text."""
    head = f'{{"name": "INPUT0", "datatype": "{datatype}", "shape": [{count}], "data": {data}}}'
    return f'{{"inputs": [{head}]}}'.encode()


@pytest.mark.row("R-110", "R-206")
@pytest.mark.parametrize(
    ("datatype", "element"), [("BYTES", '""'), ("BOOL", "true"), ("FP32", '"NaN"'), ("INT64", "1"), ("FP64", "1.5")]
)
@pytest.mark.parametrize("side", ["deep_last", "deep_first"])
def test_data_both_wide_and_deep_is_read_in_time(wire: Wire, datatype: str, element: str, side: str) -> None:
    """One element of a long list is nested 900 times."""
    wide, deep = ", ".join([element] * 150_000), "[" * 900 + element + "]" * 900
    data = f"[{wide}, {deep}]" if side == "deep_last" else f"[{deep}, {wide}]"
    answer = timed(wire, f"vector_{datatype.lower()}", tensor(datatype, data, 150_001))
    if answer.status == 200:
        assert answer.tensor().shape == (150_001,)
    else:
        assert "INPUT0" in refusal(answer, 400)
    alive(wire)


MANY = 30_000


@pytest.mark.row("R-200")
@pytest.mark.parametrize("twice", [False, True])
def test_many_inputs_are_refused_in_time(wire: Wire, *, twice: bool) -> None:
    """The last of them is given twice, or not."""
    inputs: list[Any] = [json_input(f"I{i}", "INT32", np.array([], np.int32)) for i in range(MANY)]
    body = json.dumps({"inputs": inputs + inputs[-1:] * twice}).encode()
    refusal(timed(wire, "vector_int32", body), 400)
    alive(wire)


@pytest.mark.row("R-200")
@pytest.mark.parametrize("twice", [False, True])
def test_many_outputs_are_refused_in_time(wire: Wire, *, twice: bool) -> None:
    """The last of them is asked for twice, or not."""
    outputs = [{"name": f"O{i}"} for i in range(MANY)]
    x = json_input("INPUT0", "INT32", np.array([1], np.int32))
    body = json.dumps({"inputs": [x], "outputs": outputs + outputs[-1:] * twice}).encode()
    refusal(timed(wire, "vector_int32", body), 400)
    alive(wire)


@pytest.mark.parametrize(
    "number", ["1" * 2_000_000, "-" + "9" * 2_000_000, "0." + "1" * 2_000_000, "1e" + "9" * 100_000]
)
@pytest.mark.parametrize("datatype", ["INT64", "FP64"])
def test_a_number_of_millions_of_digits_is_read_in_time(wire: Wire, datatype: str, number: str) -> None:
    """It is rounded, or 400."""
    answer = timed(wire, f"vector_{datatype.lower()}", tensor(datatype, f"[{number}]", 1))
    assert answer.status == 200 or refusal(answer, 400)
    alive(wire)


def test_many_empty_elements_are_read_in_time(wire: Wire) -> None:
    """They are a list of empty lists, and a shape without elements."""
    answer = timed(wire, "vector_fp32", tensor("FP32", "[" + ",".join(["[]"] * 300_000) + "]", 0))
    assert answer.status == 200 or refusal(answer, 400)
    alive(wire)
