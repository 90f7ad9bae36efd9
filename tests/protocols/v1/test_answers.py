"""Catalogue section 7: how answers are written."""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import alive, columns, get, numbers, post, predict, read, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.asgi import Local
    from tests.support.wire import Wire


@pytest.mark.row("V1-077")
@pytest.mark.parametrize("target", ["half_plus_two", "half_plus_two/metadata", "half", "half_plus_two/nonsense", ""])
def test_every_answer_is_json_without_a_charset(wire: Wire, target: str) -> None:
    """Success and error alike: kserve's client compares for equality."""
    alive(wire)
    answer = get(wire, target) if target else wire.get("/v1/models")
    assert answer.headers["content-type"] == "application/json"
    json.loads(answer.content)


@pytest.mark.row("V1-078", "V1-120")
def test_an_output_named_bytes_is_base64(wire: Wire) -> None:
    """The alias decides; text under any other name is raw."""
    coded = {"b64": "aGk="}
    assert rows(wire, "binary_names", ["hi"]) == [{"image_bytes": coded, "caption": "hi"}]
    assert columns(wire, "binary_names", ["hi"]) == {"image_bytes": [coded], "caption": ["hi"]}
    assert rows(wire, "binary_names", ["hi", ""], signature_name="one") == [coded, {"b64": ""}]
    assert columns(wire, "binary_names", {"text": "hi"}, signature_name="one") == coded


@pytest.mark.row("V1-078")
def test_an_input_named_bytes_is_text_all_the_same(wire: Wire) -> None:
    """The suffix means outputs only."""
    assert rows(wire, "binary_names", ["aGk="], signature_name="input_only") == ["aGk="]


@pytest.mark.row("V1-079")
@pytest.mark.parametrize("coded", ["/w==", "//4A", "aGn/"])
@pytest.mark.parametrize("model", ["py_raw_bytes"])
def test_bytes_that_are_no_utf8_are_base64(wire: Wire, model: str, coded: str) -> None:
    """By themselves: text beside them stays text."""
    assert rows(wire, model, [{"b64": coded}, "hi"]) == [{"b64": coded}, "hi"]
    assert columns(wire, model, {"data": [{"b64": coded}, "hi"]}) == [{"b64": coded}, "hi"]


FLOATS: list[tuple[str, list[float], list[str]]] = [
    ("fp32", [3.0, 0.1, 2.05, 100.0, -0.5, 1 / 3], ["3.0", "0.1", "2.05", "100.0", "-0.5", "0.33333334"]),
    ("fp64", [3.0, 0.1, 1 / 3, 1e22], ["3.0", "0.1", "0.3333333333333333", "1e22"]),
    ("fp16", [3.0, 0.1, -65504.0], ["3.0", "0.1", "-65504.0"]),
]


