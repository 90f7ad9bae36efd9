"""ONNX Runtime answers to plain features what TensorFlow answers to tf.train.Examples, for classify and regress."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.commands.convert.saved_model.runtime import tf
from handler.commands.refused import Refused
from tests.convert import saved_models
from tests.convert.oracle import Served, examples, same, served, tensorflow
from tests.convert.saved_models import CLASSIFY, FLOAT, REGRESS, signature, v1

ROWS = [{"x": [1.0]}, {"x": [-2.5], "x2": [4.0]}, {"x": [80.0], "other": [b"ignored"]}]


@pytest.fixture(scope="module")
def half_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TensorFlow Serving's own example, saved by TensorFlow 1's builder."""
    return saved_models.build(tmp_path_factory.mktemp("half") / "1", saved_models.half_plus_two)


@pytest.fixture(scope="module")
def half(half_folder: Path) -> Served:
    return served(half_folder)


@pytest.fixture(scope="module")
def linear_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_models.linear(tmp_path_factory.mktemp("linear") / "1")


@pytest.fixture(scope="module")
def linear(linear_folder: Path) -> Served:
    return served(linear_folder)


@pytest.mark.parametrize("name", ["regress_x_to_y", "regress_x_to_y2", "regress_default", "classify_x_to_y"])
def test_half_plus_two_answers_examples_as_tensorflow_does(half: Served, half_folder: Path, name: str) -> None:
    """Default values are included."""
    assert same(half.from_examples(name, ROWS), tensorflow(half_folder, name, {"inputs": examples(ROWS)}))


def test_half_plus_two_predicts_as_tensorflow_does(half: Served, half_folder: Path) -> None:
    """The answers are the documented numbers."""
    x = np.array([[1.0], [2.0], [5.0]], np.float32)
    assert same(half.predict("serving_default", {"x": x}), tensorflow(half_folder, "serving_default", {"x": x}))
    assert half.predict("serving_default", {"x": x})["y"].ravel().tolist() == [2.5, 3.0, 4.5]


@pytest.mark.parametrize("shape", [(), (3,), (3, 1), (2, 3, 1), (0,)])
def test_elementwise_models_take_any_rank(half: Served, half_folder: Path, shape: tuple[int, ...]) -> None:
    """TensorFlow does not enforce declared shapes: only operations object."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert same(half.predict("serving_default", {"x": x}), tensorflow(half_folder, "serving_default", {"x": x}))


def test_a_feature_and_what_predict_feeds_are_one_input(half: Served) -> None:
    """They are joined through Identity. Names are the aliases, or the publisher's own if the alias is prescribed."""
    signatures = half.settings["signatures"]
    assert signatures["serving_default"] == {"method": "predict", "inputs": {"x": "x"}, "outputs": {"y": "y"}}
    assert signatures["regress_x_to_y"] == {
        "method": "regress",
        "inputs": {"x": {"tensor": "x", "shape": [1]}},
        "outputs": {"outputs": "y"},
    }
    assert signatures["regress_default"]["inputs"] == {"x2": {"tensor": "x2", "shape": [1], "default": [7.0]}}
    assert signatures["regress_default"]["outputs"] == {"outputs": "y3"}


def test_a_method_without_examples_is_what_the_file_names(half: Served, half_folder: Path) -> None:
    """regress_x2_to_y3 takes floats under the alias of examples."""
    x2 = np.array([[4.0]], np.float32)
    assert half.settings["signatures"]["regress_x2_to_y3"]["method"] == "regress"
    theirs = tensorflow(half_folder, "regress_x2_to_y3", {"inputs": x2})
    assert same(half.predict("regress_x2_to_y3", {"inputs": x2}), theirs)


def test_inputs_that_some_signature_does_without_are_optional(half: Served) -> None:
    """ONNX asks for every input of the graph that has no value of its own."""
    assert half.required == []
    assert sorted(half.optional) == ["x", "x2"]


