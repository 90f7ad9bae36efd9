"""The parity report of SavedModels: each signature's answers by TensorFlow and by ONNX Runtime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.commands.convert.saved_model import conversion
from handler.commands.convert.saved_model.runtime import onnx, tf
from handler.commands.convert.saved_model.work import SavedModelJob, convert
from handler.commands.refused import Refused
from handler.stores import parity
from tests.convert import saved_models

FLOAT, INT, TEXT = tf.float32, tf.int64, tf.string


def report(source: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    asked = SavedModelJob(str(source), str(folder), (), None, None, 0.0, 1)._replace(**changes)
    made = convert(asked, lambda _: None)
    assert parity.from_json((folder / "model.onnx").with_name(parity.FILE).read_bytes()) == made
    return made


def outputs(made: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["signature"], each["name"]): each for each in made["outputs"]}


def spec(name: str, shape: Any, dtype: Any = FLOAT) -> Any:
    return tf.TensorSpec(shape, dtype, name=name)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel with a signature for each kind of inputs, among them some that cannot be compared."""
    module = tf.Module()
    module.table = tf.Variable(tf.reshape(tf.range(20, dtype=FLOAT), [5, 4]))
    module.count = tf.Variable(0.0)
    kinds: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "text": (lambda t: {"t": tf.reshape(t, [-1, 1])}, [spec("t", [None], TEXT)]),
        "lookup": (lambda i: {"e": tf.gather(module.table, i)}, [spec("i", [None, None], INT)]),
        "fixed": (lambda q, s: {"e": tf.reduce_sum(q) * s}, [spec("q", [4, 3], tf.float64), spec("s", [], tf.float64)]),
        "two": (lambda a, b: {"best": tf.argmax(a, 1), "sum": a + b}, [spec("a", [None, 3]), spec("b", [None, 1])]),
        "half": (lambda h: {"e": tf.nn.softmax(h)}, [spec("h", [None, 3], tf.float16)]),
        "random": (lambda x: {"z": x + tf.random.uniform(tf.shape(x)), "w": x * 2}, [spec("x", [None, 2])]),
    }
    module.all = {name: tf.function(call, input_signature=specs) for name, (call, specs) in kinds.items()}
    folder = tmp_path_factory.mktemp("many") / "many"
    tf.saved_model.save(module, str(folder), module.all)
    return folder


