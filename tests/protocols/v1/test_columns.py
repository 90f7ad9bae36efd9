"""Catalogue section 5: columns, the value of `inputs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, columns, predict, read, rows

if TYPE_CHECKING:
    from tests.support.wire import Wire

SEEDS = {
    "tag": ["foo", "bar"],
    "signal": [[1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 1.0, 2.0, 5.0]],
    "sensor": [[[1.0, 2.0], [3.0, 4.0]], [[4.0, 5.0], [6.0, 8.0]]],
}
"""The specification's example."""


@pytest.mark.row("V1-058", "V1-109")
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_object_names_the_inputs_and_outputs(wire: Wire, blank: str) -> None:
    """Several outputs are an object of columns."""
    assert columns(wire, "seeds", SEEDS, x=blank) == SEEDS


@pytest.mark.row("V1-058", "V1-109")
@pytest.mark.parametrize("x", [[1.0, 2.0, 5.0], [[1.0], [2.0]], 1.0])
def test_a_single_output_goes_without_a_name(wire: Wire, x: Any) -> None:
    """The tensor itself."""
    assert read(predict(wire, "identity_fp32", {"inputs": {"INPUT0": x}})) == {"outputs": x}


@pytest.mark.row("V1-059")
@pytest.mark.parametrize("x", [1.0, [1.0], [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [[[]]]])
def test_a_single_input_goes_without_a_name(wire: Wire, x: Any) -> None:
    """A number is a tensor without dimensions, and so is its answer."""
    assert columns(wire, "identity_fp32", x) == x


@pytest.mark.row("V1-059")
@pytest.mark.parametrize(("model", "x"), [("identity_bytes", "text"), ("identity_bool", True), ("identity_int64", 7)])
def test_any_value_may_stand_alone(wire: Wire, model: str, x: object) -> None:
    """Not only floats."""
    assert read(predict(wire, model, {"inputs": x})) == {"outputs": x}


@pytest.mark.row("V1-060")
def test_columns_need_no_common_batch(wire: Wire) -> None:
    """Neither the inputs nor the outputs."""
    inputs = {"tag": ["a", "b", "c"], "signal": [1.0], "sensor": [[1.0, 2.0], [3.0, 4.0]]}
    assert columns(wire, "seeds", inputs) == inputs
    assert columns(wire, "seeds", {**inputs, "signal": 1.5}) == {**inputs, "signal": 1.5}


@pytest.mark.row("V1-061")
@pytest.mark.parametrize("model", ["identity_fp32", "identity_int64", "identity_bytes", "vector_fp32"])
def test_an_empty_list_is_an_empty_tensor(wire: Wire, model: str) -> None:
    """Rows refuse it, columns do not."""
    assert columns(wire, model, []) == []
    assert columns(wire, model, {"INPUT0": []}) == []


@pytest.mark.row("V1-062", "V1-120")
def test_a_base64_object_is_a_value(wire: Wire) -> None:
    """It is no object of names."""
    assert columns(wire, "identity_bytes", {"b64": "aGVsbG8="}) == "hello"
    assert columns(wire, "identity_bytes", {"INPUT0": {"b64": "aGVsbG8="}}) == "hello"
    assert columns(wire, "identity_bytes", [{"b64": "aGVsbG8="}, "b"]) == ["hello", "b"]


@pytest.mark.row("V1-063")
@pytest.mark.parametrize("missing", list(SEEDS))
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_missing_input_is_refused(wire: Wire, missing: str, blank: str) -> None:
    """By name."""
    inputs = {name: value for name, value in SEEDS.items() if name != missing}
    text = refusal(predict(wire, "seeds", {"inputs": inputs, "x": blank}), 400)
    assert text.startswith(f"Missing named input: {missing} in 'inputs' object.")


@pytest.mark.row("V1-063")
def test_an_input_with_a_default_may_be_left_out(wire: Wire) -> None:
    """In columns and in rows; given, it counts."""
    assert columns(wire, "offset", {"x": [1.0, 2.0]}) == [11.0, 12.0]
    assert columns(wire, "offset", {"x": [1.0, 2.0], "y": 5.0}) == [6.0, 7.0]
    assert rows(wire, "offset", [{"x": 1.0}, {"x": 2.0}]) == [11.0, 12.0]
    assert rows(wire, "offset", [{"x": 1.0, "y": 5.0}, {"x": 2.0, "y": 6.0}]) == [6.0, 8.0]


@pytest.mark.row("V1-063")
def test_an_input_without_a_default_may_not_be_left_out(wire: Wire) -> None:
    """Though another has one."""
    assert "x" in refusal(predict(wire, "offset", {"inputs": {"y": 1.0}}), 400)
    assert "x" in refusal(predict(wire, "offset", {"instances": [{"y": 1.0}]}), 400)


@pytest.mark.row("V1-064")
def test_foreign_names_are_ignored(wire: Wire) -> None:
    """Rows refuse them, columns do not."""
    assert columns(wire, "half_plus_two", {"x": [1.0], "z": "anything", "w": {"deep": []}}) == [2.5]


@pytest.mark.row("V1-065")
@pytest.mark.parametrize("inputs", [1.0, [1.0], [[1.0], [2.0]], "a", [], None, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_plain_value_cannot_feed_many_inputs(wire: Wire, inputs: object, blank: str) -> None:
    """An object is needed."""
    text = refusal(predict(wire, "seeds", {"inputs": inputs, "x": blank}), 400)
    assert "inputs is a plain value/list, but expecting an object" in text


@pytest.mark.row("V1-066", "V1-108")
@pytest.mark.parametrize("place", ["", "/versions/1"])
def test_a_list_of_objects_is_rows(wire: Wire, place: str) -> None:
    """KServe's form; TF Serving refuses it, so nobody can mean columns."""
    instances = [
        {"tag": "foo", "signal": [1.0], "sensor": [[1.0, 2.0]]},
        {"tag": "bar", "signal": [2.0], "sensor": [[3.0, 4.0]]},
    ]
    assert read(predict(wire, f"seeds{place}", {"inputs": instances})) == {"predictions": instances}


@pytest.mark.row("V1-066")
@pytest.mark.parametrize("inputs", [[{"y": 1.0}], [{"x": 1.0}, 2.0], [1.0, {"x": 1.0}], {"x": {"x": 1.0}}, {"x": [{}]}])
@pytest.mark.parametrize("blank", LENGTHS)
def test_objects_that_are_no_rows_are_refused(wire: Wire, inputs: object, blank: str) -> None:
    """As an element, in a mixed list, or with other keys."""
    refusal(predict(wire, "half_plus_two", {"inputs": inputs, "x": blank}), 400)
    alive(wire)


@pytest.mark.row("V1-048", "V1-115")
@pytest.mark.parametrize("x", [[[1.0], [2.0, 3.0]], [1.0, [2.0]], [[1.0], 2.0], [[], [1.0]], [[[1.0]], [1.0]]])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_ragged_columns_are_refused(wire: Wire, x: object, blank: str, *, named: bool) -> None:
    """Named or not."""
    refusal(predict(wire, "half_plus_two", {"inputs": {"x": x} if named else x, "y": blank}), 400)
    alive(wire)
