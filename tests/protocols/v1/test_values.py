"""The tests check which JSON values each datatype accepts in V1, and documents that may be read in two ways."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.checks import LENGTHS, LONG, refusal
from tests.support.v1_client import alive, columns, predict, read, rows
from tests.support.wire import Answer, Wire
from tests.support.zoo.models import DATATYPES

WIDE = {"FP32": "float", "FP64": "double"}
FULL = {"INT32": "int32", "INT64": "int64", "UINT32": "uint32", "UINT64": "uint64"}
INTEGERS = [*FULL, "INT8", "UINT8", "INT16", "UINT16"]
HALVES = ["FP16", "BF16"]
FLOATS = [*WIDE, *HALVES]
FORMS = (
    '"instances": [{}]', '"instances": [{{"INPUT0": {}}}]', '"inputs": [{}]', '"inputs": {{"INPUT0": [[{}]]}}',
    '"inputs": {{"INPUT0": {}}}',
)  # fmt: skip
NUMBERS = ("0", "-0.0", "1", "-3", "1.5", "1e2", "-2.5E-1", "16777216", "0.1", "9007199254740993")
NO_FLOATS = ("true", "null", '"1.0"', '"NaN"', '{"a": 1}', '{"b64": "AA=="}', '""')
NO_INTEGERS = ("1.0", "1e2", "1.5", "NaN", "Infinity", "true", "false", '"1"', "null", "{}")
NO_BOOLEANS = ("0", "1", "1.0", '"true"', "null", "NaN", '{"a": true}')
NO_TEXTS = ("1", "1.5", "true", "null", "NaN", '{"a": "b"}', '{"b64": "AA==", "x": 1}', "{}")
TOKENS = (
    ("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), ("Inf", math.inf), ("-Inf", -math.inf),
    ("-NaN", math.nan),
)  # fmt: skip


def model(datatype: str) -> str:
    """Returns the identity of any shape."""
    return f"identity_{datatype.lower()}"


def every_form(wire: Wire, datatype: str, element: str) -> list[Answer]:
    """Returns the answers to one element, as text, in every place where it may stand, in short and long bodies."""
    bodies = [f'{{{form.format(element)}, "blank": "{blank}"}}' for form, blank in product(FORMS, ("", LONG.decode()))]
    return [predict(wire, model(datatype), body.encode()) for body in bodies]


def only(answer: Answer) -> object:
    """Returns the first member of an answer."""
    return next(iter(read(answer).values()))


@pytest.mark.row("V1-067")
@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("number", NUMBERS)
def test_floats_take_any_number(wire: Wire, datatype: str, number: str) -> None:
    """Each number is rounded to the nearest of their width."""
    dtype = DATATYPES[datatype].numpy
    with np.errstate(over="ignore"):
        expected = np.array(float(number)).astype(dtype)
        for answer in every_form(wire, datatype, number):
            assert np.array(only(answer)).astype(dtype).reshape(()).tobytes() == expected.tobytes()


@pytest.mark.row("V1-067")
@pytest.mark.parametrize("blank", LENGTHS)
def test_beyond_float32_is_infinite_and_below_is_zero(wire: Wire, blank: str) -> None:
    """FP32 rounds silently, as TF Serving does."""
    body = f'{{"instances": [1e39, -1e39, 1e-60, -1e-60, 3.4028235e38], "x": "{blank}"}}'
    found = read(predict(wire, "identity_fp32", body.encode()))["predictions"]
    assert found[:4] == [float("inf"), float("-inf"), 0.0, -0.0]
    assert np.float32(found[4]) == np.finfo(np.float32).max


@pytest.mark.row("V1-068", "V1-069", "V1-070", "V1-081")
@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_take_their_whole_range(wire: Wire, datatype: str) -> None:
    """Both ends go through exactly, in rows and columns."""
    info = np.iinfo(np.dtype(DATATYPES[datatype].numpy))
    for number in (info.min, info.max, 0, 1, info.max - 1):
        for answer in every_form(wire, datatype, str(number)):
            assert str(number) in answer.content.decode()
            assert np.array(only(answer), object).ravel().tolist() == [number]


@pytest.mark.row("V1-068", "V1-069", "V1-070", "V1-115")
@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_out_of_range_are_refused(wire: Wire, datatype: str) -> None:
    """They are never wrapped."""
    info = np.iinfo(np.dtype(DATATYPES[datatype].numpy))
    for number in (info.min - 1, info.max + 1, 10**30, -(10**30)):
        for answer in every_form(wire, datatype, str(number)):
            refusal(answer, 400)
    alive(wire)


@pytest.mark.parametrize(("datatype", "element"), [
    *(row("V1-067 V1-115", *each, name=each[0]) for each in product(WIDE, NO_FLOATS)),
    *(row("V1-068 V1-069 V1-070", *each, name=each[0]) for each in product(INTEGERS, NO_INTEGERS)),
    *(row("V1-070", *each, name=each[0]) for each in product(HALVES, ("true", "null", '"1.0"', "{}"))),
    *(row("V1-071", "BOOL", element) for element in NO_BOOLEANS),
    *(row("V1-072 V1-115", "BYTES", element) for element in NO_TEXTS),
])  # fmt: skip
def test_a_datatype_takes_nothing_else(wire: Wire, datatype: str, element: str) -> None:
    """The text has TF Serving's word for the expected type if the element is a value, in every form."""
    word = (WIDE | FULL).get(datatype)
    for answer in every_form(wire, datatype, element):
        text = refusal(answer, 400)
        assert word is None or element.startswith("{") or f"is not of expected type: {word}" in text
    alive(wire)


