"""Keras models: converted with parity. Keras is the oracle."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from handler.commands.convert.saved_model.runtime import tf
from handler.commands.convert.work import LibraryJob, convert
from handler.commands.refused import Refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras, which numpy 2.1 surprises
keras = tf.keras
layers = keras.layers


def dense() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(3, "softmax")])


def pictures() -> Any:
    steps = [layers.Conv2D(4, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(2)]
    return keras.Sequential([keras.Input((8, 8, 3)), *steps])


def two_inputs() -> Any:
    """Inputs and outputs are not in the order of their names."""
    wide, age = keras.Input((3,), name="wide"), keras.Input((1,), name="age")
    joined = layers.Concatenate()([wide, age])
    return keras.Model([wide, age], [layers.Dense(2, name="second")(joined), layers.Dense(1, name="first")(joined)])


def words() -> Any:
    steps = [layers.Embedding(10, 4), layers.GRU(5), layers.Dense(1, "sigmoid")]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *steps])


def job(source: Path, folder: Path) -> LibraryJob:
    folder.mkdir()
    said: dict[str, Any] = {"data": None, "tolerance": None, "flips": 0.0, "seed": 1}
    return LibraryJob(str(source), "keras", str(folder), allow_pickle=False, trusted=(), **said)


@pytest.mark.parametrize("make", [dense, pictures, two_inputs, words])
def test_a_keras_model_answers_as_keras_does(make: Callable[[], Any], tmp_path: Path) -> None:
    """The report says so, and so does the file with its settings."""
    keras.utils.set_random_seed(0)
    model = make()
    model.save(tmp_path / "m.keras")
    report = convert(job(tmp_path / "m.keras", tmp_path / "v"), lambda _: None)
    assert report["library"].startswith("keras 3")
    assert [each["different"] for each in report["outputs"]] == [0] * len(model.outputs)
    session = onnxruntime.InferenceSession(tmp_path / "v/model.onnx")
    random = np.random.default_rng(0)
    given = [random.integers(0, 9, (5, *each.shape[1:])).astype(each.dtype) for each in model.inputs]
    feeds = dict(zip([each.name for each in session.get_inputs()], given, strict=True))
    theirs = model(given) if len(given) > 1 else [model(given[0])]
    for ours, each in zip(session.run(None, feeds), theirs, strict=True):
        np.testing.assert_allclose(ours, each, rtol=1e-4, atol=1e-5)
    if make is two_inputs:
        assert list(feeds) == ["wide", "age"]
        assert [each.name for each in session.get_outputs()] == ["second", "first"]


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    """A Lambda layer is Python code in the file, which Keras loads only where it is trusted."""
    keras.Sequential([keras.Input((4,)), layers.Lambda(lambda x: x * 2)]).save(tmp_path / "m.keras")
    with pytest.raises(Refused, match=r"m.keras cannot be read as a model of Keras: ValueError: .*[Ll]ambda"):
        convert(job(tmp_path / "m.keras", tmp_path / "v"), lambda _: None)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """It is a zip, as a model is."""
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as made:
        made.writestr("a", "b")
    with pytest.raises(Refused, match="m.keras cannot be read as a model of Keras"):
        convert(job(tmp_path / "m.keras", tmp_path / "v"), lambda _: None)
