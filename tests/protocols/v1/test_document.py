"""Catalogue section 3: the document of a predict request."""

from __future__ import annotations

import http.client
import math
from typing import TYPE_CHECKING

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import LONG, alive, columns, predict, read, rows

if TYPE_CHECKING:
    from tests.support.wire import Wire

MODEL = "half_plus_two"
TEXT = '{"instances": [1.0, 2.0, 5.0]}'
ANSWER = {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-022")
@pytest.mark.parametrize("body", [b"", b" ", b"\n\t "])
def test_an_empty_body(wire: Wire, body: bytes) -> None:
    """Nothing, or nothing but white space."""
    assert refusal(predict(wire, MODEL, body), 400) == "JSON Parse error: The document is empty"
    alive(wire)


NO_JSON = [
    b"{", b"[", b"}", b"nonsense", b"instances=1", b'{"instances": [1.0}', b'{"instances": [1.0', b"\xff\xfe", b"\0",
    b'{"instances": [1.0]', b'"', b'{"instances"}', b'{"instances": [1.0], "b": tru}',
]  # fmt: skip


@pytest.mark.row("V1-023")
@pytest.mark.parametrize("body", NO_JSON)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_body_that_is_no_json(wire: Wire, body: bytes, blank: str) -> None:
    """The text says so, and the server goes on."""
    assert refusal(predict(wire, MODEL, body + blank.encode()), 400).startswith("JSON Parse error: ")
    alive(wire)


@pytest.mark.row("V1-024")
@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"', b"true", b'[{"instances": [1.0]}]', b"1.5e3"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_document_that_is_no_object(wire: Wire, body: bytes, blank: str) -> None:
    """Whatever else it is."""
    assert "Is not object" in refusal(predict(wire, MODEL, body + blank.encode()), 400)


TYPES = [
    None, "application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8", "application/json",
    "application/octet-stream", "multipart/form-data; boundary=x", "nonsense", "",
]  # fmt: skip


@pytest.mark.row("V1-025")
@pytest.mark.parametrize("kind", TYPES)
def test_the_content_type_is_not_looked_at(wire: Wire, kind: str | None) -> None:
    """The specification's own curl lines send a form's."""
    headers = {} if kind is None else {"Content-Type": kind}
    assert read(predict(wire, MODEL, TEXT.encode(), headers)) == ANSWER


TOKENS = [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), ("Inf", math.inf), ("-Inf", -math.inf)]


@pytest.mark.row("V1-026", "V1-118")
@pytest.mark.parametrize(("token", "value"), [*TOKENS, ("-NaN", math.nan)])
@pytest.mark.parametrize("blank", LENGTHS)
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_bare_tokens_of_non_finite_numbers_are_read(wire: Wire, token: str, value: float, blank: str, key: str) -> None:
    """Alone and among numbers."""
    body = f'{{"{key}": [1.0, {token}, 3.0]{blank}}}'.encode()
    (one, found, three), *_ = read(predict(wire, "identity_fp32", body)).values()
    assert (one, three) == (1.0, 3.0)
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.row("V1-026")
@pytest.mark.parametrize("token", ["Nan", "nan", "infinity", "NAN", "INF", "inf", "+Infinity", "Infinit", "-", '"NaN"'])
@pytest.mark.parametrize("blank", LENGTHS)
def test_no_other_token_is_a_number(wire: Wire, token: str, blank: str) -> None:
    """Nor is text; the specification's own example has `Nan`, which TF Serving refuses."""
    refusal(predict(wire, "identity_fp32", f'{{"instances": [1.0, {token}]{blank}}}'.encode()), 400)
    alive(wire)


@pytest.mark.row("V1-027")
@pytest.mark.parametrize("number", ["1e400", "-1e999", "1" * 400])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_number_beyond_double_is_refused(wire: Wire, number: str, blank: str) -> None:
    """As TF Serving's parser does."""
    refusal(predict(wire, "identity_fp64", f'{{"instances": [1.0, {number}]{blank}}}'.encode()), 400)
    alive(wire)


@pytest.mark.row("V1-027")
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_number_below_double_is_zero(wire: Wire, blank: str) -> None:
    """It rounds to it."""
    body = f'{{"instances": [1e-400, -1e-400]{blank}}}'.encode()
    assert read(predict(wire, "identity_fp64", body)) == {"predictions": [0.0, 0.0]}


