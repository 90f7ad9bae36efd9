"""Catalogue section 4: rows, the value of `instances`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, columns, predict, read, rows

if TYPE_CHECKING:
    from tests.support.wire import Wire

SEEDS = [
    {"tag": "foo", "signal": [1.0, 2.0, 3.0, 4.0, 5.0], "sensor": [[1.0, 2.0], [3.0, 4.0]]},
    {"sensor": [[4.0, 5.0], [6.0, 8.0]], "tag": "bar", "signal": [3.0, 4.0, 1.0, 2.0, 5.0]},
]
"""The specification's example, the keys of the second in another order."""


@pytest.mark.row("V1-041", "V1-127")
@pytest.mark.parametrize(
    "instances",
    [[1.5], [1.0, 2.0, 5.0], [[1.0, 2.0]], [[[1.0, 2.0]], [[3.0, 4.0]]], [[[[[1.0]]]]], [[1.0]] * 2000],
    ids=["one", "three", "matrix", "cube", "five", "many"],
)
def test_values_and_lists_of_one_input_come_back_row_by_row(wire: Wire, instances: list[Any]) -> None:
    """One prediction per instance, in its shape."""
    assert rows(wire, "identity_fp32", instances) == instances


@pytest.mark.row("V1-041")
def test_text_is_a_value_too(wire: Wire) -> None:
    """The specification's first example."""
    assert rows(wire, "identity_bytes", ["foo", "bar", "baz"]) == ["foo", "bar", "baz"]


@pytest.mark.row("V1-042", "V1-044", "V1-127")
@pytest.mark.parametrize("blank", LENGTHS)
def test_objects_name_the_inputs_and_outputs_of_each_row(wire: Wire, blank: str) -> None:
    """The keys in any order; several outputs make each prediction an object."""
    assert rows(wire, "seeds", SEEDS, x=blank) == SEEDS


@pytest.mark.row("V1-043")
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_objects_may_name_a_single_input(wire: Wire, key: str) -> None:
    """Its output goes without a name; KServe takes `inputs` for rows here."""
    document = {key: [{"x": 1.0}, {"x": 2.0}]}
    assert read(predict(wire, "half_plus_two", document)) == {"predictions": [2.5, 3.0]}


@pytest.mark.row("V1-045")
def test_the_shape_of_a_signature_is_not_enforced(wire: Wire) -> None:
    """Its graph takes any."""
    assert rows(wire, "half_plus_two", [1.0, 2.0]) == [2.5, 3.0]
    assert rows(wire, "half_plus_two", [[1.0, 2.0], [3.0, 4.0]]) == [[2.5, 3.0], [3.5, 4.0]]


@pytest.mark.row("V1-045")
@pytest.mark.parametrize("instances", [[1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0, 3.0]]])
def test_the_shape_of_a_graph_is_enforced(wire: Wire, instances: list[Any]) -> None:
    """FP32 [2, 3]: 400 that names the input and what it expects."""
    text = refusal(predict(wire, "fixed", {"instances": instances}), 400)
    assert "INPUT0" in text
    assert "[2, 3]" in text
    assert rows(wire, "fixed", [[1.0, 2.0, 3.0]] * 2) == [[1.0, 2.0, 3.0]] * 2


@pytest.mark.row("V1-046", "V1-115")
@pytest.mark.parametrize("instances", [None, 1, 1.5, "x", True, {}, {"x": 1.0}, {"b64": "AA=="}])
@pytest.mark.parametrize("blank", LENGTHS)
def test_instances_are_a_list(wire: Wire, instances: object, blank: str) -> None:
    """Nothing else."""
    text = refusal(predict(wire, "half_plus_two", {"instances": instances, "x": blank}), 400)
    assert text.startswith("Expecting 'instances' to be an list/array")


