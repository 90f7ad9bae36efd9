"""handler.edge.batch.parquet: columns as values, and files that would decode to much more than they have."""

import io
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from core.dtype import DATATYPES
from core.errors import InvalidInput, ModelNotLoadable
from core.operations import InferResult
from core.tensor import Tensor
from handler.edge.batch import files, runner
from handler.edge.batch import parquet as module
from handler.edge.batch.json_lines import LongRecord
from handler.edge.batch.parquet_pages import MalformedPages, counts
from handler.edge.batch.tables import ColumnBlock
from handler.edge.batch.terms import BlockLimits
from tests.handler.edge.batch.test_tables import UNKNOWN, asked, terms

MB = 1024 * 1024


def written(columns: Any, **options: Any) -> io.BytesIO:
    """Returns a file of a table, or of columns by name."""
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file


def blocks(file: io.BytesIO, records: int = 10, record_bytes: int = MB, skip: int = 0) -> list[Any]:
    return list(files.parquet_rows(file, BlockLimits(records, record_bytes), skip))


def test_parquets_columns() -> None:
    """Lists of equal lengths are arrays; others, and those with nulls, are values."""
    columns = {"x": [[1.0, 2.0], [3.0, 4.0]], "y": [[1], [2]], "t": ["a", "b"], "id": [8, 9]}
    file = written(columns)
    (block,) = blocks(file)
    of = terms(x=("FP32", (-1, 2)), y="INT64", t="BYTES")
    assert asked(block, of)["x"] == [[1, 2], [3, 4]]
    assert block.ids == [8, 9]
    assert [asked(each, of)["y"] for each in blocks(file, 1, skip=1)] == [[[2]]]
    for values in (
        [[1, 2], [3]],
        [[1], None],
        [["a"], ["b"]],
        [[["a"], None], [[], ["b", None]]],
        ["a", None],
        [b"a", b""],
    ):
        (block,) = blocks(written({"x": values}))
        expected = [block.part(0, 1), block.part(1, 2)]
        assert [each._columns["x"] for each in expected] == [[each] for each in values]


def test_without_pyarrow_parquet_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other form works without it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModelNotLoadable, match=r"pip install 'dragoman\[parquet\]'"):
        next(files.parquet_rows(io.BytesIO(), BlockLimits(1, 1), 0))


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "fixed"])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"store_schema": False}], ids=["", "plain", "bare"])
def test_lists_and_texts_of_every_type(kind: str, options: Any) -> None:
    """Lists of a fixed size and of lists are arrays if all are equally long."""
    types = {"string": pa.string(), "large_string": pa.large_string(), "binary": pa.binary(), "fixed": pa.binary(2)}
    texts = [b"ab", b"cd"] if kind in ("binary", "fixed") else ["ab", "cd"]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, 4], pa.float32()), 2)
    nested = pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pa.large_list(pa.list_(pa.int64())))
    columns = {"t": pa.array(texts, types[kind]), "f": fixed, "n": nested, "e": pa.array([[], []], pa.list_(pa.int8()))}
    (block,) = blocks(written(columns, **options))
    found = block._columns
    assert found["t"] == texts
    assert [found[name].tolist() for name in "fne"] == [[[1, 2], [3, 4]], nested.to_pylist(), [[], []]]
    assert blocks(written({"x": pa.array([], pa.int64())})) == []


def test_rows_are_left_out_by_row_groups() -> None:
    """Each row is read once, whatever was read before."""
    file = written({"x": list(range(25)), "t": list("abcde" * 5)}, row_group_size=7)
    for skip in range(27):
        found = [value for block in blocks(file, 4, skip=skip) for value in block._columns["x"].tolist()]
        assert found == list(range(25))[skip:]


def zeros(count: int) -> Any:
    return {"x": pa.ListArray.from_arrays([0, count], pa.array(np.zeros(count, np.int8)))}


def repeated(size: int, rows: int, **options: Any) -> io.BytesIO:
    """Returns a file of one long text in many rows."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    return written({"t": text}, store_schema=False, **options)


WIDE = {"x": [["a"] * MB, ["b"]], "n": [1, 2]}
BOMBS = {
    "a list": (lambda: written(zeros(2 * MB)), "x.list.element"),
    "texts": (lambda: written(WIDE), "x.list.element"),
    "a page": (lambda: written({"t": ["x" * 2 * MB]}, compression="zstd", use_dictionary=False), "t"),
    "beginnings": (
        lambda: written(
            {"t": [["x" * 9000] * 999]}, use_dictionary=False, column_encoding={"t.list.element": "DELTA_BYTE_ARRAY"}
        ),
        "t.list.element",
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_file_that_decodes_to_too_much_at_once_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are one row's, and a page of the same letter. Smaller row groups are read."""
    make, column = BOMBS[kind]
    monkeypatch.setattr(module, "FREE", MB)
    with pytest.raises(InvalidInput, match=rf"row group 0 has \d+ bytes, and can decode to \d+ .* column '{column}'"):
        blocks(make())
    monkeypatch.undo()
    assert blocks(make(), record_bytes=16 * MB)