LOOSE = [
    '{"instances": [1.]}', '{"instances": [.5]}', '{"instances": [01]}', '{"instances": [+1]}', '{"instances": [1e]}',
    '{"instances": [0x1]}', '{"instances": [1.0] /* x */}', '{"instances": [1.0]} // x', '{"instances": [1.0,]}',
    '{"instances": [1.0],}', "{'instances': [1.0]}", "{instances: [1.0]}", '{"instances": [1.0 2.0]}',
    '{"instances": [,1.0]}', '{"instances": [1_0]}', '{"instances" [1.0]}', '{"instances": ["a\nb"]}',
    '{"instances": [-]}', '{"instances": [--1]}', '{"instances": [True]}',
]  # fmt: skip


@pytest.mark.row("V1-028")
@pytest.mark.parametrize("text", LOOSE)
@pytest.mark.parametrize("blank", LENGTHS)
def test_what_is_nearly_json_is_none(wire: Wire, text: str, blank: str) -> None:
    """Loose numbers, comments, commas and quotes."""
    refusal(predict(wire, MODEL, text.encode() + blank.encode()), 400)
    alive(wire)


@pytest.mark.row("V1-029")
@pytest.mark.parametrize("rest", ["x", "}", "{}", ' {"instances": [1.0]}', "\0", ",", "[]", "\n1"])
@pytest.mark.parametrize("blank", LENGTHS)
def test_anything_behind_the_object_is_refused(wire: Wire, rest: str, blank: str) -> None:
    """TF Serving stops reading there."""
    refusal(predict(wire, MODEL, f"{TEXT}{blank}{rest}".encode()), 400)
    alive(wire)


@pytest.mark.row("V1-029")
@pytest.mark.parametrize("space", [" ", "\n", "\r\n\t ", " " * LONG])
def test_white_space_around_the_object_is_none_of_it(wire: Wire, space: str) -> None:
    """Before and behind."""
    assert read(predict(wire, MODEL, f"{space}{TEXT}{space}".encode())) == ANSWER


@pytest.mark.row("V1-030")
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_byte_order_mark_is_accepted(wire: Wire, blank: str) -> None:
    """Windows writes it."""
    assert read(predict(wire, MODEL, b"\xef\xbb\xbf" + TEXT.encode() + blank.encode())) == ANSWER


@pytest.mark.row("V1-030")
@pytest.mark.parametrize("element", [b'"\\ud800"', b'"\\udc00 x"', b'"\\ud800\\u0041"'])
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_lone_surrogate_is_refused(wire: Wire, element: bytes, blank: str) -> None:
    """It is no Unicode text."""
    refusal(predict(wire, "identity_bytes", b'{"instances": [' + element + b"]}" + blank.encode()), 400)
    alive(wire)


@pytest.mark.row("V1-030")
def test_bytes_that_are_no_utf8_are_taken_or_refused(wire: Wire) -> None:
    """Never a broken answer."""
    answer = predict(wire, "identity_bytes", b'{"instances": ["\xff\xfe"]}')
    if answer.status == http.client.OK:
        assert read(answer) == {"predictions": [{"b64": "//4="}]}
    else:
        refusal(answer, 400)


@pytest.mark.row("V1-031")
@pytest.mark.parametrize(
    "extra", [{"parameters": {"a": [1]}}, {"id": 5}, {"examples": 1}, {"": None, "predictions": []}]
)
def test_unknown_members_are_ignored(wire: Wire, extra: dict[str, object]) -> None:
    """Vertex AI sends parameters."""
    assert rows(wire, MODEL, [1.0], **extra) == [2.5]


@pytest.mark.row("V1-032")
@pytest.mark.parametrize("blank", LENGTHS)
def test_of_a_doubled_key_one_counts_or_none(wire: Wire, blank: str) -> None:
    """One of both answers, or 400."""
    answer = predict(wire, MODEL, f'{{"instances": [1.0], "instances": [2.0]{blank}}}'.encode())
    if answer.status == http.client.OK:
        assert read(answer)["predictions"] in ([2.5], [3.0])
    else:
        refusal(answer, 400)


@pytest.mark.row("V1-033")
@pytest.mark.parametrize("key", ["foreign", "signature_name", "instances", "inputs", "parameters"])
@pytest.mark.parametrize("depth", [200, 1500, 500_000])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_any_depth_of_nesting_ends_no_process(wire: Wire, key: str, depth: int, brackets: str) -> None:
    """400 at the latest where it is asked for."""
    opened, closed = brackets[:-1] * depth, brackets[-1] * depth
    rest = "" if key in {"instances", "inputs"} else ', "instances": [1.0]'
    body = f'{{"{key}": {opened}1{closed}{rest}}}'.encode()
    answer = predict(wire, MODEL, body)
    if answer.status == http.client.OK:
        assert key in {"foreign", "parameters"}
    else:
        refusal(answer, 400)
    alive(wire)