@pytest.mark.row("V1-080", "V1-121")
@pytest.mark.parametrize(("kind", "values", "texts"), FLOATS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_floats_have_a_point_and_no_noise(
    wire: Wire, kind: str, values: list[float], texts: list[str], blank: str
) -> None:
    """The shortest digits of their own width."""
    for key in ("instances", "inputs"):
        found = numbers(predict(wire, f"identity_{kind}", {key: values, "x": blank}))[: len(texts)]
        assert [text.replace("e+", "e") for text in found] == texts


EXTREMES = [9e6, 1e10, 16777216.0, 1e-5, 1e-10, 3.4028235e38, 1.1754944e-38, 1e-45, 123456.79, 1e16, 1e20, 0.0, -0.0]


@pytest.mark.row("V1-080")
@pytest.mark.parametrize("value", EXTREMES)
def test_a_float_of_any_size_has_a_point_or_an_exponent(wire: Wire, value: float) -> None:
    """And comes back to the bit."""
    (text,) = numbers(predict(wire, "identity_fp32", {"instances": [value]}))
    assert "." in text or "e" in text
    assert np.float32(text).tobytes() == np.float32(value).tobytes()


@pytest.mark.row("V1-080")
def test_the_width_is_kept_in_every_form_of_an_answer(wire: Wire) -> None:
    """Several outputs, objects, nested lists, scalars."""
    row = {"tag": "a", "signal": [0.1], "sensor": 0.1}
    assert numbers(predict(wire, "seeds", {"instances": [row]})) == ["0.1", "0.1"]
    assert numbers(predict(wire, "seeds", {"inputs": {**row, "tag": ["a"]}})) == ["0.1", "0.1"]
    assert numbers(predict(wire, "identity_fp32", {"inputs": [[[0.1]]], "signature_name": ""}))[0] == "0.1"
    document = {"signature_name": "regress", "examples": [{"weight": 0.1, "count": 0}]}
    assert numbers(post(wire, "person:regress", document)) == ["0.1"]
    document = {"signature_name": "classify", "examples": [{"weight": 0.1, "count": 0}]}
    assert numbers(post(wire, "person:classify", document)) == ["0.1"]


@pytest.mark.row("V1-081")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("uint64", "18446744073709551615"),
        ("uint64", "9007199254740993"),
        ("int64", "-9223372036854775808"),
        ("int64", "9007199254740993"),
        ("int8", "-128"),
        ("uint16", "65535"),
    ],
)
@pytest.mark.parametrize("blank", LENGTHS)
def test_integers_have_every_digit_and_no_point(wire: Wire, kind: str, text: str, blank: str) -> None:
    """In the text of the answer itself."""
    for key in ("instances", "inputs"):
        body = f'{{"{key}": [{text}, 1], "x": "{blank}"}}'.encode()
        assert numbers(predict(wire, f"identity_{kind}", body))[:2] == [text, "1"]


NON_FINITE = b'{"inputs": {"INPUT0": [NaN, Infinity, -Infinity, 1.5]}}'
NON_FINITE_ROWS = b'{"instances": [NaN, Infinity, -Infinity, 1.5]}'


@pytest.mark.row("V1-082", "V1-119")
@pytest.mark.parametrize("kind", ["fp16", "fp32", "fp64", "bf16"])
@pytest.mark.parametrize("body", [NON_FINITE, NON_FINITE_ROWS], ids=["columns", "rows"])
def test_non_finite_numbers_are_bare_tokens(wire: Wire, kind: str, body: bytes) -> None:
    """Neither text nor null."""
    assert numbers(predict(wire, f"identity_{kind}", body)) == ["NaN", "Infinity", "-Infinity", "1.5"]


@pytest.mark.row("V1-119")
@pytest.mark.parametrize("body", [NON_FINITE, NON_FINITE_ROWS], ids=["columns", "rows"])
def test_non_finite_numbers_can_be_set_to_null(local_with: Callable[..., Local], body: bytes) -> None:
    """For strict clients."""
    local = local_with(NON_FINITE="null")
    assert list(read(predict(local, "identity_fp32", body)).values()) == [[None, None, None, 1.5]]
    alive(local)


@pytest.mark.row("V1-119")
@pytest.mark.parametrize("body", [NON_FINITE, NON_FINITE_ROWS], ids=["columns", "rows"])
@pytest.mark.parametrize("kind", ["fp32", "fp64"])
def test_non_finite_numbers_can_be_an_error(local_with: Callable[..., Local], kind: str, body: bytes) -> None:
    """400 that names the output; finite answers go on."""
    local = local_with(NON_FINITE="error")
    assert "OUTPUT0" in refusal(predict(local, f"identity_{kind}", body), 400)
    alive(local)


@pytest.mark.row("V1-083")
def test_answers_are_compact(wire: Wire) -> None:
    """No pretty print: it costs up to ten times the bytes."""
    answer = predict(wire, "half_plus_two", {"instances": [1.0, 2.0, 5.0]})
    assert answer.content == b'{"predictions":[2.5,3.0,4.5]}'
    answer = predict(wire, "half_plus_two", {"inputs": {"x": [[1.0], [2.0]]}})
    assert answer.content == b'{"outputs":[[2.5],[3.0]]}'


@pytest.mark.row("V1-084")
def test_text_is_utf8_and_controls_are_escaped(wire: Wire) -> None:
    """So that any JSON reader takes it."""
    answer = predict(wire, "identity_bytes", {"instances": ["é日🦜", "a\0\x1f\n"]})
    assert "é日🦜".encode() in answer.content
    assert not [byte for byte in answer.content if byte < 0x20]
    assert answer.json() == {"predictions": ["é日🦜", "a\0\x1f\n"]}


