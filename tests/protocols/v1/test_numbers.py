"""The rules hold for any number: range, rounding, digits, and the same meaning in every form."""

from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocols.v1.fuzz import decimals
from tests.support.asgi import Local
from tests.support.checks import refusal
from tests.support.strategies import blanks
from tests.support.v1_client import columns, numbers, predict, read, rows
from tests.support.wire import Answer
from tests.support.zoo.models import DATATYPES

fuzzed = settings(suppress_health_check=list(HealthCheck))
INTEGERS = ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"]
WIDTHS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


def asked(local: Local, datatype: str, key: str, texts: list[str], blank: bytes = b"") -> Answer:
    """Sends a list of numbers as they are written to the identity of a datatype."""
    value = f"[{', '.join(texts)}]"
    document = f'{{"inputs": {{"INPUT0": {value}}}}}' if key == "inputs" else f'{{"{key}": {value}}}'
    return predict(local, f"identity_{datatype.lower()}", document.encode() + blank)


def bounds(datatype: str) -> tuple[int, int]:
    """Returns the least and the greatest integer."""
    info = np.iinfo(np.dtype(DATATYPES[datatype].numpy))
    return int(info.min), int(info.max)


@pytest.mark.row("V1-068", "V1-069", "V1-070", "V1-081")
@pytest.mark.parametrize("datatype", INTEGERS)
@fuzzed
@given(data=st.data(), key=st.sampled_from(["instances", "inputs"]), blank=blanks)
def test_integers_in_range_are_exact(local: Local, datatype: str, data: st.DataObject, key: str, blank: bytes) -> None:
    """Every digit survives, in and out."""
    low, high = bounds(datatype)
    near = st.sampled_from([low, high, high - 1, 0])
    texts = [str(n) for n in data.draw(st.lists(st.one_of(st.integers(low, high), near), min_size=1, max_size=8))]
    assert numbers(asked(local, datatype, key, texts, blank)) == texts


@pytest.mark.row("V1-068", "V1-069", "V1-070")
@pytest.mark.parametrize("datatype", INTEGERS)
@fuzzed
@given(data=st.data(), key=st.sampled_from(["instances", "inputs"]), blank=blanks)
def test_an_integer_out_of_range_is_refused(
    local: Local, datatype: str, data: st.DataObject, key: str, blank: bytes
) -> None:
    """Its position among others does not matter."""
    low, high = bounds(datatype)
    odd = data.draw(st.one_of(st.integers(max_value=low - 1), st.integers(min_value=high + 1)))
    texts = [str(n) for n in data.draw(st.lists(st.integers(low, high), max_size=4))]
    texts.insert(data.draw(st.integers(0, len(texts))), str(odd))
    refusal(asked(local, datatype, key, texts, blank), 400)


@pytest.mark.row("V1-068", "V1-069", "V1-070")
@pytest.mark.parametrize("datatype", INTEGERS)
@fuzzed
@given(text=decimals.filter(lambda text: "." in text or "e" in text), key=st.sampled_from(["instances", "inputs"]))
def test_a_number_with_a_point_or_exponent_is_no_integer(local: Local, datatype: str, text: str, key: str) -> None:
    """Its value does not matter."""
    refusal(asked(local, datatype, key, [text]), 400)
    refusal(asked(local, datatype, key, ["1", text]), 400)


def rounded(datatype: str, text: str) -> np.floating[Any]:
    """Returns the nearest double, rounded to the nearest of the width; an integer zero has no sign."""
    with np.errstate(over="ignore", under="ignore"):
        return WIDTHS[datatype](float(text) + 0.0 if text == "-0" else float(text))


