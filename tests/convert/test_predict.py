"""For predict signatures of many kinds, ONNX Runtime answers through the settings what TensorFlow answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.commands.convert.saved_model.conversion import convert
from handler.commands.convert.saved_model.runtime import tf
from handler.commands.refused import Refused
from tests.convert import saved_models
from tests.convert.oracle import same, served, tensorflow
from tests.convert.saved_models import FLOAT, info, signature, v1

DEFAULT = "serving_default"


def save(folder: Path, function: Callable[..., Any], *specs: Any) -> Path:
    """Writes a TensorFlow 2 SavedModel with one signature."""
    module = tf.Module()
    module.call = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(folder), {DEFAULT: module.call})
    return folder


def spec(shape: Any, dtype: Any = FLOAT, name: str = "x") -> Any:
    return tf.TensorSpec(shape, dtype, name=name)


def check(folder: Path, **inputs: Any) -> None:
    assert same(served(folder).predict(DEFAULT, inputs), tensorflow(folder, DEFAULT, inputs))


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float64"]
)
def test_every_datatype_passes(tmp_path: Path, dtype: str) -> None:
    """Values come back unchanged."""
    folder = save(tmp_path / "1", lambda x: {"y": tf.reverse(x, [0])}, spec([None], getattr(tf, dtype)))
    check(folder, x=np.array([0, 1, 1], dtype))


def test_text_passes(tmp_path: Path) -> None:
    """DT_STRING is BYTES."""
    folder = save(tmp_path / "1", lambda x: {"y": tf.reshape(x, [-1, 1])}, spec([None], tf.string))
    check(folder, x=np.array(["ant", "bée"], object))


def test_text_under_the_aliases_of_regress_is_predicted_from(tmp_path: Path) -> None:
    """TensorFlow 2 does not name methods: a signature predicts if its graph does not parse examples."""
    folder = save(tmp_path / "1", lambda inputs: {"outputs": inputs[:1]}, spec([None], tf.string, "inputs"))
    assert served(folder).settings["signatures"][DEFAULT] == {
        "method": "predict",
        "inputs": {"inputs": "inputs"},
        "outputs": {"outputs": "outputs"},
    }
    check(folder, inputs=np.array(["yes", "no"], object))


def test_a_convolutional_network_in_tensorflows_layout(tmp_path: Path) -> None:
    """A Keras model takes NHWC, as its clients send it."""
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((8, 8, 3), name="image"), layers.Conv2D(4, 3, activation="relu", padding="same"),
         layers.BatchNormalization(), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5),
         layers.Dense(5, activation="softmax")],
    )  # fmt: skip
    model.export(str(tmp_path / "1"), verbose=False)
    (alias,) = served(tmp_path / "1").settings["signatures"][DEFAULT]["inputs"]
    rng = np.random.default_rng(3)
    check(tmp_path / "1", **{alias: rng.random((2, 8, 8, 3), np.float32)})


def test_loops_and_conditions(tmp_path: Path) -> None:
    """They become ONNX's Loop and If."""

    def collatz(x: Any) -> dict[str, Any]:
        def step(n: Any, steps: Any) -> tuple[Any, Any]:
            return tf.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), steps + 1

        return {"steps": tf.while_loop(lambda n, _: n > 1, step, (x[0], tf.constant(0, tf.int64)))[1][None]}

    check(save(tmp_path / "1", collatz, spec([1], tf.int64)), x=np.array([27]))


