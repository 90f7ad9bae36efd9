"""Short and long bodies have different readers: mistakes in a body read the same in both."""

import re

import pytest

from tests.support.asgi import Local
from tests.support.checks import refusal
from tests.support.v1_client import LONG, alive, post, predict, read, rows

SIMD = 8192
"""The bytes from which the other reader is used."""
PADS = {
    "behind": lambda text, blank: text + blank,
    "before": lambda text, blank: blank + text,
    "inside": lambda text, blank: text.replace("{", "{" + blank, 1),
    "member first": lambda text, blank: text.replace("{", f'{{"parameters": "{blank}", ', 1),
    "member last": lambda text, blank: text[:-1] + f', "parameters": {{"x": ["{blank}"]}}}}',
}
BAD = [
    ("half_plus_two:predict", '{"instances": [[1.0, 2.0], [3.0]]}'),
    ("half_plus_two:predict", '{"instances": [[1.0], [2.0, 3.0]]}'),
    ("half_plus_two:predict", '{"instances": [1.0, [2.0]]}'), ("half_plus_two:predict", '{"instances": [[1.0], 2.0]}'),
    ("half_plus_two:predict", '{"instances": [[[1.0], [2.0]], [[3.0], [4.0, 5.0]]]}'),
    ("half_plus_two:predict", '{"instances": [1.0, "a"]}'), ("half_plus_two:predict", '{"instances": [1.0, null]}'),
    ("half_plus_two:predict", '{"instances": [1.0, true]}'), ("half_plus_two:predict", '{"instances": [[1.0, "a"]]}'),
    ("half_plus_two:predict", '{"instances": [1.0, {"x": 1.0}]}'),
    ("half_plus_two:predict", '{"instances": [{"x": 1.0}, 1.0]}'),
    ("half_plus_two:predict", '{"instances": [{"x": [1.0, 2.0]}, {"x": [1.0]}]}'),
    ("half_plus_two:predict", '{"instances": [{"x": 1.0}, {"y": 1.0}]}'),
    ("half_plus_two:predict", '{"instances": []}'), ("half_plus_two:predict", '{"instances": {}}'),
    ("half_plus_two:predict", '{"inputs": [[1.0, 2.0], [3.0]]}'),
    ("half_plus_two:predict", '{"inputs": {"x": [[1.0, 2.0], [3.0]]}}'),
    ("half_plus_two:predict", '{"inputs": {"x": [1.0, "a"]}}'), ("half_plus_two:predict", '{"inputs": {"y": [1.0]}}'),
    ("half_plus_two:predict", '{"inputs": null}'),
    ("half_plus_two:predict", '{"signature_name": 5, "instances": [1.0]}'),
    ("half_plus_two:predict", '{"signature_name": "x", "instances": [1.0]}'),
    ("half_plus_two:predict", '{"inputs": [1.0], "instances": [1.0]}'), ("half_plus_two:predict", '{"other": [1.0]}'),
    ("identity_int64:predict", '{"instances": [1, 2.5]}'), ("identity_int64:predict", '{"instances": [1, 2.0]}'),
    ("identity_int64:predict", '{"instances": [1, 9223372036854775808]}'),
    ("identity_int64:predict", '{"instances": [[1, 2], [3, 1.5]]}'),
    ("identity_int64:predict", '{"instances": [1, -9223372036854775809]}'),
    ("identity_uint64:predict", '{"instances": [1, -1]}'),
    ("identity_uint64:predict", '{"instances": [1, 18446744073709551616]}'),
    ("identity_int8:predict", '{"instances": [1, 128]}'), ("identity_uint8:predict", '{"instances": [255, 256]}'),
    ("identity_bool:predict", '{"instances": [true, 1]}'), ("identity_bytes:predict", '{"instances": ["a", 1]}'),
    ("identity_bytes:predict", '{"instances": ["a", {"b64": "*"}]}'),
    ("identity_bytes:predict", '{"instances": ["a", {"c": "x"}]}'),
    ("identity_bytes:predict", '{"instances": [["a"], ["b", "c"]]}'),
    ("seeds:predict", '{"instances": [{"tag": "a", "signal": 1.0, "sensor": "x"}]}'),
    ("seeds:predict", '{"instances": [{"tag": "a", "signal": 1.0}]}'), ("seeds:predict", '{"instances": [1.0]}'),
    ("seeds:predict", '{"inputs": {"tag": ["a"], "signal": [[1.0], 2.0], "sensor": 1.0}}'),
    ("fixed:predict", '{"instances": [[1.0, 2.0]]}'),
    ("person:regress", '{"signature_name": "regress", "examples": [{"weight": "a"}]}'),
    ("person:regress", '{"signature_name": "regress", "examples": [{"weight": [1.0, 2.0]}]}'),
    ("person:regress", '{"signature_name": "regress", "examples": [{"weight": 1.0, "count": 9223372036854775808}]}'),
    ("person:classify", '{"signature_name": "classify", "examples": [{"weight": 1.0, "pair": [1, "a"]}]}'),
    ("person:classify", '{"signature_name": "classify", "examples": [{"weight": null}]}'),
    ("person:classify", '{"signature_name": "classify", "examples": [{}]}'),
    ("person:classify", '{"signature_name": "classify", "examples": []}'),
]  # fmt: skip


