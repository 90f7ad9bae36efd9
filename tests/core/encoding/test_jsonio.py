"""core.encoding.jsonio: three readers that must agree, and a writer whose text must read back the same."""

import gc
import json
import math
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.encoding import jsonio, keys, simd
from core.encoding.jsonio import TOGETHER
from core.errors import InvalidInput
from tests.support import needs
from tests.support.steps import steps_of

ROOT = Path(__file__).parents[3]
PAD = " " * simd.WORTH_SIMD
PADS = [b"", b" " * 2000, PAD.encode(), b" " * keys.LONG]
DATA = frozenset({"data"})


def plain(value: Any) -> Any:
    """Replaces arrays by the lists that they stand for."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text() | st.just("inputs"), inner, max_size=20),
    max_leaves=30,
)


@given(JSON)
def test_the_fast_reader_reads_what_the_standard_library_reads(value: Any) -> None:
    """The text is any JSON value, long enough for every reader."""
    text = json.dumps(value).encode()
    assert plain(jsonio.loads(PAD.encode() + text)) == value
    assert jsonio.loads(text) == value
    assert jsonio.loads_exact(text) == value


@needs.SIMD
@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
@pytest.mark.parametrize(("text", "kind", "expected"), [
    ("[1, 2]", "i", [1, 2]),
    ("[[1], [-2]]", "i", [1, -2]),
    ("[1, 18446744073709551615]", "u", [1, 2**64 - 1]),
    ("[1, 2.5]", "f", [1.0, 2.5]),
    ("[]", "i", []),
    ("[true, 1]", None, [True, 1]),
    ('["a"]', None, ["a"]),
    ("[null, 1]", None, [None, 1]),
    ("5", None, 5),
])  # fmt: skip
def test_lists_of_plain_numbers_come_as_arrays_where_they_are_long(
    pad: str, text: str, kind: str | None, expected: Any
) -> None:
    """Integers stay integers; a mixed list stays a list."""
    value = jsonio.loads(f'{pad}{{"inputs": [{{"data": {text}}}]}}'.encode(), DATA)["inputs"][0]["data"]
    if pad and kind is not None:
        assert value.dtype.kind == kind
        value = value.tolist()
        assert value == expected
    elif kind is None:
        assert value == expected


@needs.SIMD
@pytest.mark.parametrize(("text", "is_array"), [
    ("[1, 2]", True), ("[]", True), ("[[1], [2]]", False), ("[1, [2]]", False), ("[[], 1]", False),
    ('[1], "note": "["', False), ("[1], " + ", ".join(f'"k{i}": 0' for i in range(30)), False),
])  # fmt: skip
def test_a_list_of_lists_is_an_array_only_where_that_is_wanted(text: str, *, is_array: bool) -> None:
    """A bracket in a string costs the array, and so does an object that is read as a whole."""
    body = f'{PAD}{{"shape": [1, [2]], "data": {text}}}'
    expected = json.loads(body)
    found = jsonio.loads(body.encode(), DATA, nested=False)
    assert plain(found) == expected
    assert isinstance(found["data"], np.ndarray) is is_array


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
def test_keys_that_hold_a_nul_are_read_whole(pad: str) -> None:
    """A look-up by such a key would end at the NUL."""
    text = f'{pad}{{"a": 1, "a\\u0000b": [1, 2]}}'
    for read in (jsonio.loads, jsonio.loads_shaped):
        assert plain(read(text.encode())) == {"a": 1, "a\0b": [1, 2]}


def test_objects_of_many_members_are_read_whole() -> None:
    """A look-up per member would be quadratic."""
    value = {str(index): [index] for index in range(1000)}
    assert jsonio.loads(json.dumps(value).encode().rjust(simd.WORTH_SIMD)) == value


def test_tokens_that_json_does_not_have_are_read() -> None:
    """Python's and C++'s clients write them."""
    value = jsonio.loads(b'{"a": [NaN, Infinity, -Infinity]}')["a"]
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf]


def test_numbers_beyond_everything_are_no_numbers() -> None:
    """They keep their text for the message, and every check refuses them."""
    small, large = jsonio.loads_exact(b"[1e999, " + b"9" * 5000 + b"]")
    assert repr(small) == "1e999"
    assert repr(large) == "9" * 5000
    assert jsonio.loads_exact(b"[" + b"9" * 399 + b", 1.5]") == [int("9" * 399), 1.5]


@pytest.mark.parametrize(("body", "message"), [
    (b"", "not JSON: it is empty$"), (b" \n", "not JSON: it is empty$"), (b"{", "not JSON: Expecting"),
    (b"{} x", "not JSON"), (b"\xff", "not UTF-8: byte"),
    (b"[" * 100_000, "nested too deeply"), (rb'["\ud800"]', "lone surrogate"), (rb'{"\udfff": 1}', "lone surrogate"),
])  # fmt: skip
def test_what_is_no_json_is_refused_with_its_place(body: bytes, message: str) -> None:
    """The rule holds for short and long texts."""
    for text in (body, PAD.encode() + body):
        with pytest.raises(InvalidInput, match=message):
            jsonio.loads(text)


@pytest.mark.parametrize("begin", [b"{", b'["', b"[1] x", b"\xff", rb'["\ud800"]', b"[" * 100_000])
@pytest.mark.parametrize("read", [jsonio.loads, jsonio.loads_shaped, jsonio.loads_lists, jsonio.loads_exact])
def test_a_text_that_is_not_json_is_let_go_with_its_refusal(read: Any, begin: bytes) -> None:
    """Without the cyclic collector: a client chooses how long it is."""
    body = np.frombuffer(begin + PAD.encode(), np.uint8)
    seen = weakref.ref(body)
    gc.disable()
    try:
        with suppress(InvalidInput):
            read(body.data)
        del body
        assert seen() is None
    finally:
        gc.enable()


def test_a_pair_of_surrogates_may_stand_beside_a_number_beyond_every_double() -> None:
    """The number's tensor decides whether it is valid."""
    assert jsonio.loads_exact(rb'{"a": 1e999, "b": "\ud83d\ude00"}')["b"] == "\U0001f600"
    with pytest.raises(InvalidInput, match="lone surrogate"):
        jsonio.loads_exact(rb'{"a": 1e999, "b": "\ud83d"}')


