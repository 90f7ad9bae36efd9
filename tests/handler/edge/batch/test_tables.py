"""handler.edge.batch: cells and columns have the datatypes of the inputs, and what does not fit is named."""

import csv as python_csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies

from core.dtype import DATATYPES
from core.errors import InvalidInput
from core.operations import ModelSpec
from core.signature import Binding, Method, Signature, plain
from core.tensor import TensorSpec, joined
from handler.edge.batch import files
from handler.edge.batch.tables import ArrayBlock, ColumnBlock, CsvBlock
from handler.edge.batch.terms import BatchTerms, BlockLimits

UNKNOWN = BatchTerms(ModelSpec("m", "1", "test", None, None))


def terms(**inputs: str | Any) -> BatchTerms:
    """A model with columns of these datatypes, [-1, 1] each; a tuple is a datatype and a shape."""
    pairs = {name: value if isinstance(value, tuple) else (value, (-1, 1)) for name, value in inputs.items()}
    specs = tuple(TensorSpec(name, DATATYPES[kind], shape) for name, (kind, shape) in pairs.items())
    return BatchTerms(ModelSpec("m", "1", "test", specs, (), signatures=plain(specs, ())))


def asked(block: Any, of: BatchTerms) -> dict[str, Any]:
    return {tensor.name: tensor.array.tolist() for tensor in block.call(of).infer.inputs}


@given(strategies.text('a,"\n', max_size=24))
def test_records_end_where_pythons_reader_ends_them(text: str) -> None:
    """A quote inside of a plain cell, as in inches, does not join its line with the next ones."""
    records = [each.decode() for some in files._csv(io.BytesIO(text.encode()), 1000) for each in some or ()]
    found = [next(python_csv.reader([each])) for each in records]
    assert [*filter(any, found)] == [*filter(any, python_csv.reader(io.StringIO(text, newline="")))]


def csv(text: str, *header: str) -> CsvBlock:
    return CsvBlock(text.encode().split(b"\n"), header)


@pytest.mark.parametrize(("of", "text", "expected"), [
    (terms(a="INT64", b="BYTES"), "7,x\n-8,9", {"a": [[7], [-8]], "b": [[b"x"], [b"9"]]}),
    (terms(a="UINT64", b="BOOL"), f"{2**64 - 1},TRUE\n1,0", {"a": [[2**64 - 1], [1]], "b": [[True], [False]]}),
    (terms(a="FP16", b="BF16"), "1.5,2\n1,1", {"a": [[1.5], [1.0]], "b": [[0x4000], [0x3F80]]}),
    (terms(x=("BYTES", (-1, 2))), "p,q\nr,1", {"x": [[b"p", b"q"], [b"r", b"1"]]}),
    (terms(x=("BOOL", (-1, 2))), "true,0\n1,1", {"x": [[True, False], [True, True]]}),
    (terms(x=("INT8", (-1, 2))), "1,2\n3,4", {"x": [[1, 2], [3, 4]]}),
    (UNKNOWN, "1,x\n2,y", {"a": [1, 2], "b": [b"x", b"y"]}),
    (UNKNOWN, "1.5,2\n2,3", {"a": [1.5, 2.0], "b": [2, 3]}),
    (UNKNOWN, "x" * 131_073 + ",2", {"a": [b"x" * 131_073], "b": [2]}),
    (UNKNOWN, "2024_01,\u00a02\n\u0661,3", {"a": [b"2024_01", "\u0661".encode()], "b": [2, 3]}),
])  # fmt: skip
def test_cells_are_of_the_inputs_datatypes(of: BatchTerms, text: str, expected: Any) -> None:
    """A model that declares nothing gets whole numbers, numbers or texts, as the column has them."""
    assert asked(csv(text, "a", "b"), of) == expected
    if of is UNKNOWN:
        assert [*asked(csv("1,2\n3,4"), of).values()] == [[[1, 2], [3, 4]]]
        assert [*asked(csv("1,x\n3,y"), of).values()] == [[[b"1", b"x"], [b"3", b"y"]]]


@pytest.mark.parametrize(("of", "text", "message"), [
    (terms(a="INT64", b="BYTES"), "1.0,x", "column 'a' is '1.0'; expected INT64"),
    (terms(a="BYTES", b="BOOL"), "x,maybe", "column 'b' is 'maybe'; expected true or false"),
    (terms(x=("FP32", (-1, 2))), "1,", "a cell is ''; expected FP32"),
    (terms(x=("FP32", (-1, 2))), "inf,1e400", "a cell is '1e400'; expected FP32"),
    (terms(a="FP64", b="BYTES"), "-1e400,x", "column 'a' is '-1e400'; expected FP64"),
    (terms(a="INT64", b="BYTES"), "2024_01,x", "column 'a' is '2024_01'; expected INT64"),
    (terms(a="FP32", b="BYTES"), "1_0.5,x", "column 'a' is '1_0.5'; expected FP32"),
    (terms(x=("INT64", (-1, 2))), "1,\u0661", "a cell is '\u0661'; expected INT64"),
])  # fmt: skip
def test_a_cell_that_does_not_fit_is_named(of: BatchTerms, text: str, message: str) -> None:
    """With its column, if columns have names here, and what was expected."""
    with pytest.raises(InvalidInput, match=message):
        csv(text, "a", "b").call(of)