def test_a_vocabulary_becomes_class_labels(tmp_path: Path) -> None:
    """It is read from assets/ through a hash table and tiled to the batch's size; the graph has no operation of it."""
    words = tmp_path / "words.txt"
    words.write_text("ant\nbee\ncøt\n", encoding="utf-8")
    folder = saved_models.build(tmp_path / "1", saved_models.vocabulary(words))
    model = served(folder)
    rows = [{"age": [3], "size": [0.5, 0.25]}, {"age": [-1]}]
    parsed = [row | {"unread": [0.0, 0.0, 0.0]} for row in rows]
    theirs = tensorflow(folder, "serving_default", {"inputs": examples(parsed)})
    said = model.settings["signatures"]["serving_default"]
    assert [[label.decode() for label in row] for row in theirs.pop("classes")] == [said["class_labels"]] * 2
    assert same(model.from_examples("serving_default", rows), theirs)
    assert said["inputs"] == {
        "age": {"tensor": "age", "shape": []},
        "size": {"tensor": "size", "shape": [2], "default": [1.0, 2.0]},
    }
    assert model.required == ["age", "size"]


@pytest.mark.parametrize("name", ["serving_default", "both"])
def test_tensorflow_2_predicts(linear: Served, linear_folder: Path, name: str) -> None:
    """Each tf.function becomes one signature."""
    x = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.25]], np.float32)
    assert same(linear.predict(name, {"x": x}), tensorflow(linear_folder, name, {"x": x}))
    function = tf.saved_model.load(str(linear_folder)).signatures[name]
    assert same(linear.predict(name, {"x": x}), {alias: t.numpy() for alias, t in function(x=tf.constant(x)).items()})


def test_tensorflow_2_regresses(linear: Served, linear_folder: Path) -> None:
    """ParseExampleV2 is called inside a function; the aliases reveal the method."""
    rows = [{"x": [1.0, 2.0, 3.0]}, {"x": [0.0, -1.0, 0.5]}]
    assert linear.settings["signatures"]["regress"]["method"] == "regress"
    assert same(linear.from_examples("regress", rows), tensorflow(linear_folder, "regress", {"inputs": examples(rows)}))


def test_tensorflow_2_classifies(linear: Served, linear_folder: Path) -> None:
    """The model has a default, and classes that are a constant."""
    rows: list[dict[str, Any]] = [{"x": [1.0, 2.0, 3.0]}, {}]
    theirs = tensorflow(linear_folder, "classify", {"inputs": examples(rows)})
    assert theirs.pop("classes").tolist() == [[b"no", b"yes"]] * 2
    assert linear.settings["signatures"]["classify"]["class_labels"] == ["no", "yes"]
    assert same(linear.from_examples("classify", rows), theirs)


def test_placeholders_of_one_name_type_and_shape_are_one_input(linear: Served) -> None:
    """TensorFlow 2 makes one placeholder per signature; features count, too."""
    assert linear.required == ["x"]
    assert linear.optional == []


def parsed(name: str, feature: Any) -> tuple[Any, Any]:
    """Returns the examples, and a feature parsed out of them."""
    serialized = v1.placeholder(tf.string, [None], name="examples")
    return serialized, v1.io.parse_example(serialized, {name: feature})[name]


def test_classes_that_depend_on_the_scores_stay_an_output(tmp_path: Path) -> None:
    """The answer has the best two of three, best first: no list of labels could express that."""

    def make() -> dict[str, Any]:
        serialized, x = parsed("x", tf.io.FixedLenFeature([3], FLOAT))
        scores, places = tf.math.top_k(x, 2)
        classes = tf.gather(tf.constant(["a", "b", "c"]), places)
        return {"serving_default": signature({"inputs": serialized}, {"classes": classes, "scores": scores}, CLASSIFY)}

    folder = saved_models.build(tmp_path / "1", make)
    rows = [{"x": [0.1, 0.7, 0.2]}, {"x": [0.5, 0.1, 0.4]}]
    theirs = tensorflow(folder, "serving_default", {"inputs": examples(rows)})
    model = served(folder)
    assert "class_labels" not in model.settings["signatures"]["serving_default"]
    assert same(model.from_examples("serving_default", rows), theirs)


