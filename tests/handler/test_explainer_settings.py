"""handler.settings.explainer: settings are checked when read, and the background against the loaded model."""

import contextlib
import json
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.dtype import DATATYPES
from core.explain.explanation import explain
from core.operations import Explainer, ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends import Source, onnx
from handler.settings import Settings
from handler.settings.checked import Wrong
from handler.settings.explainer import build, parse
from handler.settings.model import ModelSettings

ROWS = [[0.0, 0.5], [1.0, 1.5]]


def tensors(*names: str, shape: Any = (-1, 2), datatype: str = "FP32") -> tuple[TensorSpec, ...]:
    """Returns the tensors that a model declares."""
    return tuple(TensorSpec(name, DATATYPES[datatype], shape) for name in names)


X = tensors("x")


def built(folder: Path, said: Any, inputs: Any = X, outputs: Any = None) -> Explainer:
    """Returns the explainer of a model with those inputs."""
    parsed = parse(said)
    assert parsed is not None
    return build(parsed, folder, ModelSpec("m", "1", "p", inputs, outputs))


def test_nothing_said_is_no_explainer() -> None:
    """Null counts as absent."""
    assert parse(None) is None


def test_a_background_is_all_that_is_needed(tmp_path: Path) -> None:
    """For a model of one input it may be the rows alone."""
    found = built(tmp_path, {"background": ROWS})
    assert found.background["x"].tolist() == ROWS
    assert found.background["x"].dtype == np.float32
    assert found[1:] == (2048, 0, None, None, {})


def test_everything_else_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Names stand by input."""
    said = {
        "background": {"x": ROWS}, "budget": 100, "seed": 7, "output": "p", "target": 1, "feature_names": ["a", "b"],
    }  # fmt: skip
    found = built(tmp_path, said, outputs=tensors("q", "p", shape=(-1, 3)))
    assert found[1:] == (100, 7, "p", 1, {"x": ("a", "b")})


def test_several_inputs_have_rows_and_names_each(tmp_path: Path) -> None:
    """They have the model's order and the model's types; an input may be called "file"."""
    inputs = tensors("x") + tensors("file", shape=(-1,), datatype="INT64") + tensors("b", shape=None, datatype="BOOL")
    said = {
        "background": {"file": [2**63 - 1, 2], "b": [[True], [False]], "x": ROWS},
        "feature_names": {"file": ["id"], "b": ["flag"], "x": ["a", "b"]},
    }
    found = built(tmp_path, said, inputs)
    assert list(found.background) == ["x", "file", "b"]
    assert found.background["file"].tolist() == [2**63 - 1, 2]
    assert found.background["b"].tolist() == [[True], [False]]
    assert found.feature_names == {"x": ("a", "b"), "file": ("id",), "b": ("flag",)}


def test_a_fixed_batch_does_not_bind_the_background(tmp_path: Path) -> None:
    """Its rows are not a request's."""
    assert len(built(tmp_path, {"background": ROWS}, tensors("x", shape=(1, -1))).background["x"]) == 2


def test_bfloat16_stands_as_its_bits(tmp_path: Path) -> None:
    """Values are rounded to nearest."""
    found = built(tmp_path, {"background": [[1.0, -2.001953125]]}, tensors("x", datatype="BF16"))
    assert found.background["x"].tolist() == [[0x3F80, 0xC000]]


@pytest.mark.parametrize("dtype", ["?", "u1", "<i2", ">f8", "<f2"])
@pytest.mark.parametrize("name", ["b.npy", "b.npz", "b.json"])
def test_a_file_beside_the_model_may_hold_the_background(tmp_path: Path, name: str, dtype: str) -> None:
    """The file's type may be any whose values the input's type holds."""
    rows = np.array([[0, 1], [1, 1]], dtype)
    if name == "b.npy":
        np.save(tmp_path / name, rows)
    elif name == "b.npz":
        np.savez_compressed(tmp_path / name, x=rows)
    else:
        (tmp_path / name).write_text(json.dumps({"x": rows.astype(float).tolist()}))
    (background,) = built(tmp_path, {"background": {"file": name}}).background.values()
    assert background.tolist() == [[0, 1], [1, 1]]
    assert background.dtype == np.float32
    (tmp_path / name).write_bytes(b"")  # nothing reads it any more
    assert background.tolist() == [[0, 1], [1, 1]]


