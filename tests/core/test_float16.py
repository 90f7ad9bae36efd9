"""core.float16 is tested on all 65,536 patterns of each type; struct and numpy's own repr are the oracles."""

import math
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dtype import BF16, DATATYPES, DataType
from core.float16 import bf16_from_float, bf16_to_float, widened

FP16 = DATATYPES["FP16"]
EVERY = np.arange(65536, dtype=np.uint16)
EXACT = np.array([struct.unpack("<f", struct.pack("<HH", 0, bits))[0] for bits in range(65536)])
"""Each pattern of bfloat16 as the float whose lower half is zero."""
LARGEST = 0x7F7F


def nearest(value: float) -> int:
    """Returns the pattern of the nearest bfloat16, ties to even, by fractions: slowly, without float arithmetic."""
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | 0x7F80
    exact = abs(Fraction(value))
    low, high = 0, LARGEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if magnitude(middle) <= exact else (low, middle)
    below, above = exact - magnitude(low), magnitude(high) - exact
    return sign | (high if above < below or (above == below and high % 2 == 0) else low)


def magnitude(pattern: int) -> Fraction:
    """Returns a positive pattern's value; the one after the largest is where the next would be, and infinity begins."""
    if pattern > LARGEST:
        return Fraction(2) ** 128
    return Fraction(float(EXACT[pattern]))


def digits(value: float) -> int:
    """Returns how many digits a value's shortest text has."""
    return len(Decimal(repr(abs(value))).normalize().as_tuple().digits)


def is_number(array: np.ndarray) -> np.ndarray:
    """Returns where an element is neither NaN nor infinite."""
    return np.isfinite(array)


def test_every_pattern_of_bfloat16_is_the_float_with_the_same_upper_half() -> None:
    """The float converts back to the pattern; every NaN converts to a single one."""
    floats = bf16_to_float(EVERY)
    assert floats.dtype == np.float32
    assert np.array_equal(floats, EXACT, equal_nan=True)
    assert np.array_equal(np.signbit(floats), np.signbit(EXACT))
    back = bf16_from_float(floats)
    numbers = ~np.isnan(EXACT)
    assert np.array_equal(back[numbers], EVERY[numbers])
    assert set(back[~numbers].tolist()) == {0x7FC0}


@given(st.floats(width=32, allow_nan=False) | st.integers(0, 65535).map(lambda bits: float(EXACT[bits])))
def test_the_nearest_bfloat16_is_taken(value: float) -> None:
    """The rule holds for any float of 32 bits; beyond the range the result is infinite."""
    if not math.isnan(value):
        assert int(bf16_from_float(np.array(value))) == nearest(value)


@given(st.integers(0, LARGEST), st.sampled_from([-1, 0, 1]), st.sampled_from([1, -1]))
def test_halfway_between_two_the_even_one_is_taken(pattern: int, step: int, sign: int) -> None:
    """On either side of the middle, the nearer one is taken."""
    lower = struct.pack("<I", (pattern << 16) + 0x8000 + step)
    value = sign * struct.unpack("<f", lower)[0]
    assert int(bf16_from_float(np.array([value]))[0]) == nearest(value)


def test_beyond_the_range_of_floats_it_is_infinite_without_a_warning() -> None:
    """Doubles are wider; warnings are errors here."""
    assert bf16_from_float(np.array([1e300, -1e300, 3.4e38, 0.0])).tolist() == [0x7F80, 0xFF80, 0x7F80, 0]


def is_whole(array: np.ndarray) -> np.ndarray:
    """Returns where an element is an integer that a float of 32 bits holds like all its neighbours."""
    return np.array([math.isfinite(x) and x.is_integer() and abs(x) < 2**24 for x in array.tolist()])


def test_half_precision_has_the_digits_that_numpy_prints() -> None:
    """The rule holds for every pattern; numpy's repr is the shortest that reads back. Integers stay integers."""
    halves = EVERY.view(np.float16)
    wide = widened(halves, FP16)
    assert wide.dtype == np.float64
    numbers = is_number(halves)
    whole = is_whole(halves)
    assert np.array_equal(wide[whole], halves[whole].astype(np.float64))
    short = numbers & ~whole
    assert [repr(x) for x in wide[short].tolist()] == [str(float(str(x))) for x in halves[short]]
    assert np.array_equal(wide.astype(np.float16), halves, equal_nan=True)
    assert np.array_equal(np.signbit(wide[numbers]), np.signbit(halves[numbers]))


def test_bfloat16_reads_back_from_its_digits_and_not_from_fewer() -> None:
    """The rule holds for every pattern, with at most four digits. Integers stay integers."""
    wide = widened(EVERY, BF16)
    read = bf16_to_float(bf16_from_float(wide))
    assert np.array_equal(read, EXACT, equal_nan=True)
    whole = is_whole(EXACT)
    assert np.array_equal(wide[whole], EXACT[whole])
    assert np.array_equal(np.signbit(wide), np.signbit(EXACT) & ~np.isnan(EXACT))
    short = is_number(EXACT) & ~whole
    counts = [digits(value) for value in wide[short].tolist()]
    assert max(counts) <= 4
    fewer = [float(f"{x:.{max(n - 1, 1)}g}") for x, n in zip(EXACT[short].tolist(), counts, strict=True)]
    assert not np.any((bf16_from_float(np.array(fewer)) == EVERY[short]) & (np.array(counts) > 1))


@pytest.mark.parametrize(("datatype", "bits", "texts"), [
    (FP16, [0x2E66, 0x3C00, 0x8000, 0x7BFF, 0x0001], ["0.1", "1.0", "-0.0", "65504.0", "6e-08"]),
    (BF16, [0x3DCD, 0x3F80, 0x8000, 0x4495, 0x7F7F, 1], ["0.1", "1.0", "-0.0", "1192.0", "3.39e+38", "9e-41"]),
], ids=["FP16", "BF16"])  # fmt: skip
def test_a_tenth_is_a_tenth(datatype: DataType, bits: list[int], texts: list[str]) -> None:
    """It is not the double closest to it."""
    array = np.array(bits, np.uint16).view(datatype.numpy)
    assert [repr(value) for value in widened(array, datatype).tolist()] == texts


@pytest.mark.parametrize("datatype", [FP16, BF16], ids=["FP16", "BF16"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)], ids=str)
def test_the_shape_stays(datatype: DataType, shape: tuple[int, ...]) -> None:
    """The rule holds for scalars and empty arrays, too; infinities and NaN stay unchanged."""
    array = np.full(shape, 0x7F80 if datatype is BF16 else np.inf, datatype.numpy)
    wide = widened(array, datatype)
    assert wide.shape == shape
    assert np.isinf(wide).all()
