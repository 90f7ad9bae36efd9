"""The tests have a table of V1's answers, and check how they are written."""

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.protocols.v1.answered import ANSWERED, Asked
from tests.support.asgi import Local
from tests.support.checks import LENGTHS, LONG, refusal
from tests.support.v1_client import alive, get, numbers, post, predict, read
from tests.support.wire import Wire

FLOATS: list[tuple[str, list[float], list[str]]] = [
    ("fp32", [3.0, 0.1, 2.05, 100.0, -0.5, 1 / 3], ["3.0", "0.1", "2.05", "100.0", "-0.5", "0.33333334"]),
    ("fp64", [3.0, 0.1, 1 / 3, 1e22], ["3.0", "0.1", "0.3333333333333333", "1e22"]),
    ("fp16", [3.0, 0.1, -65504.0], ["3.0", "0.1", "-65504.0"]),
]
EXTREMES = [9e6, 1e10, 16777216.0, 1e-5, 1e-10, 3.4028235e38, 1.1754944e-38, 1e-45, 123456.79, 1e16, 1e20, 0.0, -0.0]
INTEGERS = [
    ("uint64", "18446744073709551615"), ("uint64", "9007199254740993"), ("int64", "-9223372036854775808"),
    ("int64", "9007199254740993"), ("int8", "-128"), ("uint16", "65535"),
]  # fmt: skip
NON_FINITE = (
    b'{"inputs": {"INPUT0": [NaN, Infinity, -Infinity, 1.5]}}',
    b'{"instances": [NaN, Infinity, -Infinity, 1.5]}',
)
in_both_forms = pytest.mark.parametrize("body", NON_FINITE, ids=["columns", "rows"])
ROWS = b'{"instances": [1.0, 2.0, 5.0]}'


@pytest.mark.parametrize("asked", ANSWERED)
def test_a_request_has_this_answer(wire: Wire, asked: Asked) -> None:
    """A short body and a long one have the same answer."""
    for blank in (b"", LONG):
        assert read(wire.call("POST", asked.path, asked.body + blank, asked.headers)) == asked.answer


@pytest.mark.row("V1-077")
@pytest.mark.parametrize("target", ["half_plus_two", "half_plus_two/metadata", "half", "half_plus_two/nonsense", ""])
def test_every_answer_is_json_without_a_charset(wire: Wire, target: str) -> None:
    """Success and error have the type that KServe's client compares for equality."""
    alive(wire)
    answer = get(wire, target) if target else wire.get("/v1/models")
    assert answer.headers["content-type"] == "application/json"
    json.loads(answer.content)