def wrong(path: str, value: str, expected: str) -> str:
    """Returns the beginning of a message, as a pattern."""
    return re.escape(f"explainer{path} is {value}; expected {expected}")


@pytest.mark.parametrize(("said", "message"), [
    ([], wrong("", "[]", "an object")),
    ({}, wrong(".background", "null", "a row per example")),
    ({"background": []}, wrong(".background", "[]", "a row per example")),
    ({"background": "b.npy"}, wrong(".background", "'b.npy'", "a row per example")),
    ({"background": ROWS, "sed": 1}, wrong(".sed", "1", "no such key; the keys are background, budget")),
    ({"background": {"file": 1}}, wrong(".background.file", "1", "the name of a file in the version's folder")),
    ({"background": {"file": "../b.npy"}}, wrong(".background.file", "'../b.npy'", "the name of a file")),
    ({"background": {"file": "/b.npy"}}, wrong(".background.file", "'/b.npy'", "the name of a file")),
    ({"background": {"file": "a\\b.npy"}}, wrong(".background.file", "", "")[:30]),
    ({"background": {"file": "..npy/"}}, wrong(".background.file", "'..npy/'", "the name of a file")),
    ({"background": {"file": "b\0.npy"}}, wrong(".background.file", "", "")[:30]),
    ({"background": {"file": ".npy"}}, wrong(".background.file", "'.npy'", "the name of a file")),
    ({"background": {"file": "b.pkl"}}, wrong(".background.file", "'b.pkl'", "the name of a file")),
    ({"background": {"file": "b.npy", "x": ROWS}}, 'explainer.background is .*; expected "file" without other keys'),
    ({"background": ROWS, "budget": 3}, wrong(".budget", "3", "a whole number from 4 to 65536")),
    ({"background": ROWS, "budget": 65537}, wrong(".budget", "65537", "a whole number from 4 to 65536")),
    ({"background": ROWS, "budget": True}, wrong(".budget", "true", "a whole number")),
    ({"background": ROWS, "seed": -1}, wrong(".seed", "-1", "a whole number from 0 to")),
    ({"background": ROWS, "seed": 1.0}, wrong(".seed", "1.0", "a whole number from 0 to")),
    ({"background": ROWS, "target": "a"}, wrong(".target", "'a'", "a whole number from 0 to")),
    ({"background": ROWS, "output": 1}, wrong(".output", "1", "the name of an output")),
    ({"background": ROWS, "feature_names": "ab"}, wrong(".feature_names", "'ab'", "an array of text")),
    ({"background": ROWS, "feature_names": {"x": [1]}}, wrong(".feature_names.x", "[1]", "an array of text")),
])  # fmt: skip
def test_a_wrong_key_is_named_by_its_path_when_it_is_read(said: Any, message: str) -> None:
    """The message has its value and what was expected."""
    with pytest.raises(Wrong, match=message):
        parse(said)


WIDER = [[0.0] * 10] * 1000