@pytest.mark.row("V1-070")
@pytest.mark.parametrize("datatype", HALVES)
@pytest.mark.parametrize("blank", LENGTHS)
def test_half_widths_are_served(wire: Wire, datatype: str, blank: str) -> None:
    """They are numbers, in and out."""
    dtype = DATATYPES[datatype].numpy
    values = np.array([1.5, -2.0, 0.0, 0.1, 100.0]).astype(dtype)
    found = rows(wire, model(datatype), values.astype(float).tolist(), x=blank)
    assert np.array(found).astype(dtype).tobytes() == values.tobytes()
    assert columns(wire, model(datatype), 1.5) == 1.5


@pytest.mark.row("V1-070")
@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("datatype", HALVES)
def test_half_widths_know_non_finite_numbers(wire: Wire, datatype: str, token: str) -> None:
    """They take the tokens of the wider floats."""
    for answer in every_form(wire, datatype, token):
        read(answer)
        assert token.encode() in answer.content


@pytest.mark.row("V1-070")
def test_bfloat16_is_rounded_to_nearest(wire: Wire) -> None:
    """It is not truncated."""
    values = [1 / 3, 3.14159, 1e30, -1e-30, 65504.0]
    expected = np.array(values).astype(ml_dtypes.bfloat16)
    assert np.array(columns(wire, "identity_bf16", values)).astype(ml_dtypes.bfloat16).tobytes() == expected.tobytes()


@pytest.mark.row("V1-071")
@pytest.mark.parametrize("element", ["true", "false"])
def test_booleans_are_true_and_false(wire: Wire, element: str) -> None:
    """Every form takes both."""
    for answer in every_form(wire, "BOOL", element):
        assert np.array(only(answer)).ravel().tolist() == [element == "true"]


@pytest.mark.row("V1-026", "V1-118")
@pytest.mark.parametrize(("token", "value"), TOKENS)
@pytest.mark.parametrize("blank", LENGTHS)
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_bare_tokens_of_non_finite_numbers_are_read(wire: Wire, token: str, value: float, blank: str, key: str) -> None:
    """They may stand alone and among numbers."""
    body = f'{{"{key}": [1.0, {token}, 3.0]{blank}}}'.encode()
    (one, found, three), *_ = read(predict(wire, "identity_fp32", body)).values()
    assert (one, three) == (1.0, 3.0)
    assert found == value or (math.isnan(found) and math.isnan(value))


DOUBTFUL = [
    row("V1-030", "identity_bytes", b'{"instances": ["\xff\xfe"]}', [{"predictions": [{"b64": "//4="}]}], "..."),
    row("V1-032", "half_plus_two", b'{"instances": [1.0], "instances": [2.0]}',
        [{"predictions": [2.5]}, {"predictions": [3.0]}], "..."),
    row("V1-037", "constant", b'{"inputs": {}}', [{"outputs": [1.5]}], "Failed to get input map for signature"),
    row("V1-056", "half_plus_two", b'{"instances": [{"x": 1.0, "x": 2.0}, {"x": 3.0}]}',
        [{"predictions": [2.5, 3.5]}, {"predictions": [3.0, 3.5]}], "..."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "answers", "text"), DOUBTFUL)
@pytest.mark.parametrize("blank", [b"", LONG], ids=["short", "long"])
def test_what_may_mean_two_things_is_one_of_them_or_refused(
    wire: Wire, name: str, body: bytes, answers: list[object], text: str, blank: bytes
) -> None:
    """The answer is never malformed."""
    answer = predict(wire, name, body + blank)
    if answer.status == 200:
        assert read(answer) in answers
    else:
        assert text.strip(".") in refusal(answer, 400)


@pytest.mark.row("V1-033")
@pytest.mark.parametrize("key", ["foreign", "signature_name", "instances", "inputs", "parameters"])
@pytest.mark.parametrize("depth", [200, 1500, 500_000])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_any_depth_of_nesting_ends_no_process(wire: Wire, key: str, depth: int, brackets: str) -> None:
    """The status is 400 at the latest when the answer is requested."""
    opened, closed = brackets[:-1] * depth, brackets[-1] * depth
    rest = "" if key in {"instances", "inputs"} else ', "instances": [1.0]'
    answer = predict(wire, "half_plus_two", f'{{"{key}": {opened}1{closed}{rest}}}'.encode())
    if answer.status == 200:
        assert key in {"foreign", "parameters"}
    else:
        refusal(answer, 400)
    alive(wire)