def test_text_features_are_bytes(tmp_path: Path) -> None:
    """Their defaults are text if they can be, else base64."""

    def make() -> dict[str, Any]:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        spec = {
            "word": tf.io.FixedLenFeature([], tf.string, default_value="ünknown"),
            "raw": tf.io.FixedLenFeature([1], tf.string, default_value=[b"\xff"]),
        }
        features = v1.io.parse_example(serialized, spec)
        words = tf.lookup.KeyValueTensorInitializer(["long", "ünknown"], tf.constant([1, 2], tf.int64))
        table = tf.lookup.StaticHashTable(words, 5)
        numbers = table.lookup(features["word"]) + 10 * table.lookup(features["raw"][:, 0])
        outputs = tf.cast(numbers, FLOAT)
        return {"serving_default": signature({"inputs": serialized}, {"outputs": outputs}, REGRESS)}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    assert model.settings["signatures"]["serving_default"]["inputs"] == {
        "raw": {"tensor": "raw", "shape": [1], "default": [{"b64": "/w=="}]},
        "word": {"tensor": "word", "shape": [], "default": ["ünknown"]},
    }
    rows = [{"word": [b"long"], "raw": [b"x"]}, {"word": [b"long"], "raw": [b"long"]}, {"raw": [b"\xc3\xbcnknown"]}]
    theirs = tensorflow(folder, "serving_default", {"inputs": examples(rows)})
    assert same(model.from_examples("serving_default", rows), theirs)


@pytest.mark.parametrize(("feature", "read", "reason"), [
    (tf.io.VarLenFeature(FLOAT), tf.sparse.to_dense, "features x are sparse or ragged"),
    (tf.io.RaggedFeature(FLOAT), lambda x: x.to_tensor(), "features x are sparse or ragged"),
    (tf.io.FixedLenSequenceFeature([], FLOAT, allow_missing=True), lambda x: x,
     "feature 'x' has a size that varies with each example"),
], ids=["sparse", "ragged", "sequence"])  # fmt: skip
def test_features_of_no_fixed_shape_are_refused_by_name(tmp_path: Path, feature: Any, read: Any, reason: str) -> None:
    """The other signature can be published without it."""

    def make() -> dict[str, Any]:
        serialized, x = parsed("x", feature)
        plain = v1.placeholder(FLOAT, [None], name="plain")
        outputs = tf.reduce_sum(read(x), 1)
        return {
            "serving_default": signature({"plain": plain}, {"y": plain + 1}),
            "sums": signature({"inputs": serialized}, {"outputs": outputs}, REGRESS),
        }

    folder = saved_models.build(tmp_path / "1", make)
    with pytest.raises(Refused, match=f"signature 'sums': {reason}.*--signature"):
        served(folder)
    assert list(served(folder, "serving_default").settings["signatures"]) == ["serving_default"]


def test_examples_that_are_read_otherwise_are_refused(tmp_path: Path) -> None:
    """The example is a regress signature whose graph counts the characters of the request."""

    def make() -> dict[str, Any]:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        outputs = tf.cast(tf.strings.length(serialized), FLOAT)
        return {"serving_default": signature({"inputs": serialized}, {"outputs": outputs}, REGRESS)}

    with pytest.raises(Refused, match="'serving_default': its examples are read by StringLength; expected Parse"):
        served(saved_models.build(tmp_path / "1", make))


@pytest.mark.parametrize("shared", [True, False])
def test_predicting_from_serialized_examples_is_refused(tmp_path: Path, *, shared: bool) -> None:
    """tf.estimator exports it beside the classify signature: the graph would need the parser."""

    def make() -> dict[str, Any]:
        serialized, x = parsed("x", tf.io.FixedLenFeature([1], FLOAT))
        signatures = {"predict": signature({"examples": serialized}, {"y": x * 2})}
        if shared:
            signatures["serving_default"] = signature({"inputs": serialized}, {"scores": x}, CLASSIFY)
        return signatures

    with pytest.raises(Refused, match="signature 'predict': it takes serialized examples"):
        served(saved_models.build(tmp_path / "1", make))


