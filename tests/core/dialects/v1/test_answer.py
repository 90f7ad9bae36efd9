"""core.dialects.v1.answer: outputs as rows and as columns; base64 and json are the oracles."""

import base64
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.v1.answer import Output, columns, named, rows, text
from core.dialects.v1.values import to_tensor
from core.dtype import BYTES, INT64
from core.encoding import jsonio
from core.encoding.jsonio import TOGETHER, NonFinite
from core.errors import InvalidInput
from core.tensor import Tensor
from tests.support.v1_samples import binding, output, signature

X = Output("x", output("x", "FP32", [0.5, 1.0]))
N = Output("n", output("n", "INT64", [2**53 + 1, 2]))
S = Output("s", output("s", "BYTES", [b"a", "\u65e5".encode()]))


def read(value: Any) -> Any:
    """Returns what a client reads."""
    return json.loads(jsonio.dumps(value))


def test_one_output_stands_alone_and_several_under_their_aliases() -> None:
    """Columns hold them whole, rows one element of each."""
    assert read(columns([X], NonFinite.BARE)) == read(rows([X], NonFinite.BARE)) == [0.5, 1.0]
    assert read(columns([X, N, S], NonFinite.BARE)) == {"x": [0.5, 1.0], "n": [2**53 + 1, 2], "s": ["a", "\u65e5"]}
    assert read(rows([X, N, S], NonFinite.BARE)) == [
        {"x": 0.5, "n": 2**53 + 1, "s": "a"},
        {"x": 1.0, "n": 2, "s": "\u65e5"},
    ]


def test_columns_may_be_scalars_and_of_unequal_sizes() -> None:
    """Rows may be neither, because their meaning would not be clear."""
    scalar = Output("t", output("t", "FP32", 2.5))
    short = Output("h", output("h", "FP32", [1.5]))
    assert read(columns([scalar, short, X], NonFinite.BARE)) == {"t": 2.5, "h": [1.5], "x": [0.5, 1.0]}
    with pytest.raises(InvalidInput, match="^Tensor name: t has no shape information$"):
        rows([X, scalar], NonFinite.BARE)
    with pytest.raises(InvalidInput, match="^Tensor name: h has inconsistent batch size: 1 expecting: 2$"):
        rows([X, short], NonFinite.BARE)


def test_no_rows_are_an_empty_list() -> None:
    """The rule holds for one output and for several."""
    none = Output("e", output("e", "FP32", []))
    assert read(rows([none], NonFinite.BARE)) == []
    assert rows([none, Output("f", output("f", "BYTES", []))], NonFinite.BARE) == []