@pytest.mark.row("V1-046", "V1-117")
@pytest.mark.parametrize("model", ["half_plus_two", "seeds", "identity_bytes"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_instances_are_not_empty(wire: Wire, model: str, blank: str) -> None:
    """TF Serving's answer, not KServe's."""
    answer = predict(wire, model, {"instances": [], "x": blank})
    assert refusal(answer, 400) == "No values in 'instances' array"


RAGGED = [
    [[1.0, 2.0], [1.0, 2.0, 3.0]],
    [[1.0, 2.0], [1.0]],
    [1.0, [1.0]],
    [[1.0], 1.0],
    [[[1.0], [2.0]], [[1.0], [2.0, 3.0]]],
    [[[1.0, 2.0]], [1.0, 2.0]],
    [[], [1.0]],
    [[1.0], []],
]


@pytest.mark.row("V1-047", "V1-115")
@pytest.mark.parametrize("instances", RAGGED)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_rows_of_unequal_shapes_are_refused(wire: Wire, instances: list[Any], blank: str, *, named: bool) -> None:
    """Never padded, never flattened."""
    asked = [{"x": value} for value in instances] if named else instances
    refusal(predict(wire, "half_plus_two", {"instances": asked, "x": blank}), 400)
    alive(wire)


@pytest.mark.row("V1-048", "V1-115")
@pytest.mark.parametrize("row", [[[1.0, 2.0], [3.0]], [[1.0], 2.0], [1.0, [2.0]], [[[1.0]], [[2.0], [3.0]]]])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_ragged_row_is_refused(wire: Wire, row: list[Any], blank: str, *, named: bool) -> None:
    """One alone, and two alike."""
    for count in (1, 2):
        asked = [{"x": row}] * count if named else [row] * count
        refusal(predict(wire, "half_plus_two", {"instances": asked, "x": blank}), 400)
    alive(wire)


WRONG_KEYS = [
    ({"tag": "a", "signal": 1.0}, "sensor"),
    ({"tag": "a", "signal": 1.0, "sensor": 1.0, "z": 1.0}, "z"),
    ({"tag": "a", "signal": 1.0, "z": 1.0}, "z"),
    ({}, "sensor"),
    ({"Tag": "a", "signal": 1.0, "sensor": 1.0}, "ag"),
]


@pytest.mark.row("V1-049")
@pytest.mark.parametrize(("instance", "culprit"), WRONG_KEYS)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_the_keys_of_a_row_are_the_inputs(
    wire: Wire, instance: dict[str, Any], culprit: str, blank: str, *, first: bool
) -> None:
    """None missing, none more, in the first row and in a later one."""
    right = {"tag": "a", "signal": 1.0, "sensor": 1.0}
    instances = [instance, right] if first else [right, instance]
    assert culprit in refusal(predict(wire, "seeds", {"instances": instances, "x": blank}), 400)


@pytest.mark.row("V1-050")
@pytest.mark.parametrize("instances", [[1.0, 2.0], [[1.0]], ["a"], [{"b64": "AA=="}, "a"]])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_plain_list_cannot_feed_many_inputs(wire: Wire, instances: list[Any], blank: str) -> None:
    """Objects are needed."""
    text = refusal(predict(wire, "seeds", {"instances": instances, "x": blank}), 400)
    assert "b64" in text or "expecting list of objects as multiple input tensors required" in text


@pytest.mark.row("V1-051")
@pytest.mark.parametrize(
    ("instances", "text"),
    [
        ([{"x": 1.0}, 2.0], "Expecting object but got "),
        ([{"x": 1.0}, {"x": 1.0}, [2.0]], "Expecting object but got list at item 2"),
        ([1.0, {"x": 2.0}], "but got object at item 1"),
        ([[1.0], [1.0], {"x": [2.0]}], "Expecting value/list but got object at item 2"),
    ],
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_rows_are_all_objects_or_none(wire: Wire, instances: list[Any], text: str, blank: str) -> None:
    """The first decides."""
    assert text in refusal(predict(wire, "half_plus_two", {"instances": instances, "x": blank}), 400)


@pytest.mark.row("V1-052")
def test_outputs_of_unequal_batches_cannot_make_rows(wire: Wire) -> None:
    """400 that names one and both sizes; as columns they are answered."""
    document = {"signature_name": "uneven", "instances": [1.0, 2.0, 3.0]}
    text = refusal(predict(wire, "shapes", document), 400)
    assert "has inconsistent batch size" in text
    assert {"2", "3"} <= set(text.replace(".", " ").split())
    assert columns(wire, "shapes", {"x": [1.0, 2.0, 3.0]}, signature_name="uneven") == {
        "same": [1.0, 2.0, 3.0],
        "head": [1.0, 2.0],
    }


@pytest.mark.row("V1-052")
def test_outputs_of_equal_batches_make_rows(wire: Wire) -> None:
    """The same signature with two rows."""
    expected = [{"same": 1.0, "head": 1.0}, {"same": 2.0, "head": 2.0}]
    assert rows(wire, "shapes", [1.0, 2.0], signature_name="uneven") == expected


@pytest.mark.row("V1-053")
def test_an_output_without_a_batch_cannot_make_rows(wire: Wire) -> None:
    """400 that names it; as a column it is a number."""
    text = refusal(predict(wire, "shapes", {"signature_name": "total", "instances": [1.0, 2.0]}), 400)
    assert text == "Tensor name: total has no shape information"
    assert columns(wire, "shapes", {"x": [1.0, 2.0]}, signature_name="total") == 3.0


@pytest.mark.row("V1-054")
def test_as_many_rows_as_the_output_has(wire: Wire) -> None:
    """A model may answer fewer than it was given."""
    assert rows(wire, "shapes", [1.0, 2.0, 3.0], signature_name="head") == [1.0, 2.0]


@pytest.mark.row("V1-055")
@pytest.mark.parametrize("instances", [[[], []], [[]], [[[], []]]])
@pytest.mark.parametrize("model", ["identity_fp32", "identity_bytes", "identity_int64"])
def test_empty_rows_come_back(wire: Wire, model: str, instances: list[Any]) -> None:
    """A dimension of zero behind the batch."""
    assert rows(wire, model, instances) == instances


@pytest.mark.row("V1-056")
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_key_twice_in_one_row_never_corrupts_the_batch(wire: Wire, blank: str) -> None:
    """Refused, or one of both."""
    body = f'{{"instances": [{{"x": 1.0, "x": 2.0}}, {{"x": 3.0}}], "y": "{blank}"}}'.encode()
    answer = predict(wire, "half_plus_two", body)
    if answer.status == 200:
        assert read(answer)["predictions"] in ([2.5, 3.5], [3.0, 3.5])
    else:
        refusal(answer, 400)


@pytest.mark.row("V1-057")
@pytest.mark.parametrize("model", ["scalar", "scalar_by_settings"])
def test_rows_cannot_feed_a_scalar_and_columns_can(wire: Wire, model: str) -> None:
    """Rows always have a batch."""
    refusal(predict(wire, model, {"instances": [1.5]}), 400)
    assert columns(wire, model, 1.5) == 1.5
    assert columns(wire, model, {"INPUT0": 1.5}) == 1.5