def test_other_threads_run_during_the_search_for_lone_surrogates() -> None:
    """Each value is a step of Python's. One call of C's would take seconds for a long array beside an emoji."""
    count = 1000
    text = rb'["\ud83e\udd9c",NaN' + b",true" * count + b"]"
    assert len(steps_of(lambda: jsonio.loads_exact(text))) > count


def test_pairs_of_surrogates_are_text() -> None:
    """Only lone surrogates are refused."""
    assert jsonio.loads(rb'["\ud83e\udd9c", NaN]')[0] == "\U0001f99c"


def test_a_byte_order_mark_is_no_mistake() -> None:
    """Windows tools write one."""
    assert jsonio.loads(b"\xef\xbb\xbf{}") == {}


def test_without_the_simd_reader_everything_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no wheel of it for every Python."""
    monkeypatch.setattr(simd, "_simd", lambda: None)
    assert jsonio.loads(PAD.encode() + b'{"data": [1, 2.5]}', DATA) == {"data": [1, 2.5]}


def test_a_missing_simd_reader_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed once, at the first long text."""
    monkeypatch.setitem(__import__("sys").modules, "simdjson", None)
    assert simd._simd.__wrapped__() is None


def test_arrays_of_more_elements_than_simdjson_counts_are_whole() -> None:
    """Its list of them is too short, and is written beyond its end. A child process reads, because the process dies."""
    texts = (
        ("loads", '{"inputs": {"a": [', "]}}"),
        ("loads", "[" + "[1]," * 20 + "[[", "]]]"),
        ("loads", "{" + "".join(f'"{i}": 1, ' for i in range(20)) + '"last": [', "]}"),
        ("loads_data", '{"data": [true,', "]}"),
        ("loads_shaped", "[[", "],[1]]"),
    )
    script = f"""
import gc
from core.encoding.jsonio import loads, loads_shaped
gc.disable()
def loads_data(text):
    return loads(text, frozenset({{"data"}}))
def longest(value):
    members = list(value.values()) if isinstance(value, dict) else value
    kinds = set(map(type, members))
    inner = [each for each in members if isinstance(each, (dict, list))] if kinds & {{dict, list}} else []
    return max(len(members), *map(longest, inner), 0)
for reader, begin, end in {texts!r}:
    text = memoryview(begin.encode() + b"0," * 17_000_000 + b"0" + end.encode())
    print(longest(globals()[reader](text if reader == "loads_shaped" else bytes(text))), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    lengths = [int(line) // 17_000_000 for line in done.stdout.split()]
    assert (done.returncode, lengths) == (0, [1] * len(texts)), (texts[len(lengths) :][:1], done.stderr[-300:])


@needs.SIMD
def test_exactly_as_many_elements_as_simdjson_counts_are_arrays() -> None:
    """With one more, an element would be missing."""
    for size in (simd.MOST_ELEMENTS, simd.MOST_ELEMENTS + 1):
        value = jsonio.loads(b'{"data":[' + b"0," * (size - 1) + b"0]}", DATA)["data"]
        assert len(value) == size
        assert isinstance(value, np.ndarray) == (size == simd.MOST_ELEMENTS)
        del value


@pytest.mark.parametrize(
    "text", ['{"instances": \\' + '"\\' * 131072, '["' + "\\\n" * 100_000 + "\\", '"\\"' * 100_000]
)
def test_a_string_without_an_end_is_looked_at_once(text: str) -> None:
    """A look from each of its quotes would take minutes; tests.test_patterns counts the steps."""
    with pytest.raises(jsonio.NotJson):
        jsonio.loads_lists(text.encode())


@pytest.mark.parametrize("unit", ["1", "1.5", "NaN", "-0.0"])
@pytest.mark.parametrize("read", [jsonio.loads, jsonio.loads_shaped, jsonio.loads_lists, jsonio.loads_exact])
def test_other_threads_run_while_the_standard_library_reads_a_long_text(
    monkeypatch: pytest.MonkeyPatch, read: Any, unit: str
) -> None:
    """Each number of it passes through a Python function; one of a short text need not."""
    calls: list[str] = []
    of = {"1": "integer", "1.5": "real", "-0.0": "real"}.get(unit)
    owner, name = (jsonio._Numbers, of) if of else (jsonio, "_constant")
    own = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: calls.append(given[-1]) or own(*given))
    count = jsonio.LONG // len(unit)
    value = read(b"[" + f"{unit},".encode() * count + b"NaN]")
    assert len(value) == count + 1
    assert calls[:count] == [unit] * count


@needs.SIMD
def test_a_parser_grown_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buffers are several times the text and never shrink."""
    monkeypatch.setattr(simd, "_parsers", [])
    jsonio.loads(PAD.encode() + b"[1]")
    assert len(simd._parsers) == 1
    monkeypatch.setattr(simd, "KEPT_PARSER", 10)
    jsonio.loads(PAD.encode() + b"[1]")
    assert simd._parsers == []