@pytest.mark.row("V1-085")
@pytest.mark.parametrize(("x", "head"), [([], []), ([1.0], [1.0])])
def test_a_batch_of_zero(wire: Wire, x: list[float], head: list[float]) -> None:
    """An empty list."""
    assert columns(wire, "shapes", {"x": x}, signature_name="head") == head


@pytest.mark.row("V1-085")
def test_a_model_that_answers_no_rows_has_no_predictions(wire: Wire) -> None:
    """Rows that the model drops: n columns of nothing stay rows."""
    assert read(predict(wire, "counts", {"inputs": {"n": [0]}})) == {"outputs": [[]]}
    assert rows(wire, "counts", [0]) == [[]]


@pytest.mark.row("V1-086")
@pytest.mark.parametrize("text", ['quote " and \\', "line\nbreak", "nul\0", "é🦜", "</script>"])
def test_an_error_is_valid_json_whatever_it_quotes(wire: Wire, text: str) -> None:
    """One member, one text."""
    refusal(predict(wire, "half_plus_two", {"instances": [1.0], "signature_name": text}), 400)
    refusal(predict(wire, "half_plus_two", {"instances": [text]}), 400)
    refusal(predict(wire, "half_plus_two", {"instances": [{text: 1.0}]}), 400)


CODES: list[tuple[str, Any, int]] = [
    ("half_plus_two", {"instances": ["a"]}, 400),
    ("unheard_of", {"instances": [1.0]}, 404),
    ("broken_onnx", {"instances": [1.0]}, 503),
    ("py_raises", {"instances": ["exception"]}, 500),
    ("py_returns", {"instances": ["nothing"]}, 500),
    ("fails", {"instances": [7]}, 500),
]


@pytest.mark.row("V1-087", "V1-129")
@pytest.mark.parametrize(("model", "document", "status"), CODES)
def test_the_kind_of_failure_is_the_status(wire: Wire, model: str, document: object, status: int) -> None:
    """And the connection stays open."""
    answer = predict(wire, model, document)
    refusal(answer, status)
    assert answer.headers.get("connection", "keep-alive") != "close"
    socket = wire.connection.sock
    alive(wire)
    assert socket is not None
    assert wire.connection.sock is socket


ROWS = b'{"instances": [1.0, 2.0, 5.0]}'


@pytest.mark.row("V1-088")
@pytest.mark.parametrize("coding", ["gzip", "GZIP", " gzip "])
def test_a_gzip_body_is_inflated(wire: Wire, coding: str) -> None:
    """Whatever its type."""
    answer = predict(wire, "half_plus_two", gzip.compress(ROWS), {"Content-Encoding": coding})
    assert read(answer) == {"predictions": [2.5, 3.0, 4.5]}
    assert "content-encoding" not in answer.headers


@pytest.mark.row("V1-088")
@pytest.mark.parametrize("body", [ROWS, b"", gzip.compress(ROWS, mtime=0)[:-9], b"\x1f\x8b"])
def test_a_bad_gzip_body_is_refused(wire: Wire, body: bytes) -> None:
    """400."""
    refusal(predict(wire, "half_plus_two", body, {"Content-Encoding": "gzip"}), 400)
    alive(wire)


@pytest.mark.row("V1-088")
def test_a_body_that_inflates_without_end_is_refused(local_with: Callable[..., Local]) -> None:
    """At the setting's bound, not at the machine's."""
    local = local_with(MAX_BODY_BYTES="100000")
    bomb = gzip.compress(b'{"instances": [1.0], "x": "' + b" " * 10_000_000 + b'"}')
    assert len(bomb) < 100_000
    refusal(predict(local, "half_plus_two", bomb, {"Content-Encoding": "gzip"}), 400, 413)
    alive(local)


@pytest.mark.row("V1-082")
def test_a_large_answer_with_one_nan_is_right(wire: Wire) -> None:
    """Another writer takes over for it."""
    values = [0.1] * 5000 + [math.nan]
    found = numbers(predict(wire, "identity_fp32", {"inputs": {"INPUT0": values}}))
    assert found == ["0.1"] * 5000 + ["NaN"]
