"""Catalogue section 6: which JSON values each datatype takes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, columns, predict, read, rows
from tests.support.zoo.models import DATATYPES

if TYPE_CHECKING:
    from tests.support.wire import Answer, Wire

WIDE = {"FP32": "float", "FP64": "double"}
FULL = {"INT32": "int32", "INT64": "int64", "UINT32": "uint32", "UINT64": "uint64"}
NARROW = {"INT8": "int8", "UINT8": "uint8", "INT16": "int16", "UINT16": "uint16"}
INTEGERS = FULL | NARROW
HALVES = {"FP16": "half", "BF16": "bfloat16"}
FLOATS = WIDE | HALVES


def model(datatype: str) -> str:
    """Its identity of any shape."""
    return f"identity_{datatype.lower()}"


def every_form(wire: Wire, datatype: str, element: str, blank: str = "") -> list[Answer]:
    """Answers to one element, as text, in every place where it may stand."""
    forms = [
        '"instances": [{}]', '"instances": [{{"INPUT0": {}}}]', '"inputs": [{}]', '"inputs": {{"INPUT0": [[{}]]}}',
        '"inputs": {{"INPUT0": {}}}',
    ]  # fmt: skip
    bodies = [f'{{{form.format(element)}, "blank": "{blank}"}}' for form in forms]
    return [predict(wire, model(datatype), body.encode()) for body in bodies]


def refused(wire: Wire, datatype: str, element: str, blank: str) -> list[str]:
    """The texts of refusals in every form; and a right request in between is answered."""
    texts = [refusal(answer, 400) for answer in every_form(wire, datatype, element, blank)]
    alive(wire)
    return texts


@pytest.mark.row("V1-067")
@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize(
    "number", ["0", "-0.0", "1", "-3", "1.5", "1e2", "-2.5E-1", "16777216", "0.1", "9007199254740993"]
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_floats_take_any_number(wire: Wire, datatype: str, number: str, blank: str) -> None:
    """Rounded to the nearest of their width."""
    dtype = DATATYPES[datatype].numpy
    with np.errstate(over="ignore"):
        expected = np.array(float(number)).astype(dtype)
    for answer in every_form(wire, datatype, number, blank):
        with np.errstate(over="ignore"):
            found = np.array(next(iter(read(answer).values()))).astype(dtype)
        assert found.reshape(()).tobytes() == expected.tobytes()


@pytest.mark.row("V1-067")
@pytest.mark.parametrize("blank", LENGTHS)
def test_beyond_float32_is_infinite_and_below_is_zero(wire: Wire, blank: str) -> None:
    """Silently, as TF Serving rounds."""
    body = f'{{"instances": [1e39, -1e39, 1e-60, -1e-60, 3.4028235e38], "x": "{blank}"}}'
    found = read(predict(wire, "identity_fp32", body.encode()))["predictions"]
    assert found[:4] == [float("inf"), float("-inf"), 0.0, -0.0]
    assert np.float32(found[4]) == np.finfo(np.float32).max


@pytest.mark.row("V1-067", "V1-115")
@pytest.mark.parametrize(("datatype", "name"), list(WIDE.items()))
@pytest.mark.parametrize("element", ["true", "null", '"1.0"', '"NaN"', '{"a": 1}', '{"b64": "AA=="}', '""'])
@pytest.mark.parametrize("blank", LENGTHS)
def test_floats_take_nothing_but_numbers(wire: Wire, datatype: str, name: str, element: str, blank: str) -> None:
    """The text says which type was expected, where the value is one."""
    texts = refused(wire, datatype, element, blank)
    if not element.startswith("{"):
        assert all(f"is not of expected type: {name}" in text for text in texts)


@pytest.mark.row("V1-068", "V1-069", "V1-070", "V1-081")
@pytest.mark.parametrize("datatype", INTEGERS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_integers_take_their_whole_range(wire: Wire, datatype: str, blank: str) -> None:
    """Both ends, exactly, in rows and columns."""
    info = np.iinfo(np.dtype(DATATYPES[datatype].numpy))
    for number in (info.min, info.max, 0, 1, info.max - 1):
        for answer in every_form(wire, datatype, str(number), blank):
            assert str(number) in answer.content.decode()
            assert np.array(next(iter(read(answer).values())), object).ravel().tolist() == [number]


@pytest.mark.row("V1-068", "V1-069", "V1-070", "V1-115")
@pytest.mark.parametrize("datatype", INTEGERS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_integers_out_of_range_are_refused(wire: Wire, datatype: str, blank: str) -> None:
    """Never wrapped."""
    info = np.iinfo(np.dtype(DATATYPES[datatype].numpy))
    for number in (info.min - 1, info.max + 1, 10**30, -(10**30)):
        refused(wire, datatype, str(number), blank)


@pytest.mark.row("V1-068", "V1-069", "V1-070")
@pytest.mark.parametrize("datatype", INTEGERS)
@pytest.mark.parametrize("element", ["1.0", "1e2", "1.5", "NaN", "Infinity", "true", "false", '"1"', "null", "{}"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_integers_take_nothing_but_integers(wire: Wire, datatype: str, element: str, blank: str) -> None:
    """Not even a number with a fraction of zero."""
    refused(wire, datatype, element, blank)


@pytest.mark.row("V1-068")
@pytest.mark.parametrize(("datatype", "name"), list(FULL.items()))
def test_the_text_names_the_expected_integer(wire: Wire, datatype: str, name: str) -> None:
    """TF Serving's word for the type."""
    assert all(f"is not of expected type: {name}" in text for text in refused(wire, datatype, "1.5", ""))