@pytest.mark.parametrize("width", ["f4", "f8"])
def test_floats_are_written_in_the_shortest_digits_of_their_own_width(width: str) -> None:
    """0.1 is 0.1 and reads back as the same bits."""
    array = np.array([0.1, -0.0, 3.0, np.finfo(width).max, np.finfo(width).smallest_subnormal], width)
    text = jsonio.dumps(jsonio.numbers(array))
    assert np.array_equal(np.array(json.loads(text), width), array)
    assert text.startswith(b"[0.1,-0.0,3.0,")


@pytest.mark.parametrize("width", ["f4", "f8"])
def test_what_is_not_finite_is_written_as_text_that_numpy_reads_back(width: str) -> None:
    """Strict JSON has the text in any position; null or a bare token is an option."""
    array = np.array([[math.nan, 1.5], [-math.inf, math.inf]], width)
    text = jsonio.dumps({"data": jsonio.numbers(array)})
    assert text == b'{"data":[["NaN",1.5],["-Infinity","Infinity"]]}'
    assert np.array_equal(np.array(json.loads(text)["data"], width), array, equal_nan=True)
    assert jsonio.dumps(jsonio.numbers(array, jsonio.NonFinite.NULL)) == b"[[null,1.5],[null,null]]"
    assert jsonio.dumps(jsonio.numbers(array, jsonio.NonFinite.BARE)) == b"[[NaN,1.5],[-Infinity,Infinity]]"
    assert jsonio.dumps(jsonio.numbers(array[0, 0], jsonio.NonFinite.BARE)) == b"NaN"


