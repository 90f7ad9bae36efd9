"""core.dialects.v1.bulk: many records at once have the values, inputs and answers that each has by itself."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.dialects.v1 import bulk
from core.dialects.v1.inputs import from_rows, from_table
from core.dialects.v1.predict import predict
from core.dtype import DATATYPES
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput
from core.tensor import Tensor
from tests.support import needs
from tests.support.samples import told
from tests.support.v1_samples import binding, listed, model, output, question, result, signature

NAMES = {"a%": "y", "b": "z"}
SPEC = model(serving_default=signature({"x": "x"}, NAMES), one=signature({"x": "x"}, {"y": "y"}))
PIECES = ["[1", "2]", "3,4", "[[1", "2]]", "3],[4", '["a]', '[b"]', '{"a":1}', '{"a":{"b":1', "2}}", '5,"1":6', "[1,2]"]
PIECES += ['{"a":1},{"a":2}', '"a', 'b"', "1", "NaN", '{"a":"x}', '{y"}', "[]", '{"a":1,"a":2}', "[1],[2", "3]", '"c"']


def plain(value: Any) -> Any:
    """The value with lists for arrays; NaN as a text, which is equal to itself."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()).replace("NaN", '"NaN"'))


def alone(line: bytes) -> Any:
    try:
        return plain(jsonio.loads_lists(line))
    except InvalidInput:
        return InvalidInput


@example(['["a]', '[b"]'])
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_lines_are_read_as_each_by_itself(lines: list[str]) -> None:
    """Even if they make sense together: `[1` and `2]` are not one value, and `3,4` is not two."""
    texts = [line.encode() for line in lines]
    expected = [alone(text) for text in texts]
    if InvalidInput in expected:
        with pytest.raises(InvalidInput):
            bulk.instances(texts)
    else:
        assert plain(bulk.instances(texts)) == expected


@needs.SIMD
@pytest.mark.parametrize("value", [[1.5, -2.0], [1, 2], 0.25, {"x": [1, 2.5]}, [[1, 2], [3, 4]], ["a"], {}])
@pytest.mark.parametrize("count", [1, 3000])
def test_long_files_are_read_alike(value: Any, count: int) -> None:
    """Many short lines of numbers become one array."""
    found = bulk.instances([json.dumps(value).encode()] * count)
    assert plain(found) == [value] * count
    is_flat = isinstance(value, float) or (isinstance(value, list) and not isinstance(value[0], list | str))
    assert isinstance(found, np.ndarray) == (is_flat and count > 1)


@needs.SIMD
def test_long_lines_that_are_not_plain_numbers() -> None:
    """One long line of numbers is an array; Infinity and true are read as in a short file."""
    long = bulk.instances([json.dumps([0.5] * 9000).encode()] * 2)
    assert isinstance(long[0], np.ndarray)
    for odd in (b"[1, Inf]", b"[1, true]"):
        assert plain(bulk.instances([odd] * 2000)) == [json.loads(odd.replace(b"Inf", b"Infinity"))] * 2000


@needs.SIMD
@pytest.mark.parametrize(("line", "expected"), [
    (b"11,-22", [11, -22]), (b"1.5, 2", [1.5, 2]), (b"7.25", [7.25]), (b"1,,2", None), (b"1,x", None), (b'1,"2"', None),
    (b"[1],2", None), (b"1,{}", None), (b"true,1", None), (b"+1,2", None),
])  # fmt: skip
def test_numbers_between_commas_are_rows(line: bytes, expected: list[float] | None) -> None:
    """If they are JSON's, each line has as many, and the lines are worth it."""
    found = bulk.numbers([line] * 4000)
    assert (found if found is None else found.tolist()) == (expected and [expected] * 4000)
    assert bulk.numbers([line]) is None
    assert bulk.numbers([line] * 4000 + [b"1,2,3"]) is None


@pytest.mark.parametrize("lines", [[b"1,2,3", b"4"], [b"1", b"2,3,4"], [b"1,2", b"3", b"4,5,6"]])
def test_lines_with_as_many_numbers_on_average_are_not_rows(lines: list[bytes]) -> None:
    """Each line counts, with its own commas, and each keeps its own values."""
    assert bulk.numbers(lines * 3000) is None
    expected = [json.loads(b"[%b]" % line) for line in lines] * 3000
    assert plain(bulk.instances([b"[%b]" % line for line in lines] * 3000)) == expected