@pytest.mark.parametrize("shape", [(TOGETHER,), (TOGETHER // 8, 2, 4), (2, TOGETHER + 1)])
def test_many_rows_are_written_in_pieces(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer stops all other threads until it returns."""
    sizes, dumps = [], orjson.dumps

    def noted(value: Any, **options: Any) -> bytes:
        many = value if isinstance(value, list) else [{"": value}]
        sizes.append(sum(np.size(each) for row in many for each in row.values()))
        return dumps(value, **options)

    numbers, texts = np.zeros(shape, np.int64), np.full(shape[:1], b"s", object)
    outputs = [Output("n", Tensor("n", INT64, numbers)), Output("s", Tensor("s", BYTES, texts))]
    with monkeypatch.context() as patched:
        patched.setattr(orjson, "dumps", noted)
        answer = rows(outputs, NonFinite.BARE)
    assert 0 < max(sizes) <= TOGETHER
    assert read(answer) == [{"n": row, "s": "s"} for row in numbers.tolist()]


@pytest.mark.parametrize("shape", [(3 * TOGETHER,), (TOGETHER, 3), (2, TOGETHER + 1)])
@pytest.mark.parametrize("alias", ["s", "s_bytes"])
def test_many_texts_are_written_in_pieces(alias: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A list for each row would be visited again and again by Python's collector."""
    sizes, dumps = [], orjson.dumps

    def noted(value: Any, **options: Any) -> bytes:
        sizes.append(np.size(value))
        return dumps(value, **options)

    with monkeypatch.context() as patched:
        patched.setattr(orjson, "dumps", noted)
        answer = columns([Output(alias, Tensor("s", BYTES, np.full(shape, b"s", object)))], NonFinite.BARE)
    assert 0 < max(sizes) <= TOGETHER
    written = {"b64": "cw=="} if alias == "s_bytes" else "s"
    assert read(answer) == np.full(shape, written, object).tolist()


def test_outputs_are_named_by_the_signature_in_its_order() -> None:
    """Without a signature they keep their own names. Tensors that it does not name are left out."""
    tensors = [output("x", "FP32", [1]), output("y", "FP32", [2]), output("z", "FP32", [3])]
    chosen = named(tensors, signature(None, {"b": "z", "a": "x"}))
    assert [(alias, tensor.name) for alias, tensor in chosen] == [("b", "z"), ("a", "x")]
    assert [output.alias for output in named(tensors, None)] == ["x", "y", "z"]


@given(st.binary(max_size=8))
def test_bytes_that_are_no_text_never_break_the_answer(element: bytes) -> None:
    """Text stays text, anything else is an object. Under an alias in _bytes, every value is an object."""
    tensor = output("s", "BYTES", np.array([element, b""], object))
    coded = {"b64": base64.b64encode(element).decode()}
    try:
        expected: Any = element.decode()
    except UnicodeDecodeError:
        expected = coded
    assert read(columns([Output("s", tensor)], NonFinite.BARE)) == [expected, ""]
    assert read(rows([Output("s", tensor)], NonFinite.BARE)) == [expected, ""]
    assert read(columns([Output("s_bytes", tensor)], NonFinite.BARE)) == [coded, {"b64": ""}]
    assert read(rows([Output("s_bytes", tensor), Output("s", tensor)], NonFinite.BARE))[0] == {
        "s_bytes": coded,
        "s": expected,
    }
    assert read(text(element)) == expected
    assert read(text(element, binary=True)) == coded


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), min_size=1, max_size=5))
def test_texts_of_a_request_can_be_an_answer(texts: list[str]) -> None:
    """They are the same values, never as bytes in between, and objects under an alias in _bytes."""
    tensor = to_tensor("s", BYTES, [texts])
    assert tensor.array.tolist() == [[each.encode() for each in texts]]
    coded = [{"b64": base64.b64encode(each.encode()).decode()} for each in texts]
    assert read(columns([Output("s", tensor)], NonFinite.BARE)) == [texts]
    assert read(rows([Output("s_bytes", tensor)], NonFinite.BARE)) == [coded]


@pytest.mark.parametrize("suffix", ["bytes", "_Bytes", "_bytes_", "s_bytes2"])
def test_only_the_suffix_itself_means_binary(suffix: str) -> None:
    """It counts only for strings."""
    assert columns([Output(suffix, output("s", "BYTES", [b"a"]))], NonFinite.BARE) == ["a"]
    assert read(columns([Output("x_bytes", X.tensor)], NonFinite.BARE)) == [0.5, 1.0]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 2)], ids=str)
def test_strings_are_nested_as_the_shape_is(shape: tuple[int, ...]) -> None:
    """A scalar is a single string."""
    tensor = output("s", "BYTES", np.full(shape, b"a", object))
    assert columns([Output("s", tensor)], NonFinite.BARE) == np.full(shape, "a", object).tolist()


def test_encoded_outputs_are_strings_of_the_bytes_along_the_last_axis() -> None:
    """The alias decides between base64 and text; the array may have any layout in memory."""
    image = binding("pixels", "UINT8", (-1, -1), encoded=True)
    pixels = output("pixels", "UINT8", [[97, 98], [0, 255]])
    for array in (pixels.array, np.asfortranarray(pixels.array), np.repeat(pixels.array, 2, axis=1)[:, ::2]):
        outputs = named([pixels._replace(array=array)], signature(None, {"image_bytes": image, "s": image}))
        assert read(rows(outputs, NonFinite.BARE)) == [
            {"image_bytes": {"b64": "YWI="}, "s": "ab"},
            {"image_bytes": {"b64": "AP8="}, "s": {"b64": "AP8="}},
        ]
    (one,) = named([output("pixels", "UINT8", [97, 98])], signature(None, {"s": image}))
    assert columns([one], NonFinite.BARE) == "ab"


@pytest.mark.parametrize("form", [columns, rows])
def test_what_is_not_finite_follows_the_operators_choice(form: Any) -> None:
    """The rule holds for a value alone and beside others."""
    odd = Output("y", output("y", "FP32", [np.nan, 1.0]))
    assert b"NaN" in jsonio.dumps(form([odd], NonFinite.BARE))
    assert b"null" in jsonio.dumps(form([odd, X], NonFinite.NULL))
    with pytest.raises(InvalidInput, match="DRAGOMAN_NON_FINITE=error"):
        form([X, odd], None)