def test_smaller_row_groups_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cure that the error names."""
    monkeypatch.setattr(module, "FREE", MB)
    many = {"x": [[0] * 100_000] * 4}
    with pytest.raises(InvalidInput, match="write fewer rows to a row group"):
        blocks(written(many))
    assert [len(each) for each in blocks(written(many, row_group_size=1), record_bytes=4 * MB)] == [1, 1, 1, 1]


def test_a_text_of_many_rows_is_there_once() -> None:
    """A file of 50 kB has 100 GB of text. A block has 16 MiB of it, a row that is too long is one of its own."""
    file = repeated(MB, 100_000)
    assert len(file.getvalue()) < 100_000
    before = pa.total_allocated_bytes()
    stream = files.parquet_rows(file, BlockLimits(1000, MB), 0)
    sizes = [len(next(stream)) for _ in range(3)]
    assert sizes == [16, 16, 16]
    assert pa.total_allocated_bytes() - before < 16 * MB
    assert {type(next(files.parquet_rows(file, BlockLimits(1000, MB - 1), 0))) for _ in range(2)} == {LongRecord}


def test_a_row_that_is_too_long_is_one_of_its_own() -> None:
    """The records around it have their answers."""
    file = written({"t": [size * "x" for size in (1, 2, 99, 3, 98, 97, 4)]})
    found = [(type(block), len(block)) for block in blocks(file, record_bytes=50)]
    few, long = (ColumnBlock, 1), (LongRecord, 1)
    assert found == [(ColumnBlock, 2), long, few, long, long, few]


@pytest.mark.parametrize("opening", [b"\x19", b"\x1c"], ids=["lists", "structs"])
def test_a_header_that_is_nested_too_deeply_is_malformed(opening: bytes) -> None:
    """Each byte opens a list in a list, or a struct in a struct, which would use up Python's stack."""
    content = opening * 3000 + b"\0" * 3000
    with pytest.raises(MalformedPages, match="nested too deeply"):
        counts(io.BytesIO(content), 0, len(content))


def test_objects_are_refused() -> None:
    """Their columns are named, and so is a depth that nobody needs."""
    deep = pa.array([[1]])
    for _ in range(40):
        deep = pa.ListArray.from_arrays([0, 1], deep)
    mapped = pa.array([[("k", 1)]], pa.map_("str", "int8"))
    for values, told in (([{"a": "q"}], "struct<a: string>"), (mapped, "map<string"), (deep, "list<element: list")):
        with pytest.raises(InvalidInput, match=rf"column 'x' is .*{told}.*; expected numbers, texts, or lists of them"):
            blocks(written({"x": values}))


@pytest.mark.parametrize("values", [
    [Decimal("1.5")], [date(2020, 1, 1)], [datetime(2020, 1, 1, tzinfo=UTC)], [time(1)], [timedelta(1)],
    [[Decimal("1.5")]], [[date(2020, 1, 1)]],
])  # fmt: skip
def test_a_column_that_no_input_takes_is_refused_once(values: Any) -> None:
    """Each of its records was an error of its own, in words of Python."""
    with pytest.raises(InvalidInput, match="column 'x' is '.*'; expected numbers, texts, or lists of them"):
        blocks(written({"x": values}))


def test_a_name_is_that_of_one_column() -> None:
    """The first one was ignored, in silence."""
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    with pytest.raises(InvalidInput, match="two columns have the name 'x'; expected a name once"):
        blocks(written(table))


@pytest.mark.parametrize(("own", "text"), [
    (b"a", '"a"'), (b"\xff", r'"\\xff"'), (Decimal("1.50"), '"1.50"'), (timedelta(1), '"1 day, 0:00:00"'),
    (date(2020, 1, 1), '"2020-01-01"'), (7, "7"),
])  # fmt: skip
def test_an_id_may_be_of_any_scalar_type(own: Any, text: str) -> None:
    """Keys of databases are decimals, and texts of some writers are bytes."""
    [block] = blocks(written({"id": [own], "x": [1.0]}))
    call = block.call(UNKNOWN)
    result = InferResult("m", "1", (Tensor("y", DATATYPES["FP32"], np.array([2.0], "f4")),))
    assert call.write(result) == [f'"id":{text},"prediction":2.0'.encode()]
    assert runner._told(InvalidInput("no"), block) == f'"error":"no","id":{text}'.encode()


@pytest.fixture(scope="module")
def sample() -> bytes:
    columns = {"x": [[1.0, 2.0]] * 50, "t": ["a", "b"] * 25, "n": list(range(50))}
    return written(columns, row_group_size=20, compression="zstd").getvalue()


@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(sample: bytes, data: Any) -> None:
    """Whatever a header says."""
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for content in (bytes(damaged), bytes(damaged[:cut])):
        with suppress(InvalidInput):
            assert all(len(block) for block in blocks(io.BytesIO(content)))