@pytest.fixture(scope="module")
def compared(many: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return report(many, tmp_path_factory.mktemp("made") / "1")


def test_each_signature_is_compared_and_the_report_says_which_are_not(compared: dict[str, Any]) -> None:
    """Texts, indices, scalars, fixed rows and free axes are made; what is random or refused is named."""
    rows = {each["name"]: each["rows"] for each in compared["signatures"]}
    assert rows == {"text": 1000, "lookup": 1000, "fixed": 32, "two": 1000, "half": 1000, "random": 1000}
    found = outputs(compared)
    assert set(found) == {
        ("text", "t"), ("lookup", "e"), ("fixed", "e"), ("two", "best"), ("two", "sum"), ("half", "e"), ("random", "w"),
    }  # fmt: skip
    assert all(not each.get("different") and not each.get("flips") for each in found.values())
    assert (found["two", "best"]["values"], found["two", "sum"]["values"]) == (1000, 3000)
    (random,) = compared["notes"]
    assert random == "signature 'random': output 'z' was not compared: the original answers it differently each time"
    assert compared["data"] == {"kind": "made", "rows": 5032, "seed": 1}
    assert compared["load_seconds"] > 0
    assert parity.sentence(compared).startswith("many (tensorflow")


def test_given_rows_are_those_of_the_signatures_that_they_fit(many: Path, tmp_path: Path) -> None:
    """The other signatures have made rows. Fixed rows are asked so many at a time."""
    np.savez(
        tmp_path / "rows.npz", a=np.eye(3), b=np.ones(3), t=np.array(["ant", "bée"]), q=np.zeros((9, 3)), s=np.ones(9)
    )
    made = report(many, tmp_path / "1", data=str(tmp_path / "rows.npz"), signatures=("two", "text", "half"))
    said = {each["name"]: (each["rows"], each["kind"]) for each in made["signatures"]}
    assert said == {"two": (3, "given"), "text": (2, "given"), "half": (1000, "made")}
    assert (made["data"]["file"], made["notes"]) == ("rows.npz", [])
    with pytest.raises(Refused, match=r"signature 'half': --data .*rows.npz has 5 columns; expected the 3"):
        report(many, tmp_path / "2", data=str(tmp_path / "rows.npz"), signatures=("half",))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel that refuses most texts, and one signature that does not."""
    module = tf.Module()
    numbers = tf.function(lambda n: {"v": tf.strings.to_number(n)}, input_signature=[spec("n", [None], TEXT)])
    other = tf.function(lambda t: {"t": t}, input_signature=[spec("t", [None], TEXT)])
    module.both = [numbers, other]
    folder = tmp_path_factory.mktemp("digits") / "7"
    tf.saved_model.save(module, str(folder), {"serving_default": numbers, "other": other})
    return folder


def test_a_signature_that_made_rows_cannot_ask_needs_given_ones(digits: Path, tmp_path: Path) -> None:
    """Without them the report says why it was not compared; with wrong ones the model is refused."""
    made = report(digits, tmp_path / "1", signatures=("serving_default",))
    (note,) = made["notes"]
    assert note.startswith("signature 'serving_default' was not compared: the original does not answer made rows (Str")
    assert note.endswith("); give rows with --data")
    assert (made["outputs"], made["source"]["file"].endswith("/7")) == ([], True)
    assert ": not compared, loads in" in parity.sentence(made)
    np.save(tmp_path / "rows.npy", np.array(["1", "2.5", "-3e4"]))
    made = report(digits, tmp_path / "2", signatures=("serving_default",), data=str(tmp_path / "rows.npy"))
    assert (made["data"]["kind"], made["data"]["rows"], made["notes"]) == ("given", 3, [])
    np.save(tmp_path / "wrong.npy", np.array(["ant"]))
    with pytest.raises(Refused, match="signature 'serving_default': the original does not answer the rows of --data: "):
        report(digits, tmp_path / "3", signatures=("serving_default",), data=str(tmp_path / "wrong.npy"))


def test_a_signature_that_the_others_disturb_is_refused(digits: Path, tmp_path: Path) -> None:
    """ONNX Runtime computes the whole graph for each request, with empty texts for inputs that it does not have."""
    with pytest.raises(
        Refused, match=r"signature 'other': ONNX Runtime does not answer .* convert it alone with --sig"
    ):
        report(digits, tmp_path / "1")


def test_examples_are_compared_with_their_classes(tmp_path: Path) -> None:
    """Features have defaults, and one is read by nobody: TensorFlow asks for it all the same."""
    (tmp_path / "words.txt").write_text("ant\nbee\ncat\n", encoding="utf-8")
    folder = saved_models.build(tmp_path / "insects", saved_models.vocabulary(tmp_path / "words.txt"))
    found = outputs(report(folder, tmp_path / "1"))
    assert found["serving_default", "scores"]["values"] == 3000
    assert found["serving_default", "classes"] == {
        "signature": "serving_default", "name": "classes", "datatype": "BYTES", "flips": 0, "ties": 0, "values": 1000,
    }  # fmt: skip


@pytest.mark.parametrize(("changed", "reason"), [
    (1.0, r"output 'scores' differs by up to .* in \d+ of 3000 numbers .*output 'classes' has another label in \d+"),
    (1e-3, r"output 'scores' differs .*the next FP32 number in place of each input, the original's own numbers chang"),
])  # fmt: skip
def test_a_conversion_that_answers_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: float, reason: str
) -> None:
    """A weight is another one here. The refusal says how far the original's own answers move."""
    (tmp_path / "words.txt").write_text("ant\nbee\ncat\n", encoding="utf-8")
    folder = saved_models.build(tmp_path / "insects", saved_models.vocabulary(tmp_path / "words.txt"))
    converted = conversion.converted

    def wrong(saved: Any) -> conversion.Converted:
        made = converted(saved)
        model = onnx.load_from_string(made.model)
        (weights,) = [each for each in model.graph.initializer if list(each.dims) == [3, 3]]
        array = onnx.numpy_helper.to_array(weights) + np.array([0, changed, 0], np.float32)
        weights.CopyFrom(onnx.numpy_helper.from_array(array, weights.name))
        return made._replace(model=model.SerializeToString())

    monkeypatch.setattr(conversion, "converted", wrong)
    with pytest.raises(Refused, match=rf"signature 'serving_default': {reason}"):
        report(folder, tmp_path / "1")
    assert not (tmp_path / "1" / parity.FILE).exists()
    assert report(folder, tmp_path / "2", tolerance=100.0, flips=1.0)["outputs"][0]["largest_absolute"] > changed / 100


def test_bfloat16_is_left_out(tmp_path: Path) -> None:
    """ONNX Runtime answers it to servers, but not to Python's arrays."""
    module = tf.Module()
    module.call = tf.function(lambda x: {"y": tf.cast(x, FLOAT)}, input_signature=[spec("x", [None], tf.bfloat16)])
    tf.saved_model.save(module, str(tmp_path / "b"), {"serving_default": module.call})
    made = report(tmp_path / "b", tmp_path / "1")
    assert made["notes"] == [
        "signature 'serving_default' was not compared: ONNX Runtime's Python interface does not have its datatype BF16"
    ]
