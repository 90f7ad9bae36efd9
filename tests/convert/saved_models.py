"""SavedModels made on the spot: TensorFlow 1's builder, with the structure of half_plus_two, and TensorFlow 2's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from handler.commands.convert.saved_model.runtime import tf

v1 = tf.compat.v1
info = v1.saved_model.build_tensor_info
CLASSIFY, REGRESS, PREDICT = (f"tensorflow/serving/{method}" for method in ("classify", "regress", "predict"))
FLOAT = tf.float32


def signature(inputs: Mapping[str, Any], outputs: Mapping[str, Any], method: str = PREDICT) -> Any:
    return v1.saved_model.build_signature_def(
        {alias: info(tensor) for alias, tensor in inputs.items()},
        {alias: info(tensor) for alias, tensor in outputs.items()},
        method,
    )


def build(folder: Path, make: Callable[[], dict[str, Any]]) -> Path:
    """Writes a TensorFlow 1 SavedModel of the graph that `make` builds and the signatures it returns."""
    with tf.Graph().as_default(), v1.Session() as session:
        signatures = make()
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(folder))
        tables = v1.tables_initializer(name="tables")
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, main_op=tables)
        builder.save()
    return folder


def half_plus_two() -> dict[str, Any]:
    """Writes TensorFlow Serving's model: y = x/2 + 2, y2 = x/2 + 3, y3 = x2/2 + 3; x2 has a default."""
    a, b, c = (v1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", 2.0), ("c", 3.0)))
    serialized = v1.placeholder(tf.string, name="tf_example")
    parsed = v1.io.parse_example(
        serialized,
        {"x": tf.io.FixedLenFeature([1], FLOAT), "x2": tf.io.FixedLenFeature([1], FLOAT, default_value=[7.0])},
    )
    x, x2 = tf.identity(parsed["x"], name="x"), tf.identity(parsed["x2"], name="x2")
    y = tf.add(tf.multiply(a, x), b, name="y")
    y2 = tf.add(tf.multiply(a, x), c, name="y2")
    y3 = tf.add(tf.multiply(a, x2), c, name="y3")
    return {
        "serving_default": signature({"x": x}, {"y": y}),
        "regress_x_to_y": signature({"inputs": serialized}, {"outputs": y}, REGRESS),
        "regress_x_to_y2": signature({"inputs": serialized}, {"outputs": y2}, REGRESS),
        "regress_x2_to_y3": signature({"inputs": x2}, {"outputs": y3}, REGRESS),
        "regress_default": signature({"inputs": serialized}, {"outputs": y3}, REGRESS),
        "classify_x_to_y": signature({"inputs": serialized}, {"scores": y}, CLASSIFY),
    }


def vocabulary(path: Path) -> Callable[[], dict[str, Any]]:
    """Writes a classifier of two features, an integer and a vector, whose classes a table reads from a file."""

    def make() -> dict[str, Any]:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        parsed = v1.io.parse_example(
            serialized,
            {
                "age": tf.io.FixedLenFeature([], tf.int64),
                "size": tf.io.FixedLenFeature([2], FLOAT, default_value=[1.0, 2.0]),
                "unread": tf.io.FixedLenFeature([3], FLOAT),
            },
        )
        features = tf.concat([tf.cast(parsed["age"], FLOAT)[:, None], parsed["size"]], 1)
        weights = v1.get_variable("w", initializer=[[1.0, -1.0, 0.5], [0.25, 0.5, -2.0], [2.0, 0.0, 1.0]])
        scores = tf.nn.softmax(features @ weights)
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(path), tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE
            ),
            "?",
        )
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, table._initializer._filename)
        names = table.lookup(tf.range(3, dtype=tf.int64))
        classes = tf.tile(names[None, :], [tf.shape(scores)[0], 1])
        return {"serving_default": signature({"inputs": serialized}, {"classes": classes, "scores": scores}, CLASSIFY)}

    return make


class Linear(tf.Module):
    """A TensorFlow 2 model with a matrix, a bias, and a method per signature; examples are parsed inside a function."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [-0.5, 0.25], [3.0, 1.0]])
        self.b = tf.Variable([0.1, -0.2])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], FLOAT, name="x")])
    def linear(self, x: Any) -> dict[str, Any]:
        return {"y": tf.matmul(x, self.w) + self.b}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], FLOAT, name="x")])
    def both(self, x: Any) -> dict[str, Any]:
        """Is another signature with the same input."""
        y = tf.matmul(x, self.w) + self.b
        return {"y": tf.nn.relu(y), "largest": tf.argmax(y, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs: Any) -> dict[str, Any]:
        """Is a regress signature by its aliases."""
        parsed = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([3], FLOAT)})
        return {"outputs": self.linear(parsed["x"])["y"][:, :1]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: Any) -> dict[str, Any]:
        """Is a classify signature whose classes are a constant."""
        parsed = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([3], FLOAT, default_value=[1, 2, 3])})
        scores = tf.nn.softmax(self.linear(parsed["x"])["y"])
        return {"scores": scores, "classes": tf.tile(tf.constant([["no", "yes"]]), [tf.shape(scores)[0], 1])}


def linear(folder: Path) -> Path:
    module = Linear()
    signatures = {
        "serving_default": module.linear, "both": module.both, "regress": module.regress, "classify": module.classify,
    }  # fmt: skip
    tf.saved_model.save(module, str(folder), signatures)
    return folder