@pytest.mark.parametrize(("said", "inputs", "message"), [
    ({"background": ROWS}, None, 'needs a model that declares its inputs: add "inputs"'),
    ({"background": ROWS}, tensors("x", "z"), wrong(".background", "", "")[:23] + ".*an object by input; .*'x', 'z'"),
    ({"background": {"z": ROWS}}, tensors("x"), wrong(".background", "['z']", "the model's inputs ['x']")),
    ({"background": [[1, 2, 3]]}, tensors("x"), wrong(".background.x", "[1, 3]", "rows of the input's shape [-1, 2]")),
    ({"background": [1, 2]}, tensors("x"), wrong(".background.x", "[2]", "rows of the input's shape [-1, 2]")),
    ({"background": [[1], [1, 2]]}, tensors("x"), wrong(".background.x", "[[1], [1, 2]]", "rows that are all of one")),
    ({"background": {"x": 1}}, tensors("x"), wrong(".background.x", "1", "an array of rows")),
    ({"background": {"x": "ab"}}, tensors("x"), wrong(".background.x", "'ab'", "an array of rows")),
    ({"background": [["a", 1]]}, tensors("x"),
     "^explainer.background.x: input 'x' has 'a' where FP32 needs numbers"),
    ({"background": [[1.5, 1]]}, tensors("x", datatype="INT8"), "1.5 where INT8 needs integers"),
    ({"background": [[300, 1]]}, tensors("x", datatype="INT8"), "300, which is out of range for INT8"),
    ({"background": [["a", 1]]}, tensors("x", datatype="BYTES"),
     "^explainer.background.x: input 'x' has 1 where BYTES needs strings"),
    ({"background": {"x": []}}, tensors("x", shape=None), wrong(".background", "{'x': 0}", "from 1 to 1000 rows")),
    ({"background": [[1]] * 1001}, tensors("x", shape=None),
     wrong(".background", "{'x': 1001}", "from 1 to 1000 rows")),
    ({"background": {"x": ROWS, "z": ROWS * 2}}, tensors("x", "z"),
     wrong(".background", "{'x': 2, 'z': 4}", "from 1 to 1000 rows, the same number for every input")),
    ({"background": ROWS, "feature_names": ["a"]}, tensors("x"),
     wrong(".feature_names", "['a']", "2 names, one for each element of an example's input 'x'")),
    ({"background": ROWS, "feature_names": {"z": ["a", "b"]}}, tensors("x"),
     wrong(".feature_names", "['z']", "the model's inputs ['x']")),
    ({"background": WIDER, "budget": 21}, tensors("x", shape=None),
     wrong(".budget", "21", "for 10 features at least 22")),
    ({"background": [[0] * 1000], "budget": 65536}, tensors("x", shape=None),
     wrong(".budget", "65536", "for 1000 features at least 2002, at most 8388")),
    ({"background": [[0] * 13] * 1000, "budget": 8000}, tensors("x", shape=None),
     wrong(".budget", "8000", "at most 4194 with a background of 1000 rows")),
])  # fmt: skip
def test_what_does_not_fit_the_model_is_named_when_it_is_loaded(
    tmp_path: Path, said: Any, inputs: Any, message: str
) -> None:
    """The message has the path, too."""
    with pytest.raises(Wrong, match=message):
        built(tmp_path, said, inputs)