@pytest.mark.row("V1-080", "V1-121")
@pytest.mark.parametrize(("kind", "values", "texts"), FLOATS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_floats_have_a_point_and_no_noise(
    wire: Wire, kind: str, values: list[float], texts: list[str], blank: str
) -> None:
    """They have the shortest digits of their own width."""
    for key in ("instances", "inputs"):
        found = numbers(predict(wire, f"identity_{kind}", {key: values, "x": blank}))[: len(texts)]
        assert [text.replace("e+", "e") for text in found] == texts


@pytest.mark.row("V1-080")
@pytest.mark.parametrize("value", EXTREMES)
def test_a_float_of_any_size_has_a_point_or_an_exponent(wire: Wire, value: float) -> None:
    """It comes back to the bit."""
    (text,) = numbers(predict(wire, "identity_fp32", {"instances": [value]}))
    assert "." in text or "e" in text
    assert np.float32(text).tobytes() == np.float32(value).tobytes()


@pytest.mark.row("V1-080")
def test_the_width_is_kept_in_every_form_of_an_answer(wire: Wire) -> None:
    """Several outputs, objects, nested lists and scalars print FP32 in its own digits."""
    seed = {"tag": "a", "signal": [0.1], "sensor": 0.1}
    assert numbers(predict(wire, "seeds", {"instances": [seed]})) == ["0.1", "0.1"]
    assert numbers(predict(wire, "seeds", {"inputs": {**seed, "tag": ["a"]}})) == ["0.1", "0.1"]
    assert numbers(predict(wire, "identity_fp32", {"inputs": [[[0.1]]], "signature_name": ""}))[0] == "0.1"
    for verb in ("regress", "classify"):
        document = {"signature_name": verb, "examples": [{"weight": 0.1, "count": 0}]}
        assert numbers(post(wire, f"person:{verb}", document)) == ["0.1"]


@pytest.mark.row("V1-081")
@pytest.mark.parametrize(("kind", "text"), INTEGERS)
@pytest.mark.parametrize("blank", LENGTHS)
def test_integers_have_every_digit_and_no_point(wire: Wire, kind: str, text: str, blank: str) -> None:
    """The text of the answer itself has them."""
    for key in ("instances", "inputs"):
        body = f'{{"{key}": [{text}, 1], "x": "{blank}"}}'.encode()
        assert numbers(predict(wire, f"identity_{kind}", body))[:2] == [text, "1"]


@pytest.mark.row("V1-082", "V1-119")
@pytest.mark.parametrize("kind", ["fp16", "fp32", "fp64", "bf16"])
@in_both_forms
def test_non_finite_numbers_are_bare_tokens(wire: Wire, kind: str, body: bytes) -> None:
    """They are neither text nor null."""
    assert numbers(predict(wire, f"identity_{kind}", body)) == ["NaN", "Infinity", "-Infinity", "1.5"]


@pytest.mark.row("V1-119")
@in_both_forms
def test_non_finite_numbers_can_be_null_or_an_error(local_with: Callable[..., Local], body: bytes) -> None:
    """The error is 400 and names the output, and finite answers are still sent."""
    local = local_with(NON_FINITE="null")
    assert list(read(predict(local, "identity_fp32", body)).values()) == [[None, None, None, 1.5]]
    alive(local)
    local = local_with(NON_FINITE="error")
    for kind in ("fp32", "fp64"):
        assert "OUTPUT0" in refusal(predict(local, f"identity_{kind}", body), 400)
        alive(local)


@pytest.mark.row("V1-082")
def test_a_large_answer_with_one_nan_is_right(wire: Wire) -> None:
    """Another writer takes over for it."""
    found = numbers(predict(wire, "identity_fp32", {"inputs": {"INPUT0": [0.1] * 5000 + [math.nan]}}))
    assert found == ["0.1"] * 5000 + ["NaN"]


@pytest.mark.row("V1-026", "V1-095")
def test_a_feature_and_a_result_may_be_bare_tokens(wire: Wire) -> None:
    """NaN and infinities pass through the examples as well."""
    body = b'{"signature_name": "regress", "examples": [{"weight": Infinity}, {"weight": -Infinity}, {"weight": NaN}]}'
    assert post(wire, "person:regress", body).content == b'{"results":[Infinity,-Infinity,NaN]}'


@pytest.mark.row("V1-083")
def test_answers_are_compact(wire: Wire) -> None:
    """They have no white space, which costs up to ten times the bytes."""
    assert predict(wire, "half_plus_two", ROWS).content == b'{"predictions":[2.5,3.0,4.5]}'
    assert predict(wire, "half_plus_two", {"inputs": {"x": [[1.0], [2.0]]}}).content == b'{"outputs":[[2.5],[3.0]]}'


@pytest.mark.row("V1-084")
def test_text_is_utf8_and_controls_are_escaped(wire: Wire) -> None:
    """Any JSON reader takes it."""
    answer = predict(wire, "identity_bytes", {"instances": ["é日🦜", "a\0\x1f\n"]})
    assert "é日🦜".encode() in answer.content
    assert not [byte for byte in answer.content if byte < 0x20]


@pytest.mark.row("V1-087", "V1-129")
@pytest.mark.parametrize("model", ["half_plus_two", "unheard_of", "broken_onnx", "py_raises", "py_returns", "fails"])
def test_a_failure_closes_no_connection(wire: Wire, model: str) -> None:
    """The next request has the same socket, whatever the model raises."""
    alive(wire)
    socket = wire.connection.sock
    for kind in ("exception", "system_exit", "recursion", "base"):
        answer = predict(wire, model, {"instances": [kind]})
        refusal(answer)
        assert answer.headers.get("connection", "keep-alive") != "close"
    alive(wire)
    assert socket is not None
    assert wire.connection.sock is socket


@pytest.mark.row("V1-088")
@pytest.mark.parametrize("coding", ["gzip", "GZIP", " gzip "])
def test_a_gzip_body_is_inflated(wire: Wire, coding: str) -> None:
    """The case of the coding does not matter."""
    answer = predict(wire, "half_plus_two", gzip.compress(ROWS), {"Content-Encoding": coding})
    assert read(answer) == {"predictions": [2.5, 3.0, 4.5]}
    assert "content-encoding" not in answer.headers


@pytest.mark.row("V1-088")
def test_a_gzip_body_that_is_cut_is_refused(wire: Wire) -> None:
    """The status is 400."""
    refusal(predict(wire, "half_plus_two", gzip.compress(ROWS, mtime=0)[:-9], {"Content-Encoding": "gzip"}), 400)
    alive(wire)


@pytest.mark.row("V1-088")
def test_a_body_that_inflates_without_end_is_refused(local_with: Callable[..., Local]) -> None:
    """The setting bounds it, not the machine."""
    local = local_with(MAX_BODY_BYTES="100000")
    bomb = gzip.compress(b'{"instances": [1.0], "x": "' + b" " * 10_000_000 + b'"}')
    assert len(bomb) < 100_000
    refusal(predict(local, "half_plus_two", bomb, {"Content-Encoding": "gzip"}), 400, 413)
    alive(local)


@pytest.mark.row("V1-127")
@pytest.mark.parametrize("count", [1, 2, 33, 1000, 5000])
def test_as_many_predictions_as_instances(wire: Wire, count: int) -> None:
    """KServe's batcher divides them."""
    seed: dict[str, Any] = {"tag": "a", "signal": [1.0], "sensor": 2.0}
    for model, instance in (("half_plus_two", 0.5), ("seeds", seed)):
        assert len(read(predict(wire, model, {"instances": [instance] * count}))["predictions"]) == count