@needs.SIMD
@pytest.mark.parametrize("more", [255, 256, 257, 300])
def test_lines_are_counted_beyond_a_byte(more: int) -> None:
    """A line with 256 numbers more or fewer than the others is not as long as they are."""
    line = b",".join([b"1"] * more)
    for others in ([line] * 40, [line] * 40 + [b"1"], [line] * 39 + [b",".join([line] + [b"1"] * 256)]):
        found = bulk.numbers(others)
        assert (found is None) == (len(set(others)) > 1)
        assert found is None or found.shape == (40, more)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_an_empty_line_is_not_a_record(empty: int) -> None:
    """It has no value, wherever it stands."""
    lines = [b"[1]", b"[2]"] * 4000
    lines.insert(empty * 4000, b"")
    assert bulk.numbers([line[1:-1] for line in lines]) is None
    with pytest.raises(InvalidInput):
        bulk.instances(lines)


@given(st.data())
def test_texts_are_the_predictions_of_an_answer(data: st.DataObject) -> None:
    """Of every datatype and shape, with one output and with two, an output without elements included."""
    rows = data.draw(st.integers(1, 4))
    tensors = []
    for name in ("y", "z"):
        datatype = DATATYPES[data.draw(st.sampled_from(["FP32", "FP64", "FP16", "INT64", "UINT8", "BOOL", "BYTES"]))]
        shape = (rows, *data.draw(st.lists(st.integers(0, 3), max_size=3)))
        flat = [data.draw(st.sampled_from([0, 1, 7.5, -2, float("nan")])) for _ in range(int(np.prod(shape)))]
        if datatype.is_bytes:
            array = np.array([b"],[ %d" % (value == 1) for value in flat] or [], object).reshape(shape)
        else:
            array = np.nan_to_num(flat).astype(datatype.numpy) if datatype.numpy.kind != "f" else np.array(flat)
            array = array.astype(datatype.numpy).reshape(shape)
        tensors.append(Tensor(name, datatype, array))
    chosen = data.draw(st.sampled_from(["serving_default", "one"]))
    asked, reply = predict(question({"instances": [1] * rows, "signature_name": chosen}), SPEC)
    bound = bulk.bind([1] * rows, SPEC, chosen)
    assert (bound.rows, listed(bound.infer.inputs)) == (rows, listed(asked.inputs))  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bulk, "TOGETHER", 2)
        texts = bound.texts(tensors, NonFinite.BARE)
    assert plain([json.loads(text) for text in texts]) == plain(told(reply(result(*tensors)))["predictions"])
    assert bound.texts(tensors, NonFinite.BARE, b"%b") == [b"%b" + text for text in texts]


def test_outputs_have_a_row_for_each_record() -> None:
    """Another shape is refused with its name, and NaN where numbers have to be finite."""
    bound = bulk.bind([1, 2], SPEC, "one")
    for array in (np.zeros(3, np.float32), np.float32(1)):
        with pytest.raises(InvalidInput, match="output 'y' has the shape .* for 2 records; expected 2 rows"):
            bound.texts([output("y", "FP32", array)], None)
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        bound.texts([output("y", "FP32", [1, float("nan")])], None)
    with pytest.raises(InvalidInput, match='"odd" not found'):
        bulk.bind([1], SPEC, "odd")


def test_a_model_that_declares_nothing_takes_any_columns() -> None:
    """Its outputs have their own names."""
    spec = model()
    bound = bulk.bind_table({"p": np.array([1, 2]), "q": ["a", "b"]}, 2, spec)
    assert (bound.signature, listed(bound.infer.inputs)) == (None, {"p": [1, 2], "q": [b"a", b"b"]})
    assert bound.texts([output("o", "INT64", [1, 2])], None) == [b"1", b"2"]


def test_a_table_is_rows_by_column() -> None:
    """A missing column gets its default for each row, and one that is not an input is refused."""
    bindings = {
        "x": binding("x", shape=(-1, 1)),
        "n": binding("n", "INT64"),
        "d": binding("d", shape=(-1,), default=2.0),
    }
    rows = [{"x": 1.5, "n": 3}, {"x": 2.5, "n": 4}]
    columns = {name: bulk.as_values(np.array([row[name] for row in rows])) for name in ("n", "x")}
    assert listed(from_table(columns, 2, bindings)) == listed(from_rows(rows, bindings))
    with pytest.raises(InvalidInput, match="the table has the column 'odd'; expected columns"):
        from_table({"odd": [1]}, 1, bindings)
    with pytest.raises(InvalidInput, match="Missing named input: x"):
        from_table({"n": [1]}, 1, bindings)


@pytest.mark.parametrize(("column", "dtype"), [
    (np.array([1], np.int8), np.int64), (np.array([1], np.uint16), np.uint64), (np.array([1], np.float16), np.float64),
])  # fmt: skip
def test_columns_are_widened(column: Any, dtype: Any) -> None:
    """Arrays of other kinds are lists, and lists stay what they are."""
    assert bulk.as_values(column).dtype == dtype
    assert bulk.as_values(np.array([True])) == [True]
    assert bulk.as_values(["a"]) == ["a"]