def test_the_first_parser_of_examples_is_known_too(tmp_path: Path) -> None:
    """ParseExample has its keys one by one; sparse features that no output needs do not matter."""

    def make() -> dict[str, Any]:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        parsed = tf.raw_ops.ParseExample(
            serialized=serialized, names=tf.constant([], tf.string), sparse_keys=["unread"], dense_keys=["a", "b"],
            dense_defaults=[tf.constant([], tf.int64), tf.constant([0.5, 1.5], FLOAT)], sparse_types=[tf.string],
            dense_shapes=[[1], [2]],
        )  # fmt: skip
        a, b = parsed.dense_values
        outputs = tf.reduce_sum(b, 1) * tf.cast(a[:, 0], FLOAT)
        return {"serving_default": signature({"inputs": serialized}, {"outputs": outputs}, REGRESS)}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    assert model.settings["signatures"]["serving_default"]["inputs"] == {
        "a": {"tensor": "a", "shape": [1]},
        "b": {"tensor": "b", "shape": [2], "default": [0.5, 1.5]},
    }
    rows: list[dict[str, Any]] = [{"a": [2]}, {"a": [-1], "b": [4.0, 0.25], "unread": [b"x", b"y"]}]
    theirs = tensorflow(folder, "serving_default", {"inputs": examples(rows)})
    assert same(model.from_examples("serving_default", rows), theirs)


def test_a_default_that_is_computed_is_refused(tmp_path: Path) -> None:
    """Settings can hold only a constant."""

    def make() -> dict[str, Any]:
        default = v1.placeholder_with_default([1.0], [1], name="default")
        serialized, x = parsed("x", tf.io.FixedLenFeature([1], FLOAT, default_value=tf.random.uniform([1]) + default))
        return {"serving_default": signature({"inputs": serialized}, {"outputs": x}, REGRESS)}

    with pytest.raises(Refused, match="a parameter of ParseExample, is computed by Add.*; expected a constant"):
        served(saved_models.build(tmp_path / "1", make))


@pytest.mark.parametrize(
    ("words", "labelled"), [([["no", "yes"]], True), (["no", "yes"], False), ([[0, 1]], False)], ids=repr
)
def test_classifying_without_examples_has_labels_too(tmp_path: Path, words: Any, *, labelled: bool) -> None:
    """The file names the method. If TensorFlow Serving refuses the form of the classes, they give no labels."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None, 2], name="x")
        classes = tf.constant(words) + tf.zeros_like(words, tf.int32) if words == [[0, 1]] else tf.constant(words)
        if labelled:
            classes = tf.tile(classes, [tf.shape(x)[0], 1])
        return {"serving_default": signature({"x": x}, {"classes": classes, "scores": tf.nn.softmax(x)}, CLASSIFY)}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    said = model.settings["signatures"]["serving_default"]
    assert said["inputs"] == {"x": {"tensor": "x", "shape": [2]}}
    assert said.get("class_labels") == (["no", "yes"] if labelled else None)
    x = np.array([[0.5, 2.0]], np.float32)
    theirs = tensorflow(folder, "serving_default", {"x": x})
    if labelled:
        del theirs["classes"]
    assert same(model.predict("serving_default", {"x": x}), theirs)


def test_types_are_those_of_the_tensors_whatever_the_signature_says(tmp_path: Path) -> None:
    """TensorFlow Serving's half_plus_three calls its examples DT_FLOAT."""

    def make() -> dict[str, Any]:
        serialized, x = parsed("x", tf.io.FixedLenFeature([1], FLOAT))
        y = tf.add(x, 3.0, name="y")
        said = signature({"inputs": serialized}, {"outputs": tf.identity(y)}, REGRESS)
        said.inputs["inputs"].dtype = FLOAT.as_datatype_enum
        return {"regress": said, "serving_default": signature({"x": x}, {"y": y})}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    assert model.settings["signatures"]["regress"] == {
        "method": "regress",
        "inputs": {"x": {"tensor": "x", "shape": [1]}},
        "outputs": {"outputs": "outputs"},
    }
    rows = [{"x": [1.0]}, {"x": [-2.5]}]
    assert same(model.from_examples("regress", rows), tensorflow(folder, "regress", {"inputs": examples(rows)}))
    assert model.required == ["x"]
