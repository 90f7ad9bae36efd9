"""The rows of `--data`, and those that are made: what fits a model's inputs, and what is refused with its reason."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from core.dtype import DATATYPES
from handler.backends.onnx_file import Value
from handler.commands.convert import sources
from handler.commands.convert.parity import compare, given, samples
from handler.commands.convert.parity.measured import ParityJob, measured
from handler.commands.convert.sources.original import LibraryModel
from handler.commands.refused import Refused

FP32, TEXT = DATATYPES["FP32"].onnx, DATATYPES["BYTES"].onnx
MATRIX, COLUMN, SENTENCE = (
    Value("X", "tensor", FP32, (-1, 2)),
    Value("a", "tensor", FP32, (-1, 1)),
    Value("X", "tensor", TEXT, (-1,)),
)
WORDS = Value("X", "tensor", TEXT, (-1, 2))
PICTURE = Value("X", "tensor", FP32, (-1, 3, 8, 8))


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    if name.endswith(".npy"):
        np.save(path, content)
    elif name.endswith(".npz"):
        np.savez(path, **content)
    else:
        path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content", "inputs", "names", "expected"),
    [
        ("m.csv", "1,2\n3,\n", [MATRIX], (), {"X": [[1, 2], [3, np.nan]]}),
        ("m.csv", "1,\n3,4\n", [MATRIX], (), {"X": [[1, np.nan], [3, 4]]}),
        ("m.csv", "1,NaN\n3,4\n", [MATRIX], (), {"X": [[1, np.nan], [3, 4]]}),
        ("m.csv", "b,kind,a\n1,x,2\n3,y,4\n", [MATRIX], ("a", "b"), {"X": [[2, 1], [4, 3]]}),
        ("m.csv", "b,a\n1,2\n", [MATRIX], (), {"X": [[1, 2]]}),
        ("m.csv", "b,a\n1,2\n3,4\n", [COLUMN, COLUMN._replace(name="b")], (), {"a": [[2], [4]], "b": [[1], [3]]}),
        ("m.csv", "a,b\nTrue,1.5\nfalse,-2\n", [MATRIX], (), {"X": [[1, 1.5], [0, -2]]}),
        ("m.csv", "text,kind\ngood,1\n", [SENTENCE], (), {"X": ["good"]}),
        ("m.csv", "zip,flag\n01234,True\n99, 1_0\n", [WORDS], (), {"X": [["01234", "True"], ["99", " 1_0"]]}),
        ("m.csv", "01234,5\n02000,\n", [WORDS], (), {"X": [["01234", "5"], ["02000", ""]]}),
        ("m.npy", np.array([b"good", b"bad"]), [SENTENCE], (), {"X": ["good", "bad"]}),
        ("m.npz", {"X": np.ones((1, 2))}, [MATRIX], (), {"X": [[1, 1]]}),
    ],
)
def test_rows_become_the_models_inputs(
    name: str, content: Any, inputs: list[Value], names: tuple[str, ...], expected: Any, tmp_path: Path
) -> None:
    """Names choose columns; a column may be [rows] or [rows, 1]."""
    found = given.feed(given.read(written(tmp_path, name, content)), inputs, names)
    assert {key: str(array.tolist()) for key, array in found.items()} == {
        key: str(np.array(rows, found[key].dtype).tolist()) for key, rows in expected.items()
    }


@pytest.mark.parametrize(
    ("name", "content", "inputs", "names", "reason"),
    [
        ("m.txt", "1", [MATRIX], (), r"--data is .*m\.txt; expected a file of \.csv, \.npy, \.npz"),
        ("m.csv", "a,b,c\n1,2,3\n", [MATRIX], (), "has 3 columns; expected the 2 features"),
        ("m.csv", "b,c,A\n1,2,3\n", [MATRIX], ("a", "b"), r"has no column 'a'; it has \['b', 'c', 'A'\]"),
        ("m.csv", "c,d\n1,2\n", [MATRIX], ("a", "b"), "has no column 'a', no column 'b'; it has"),
        ("m.csv", "a,c\n1,2\n", [COLUMN, COLUMN._replace(name="b")], (), "has no column 'b'; it has"),
        ("m.csv", "a,b\n", [MATRIX], (), r"--data .*m\.csv has a line of names and no rows"),
        ("m.csv", "a,b\n1,x\n", [MATRIX], (), "input 'X' is FP32, and the rows have text, such as 'x'"),
        ("m.csv", "a,b\n1,1_0\n", [MATRIX], (), "input 'X' is FP32, and the rows have text, such as '1_0'"),
        ("m.csv", "a,b\n1,1e400\n", [MATRIX], (), "input 'X' is FP32, and the rows have text, such as '1e400'"),
        ("m.npy", np.array([["x", "y"]]), [MATRIX], (), "input 'X' is FP32, and the rows have text, such as 'x'"),
        ("m.npy", np.zeros(3, complex), [MATRIX], (), r"it is complex128 \[3\]; expected rows of numbers or text"),
        ("m.npz", {"x": np.array(1)}, [MATRIX], (), r"array 'x' is int64 \[\]; expected rows"),
        (
            "m.npz",
            {"a": np.ones(2), "b": np.ones(3)},
            [COLUMN, COLUMN._replace(name="b")],
            (),
            r"arrays of \[2, 3\] rows",
        ),
        ("m.npy", np.zeros((0, 2)), [MATRIX], (), r"arrays of \[0\] rows"),
        ("m.npy", np.zeros((2, 3)), [MATRIX], (), r"input 'X' is \[-1, 2\], and the rows are \[2, 3\]"),
        ("m.npz", "no zip", [MATRIX], (), r"m\.npz is not a \.npz file that can be read"),
    ],
)
def test_other_rows_are_refused(
    name: str, content: Any, inputs: list[Value], names: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    """The message has what was expected."""
    path = written(tmp_path, name, content) if not isinstance(content, str) else tmp_path / name
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    with pytest.raises(Refused, match=reason):
        given.feed(given.read(path), inputs, names)


def test_texts_are_the_first_column_of_texts(tmp_path: Path) -> None:
    """Models of texts take them. Without any they refuse."""
    assert given.sentences(given.read(written(tmp_path, "m.csv", "n,text\n1,a b\n2,c\n"))) == ["a b", "c"]
    with pytest.raises(Refused, match="has no texts, which this model takes"):
        given.sentences(given.read(written(tmp_path, "n.csv", "1,2\n")))


def graph(*nodes: Any) -> Any:
    return helper.make_graph(list(nodes), "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])


@pytest.mark.parametrize(
    ("datatype", "shape", "kind"),
    [("INT64", (-1, 3), "i"), ("BOOL", (-1,), "b"), ("UINT8", (4, -1), "u"), ("FP64", (-1,), "f")],
)
def test_rows_are_made_of_every_datatype(datatype: str, shape: tuple[int, ...], kind: str) -> None:
    """A fixed number of rows is kept."""
    value = Value("x", "tensor", DATATYPES[datatype].onnx, shape)
    array = samples.made(graph(), [value], {}, 100, 1)["x"]
    assert (array.dtype.kind, len(array)) == (kind, 4 if shape[0] == 4 else 100)
    assert (array == samples.made(graph(), [value], {}, 100, 1)["x"]).all()


def test_made_rows_lie_where_a_scaler_has_seen_numbers() -> None:
    """They would all be far from them otherwise."""
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1000.0, 0.0], scale=[10.0, 1.0])
    array = samples.made(graph(node), [Value("x", "tensor", FP32, (-1, 2))], {}, 500, 1)["x"]
    assert abs(np.median(array[:, 0]) - 1000) < 1
    assert abs(np.median(array[:, 1])) < 1


def test_large_rows_are_few_and_odd_datatypes_need_data() -> None:
    """A thousand pictures would take gigabytes; bits of BF16 cannot be guessed."""
    assert len(samples.made(graph(), [PICTURE._replace(shape=(-1, 3, 600, 600))], {}, 1000, 1)["X"]) == 3
    with pytest.raises(Refused, match="input 'X' is BF16: give rows with --data"):
        samples.made(graph(), [MATRIX._replace(element=DATATYPES["BF16"].onnx)], {}, 10, 1)


def test_numbers_are_compared_by_their_size() -> None:
    """Infinities and NaN are like themselves alone."""
    theirs = np.array([1000.0, 0.5, np.inf, np.nan, np.nan, 0.0])
    ours = np.array([1000.05, 0.5002, np.inf, np.nan, 1.0, 0.0])
    found = compare.numbers(ours, theirs, 1e-4)
    assert (found["different"], found["values"]) == (2, 6)
    assert found["largest_absolute"] == np.finfo(np.float64).max
    assert compare.numbers(ours[:2], theirs[:2], 1e-4)["largest_absolute"] == pytest.approx(0.05)


def test_labels_that_flip_between_equal_scores_are_ties() -> None:
    """Their original could have chosen either."""
    scores = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    found = compare.labels(np.array(["b", "b", "b"]), np.array([b"a", b"a", b"b"]), scores, 1e-4)
    assert found == {"flips": 2, "ties": 1, "values": 3}


def test_an_answer_of_another_shape_is_refused() -> None:
    """[rows] and [rows, 1] are alike."""
    assert compare.shaped("y", np.zeros((3, 1)), {"y": np.zeros(3)}).shape == (3, 1)
    with pytest.raises(Refused, match=r"output 'y' is \[3, 1\] in ONNX Runtime, \[3, 2\] in the original"):
        compare.shaped("y", np.zeros((3, 1)), {"y": np.zeros((3, 2))})


def filled(value: float, more: float) -> LibraryModel:
    """Makes a model that returns its input in ONNX. The original replaces missing values, and adds to all numbers."""
    sizes = [None, 2]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in ("X", "y")]
    made = helper.make_graph([helper.make_node("Identity", ["X"], ["y"])], "g", ends[:1], ends[1:])
    content = helper.make_model(made, opset_imports=[helper.make_opsetid("", 15)], ir_version=8).SerializeToString()

    def original(inputs: Any) -> Any:
        return {"y": np.where(np.isnan(inputs["X"]), value, inputs["X"]) + more}

    return LibraryModel(content, original, "library", "converter", "regressor", gaps=True)


def compared(model: LibraryModel, folder: Path, rows: Any) -> dict[str, Any]:
    (folder / "m.onnx").write_bytes(model.onnx)
    data = None if rows is None else given.read(written(folder, "rows.npy", np.array(rows)))
    return measured(model, folder / "m.onnx", ParityJob(data, None, 0.0, 1)).report


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (0, r"in 2 of 6 numbers \(tolerance 0.0001\); only rows with missing values differ: 2 of 3 rows have some"),
        (1, r"; 2 of them in rows without missing values: 2 of 3 rows have some \(NaN\); --tolerance"),
    ],
)
def test_a_refusal_says_whether_missing_values_are_the_cause(more: float, told: str, tmp_path: Path) -> None:
    """Otherwise the publisher looks for it in the whole model."""
    with pytest.raises(Refused, match=told):
        compared(filled(0, more), tmp_path, [[1, np.nan], [np.nan, 2], [3, 4]])
    with pytest.raises(Refused, match=r"numbers \(tolerance 0.0001\); --tolerance"):
        compared(filled(0, 1), tmp_path, [[1.0, 2], [3, 4]])
    assert compared(filled(0, 0), tmp_path, [[1.0, 2], [3, 4]])["notes"] == []


def test_made_rows_do_not_refuse_a_model_for_missing_values(tmp_path: Path) -> None:
    """The publisher may have none. The report says that they are answered otherwise."""
    (note,) = compared(filled(0, 0), tmp_path, None)["notes"]
    assert note.startswith("missing values (NaN) change ")
    assert compared(filled(np.nan, 0), tmp_path, None)["notes"] == []


def test_a_source_is_recognised_by_its_name_and_first_bytes(tmp_path: Path) -> None:
    """`--format` is believed; a folder without a model of Hugging Face is for SavedModels."""
    (tmp_path / "a.txt").write_bytes(b"tree\nversion=v4")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    titles = [sources.recognised(tmp_path / name, None) for name in ("a.txt", "bert")]
    assert [row.title for row in titles if row] == ["LightGBM", "Hugging Face"]
    assert sources.recognised(tmp_path, None) is None
    assert [sources.recognised(tmp_path / name, None) for name in ("none", "insects.v2", "none.onnx")] == [None] * 3
    named = sources.recognised(tmp_path / "none", "sklearn")
    assert named is not None
    assert named.title == "scikit-learn"
    with pytest.raises(Refused, match=r"none\.json cannot be read: No such file"):
        sources.recognised(tmp_path / "none.json", None)


def test_exporters_notes_are_removed() -> None:
    """They have paths of the machine that converted."""
    node = helper.make_node("Identity", ["x"], ["y"], doc_string="/home/me/model.py")
    made = helper.make_model(graph(node))
    onnx.helper.set_model_props(made, {"path": "/home/me"})
    assert b"/home/me" not in sources_graph().without_notes(made).SerializeToString()


def sources_graph() -> Any:
    from handler.commands.convert.sources import graph as module  # noqa: PLC0415 - the name is taken above

    return module
