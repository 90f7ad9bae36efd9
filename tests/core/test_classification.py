"""core.classification: the classes of an output's scores."""

from typing import Any

import numpy as np
import pytest

from core.classification import classify
from core.errors import InvalidInput
from core.tensor import Tensor
from tests.support.engine_samples import BYTES, FP32


@pytest.mark.parametrize(("scores", "classes", "expected"), [
    ([3, 1, 2], 2, [b"3.000000:0:a", b"2.000000:2"]),
    ([1, 1], 9, [b"1.000000:0:a", b"1.000000:1:b"]),
    ([np.nan, 1], 2, [b"1.000000:1:b", b"nan:0:a"]),
    (np.array([0, 255], np.uint8), 2, [b"255.000000:1:b", b"0.000000:0:a"]),
    ([], 3, []),
])  # fmt: skip
def test_classes_come_by_value_with_index_and_label(scores: Any, classes: int, expected: list[Any]) -> None:
    """Equal values come by index, NaN comes last, and a class may have no label."""
    assert classify(Tensor("y", FP32, np.asarray(scores)), classes, ("a", "b")).array.tolist() == expected


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