@pytest.mark.row("V1-034")
@pytest.mark.parametrize("name", ["", "serving_default"])
def test_no_name_is_the_default_signature(wire: Wire, name: str) -> None:
    """Nor is an empty one."""
    assert rows(wire, MODEL, [1.0], signature_name=name) == [2.5]


@pytest.mark.row("V1-034")
def test_a_signature_is_chosen_by_its_name(wire: Wire) -> None:
    """Its outputs, and no others."""
    assert rows(wire, "shapes", [1.0, 2.0, 3.0], signature_name="head") == [1.0, 2.0]


@pytest.mark.row("V1-035")
@pytest.mark.parametrize("name", [None, 1, 1.5, True, [], {}, ["serving_default"]])
@pytest.mark.parametrize("blank", LENGTHS)
def test_the_name_of_a_signature_is_text(wire: Wire, name: object, blank: str) -> None:
    """Null is none."""
    answer = predict(wire, MODEL, {"signature_name": name, "instances": [1.0], "x": blank})
    assert refusal(answer, 400) == "'signature_name' key must be a string value."


@pytest.mark.row("V1-036")
@pytest.mark.parametrize("name", ["X", "regress", "serving_default ", "é", "__init__"])
def test_an_unknown_signature_is_refused(wire: Wire, name: str) -> None:
    """By name."""
    text = refusal(predict(wire, MODEL, {"signature_name": name, "instances": [1.0]}), 400)
    assert f'Serving signature name: "{name}" not found in signature def' in text


@pytest.mark.row("V1-037")
@pytest.mark.parametrize("instances", [[1.0], [{"x": 1.0}]])
def test_a_signature_without_inputs_takes_no_rows(wire: Wire, instances: object) -> None:
    """TF Serving refuses every request for it."""
    refusal(predict(wire, "constant", {"instances": instances}), 400)


@pytest.mark.row("V1-037")
def test_a_signature_without_inputs_is_refused_or_answered_by_no_columns(wire: Wire) -> None:
    """There is one right answer to nothing."""
    answer = predict(wire, "constant", {"inputs": {}})
    if answer.status == http.client.OK:
        assert read(answer) == {"outputs": [1.5]}
    else:
        assert "Failed to get input map for signature" in refusal(answer, 400)


@pytest.mark.row("V1-038", "V1-116")
@pytest.mark.parametrize("blank", LENGTHS)
def test_rows_and_columns_together_are_refused(wire: Wire, blank: str) -> None:
    """One of the two."""
    answer = predict(wire, MODEL, {"instances": [1.0], "inputs": [1.0], "x": blank})
    expected = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"
    assert refusal(answer, 400).startswith(expected)


@pytest.mark.row("V1-039", "V1-115")
@pytest.mark.parametrize("document", [{}, {"Instances": [1.0]}, {"examples": [{"x": 1.0}]}, {"signature_name": ""}])
def test_neither_rows_nor_columns_are_refused(wire: Wire, document: object) -> None:
    """No third key will do."""
    assert "Missing 'inputs' or 'instances' key" in refusal(predict(wire, MODEL, document), 400)


@pytest.mark.row("V1-040")
@pytest.mark.parametrize(
    "document",
    [
        {"instances": ["x" * 100_000]},
        {"instances": [["y"] * 50_000]},
        {"inputs": {"x": "z" * 100_000}},
        {"signature_name": "n" * 100_000, "instances": [1.0]},
        {"instances": [{"k" * 100_000: 1}]},
        {"instances": {"k": ["v"] * 50_000}},
        {"i": "x" * 100_000},
        {"instances": ["é" * 50_000]},
    ],
    ids=range(8),
)
def test_what_an_error_quotes_is_bounded(wire: Wire, document: object) -> None:
    """However long the culprit is."""
    refusal(predict(wire, MODEL, document), 400)
    alive(wire)


@pytest.mark.row("V1-031")
def test_keys_are_compared_after_their_escapes(wire: Wire) -> None:
    """JSON may write any letter as its number."""
    assert read(predict(wire, MODEL, b'{"\\u0069nstances": [1.0]}')) == {"predictions": [2.5]}
    assert columns(wire, MODEL, {"x": 1.0}) == 2.5