def shapes(body: bytes) -> Any:
    """Returns what `loads_shaped` reads, with arrays as (type, shape)."""

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: told(member) for key, member in value.items()}
        if isinstance(value, list):
            return [told(member) for member in value[:2]]
        return (value.dtype.str, value.shape) if isinstance(value, np.ndarray) else value

    return told(jsonio.loads_shaped(body))


ROW = b"[" + b",".join(b"%d.5" % number for number in range(100)) + b"]"
ROWS = b"[" + b",".join([ROW] * 40) + b"]"


@needs.SIMD
@pytest.mark.parametrize(("body", "read"), [
    (b'{"x": %b, "s": "text", "n": 1}' % ROWS, {"x": ("<f8", (40, 100)), "s": "text", "n": 1}),
    (b'{"x": [%b, %b]}' % (ROWS, ROWS), {"x": ("<f8", (2, 40, 100))}),
    (b'{"x": %b, "y": []}' % ROWS, {"x": ("<f8", (40, 100)), "y": ("<i8", (0,))}),
    (b'{"x": [{"a": %b}, {"a": %b}]}' % (ROWS, ROWS), {"x": [{"a": ("<f8", (40, 100))}] * 2}),
])  # fmt: skip
def test_long_regular_arrays_come_in_their_own_shape(body: bytes, read: Any) -> None:
    """Their key does not matter."""
    assert shapes(body) == read


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": [%b, [1.5]]}' % ROWS,  # ragged
        b'{"x": %b}' % ROWS.replace(b"99.5]", b"[99.5]]", 1),  # as many numbers as there should be
        b'{"x": %b, "s": "["}' % ROWS,
        b'{"x": %b, "y": ["text"]}' % ROWS,
        b'{"x": [%b]}' % b",".join([b'{"a": %b}' % ROW] * 20),
        b'{"x": [%b]}' % b",".join([b"[1]"] * 4000),  # thin
        b'{"x": %b, "y": NaN}' % ROWS,
    ],
)
def test_everything_else_comes_as_lists(body: bytes) -> None:
    """The values are those that the standard library reads."""
    value = jsonio.loads_shaped(body)
    assert not any(isinstance(member, np.ndarray) for member in value.values())
    assert np.array_equal(repr(value), repr(json.loads(body)))


def test_rapidjsons_spellings_are_read_beyond_jsons() -> None:
    """They are accepted outside strings."""
    value = jsonio.loads_lists(b'[Inf, -Inf, -NaN, NaN, Infinity, "Inf -NaN", "\\"Inf"]')
    assert repr(value) == "[inf, -inf, nan, nan, inf, 'Inf -NaN', '\"Inf']"
    with pytest.raises(jsonio.NotJson):
        jsonio.loads_exact(b"[Inf]")