@pytest.mark.row("V1-068")
@pytest.mark.parametrize("datatype", FULL)
@pytest.mark.parametrize("others", ["1, 2", "1.0, 2", "1, 2.5"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_one_fraction_among_integers_is_seen(wire: Wire, datatype: str, others: str, blank: str) -> None:
    """In whatever place it stands."""
    body = f'{{"instances": [{others}], "x": "{blank}"}}'.encode()
    answer = predict(wire, model(datatype), body)
    if "." in others:
        refusal(answer, 400)
    else:
        assert read(answer) == {"predictions": [1, 2]}


@pytest.mark.row("V1-070")
@pytest.mark.parametrize("datatype", HALVES)
@pytest.mark.parametrize("blank", LENGTHS)
def test_half_widths_are_served(wire: Wire, datatype: str, blank: str) -> None:
    """As numbers, in and out."""
    dtype = DATATYPES[datatype].numpy
    values = np.array([1.5, -2.0, 0.0, 0.1, 100.0]).astype(dtype)
    found = rows(wire, model(datatype), values.astype(float).tolist(), x=blank)
    assert np.array(found).astype(dtype).tobytes() == values.tobytes()
    assert columns(wire, model(datatype), 1.5) == 1.5


@pytest.mark.row("V1-070")
@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("datatype", HALVES)
def test_half_widths_know_non_finite_numbers(wire: Wire, datatype: str, token: str) -> None:
    """As the wider floats do."""
    for answer in every_form(wire, datatype, token):
        read(answer)
        assert token.encode() in answer.content


@pytest.mark.row("V1-070")
@pytest.mark.parametrize("datatype", HALVES)
@pytest.mark.parametrize("element", ["true", "null", '"1.0"', "{}"])
def test_half_widths_take_nothing_but_numbers(wire: Wire, datatype: str, element: str) -> None:
    """As the wider floats do."""
    refused(wire, datatype, element, "")


@pytest.mark.row("V1-070")
def test_bfloat16_is_rounded_to_nearest(wire: Wire) -> None:
    """Not cut off."""
    values = [1 / 3, 3.14159, 1e30, -1e-30, 65504.0]
    expected = np.array(values).astype(ml_dtypes.bfloat16)
    found = np.array(columns(wire, "identity_bf16", values)).astype(ml_dtypes.bfloat16)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.row("V1-071")
@pytest.mark.parametrize("element", ["true", "false"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_booleans_are_true_and_false(wire: Wire, element: str, blank: str) -> None:
    """In every form."""
    for answer in every_form(wire, "BOOL", element, blank):
        assert np.array(next(iter(read(answer).values()))).ravel().tolist() == [element == "true"]


@pytest.mark.row("V1-071")
@pytest.mark.parametrize("element", ["0", "1", "1.0", '"true"', "null", "NaN", '{"a": true}'])
@pytest.mark.parametrize("blank", LENGTHS)
def test_booleans_are_nothing_else(wire: Wire, element: str, blank: str) -> None:
    """No number and no text."""
    refused(wire, "BOOL", element, blank)


TEXTS = ["", "a", "één", "日本", "🦜", "nul\0", '"\\/\b\f\n\r\t', "\u2028\uffff", " ", "NaN", "aGVsbG8=", "<&>"]


@pytest.mark.row("V1-072", "V1-075", "V1-120")
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("blank", LENGTHS)
def test_text_comes_back(wire: Wire, blank: str, *, ascii_only: bool) -> None:
    """Never decoded, though it may look like base64."""
    for document in ({"instances": TEXTS, "x": blank}, {"inputs": {"INPUT0": TEXTS}, "x": blank}):
        answer = predict(wire, "identity_bytes", json.dumps(document, ensure_ascii=ascii_only).encode())
        assert list(read(answer).values()) == [TEXTS]


@pytest.mark.row("V1-072", "V1-073", "V1-120")
@pytest.mark.parametrize("blank", LENGTHS)
def test_base64_stands_wherever_text_may(wire: Wire, blank: str) -> None:
    """Mixed freely, in rows, in columns, nested, alone."""
    value = {"b64": base64.b64encode("één".encode()).decode()}
    assert rows(wire, "identity_bytes", [value, "a", value], x=blank) == ["één", "a", "één"]
    assert rows(wire, "identity_bytes", [["a", value], [value, "b"]], x=blank) == [["a", "één"], ["één", "b"]]
    assert rows(wire, "identity_bytes", [{"INPUT0": value}, {"INPUT0": "a"}], x=blank) == ["één", "a"]
    assert rows(wire, "identity_bytes", [{"INPUT0": [value, "a"]}], x=blank) == [["één", "a"]]
    assert columns(wire, "identity_bytes", {"INPUT0": [value, "a"]}, x=blank) == ["één", "a"]
    assert columns(wire, "identity_bytes", [[value], ["a"]], x=blank) == [["één"], ["a"]]


@pytest.mark.row("V1-072", "V1-115")
@pytest.mark.parametrize("element", ["1", "1.5", "true", "null", "NaN", '{"a": "b"}', '{"b64": "AA==", "x": 1}', "{}"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_text_is_nothing_else(wire: Wire, element: str, blank: str) -> None:
    """No number, no other object."""
    refused(wire, "BYTES", element, blank)


@pytest.mark.row("V1-072")
@pytest.mark.parametrize("element", [{"b64": "AA==", "x": 1}, {"a": "b"}, {"B64": "AA=="}])
def test_an_object_that_is_no_base64_says_so(wire: Wire, element: object) -> None:
    """TF Serving's text, where the value stands in a list of values."""
    text = refusal(predict(wire, "identity_bytes", {"inputs": {"INPUT0": ["a", element]}}), 400)
    assert "not formatted correctly for base64 data" in text


@pytest.mark.row("V1-073")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""), ("YQ==", "a"), ("YQ", "a"), ("YQ=", "a"), ("YWI=", "ab"), ("YWI", "ab"), ("YW\nJj", "abc"),
        (" YWJj ", "abc"), ("Y W J j", "abc"), ("YWJj\r\n\tZA==", "abcd"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("blank", LENGTHS)
def test_base64_may_lack_its_padding_and_have_white_space(wire: Wire, text: str, value: str, blank: str) -> None:
    """The standard alphabet."""
    assert rows(wire, "identity_bytes", [{"b64": text}], x=blank) == [value]


@pytest.mark.row("V1-073")
@pytest.mark.parametrize("text", ["-_-_", "YW*j", "Y", "YWJjZ", "====", "=YWJj", "YQ==YQ==", "é", "YWJj\0"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_what_is_no_base64_is_refused(wire: Wire, text: str, blank: str) -> None:
    """The web-safe alphabet, foreign characters, wrong lengths."""
    answer = predict(wire, "identity_bytes", {"instances": [{"b64": text}], "x": blank})
    assert "Unable to base64 decode" in refusal(answer, 400)


@pytest.mark.row("V1-074")
@pytest.mark.parametrize("instance", [{"b64": 5}, {"b64": None}, {"b64": ["YQ=="]}, {"b64": "YQ==", "x": 1}])
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_instance_that_is_no_value_is_an_object_of_names(wire: Wire, instance: object, blank: str) -> None:
    """And b64 is no input."""
    assert "b64" in refusal(predict(wire, "identity_bytes", {"instances": [instance], "x": blank}), 400)


@pytest.mark.row("V1-074")
def test_an_input_called_b64_would_still_be_named(wire: Wire) -> None:
    """An object with b64 and another key is an object of names in columns, too."""
    assert columns(wire, "identity_bytes", {"INPUT0": "a", "b64": "YQ=="}) == "a"


@pytest.mark.row("V1-076")
@pytest.mark.parametrize("depth", [65, 100, 300])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES", "INT64", "BOOL"])
def test_too_many_dimensions_are_refused(wire: Wire, datatype: str, depth: int) -> None:
    """400, whatever the element."""
    element = {"FP32": "1.5", "BYTES": '"a"', "INT64": "1", "BOOL": "true"}[datatype]
    for key in ("instances", "inputs"):
        body = f'{{"{key}": {"[" * depth}{element}{"]" * depth}}}'.encode()
        refusal(predict(wire, model(datatype), body), 400)
    alive(wire)