MATRIX = terms(x=("FP32", (-1, 3)))
WHOLE = terms(x=("INT64", (-1, 3)))
TWO = terms(a="FP32", b="FP64")


@pytest.mark.parametrize(("of", "line", "header"), [
    (MATRIX, "0.1,-2,3e-5", ()), (MATRIX, "1,2,3", ()), (MATRIX, f"{2**63},1,2", ("p", "q", "r")),
    (MATRIX, "1, 2 ,3\r", ()), (MATRIX, "+1,.5,inf", ()), (MATRIX, "1,[2,3],4", ()), (MATRIX, "1,{},4", ()),
    (MATRIX, "1,,3", ()), (MATRIX, "1,x,3", ()), (WHOLE, "1,-2,3", ()), (WHOLE, "1.0,2,3", ()),
    (UNKNOWN, "1,2,3", ()), (UNKNOWN, "1.5,2,3", ()), (UNKNOWN, "1,2", ("p", "q")),
    (TWO, "1.5,2", ("a", "b")), (TWO, "7,1.5,2", ("id", "a", "b")), (TWO, "1.5,2,é\r", ("a", "b", "id")),
    (TWO, "1.5,7,2", ("a", "id", "b")), (TWO, '"7",1.5,2', ("id", "a", "b")), (TWO, "\udcff,1,2", ("id", "a", "b")),
    (TWO, "1,2,3", ("a", "b")), (terms(a="FP32", b="INT32"), "1.5,2", ("a", "b")),
    (terms(x=("BYTES", (-1, 2))), "1,2", ()),
])  # fmt: skip
def test_many_records_are_read_as_each_by_itself(of: BatchTerms, line: str, header: tuple[str, ...]) -> None:
    """JSON's numbers are read in another way, which is faster; the values, the ids and the refusals are the same."""

    def told(block: CsvBlock) -> Any:
        try:
            call = block.call(of)
        except InvalidInput as error:
            return error.message
        kinds = [(tensor.name, tensor.datatype, tensor.array.tolist()) for tensor in call.infer.inputs]
        return kinds, block.ids

    long = CsvBlock([line.encode(errors="surrogateescape")] * 4000, header)
    alone, found = told(long.part(0, 1)), told(long)
    if isinstance(alone, str):
        assert found == alone
    else:
        kinds, ids = alone
        assert found == ([(name, kind, rows * 4000) for name, kind, rows in kinds], ids and ids * 4000)
    shorter = [b"1,2", *[b"1,2,3"] * 4000]
    with pytest.raises(InvalidInput, match="the record has 3 cells; expected 2"):
        CsvBlock(shorter, ()).call(MATRIX)


@pytest.mark.parametrize(("of", "line", "expected"), [
    (MATRIX, "id,0,1,2", True), (terms(x="BYTES"), "id,text", True),
    (MATRIX, "a,b,c", True), (MATRIX, "x", True), (MATRIX, "1,2,3", False), (MATRIX, "1,,3", False),
    (MATRIX, "a,,c", False), (MATRIX, "NA,b,c", False), (MATRIX, "nan,b,c", False), (MATRIX, "1,x,3", True),
    (MATRIX, "2020_01,2020_02,3", False), (MATRIX, "1_0,2_0,3_0", True),
    (TWO, "id,a,b", True), (TWO, "p,q", True), (UNKNOWN, "p,q", True), (UNKNOWN, "1,q", False),
    (terms(x="BYTES"), "hello", False), (terms(x="BYTES"), "x", True), (terms(x="BYTES"), "id,x", True),
    (terms(a="BYTES", b="FP32"), "p,q", False), (terms(a="BYTES", b="FP32"), " b , q ", True),
])  # fmt: skip
def test_a_first_line_is_a_row_unless_it_has_names(of: BatchTerms, line: str, *, expected: bool) -> None:
    """No row is ever taken for names because of one odd cell."""
    names = tuple(cell.strip() for cell in line.split(","))
    assert files.header_of(line.encode(), of) == (names if expected else ())
    blocks = files.FORMATS["csv"](io.BytesIO(f"{line}\n".encode() * 3), BlockLimits(9, 99), 0, of)
    assert sum(map(len, blocks)) == 3 - expected


def test_an_input_whose_strings_are_its_bytes_takes_texts() -> None:
    """Its tensor is UINT8."""
    spec = TensorSpec("image", DATATYPES["UINT8"], (-1, -1))
    signature = Signature(Method.PREDICT, {"image": Binding(spec, encoded=True)}, {})
    of = BatchTerms(ModelSpec("m", "1", "test", (spec,), (), signatures={"serving_default": signature}))
    assert asked(CsvBlock([b"ab"], ("image",)), of) == {"image": [[97, 98]]}