@pytest.mark.parametrize(("text", "offset"), [
    (b"[1,]", 3), (b"", 0), (b"\xff", 0), (b'{"a" 1}', 5),
    (b'["1e400", 1e400, 1e999]', 10), (b"[1, %b]" % (b"1" * 400), 4),
])  # fmt: skip
def test_where_a_text_is_no_json_is_known(text: bytes, offset: int) -> None:
    """The position is a number, for protocols that have their own text for it."""
    with pytest.raises(jsonio.NotJson) as refusal:
        jsonio.loads_lists(text)
    assert refusal.value.offset == offset


TWICE = [
    b'{"a": 1, "a": 2}', b'{"a": 1, "\\u0061": 1}', b'[{"a": {}}, {"a": {"b": 1, "c": [], "b": 1}}]',
    b'{"data": [1, {"a": 1, "a": 1}]}', b'{"data": [1, 2], "data": [3]}', b'{"s": "1:2", "t": {"a": 1, "a": 1}}',
    b'{"data": [%b], "a": {"a": 1, "a": NaN}}' % b", ".join([b"1.5"] * 3000),
    b'{"data": [{"a": 1, "a": 2}, %b]}' % b", ".join([b'{"a": 1}'] * 3000),
    b'{%b, "k0": 2}' % b", ".join(b'"k%d": [[1, 2]]' % number for number in range(40)),
    b'{"data": [%b], "b": {"c": 1, "c": 1}}' % b", ".join([b'"10:20"'] * 3000),
    b'{"a": 1, "a": "\\u003a"}', b'{"a": 1, "a": 2, "b": "\\u003A"}',
    b'[{"a": 1, "a": {"b": 2, "b": ["\\u003a", "\\u003A"]}}]',
    b'{"data": [%b], "b": "%b", "c": 1, "c": 2}' % (b"[1.5], " * 3000 + b"[2]", b"\\u003a"),
]  # fmt: skip


@pytest.mark.parametrize("pad", PADS, ids=["short", "medium", "long", "very long"])
@pytest.mark.parametrize("text", TWICE, ids=range(len(TWICE)))
def test_a_key_twice_in_one_object_is_refused_by_every_reader(text: bytes, pad: bytes) -> None:
    """Whatever the parser makes of it, and wherever it stands."""
    readers: list[Any] = [jsonio.loads_shaped, jsonio.loads_lists, jsonio.loads_exact, lambda t: jsonio.loads(t, DATA)]
    for read in readers:
        with pytest.raises(InvalidInput, match="^the JSON has the member '.*' twice in one object; expected it once$"):
            read(pad + text)


@pytest.mark.parametrize("pad", PADS, ids=["short", "medium", "long", "very long"])
@pytest.mark.parametrize("value", [
    {"a": "b:c", "d": [":", {"e": "::"}]}, [1, {"a": 1}, [2, {"a": 1}]], {"a": {"a": {"a": [{"a": 1}, {"a": 2}]}}},
    {"data": [1, {"a": ":"}], "b:": {}}, ":::", [], json.loads("[" * 300 + '{"a": ":"}' + "]" * 300),
])  # fmt: skip
def test_a_key_in_several_objects_is_read(value: Any, pad: bytes) -> None:
    """Colons in texts do not count as members, and escaped ones do not either."""
    text = json.dumps(value).encode()
    for each in (text, text.replace(b'":', b'"\\u003a') if value == ":::" else text):
        assert plain(jsonio.loads(pad + each, DATA)) == plain(jsonio.loads_shaped(pad + each)) == json.loads(each)


NUMBERS = st.sampled_from(
    [st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
     st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)],
)  # fmt: skip


@st.composite
def about_8_kb(draw: st.DrawFn) -> bytes:
    """An object of nested lists of numbers, mostly regular, whose length is around the fast reader's minimum."""
    numbers = draw(NUMBERS)
    row: Any = draw(st.lists(numbers, min_size=1, max_size=6)) * draw(st.integers(1, 40))
    for _ in range(draw(st.integers(0, 2))):
        row = [row] * draw(st.integers(1, 3))
    wish = simd.WORTH_SIMD + draw(st.integers(-200, 2000))
    rows = [row] * (1 + wish // (len(json.dumps(row)) + 2))
    rows += draw(st.sampled_from([[], [], [], [[]], [row[:-1]], [[row]], [row + row[:1]], [7], [None], [[True]]]))
    value = {"x": rows, "y": draw(st.sampled_from([[], 1, [1, [2]], [{"z": rows}], {"z": [rows]}, "["]))}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]))
    return json.dumps(value, separators=separators).encode()


@settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(about_8_kb())
def test_shaped_arrays_are_the_lists_that_the_standard_library_reads(body: bytes) -> None:
    """They may be regular or not, and shorter or longer than the length from which they are arrays."""
    assert plain(jsonio.loads_shaped(body)) == json.loads(body)
    assert jsonio.loads_lists(body) == json.loads(body)


def test_shorter_texts_are_never_arrays() -> None:
    """Longer texts are not arrays either if their reader is missing."""
    body = json.dumps({"x": list(range(100))}).encode()
    assert jsonio.loads_shaped(body) == {"x": list(range(100))}


def test_without_the_simd_reader_long_arrays_come_as_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no wheel of it for every Python."""
    monkeypatch.setattr(simd, "_simd", lambda: None)
    body = b'{"x": %b}' % ROWS
    assert jsonio.loads_shaped(body) == json.loads(body)


@pytest.mark.parametrize("size", [jsonio.FEW_ELEMENTS, jsonio.FEW_ELEMENTS + 1])
def test_arrays_of_any_length_are_written_alike(size: int) -> None:
    """One element may be infinite or NaN."""
    array = np.arange(size, dtype=np.float32) / 4
    text = jsonio.dumps(jsonio.numbers(array, jsonio.NonFinite.BARE))
    assert json.loads(text) == array.tolist()
    array[-1] = np.inf
    text = jsonio.dumps({"x": jsonio.numbers(array, jsonio.NonFinite.BARE)})
    assert text.endswith(b",Infinity]}")
    assert json.loads(text)["x"] == array.tolist()


LONG = np.arange(TOGETHER + 1, dtype=np.float32)


@pytest.mark.parametrize("array", [
    LONG, LONG.astype(np.int64), LONG > 1, np.resize(LONG, (3, TOGETHER // 2)), np.resize(LONG, (TOGETHER // 2, 3)),
    np.resize(LONG, (2, 1, TOGETHER + 1)), np.where(LONG == TOGETHER, np.nan, LONG),
], ids=lambda array: f"{array.dtype}{array.shape}")  # fmt: skip
@pytest.mark.parametrize("non_finite", jsonio.NonFinite)
def test_a_large_array_is_written_in_pieces(
    array: Any, non_finite: jsonio.NonFinite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer stops all other threads until it returns: for seconds, if it wrote an answer of 200 MB at once."""
    sizes, dumps = [], orjson.dumps

    def noted(value: Any, **options: Any) -> bytes:
        sizes.append(getattr(value, "size", 0))
        return dumps(value, **options)

    whole = dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    monkeypatch.setattr(jsonio.orjson, "dumps", noted)
    assert jsonio.dumps(jsonio.numbers(array, non_finite)) == whole.replace(b"null", non_finite.value[0])
    assert 0 < max(sizes) <= TOGETHER


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.int64(2**53 + 1), b"9007199254740993"), (np.array([True])[0], b"true"), (np.float32(0.1), b"0.1")],
)
def test_a_scalar_is_one_value(value: Any, text: bytes) -> None:
    """It is an array without a dimension, or an element of one."""
    assert jsonio.dumps(jsonio.numbers(value)) == text
    assert jsonio.dumps(jsonio.numbers(np.array(value))) == text


def test_text_can_be_part_of_an_answer_as_it_is() -> None:
    """It is neither read nor checked."""
    assert jsonio.dumps({"data": jsonio.verbatim(b"[NaN, 1.50]")}) == b'{"data":[NaN, 1.50]}'
