"""core.classification: the classes of an output's scores."""

from typing import Any

import numpy as np
import pytest

from core.classification import classify
from core.dtype import BF16
from core.errors import InvalidInput
from core.tensor import Tensor
from tests.support.engine_samples import BYTES, FP32


@pytest.mark.parametrize(("scores", "classes", "expected"), [
    ([3.0, 1, 2], 2, [b"3.000000:0:a", b"2.000000:2"]),
    ([1.0, 1], 9, [b"1.000000:0:a", b"1.000000:1:b"]),
    ([np.nan, 1], 2, [b"1.000000:1:b", b"nan:0:a"]),
    (np.array([0, 255], np.uint8), 2, [b"255:1:b", b"0:0:a"]),
    (np.array([2**53, 2**53 + 1, -(2**63)]), 3, [b"9007199254740993:1:b", b"9007199254740992:0:a", b"%d:2" % -(2**63)]),
    (np.array([2**64 - 2, 0, 2**64 - 1], "u8"), 2, [b"18446744073709551615:2", b"18446744073709551614:0:a"]),
    (np.array([False, True]), 2, [b"1.000000:1:b", b"0.000000:0:a"]),
    (np.array([0.1, np.nan, 65504], "f2"), 3, [b"65504.000000:2", b"0.099976:0:a", b"nan:1:b"]),
    ([1e15, 1e20], 2, [b"1e+20:1:b", b"1000000000000000.000000:0:a"]),
    ([], 3, []),
])  # fmt: skip
def test_classes_come_by_value_with_index_and_label(scores: Any, classes: int, expected: list[Any]) -> None:
    """Equal values come by index, NaN comes last, and a class may have no label. Integers are exact, as from Triton."""
    assert classify(Tensor("y", FP32, np.asarray(scores)), classes, ("a", "b")).array.tolist() == expected


def test_rows_without_scores_have_no_classes() -> None:
    """They are not looked at one by one: a model may answer with any number of them."""
    scores = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), (10**15, 0), (0, 0))
    assert classify(Tensor("y", FP32, scores), 3, (), is_batch=True).array.shape == (10**15, 0)


def test_bfloat16_is_classified_by_its_values() -> None:
    """The array has their bits, of which those of negative numbers are the largest."""
    scores = Tensor("y", BF16, np.array([0x3F80, 0x4000, 0xBF80], np.uint16))
    assert classify(scores, 3, ()).array.tolist() == [b"2.000000:1", b"1.000000:0", b"-1.000000:2"]


@pytest.mark.parametrize(("shape", "is_batch", "expected"), [
    ((6,), False, [b"5", b"4"]), ((2, 3), False, [b"5", b"4"]), ((1, 6, 1, 1), False, [b"5", b"4"]),
    ((6,), True, [[b"0"]] * 6), ((2, 3), True, [[b"2", b"1"]] * 2), ((1, 6, 1, 1), True, [[b"5", b"4"]]),
    ((3, 2, 1), True, [[b"1", b"0"]] * 3), ((0, 3), True, []),
])  # fmt: skip
def test_all_axes_but_the_batch_are_one(shape: tuple[int, ...], is_batch: bool, expected: list[Any]) -> None:  # noqa: FBT001 - a column
    """An index counts the elements in their order."""
    scores = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = classify(Tensor("y", FP32, scores), 2, (), is_batch=is_batch).array
    assert np.vectorize(lambda text: text.split(b":")[1], otypes=[object])(found).tolist() == expected
    assert found.ndim == 1 + is_batch


@pytest.mark.parametrize("array", [np.array(1.0), np.array([b"x"], object)])
def test_what_has_no_scores_is_not_classified(array: Any) -> None:
    """A scalar and a text raise InvalidInput."""
    with pytest.raises(InvalidInput, match="cannot be classified"):
        classify(Tensor("y", BYTES if array.dtype == object else FP32, array), 1, ())