def test_whole_numbers_are_divided_downwards(tmp_path: Path) -> None:
    """ONNX's Div rounds towards zero instead. The rule holds in loops, too."""

    def divide(x: Any, y: Any) -> dict[str, Any]:
        def step(n: Any, i: Any) -> tuple[Any, Any]:
            return n // 2, i + 1

        halved = tf.while_loop(lambda _, i: i < 2, step, (x, tf.constant(0)))[0]
        return {"quotient": x // y, "rest": x % y, "halved": halved}

    folder = save(tmp_path / "1", divide, spec([None], tf.int32), spec([None], tf.int32, "y"))
    check(folder, x=np.array([7, -7, 7, -7, 6], np.int32), y=np.array([2, 2, -2, -2, -3], np.int32))


def test_a_table_of_words(tmp_path: Path) -> None:
    """A Module holds it, and its content is in the SavedModel's assets."""
    module = tf.Module()
    words = tf.lookup.KeyValueTensorInitializer(["ant", "bee"], tf.constant([10, 20], tf.int64))
    module.table = tf.lookup.StaticHashTable(words, -1)
    module.call = tf.function(lambda x: {"y": module.table.lookup(x)}, input_signature=[spec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "1"), {DEFAULT: module.call})
    check(tmp_path / "1", x=np.array(["bee", "wasp", "ant"], object))


def test_scalars_and_unknown_ranks_stand_in_the_settings(tmp_path: Path) -> None:
    """ONNX Runtime reports both as []."""

    def scale(x: Any, by: Any) -> dict[str, Any]:
        return {"y": tf.reshape(x, [-1]) * by, "sum": tf.reduce_sum(tf.reshape(x, [-1]), 0)}

    folder = save(tmp_path / "1", scale, spec(None), spec([], FLOAT, "by"))
    model = served(folder)
    assert {"name": "x", "datatype": "FP32", "shape": None} in model.settings["inputs"]
    assert {"name": "sum", "datatype": "FP32", "shape": []} in model.settings["outputs"]
    check(folder, x=np.array([3.0, 1.0], np.float32), by=np.float32(2))


def test_a_scalar_that_operations_need_keeps_its_shape(tmp_path: Path) -> None:
    """A scalar that only elementwise operations read does not keep it."""
    folder = save(tmp_path / "1", lambda n: {"y": tf.range(n)}, spec([], tf.int32, "n"))
    assert served(folder).settings["inputs"] == [{"name": "n", "datatype": "INT32", "shape": []}]
    check(folder, n=np.int32(3))


def test_an_input_that_nothing_reads_stays(tmp_path: Path) -> None:
    """Clients send it."""
    folder = save(tmp_path / "1", lambda x, unread: {"y": x + 1}, spec([None]), spec([None, 2], tf.int64, "unread"))
    assert set(served(folder).required) == {"x", "unread"}
    check(folder, x=np.ones(2, np.float32), unread=np.ones((2, 2), np.int64))


def test_an_input_may_be_an_output_under_the_same_name(tmp_path: Path) -> None:
    """ONNX tells tensors apart by name alone."""
    folder = save(tmp_path / "1", lambda x: {"x": x, "y": x * 2}, spec([None]))
    assert served(folder).settings["signatures"][DEFAULT]["outputs"] == {"x": "serving_default_x", "y": "y"}
    check(folder, x=np.ones(2, np.float32))


def test_one_tensor_may_have_two_aliases(tmp_path: Path) -> None:
    """Each is an output of its own; two signatures share one."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None], name="x")
        y = tf.square(x)
        return {DEFAULT: signature({"x": x}, {"a": y, "b": y}), "other": signature({"z": x}, {"c": y})}

    folder = saved_models.build(tmp_path / "1", make)
    signatures = served(folder).settings["signatures"]
    assert signatures[DEFAULT]["outputs"] == {"a": "a", "b": "b"}
    assert signatures["other"] == {"method": "predict", "inputs": {"z": "x"}, "outputs": {"c": "a"}}
    check(folder, x=np.array([3.0], np.float32))


def test_a_placeholder_that_nobody_feeds_has_its_default(tmp_path: Path) -> None:
    """A dropout's rate is an example."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None, 2], name="x")
        rate = v1.placeholder_with_default(tf.constant(3.0), [], name="rate")
        return {DEFAULT: signature({"x": x}, {"y": tf.matmul(x, tf.ones((2, 1))) * rate})}

    check(saved_models.build(tmp_path / "1", make), x=np.ones((1, 2), np.float32))


def test_defaults_of_a_signature_are_the_bindings(tmp_path: Path) -> None:
    """They come from SignatureDef.defaults."""

    def make() -> dict[str, Any]:
        x, by = v1.placeholder(FLOAT, [None], name="x"), v1.placeholder(FLOAT, [1], name="by")
        said = signature({"x": x, "by": by}, {"y": x * by})
        said.defaults["by"].CopyFrom(tf.make_tensor_proto([2.5], FLOAT))
        return {DEFAULT: said}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    assert model.settings["signatures"][DEFAULT]["inputs"] == {"by": {"tensor": "by", "default": [2.5]}, "x": "x"}
    assert model.predict(DEFAULT, {"x": np.array([2.0], np.float32)})["y"].tolist() == [5.0]


def test_a_constant_shape_is_kept_where_operations_need_it(tmp_path: Path) -> None:
    """A matrix product takes matrices."""
    folder = save(tmp_path / "1", lambda x: {"y": tf.matmul(x, tf.ones((2, 1)))}, spec([None, 2]))
    model = served(folder)
    assert [info.shape[1:] for info in model.session.get_inputs()] == [[2]]
    assert "inputs" not in model.settings


@pytest.mark.parametrize("used", [("serving_default",), ("again",), ()])
def test_chosen_signatures_alone_are_published(tmp_path: Path, used: tuple[str, ...]) -> None:
    """All are published if none is chosen. The graph leaves out what only the others need."""

    def make() -> dict[str, Any]:
        x, z = v1.placeholder(FLOAT, [None], name="x"), v1.placeholder(FLOAT, [None], name="z")
        return {DEFAULT: signature({"x": x}, {"y": x + 1}), "again": signature({"z": z}, {"y": z + 2})}

    model = served(saved_models.build(tmp_path / "1", make), *used)
    assert set(model.settings["signatures"]) == set(used or (DEFAULT, "again"))
    assert sorted(model.required) == {(DEFAULT,): ["x"], ("again",): ["z"], (): []}[used]
    assert sorted(model.optional) == ([] if used else ["x", "z"])
    for name, (alias, answer) in {DEFAULT: ("x", 1.0), "again": ("z", 2.0)}.items():
        if name in model.settings["signatures"]:
            assert model.predict(name, {alias: np.zeros(1, np.float32)})["y"].tolist() == [answer]


def computes() -> dict[str, Any]:
    x = v1.placeholder(FLOAT, [None], name="x")
    middle = tf.multiply(x, 2.0, name="middle")
    y = middle + 1
    return {DEFAULT: signature({"x": x}, {"y": y}), "middle": signature({"middle": middle}, {"y": y})}


def unfed() -> dict[str, Any]:
    x, phase = v1.placeholder(FLOAT, [None], name="x"), v1.placeholder(FLOAT, [], name="phase")
    return {DEFAULT: signature({"x": x}, {"y": x + phase})}


def unsupported() -> dict[str, Any]:
    x = v1.placeholder(tf.string, [None], name="x")
    hashed = tf.strings.to_hash_bucket_fast(x, 10)
    return {DEFAULT: signature({"x": x}, {"y": hashed, "z": tf.strings.join([x, x])})}


def text() -> dict[str, Any]:
    x = v1.placeholder(tf.string, [None], name="x")
    return {DEFAULT: signature({"x": x}, {"y": tf.equal(x, "text")})}


def printed() -> dict[str, Any]:
    x = v1.placeholder(FLOAT, [None], name="x")
    return {DEFAULT: signature({"x": x}, {"y": tf.strings.as_string(x)})}


def no_kernel() -> dict[str, Any]:
    x = v1.placeholder(tf.bfloat16, [None], name="x")
    return {DEFAULT: signature({"x": x}, {"y": tf.reverse(x, [0])})}


def no_type() -> dict[str, Any]:
    x = v1.placeholder(tf.complex64, [None], name="x")
    return {DEFAULT: signature({"x": x}, {"y": tf.math.real(x)})}


def no_inputs() -> dict[str, Any]:
    return {DEFAULT: signature({}, {"y": tf.constant(1.0)})}


def twice() -> dict[str, Any]:
    x = v1.placeholder(FLOAT, [None], name="x")
    return {DEFAULT: signature({"a": x, "b": x}, {"y": x + 1})}


def composite() -> dict[str, Any]:
    x = v1.sparse_placeholder(FLOAT, [None, 3], name="x")
    outputs = {"y": info(tf.sparse.to_dense(x))}
    return {DEFAULT: v1.saved_model.build_signature_def({"x": v1.saved_model.build_tensor_info(x)}, outputs)}


@pytest.mark.parametrize(("make", "reason"), [
    (computes, "'serving_default' computes 'middle:0', which another signature feeds"),
    (unfed, "'serving_default' needs the placeholder 'phase'"),
    (unsupported, "ONNX lacks these operations: StringJoin, StringToHashBucketFast"),
    (text, "tf2onnx does not convert Equal faithfully"),
    (printed, "tf2onnx does not convert AsString faithfully"),
    (no_kernel, "ONNX Runtime cannot load the ONNX model: .*bfloat16"),
    (no_type, "input 'x' is DT_COMPLEX64, which no protocol carries"),
    (no_inputs, "signature 'serving_default': it has no inputs"),
    (twice, "signature 'serving_default': two of its inputs are one tensor"),
    (composite, "input 'x' is a sparse or composite tensor"),
    (dict, "the SavedModel has no signature"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(tmp_path: Path, make: Any, reason: str) -> None:
    """The refusal has one line."""
    with pytest.raises(Refused, match=reason) as refusal:
        convert(saved_models.build(tmp_path / "1", make))
    assert "\n" not in str(refusal.value)


def test_a_signature_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The refusal lists the signatures that are there."""
    folder = saved_models.build(tmp_path / "1", unfed)
    with pytest.raises(Refused, match="there is no signature 'x'; the SavedModel has serving_default"):
        convert(folder, ["x"])


def test_a_file_that_is_no_saved_model_is_refused(tmp_path: Path) -> None:
    """The refusal does not contain TensorFlow's traceback."""
    (tmp_path / "saved_model.pb").write_bytes(b"nonsense")
    with pytest.raises(Refused, match="cannot be loaded"):
        convert(tmp_path)


def test_numbers_with_fractions_are_divided_downwards(tmp_path: Path) -> None:
    """The operations are TensorFlow's // and % of floats."""
    folder = save(tmp_path / "1", lambda x: {"quotient": x // 2.0, "rest": x % 2.0}, spec([None]))
    check(folder, x=np.array([7.5, -7.5, 4.0], np.float32))


def test_operations_that_tf2onnx_lacks_are_made_of_others(tmp_path: Path) -> None:
    """GELU has the complement of the error function."""
    functions = {"gelu": tf.nn.gelu, "erfc": tf.math.erfc, "log1p": tf.math.log1p, "expm1": tf.math.expm1}

    def called(x: Any) -> dict[str, Any]:
        return {name: function(x) for name, function in functions.items()}

    check(save(tmp_path / "1", called, spec([None, 3])), x=np.linspace(-0.9, 6, 12, dtype=np.float32).reshape(4, 3))


def test_text_may_be_an_input_that_another_signature_does_without(tmp_path: Path) -> None:
    """Its default is text as well."""

    def make() -> dict[str, Any]:
        x, z = v1.placeholder(FLOAT, [None], name="x"), v1.placeholder(tf.string, [None, 2], name="z")
        return {DEFAULT: signature({"x": x}, {"y": x + 1}), "texts": signature({"z": z}, {"y": z[:, :1]})}

    folder = saved_models.build(tmp_path / "1", make)
    model = served(folder)
    check(folder, x=np.zeros(2, np.float32))
    texts = {"z": np.array([["a", "b"]], object)}
    assert same(model.predict("texts", texts), tensorflow(folder, "texts", texts))


def test_what_tf2onnx_fails_at_is_named(tmp_path: Path) -> None:
    """The refusal names the operation and the reason."""

    def make() -> dict[str, Any]:
        x, axis = v1.placeholder(FLOAT, [None, 2], name="x"), v1.placeholder(tf.int32, [], name="axis")
        return {DEFAULT: signature({"x": x, "axis": axis}, {"y": tf.argmax(x, axis)})}

    with pytest.raises(Refused, match=r"tf2onnx cannot convert ArgMax: \w+"):
        convert(saved_models.build(tmp_path / "1", make))