@pytest.mark.parametrize(("of", "columns", "expected"), [
    ("INT64", (np.array([2**53 + 1]), np.array([1], np.uint32)), [[2**53 + 1, 1]]),
    ("UINT64", (np.array([2**64 - 1], np.uint64), np.array([1])), [[2**64 - 1, 1]]),
    ("INT64", (np.array([2**53 + 1]), np.array([1.5])), "JSON Value: 1.5 Type: Number"),
    ("FP32", (np.array([1.5]), np.array([1], np.uint8)), [[1.5, 1.0]]),
    ("FP32", (np.array([1.5]), np.array(["x"])), 'JSON Value: "x" Type: String'),
])  # fmt: skip
def test_columns_of_several_types_keep_their_values(of: str, columns: Any, expected: Any) -> None:
    """In numpy, whole numbers with and without a sign stack as doubles, and numbers beside texts as texts."""
    block, model = ColumnBlock(dict(zip("ab", columns, strict=True)), 1), terms(x=(of, (-1, 2)))
    if isinstance(expected, str):
        with pytest.raises(InvalidInput, match=expected):
            block.call(model)
    else:
        assert asked(block, model) == {"x": expected}


def test_columns_of_the_only_input() -> None:
    """Numbers or texts, one in each; lists of several are refused."""
    numbers = {"a": np.array([1, 2], np.int32), "b": [3, 4]}
    assert asked(ColumnBlock(numbers, 2), terms(x=("FP32", (-1, 2)))) == {"x": [[1, 3], [2, 4]]}
    texts = {"a": ["p", "q"], "b": np.array(["r", "s"])}
    assert asked(ColumnBlock(texts, 2), terms(x=("BYTES", (-1, 2)))) == {"x": [[b"p", b"r"], [b"q", b"s"]]}
    with pytest.raises(InvalidInput, match="the columns are of different shapes"):
        ColumnBlock({"a": [1, 2], "b": [[1], [2, 3]]}, 2).call(terms(x=("FP32", (-1, 2))))
    assert asked(ArrayBlock(np.array([True, False])), terms(x=("BOOL", (-1,)))) == {"x": [True, False]}


@pytest.mark.parametrize("piece", [3, 64, 1 << 20])
@pytest.mark.parametrize("skip", range(9))
@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_any_number_of_records_can_be_left_out(
    name: str, skip: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the file is cut while it is read, and wherever records are too long."""
    monkeypatch.setattr(files, "PIECE", piece)
    monkeypatch.setattr(files, "BLOCK_BYTES", 20)
    texts = ["[1]", "[" + "7" * 40 + "]", "[2]", "[3]", "[" + "8" * 99 + "]", "[4]", "[5]", "[6]"]
    content = "\ufeff\n" + "\r\n\n".join(texts)
    if name == "csv":
        content = content.replace("[1]", '"1\n"').replace("[4]", '"' + "\n" * 50 + '"').translate({91: None, 93: None})
    found: list[Any] = []
    of = terms(x=("INT64", (-1, 1) if name == "jsonl" else (-1,)))
    for block in files.FORMATS[name](io.BytesIO(content.encode()), BlockLimits(2, 30), skip, of):
        try:
            found += asked(block, of)["x"]
        except InvalidInput as error:
            found += [error.message[:15]] * len(block)
    long = "the record has "
    expected: list[Any] = [[1], long, [2], [3], long, [4], [5], [6]]
    if name == "csv":
        expected = [1, long, 2, 3, long, long, 5, 6]
    assert found == expected[skip:]


class CountedRecords(list[bytes]):
    """Records that count those of their slices, which are copies."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.copied += len(found) if isinstance(place, slice) else 0
        return found


def test_records_are_copied_once_however_many_blocks_they_are() -> None:
    """A piece of a megabyte has 262,144 of the shortest rows: copying the rest for each block took half a minute."""
    kept = CountedRecords([b"[1]"] * 5001)
    assert [len(block) for block in files.cut(kept, 2, is_last=False)] == [2] * 2500
    assert (kept, kept.copied) == ([b"[1]"], 5000)
    assert [*files.cut(kept, 2, is_last=True)] == [[b"[1]"]]
    assert not kept


def test_texts_stay_texts_in_slices() -> None:
    """Their bytes are never made, nor are they for outputs in parts."""
    of = terms(t="BYTES", x="FP32")
    block = ColumnBlock({"t": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}, 3)
    inputs = {tensor.name: tensor for tensor in block.call(of).infer.inputs}
    whole = {name: joined([each.rows(0, 1), each.rows(1, 3)]) for name, each in inputs.items()}
    assert whole["t"].texts is not None
    assert {name: tensor.array.tolist() for name, tensor in whole.items()} == asked(block, of)
    assert json.dumps(whole["x"].shape) == "[3, 1]"


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_file_of_an_array_shows_how_far_it_is(order: Any, tmp_path: Path) -> None:
    """`dragoman batch` shows the position of the file, which reading mapped rows does not change."""
    np.save(tmp_path / "a.npy", np.zeros((100, 50), order=order))
    with (tmp_path / "a.npy").open("rb") as file:
        places = [file.tell() for _ in files.array_rows(file, BlockLimits(25, 1000), 25)]
    assert places == [20_000, 30_000, 40_000]
