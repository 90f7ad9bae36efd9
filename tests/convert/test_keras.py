"""Keras models: converted with parity, and served. Keras is the oracle."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.commands.convert.saved_model.runtime import tf
from handler.commands.convert.work import LibraryJob, convert
from handler.commands.refused import Refused
from handler.stores import parity
from tests.convert.roll import SERVED
from tests.convert.serving import check_explained, check_served, inputs
from tests.support.server import Server

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


def signals() -> Any:
    steps = [layers.Conv1D(4, 3, activation="relu"), layers.GlobalMaxPooling1D(), layers.Dense(1)]
    return keras.Sequential([keras.Input((12, 2)), *steps])


def residual() -> Any:
    given = keras.Input((6,), name="x")
    hidden = layers.BatchNormalization()(layers.Dense(6, "swish")(given))
    return keras.Model(given, layers.Dense(3, "softmax", name="scores")(layers.LayerNormalization()(given + hidden)))


def scaled() -> Any:
    """A layer has learned its numbers before the training, and others have operations that tf2onnx does not know."""
    norm = layers.Normalization()
    norm.adapt(np.random.default_rng(1).normal(3, 2, (50, 4)))
    inner = keras.Sequential([keras.Input((4,)), norm, layers.Dense(8, "gelu")], name="inner")
    given = keras.Input((4,))
    small = keras.ops.expm1(keras.ops.log1p(keras.ops.abs(inner(given))))
    return keras.Model(given, layers.Dense(2, name="scores")(small))


MODELS = {each.__name__: each for each in (dense, pictures, two_inputs, words, signals, residual, scaled)}


def rows(each: Any, random: np.random.Generator) -> Any:
    shape = (60, *each.shape[1:])
    return (random.integers(0, 9, shape) if "int" in each.dtype else random.normal(size=shape)).astype(each.dtype)


def one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def trained(name: str) -> tuple[Any, list[Any]]:
    """Returns a model that has seen a few batches, and 60 rows of its inputs."""
    keras.utils.set_random_seed(0)
    model, random = MODELS[name](), np.random.default_rng(0)
    arrays = [rows(each, random) for each in model.inputs]
    targets = [random.uniform(size=(60, *each.shape[1:])) for each in model.outputs]
    model.compile("adam", one(["mse"] * len(targets)))
    model.train_on_batch(one(arrays), one(targets))
    return model, arrays


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", SERVED["Keras"])
def test_a_keras_model_is_converted_with_parity_and_served_over_every_protocol(
    name: str, repository: Path, server: Server, run: Any, tmp_path: Path
) -> None:
    """Inputs and outputs keep their order, and the answers are Keras'."""
    model, arrays = trained(name)
    model.save(tmp_path / "m.keras")
    given = ["wide", "age"] if name == "two_inputs" else ["rows"]
    np.savez(tmp_path / "data.npz", **dict(zip(given, arrays, strict=True)))
    code, out, err = run("convert", tmp_path / "m.keras", repository / name, "--quiet", "--data", tmp_path / "data.npz")
    assert (err, code) == ("", 0)
    report = json.loads((repository / name / "1" / parity.FILE).read_bytes())
    assert parity.sentence(report) in out
    assert report["library"].startswith("keras 3")
    assert report["data"]["rows"] == 60
    assert [each["different"] for each in report["outputs"]] == [0] * len(model.outputs)
    names = inputs(name, server)
    if name == "two_inputs":
        assert names == given
        assert [each["name"] for each in report["outputs"]] == ["second", "first"]
    few = [array[1:6] for array in arrays]
    np.savez(tmp_path / "asked.npz", **dict(zip(names, few, strict=True)))
    theirs = keras.tree.flatten(model(one(few), training=False))
    answers = {each["name"]: np.asarray(their) for each, their in zip(report["outputs"], theirs, strict=True)}
    check_served(name, server, run, tmp_path / "asked.npz", answers)
    row = {each: array[0].tolist() for each, array in zip(names, few, strict=True)}
    check_explained(name, server, row if len(row) > 1 else row[names[0]])


def job(source: Path, folder: Path) -> LibraryJob:
    folder.mkdir()
    said: dict[str, Any] = {"data": None, "tolerance": None, "flips": 0.0, "seed": 1}
    return LibraryJob(str(source), "keras", str(folder), allow_pickle=False, trusted=(), **said)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path, suffix: str) -> None:
    """A Lambda layer is Python code in the file, which Keras loads only where it is trusted."""
    file = tmp_path / f"m.{suffix}"
    keras.Sequential([keras.Input((4,)), layers.Lambda(lambda x: x * 2)]).save(file)
    with pytest.raises(Refused, match=rf"m.{suffix} cannot be read as a model of Keras: ValueError: .*[Ll]ambda"):
        convert(job(file, tmp_path / "v"), lambda _: None)


@pytest.mark.usefixtures("here")
def test_an_older_file_is_recognised_and_converted(repository: Path, run: Any, tmp_path: Path) -> None:
    dense().save(tmp_path / "m.h5")
    code, out, err = run("convert", tmp_path / "m.h5", repository / "older", "--quiet")
    assert (err, code) == ("", 0)
    assert "m.h5 (keras 3" in out


def test_an_operator_that_onnx_does_not_have_is_refused(tmp_path: Path) -> None:
    """tf2onnx writes Bucketize as TensorFlow has it, and ONNX Runtime refuses the graph."""
    keras.Sequential([keras.Input((4,)), layers.Discretization([0.0, 1.0])]).save(tmp_path / "m.keras")
    with pytest.raises(Refused, match=r"ONNX Runtime does not load the converted model: InvalidGraph: .*Bucketize"):
        convert(job(tmp_path / "m.keras", tmp_path / "v"), lambda _: None)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """It is a zip, as a model is."""
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as made:
        made.writestr("a", "b")
    with pytest.raises(Refused, match="m.keras cannot be read as a model of Keras"):
        convert(job(tmp_path / "m.keras", tmp_path / "v"), lambda _: None)