@pytest.mark.row("V1-040", "V1-047", "V1-048", "V1-115")
@pytest.mark.parametrize(("target", "text"), BAD)
def test_an_error_reads_the_same_whatever_the_length_of_the_body(local: Local, target: str, text: str) -> None:
    """The blank space may stand anywhere."""
    short = refusal(post(local, target, text.encode()), 400)
    for name, pad in PADS.items():
        for length in (SIMD - len(text) - 1, SIMD, LONG):
            body = pad(text, " " * length).encode()
            assert refusal(post(local, target, body), 400) == short, (name, length)
    alive(local)


MANY = 5000
PLACE = re.compile(r"(?<=item )\d+|(?<=element: )\d+|\d+(?= of 'instances')")
ODD_ONES = [
    ("half_plus_two", "1.5", '"a"'), ("half_plus_two", "1.5", "null"), ("half_plus_two", "1.5", "[1.5]"),
    ("half_plus_two", "[1.5, 2.5]", "[1.5]"), ("half_plus_two", "[1.5, 2.5]", "[1.5, true]"),
    ("half_plus_two", "[1.5, 2.5]", "1.5"), ("half_plus_two", '{"x": 1.5}', '{"x": [1.5]}'),
    ("half_plus_two", '{"x": 1.5}', "1.5"), ("identity_int64", "1", "1.5"),
    ("identity_int64", "1", "9223372036854775808"), ("identity_int64", "[1]", "[true]"), ("identity_uint8", "1", "256"),
    ("identity_bytes", '"a"', "1"), ("identity_bytes", '"a"', '["a"]'), ("identity_bool", "true", "0"),
]  # fmt: skip


@pytest.mark.row("V1-047", "V1-048", "V1-051", "V1-067", "V1-068")
@pytest.mark.parametrize(("model", "right", "odd"), ODD_ONES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_odd_element_is_refused_as_among_few(local: Local, model: str, right: str, odd: str, place: str) -> None:
    """The refusal is the same among four and among thousands, except for the place that it counts."""
    texts = []
    for count in (4, MANY):
        elements = [right] * count
        at = {"first": 0, "middle": count // 2, "last": count - 1}[place]
        elements[at] = odd
        body = f'{{"instances": [{", ".join(elements)}]}}'.encode()
        texts.append(PLACE.sub("N", refusal(predict(local, model, body), 400)))
    few, many = texts
    assert few == many


@pytest.mark.row("V1-026", "V1-041", "V1-072")
@pytest.mark.parametrize(("model", "element"), [
    ("identity_fp32", "0.1"), ("identity_fp32", "1"), ("identity_fp64", "NaN"), ("identity_int64", "-7"),
    ("identity_uint64", "18446744073709551615"), ("identity_bool", "true"), ("identity_bytes", '"é"'),
    ("identity_fp32", "[0.5, 1]"), ("identity_fp16", "1.5"), ("identity_int8", "-128"),
])  # fmt: skip
def test_an_answer_is_the_same_for_few_and_many(local: Local, model: str, element: str) -> None:
    """Every element is compared."""
    answers = [
        predict(local, model, f'{{"instances": [{", ".join([element] * count)}]}}'.encode()).content
        for count in (1, MANY)
    ]
    one, many = (answer.removeprefix(b'{"predictions":[').removesuffix(b"]}") for answer in answers)
    assert many == b",".join([one] * MANY)


@pytest.mark.row("V1-041")
@pytest.mark.parametrize("length", [SIMD - 1, SIMD, SIMD + 1])
def test_the_bound_between_both_readers_is_invisible(local: Local, length: int) -> None:
    """The lengths are one byte less, the bound, and one more."""
    text = '{"instances": [1.0, 2.0, 5.0]}'
    body = (text + " " * (length - len(text))).encode()
    assert len(body) == length
    assert read(predict(local, "half_plus_two", body)) == {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-041", "V1-127")
def test_integers_among_floats_are_numbers_in_a_long_body_too(local: Local) -> None:
    """JavaScript writes 1.0 as 1."""
    values = [0.5, 1, -2, 2.5] * MANY
    assert rows(local, "identity_fp32", values) == [0.5, 1.0, -2.0, 2.5] * MANY