@pytest.mark.parametrize(("more", "message"), [
    ({"output": "z"}, wrong(".output", "'z'", "one of the model's outputs of numbers, ['y']")),
    ({"output": "t"}, wrong(".output", "'t'", "one of the model's outputs of numbers, ['y']")),
    ({"target": 3}, wrong(".target", "3", "a class of output 'y', which has 3")),
])  # fmt: skip
def test_the_output_and_the_class_must_be_there(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    """The check goes as far as the model declares its outputs."""
    outputs = tensors("y", shape=(-1, 3)) + tensors("t", datatype="BYTES")
    with pytest.raises(Wrong, match=message):
        built(tmp_path, {"background": ROWS} | more, outputs=outputs)
    assert built(tmp_path, {"background": ROWS} | more).output == more.get("output")
    for unsaid in ((-1, -1), (-1,), (-1, 1), None):
        assert built(tmp_path, {"background": ROWS, "target": 2}, outputs=tensors("y", shape=unsaid)).target == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message does not have this machine's paths."""
    for name in ("b.npy", "b.json", "b.npz"):
        message = re.escape(f"explainer.background.file {name!r} cannot be read: No such file or directory")
        with pytest.raises(Wrong, match=message):
            built(tmp_path, {"background": {"file": name}})


@pytest.mark.parametrize("name", ["b.npy", "b.npz", "b.json"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """The file's content does not matter."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        Wrong, match=f"explainer.background.file {name!r} is (not a file of numbers: |.*; expected a file)"
    ) as refusal:
        built(tmp_path, {"background": {"file": name}})
    assert str(tmp_path) not in str(refusal.value)


def test_a_file_of_objects_runs_no_code(tmp_path: Path) -> None:
    """Objects would have to be unpickled."""
    np.save(tmp_path / "b.npy", np.array([[print, print]], object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=np.array([[print, print]], object))
    for name in ("b.npy", "b.npz"):
        with pytest.raises(Wrong, match="is not a file of numbers: .*(Python objects in dtype|allow_pickle=False)"):
            built(tmp_path, {"background": {"file": name}})


def test_a_file_may_claim_any_size(tmp_path: Path) -> None:
    """The claim is compared with the file's own size before memory is allocated."""
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    content = (tmp_path / "b.npy").read_bytes().replace(b"(2, 2), }" + b" " * 15, b"(2, 9999999999999999), }")
    (tmp_path / "b.npy").write_bytes(content)
    with pytest.raises(Wrong, match="expected a file of numbers"):
        built(tmp_path, {"background": {"file": "b.npy"}})


@pytest.mark.parametrize("rows", [np.zeros((2, 2), complex), np.array([["a", "b"]]), np.zeros((2, 2), "M8[s]")])
def test_a_file_of_something_else_than_numbers_is_named(tmp_path: Path, rows: Any) -> None:
    """The message has its type."""
    np.save(tmp_path / "b.npy", rows)
    message = re.escape(f"explainer.background.file 'b.npy'.x is '{rows.dtype}'; expected an array of numbers")
    with pytest.raises(Wrong, match=message):
        built(tmp_path, {"background": {"file": "b.npy"}})


@pytest.mark.parametrize("rows", [["a", "b"], [["a"], ["b"]], {"file": "b.npy"}])
def test_a_background_of_text_and_of_scalars(tmp_path: Path, rows: Any) -> None:
    """A table's column is [-1, 1], and its rows may be scalars."""
    np.save(tmp_path / "b.npy", np.array(["a", "b"]))
    found = built(tmp_path, {"background": rows}, tensors("x", shape=(-1, 1), datatype="BYTES"))
    assert found.background["x"].tolist() == [[b"a"], [b"b"]]
    numbers = built(tmp_path, {"background": {"x": [1, 2]}}, tensors("x", shape=(-1, 1)))
    assert numbers.background["x"].tolist() == [[1.0], [2.0]]


def test_a_file_of_numbers_is_not_one_of_text(tmp_path: Path) -> None:
    """The refusal names the file's type."""
    np.save(tmp_path / "b.npy", np.zeros(2))
    with pytest.raises(Wrong, match="is 'float64'; expected an array of text"):
        built(tmp_path, {"background": {"file": "b.npy"}}, tensors("x", shape=(-1, 1), datatype="BYTES"))


def test_a_scikit_learn_classifier_scores_by_what_it_knows(tmp_path: Path) -> None:
    """A logistic regression's score of a class is exact, with a file of its own training data as background."""
    from skl2onnx import to_onnx  # noqa: PLC0415 - takes three seconds of each process that collects the tests
    from sklearn.datasets import load_iris  # noqa: PLC0415 - as above
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - as above

    data, classes = load_iris(return_X_y=True)
    data = data.astype(np.float32)
    trained = LogisticRegression(max_iter=500).fit(data, classes)
    content = to_onnx(trained, data[:1], options={"zipmap": False}).SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    np.save(tmp_path / "iris.npy", data[::10])
    model = onnx.load(Source("m", "1", tmp_path, ModelSettings()), Settings.from_env({}))
    said = parse({"background": {"file": "iris.npy"}, "target": 2})
    assert said is not None
    model.spec = model.spec._replace(explainer=build(said, tmp_path, model.spec))
    (name,) = [tensor.name for tensor in model.spec.inputs or ()]
    explanations = explain(model, {name: Tensor(name, DATATYPES["FP32"], data[[0, 60, 120]])}, {})
    for index, found in zip((0, 60, 120), explanations, strict=True):
        expected = np.zeros(4)
        for order in permutations(range(4)):
            mixed, before = data[::10].copy(), found["base_value"]
            for feature in order:
                mixed[:, feature] = data[index, feature]
                after = trained.predict_proba(mixed)[:, 2].mean()
                expected[feature] += (after - before) / 24
                before = after
        np.testing.assert_allclose(found["importance_scores"], expected, atol=1e-6)
        assert found["target"] == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("x"), inner, max_size=3),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    json_values
    | st.fixed_dictionaries(
        {"background": json_values},
        optional=dict.fromkeys(("budget", "seed", "output", "target", "feature_names"), json_values),
    ),
    st.sampled_from(["FP32", "FP64", "INT8", "UINT64", "BOOL", "BF16", "FP16", "BYTES"]),
)
def test_any_json_is_an_explainer_or_wrong(tmp_path: Path, said: Any, datatype: str) -> None:
    """No other error is raised."""
    with contextlib.suppress(Wrong):
        parsed = parse(said)
        if parsed is not None:
            build(parsed, tmp_path, ModelSpec("m", "1", "p", tensors("x", shape=None, datatype=datatype), None))