@pytest.mark.row("V1-067", "V1-070")
@pytest.mark.parametrize("datatype", WIDTHS)
@fuzzed
@given(texts=st.lists(decimals, min_size=1, max_size=6), key=st.sampled_from(["instances", "inputs"]), blank=blanks)
def test_any_number_is_rounded_to_the_nearest_float(
    local: Local, datatype: str, texts: list[str], key: str, blank: bytes
) -> None:
    """Beyond a double it is refused; beyond the width it is infinite."""
    answer = asked(local, datatype, key, texts, blank)
    if any(np.isinf(float(text)) for text in texts):
        refusal(answer, 400)
        return
    found = [WIDTHS[datatype](text) for text in numbers(answer)]
    assert [value.tobytes() for value in found] == [rounded(datatype, text).tobytes() for text in texts]


def significant(text: str) -> int:
    """Returns how many digits a number is written with, without zeros at either end."""
    return len(Decimal(text).normalize().as_tuple().digits)


@pytest.mark.row("V1-080", "V1-121")
@pytest.mark.parametrize(("datatype", "width"), [("FP16", 16), ("FP32", 32), ("FP64", 64)])
@fuzzed
@given(data=st.data())
def test_floats_are_written_in_the_fewest_digits_of_their_width(
    local: Local, datatype: str, width: int, data: st.DataObject
) -> None:
    """They are NumPy's digits with a point or an exponent; a half that is an integer has all of its digits."""
    floats = st.floats(width=width, allow_nan=False, allow_infinity=False)
    values = [WIDTHS[datatype](value) for value in data.draw(st.lists(floats, min_size=1, max_size=8))]
    texts = numbers(asked(local, datatype, "instances", [repr(float(value)) for value in values]))
    for value, text in zip(values, texts, strict=True):
        assert "." in text or "e" in text
        assert WIDTHS[datatype](text).tobytes() == value.tobytes()
        exact = width == 16 and value == int(value)
        assert exact or significant(text) <= significant(np.format_float_scientific(value, unique=True))


@pytest.mark.row("V1-070")
@fuzzed
@given(bits=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=8))
def test_every_bfloat16_comes_back(local: Local, bits: list[int]) -> None:
    """It comes back to the bit, and any NaN is NaN."""
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        values = np.array(bits, np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)
    texts = ["NaN" if np.isnan(v) else repr(float(v)).replace("inf", "Infinity") for v in values]
    found = np.array(rows(local, "identity_bf16", [float(t.replace("Infinity", "inf")) for t in texts]))
    expected = values.astype(ml_dtypes.bfloat16)
    again = found.astype(ml_dtypes.bfloat16)
    same = (again.view(np.uint16) == expected.view(np.uint16)) | (np.isnan(values) & np.isnan(found))
    assert same.all()


plain = {
    "FP32": st.floats(width=32, allow_nan=False), "FP64": st.floats(allow_nan=False),
    "INT64": st.integers(-(2**63), 2**63 - 1), "UINT8": st.integers(0, 255), "BOOL": st.booleans(),
    "BYTES": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
}  # fmt: skip


@pytest.mark.row("V1-041", "V1-042", "V1-043", "V1-058", "V1-059", "V1-108", "V1-110")
@pytest.mark.parametrize("datatype", plain)
@fuzzed
@given(data=st.data(), shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), pad=st.sampled_from(["", " " * 9000]))
def test_rows_and_columns_agree(local: Local, datatype: str, data: st.DataObject, shape: list[int], pad: str) -> None:
    """Plain rows, rows of objects, plain columns and named columns have the same numbers, through either reader."""
    model = f"identity_{datatype.lower()}"
    count = int(np.prod(shape))
    flat = data.draw(st.lists(plain[datatype], min_size=count, max_size=count))
    value = np.array(flat, object).reshape(shape).tolist()
    if datatype == "FP32":
        value = np.array(value, np.float32).tolist()
    forms = [
        rows(local, model, value, x=pad), rows(local, model, [{"INPUT0": row} for row in value], x=pad),
        columns(local, model, value, x=pad), columns(local, model, {"INPUT0": value}, x=pad),
        read(predict(local, model, {"inputs": [{"INPUT0": row} for row in value], "x": pad}))["predictions"],
    ]  # fmt: skip
    for form in forms:
        found = np.array(form, np.float32).tolist() if datatype == "FP32" else form
        assert found == value
