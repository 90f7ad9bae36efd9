"""handler.backends.python: what a model's code does to the process around it."""

import builtins
import gc
import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from core.dtype import DATATYPES
from core.errors import ModelFailed, ModelNotLoadable
from core.tensor import TensorSpec
from handler.backends import Source, python
from handler.backends.python import CALLED
from handler.settings import Settings
from handler.settings.model import ModelSettings

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})
CLASSES = """
from __future__ import annotations
import pickle
from dataclasses import dataclass

@dataclass
class Scaler:
    factor: float = 2.0

SCALER = pickle.loads(pickle.dumps(Scaler()))

def predict(inputs, parameters):
    return {"y": [SCALER.factor]}
"""

BESIDE = """
import steps
from package import part

def predict(inputs, parameters):
    return {"y": [steps.NUMBER, part.NUMBER]}
"""


def modules() -> set[str]:
    """Returns the modules of models that are still in sys.modules."""
    gc.collect()
    return {name for name in sys.modules if name.startswith(("dragoman_model_", "steps", "package"))}


def beside(folder: Path, number: int, wrong: str = "") -> python.PythonModel:
    """Returns a version with a module and a package beside its model.py, which answers with their number."""
    (folder / "package").mkdir(parents=True, exist_ok=True)
    for name in ("steps.py", "package/__init__.py", "package/part.py"):
        (folder / name).write_text(f"NUMBER = {number}\n")
    return load(folder, BESIDE + wrong)


def load(folder: Path, code: str) -> python.PythonModel:
    """Returns a version with this model.py."""
    (folder / "model.py").write_text(code)
    return python.load(Source("m", "1", folder, ModelSettings()), SETTINGS)


def test_metadata_may_have_the_labels_of_an_output(tmp_path: Path) -> None:
    """Those of the settings come first."""
    code = """
metadata = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2], "labels": ["no", "yes"]}]}
def predict(inputs, parameters): return {"y": [[0.25, 0.75]]}
"""
    (output,) = load(tmp_path, code).spec.outputs or ()
    assert output.labels == ("no", "yes")
    said = ModelSettings(outputs=(output._replace(labels=("-", "+")),))
    (output,) = python.load(Source("m", "1", tmp_path, said), SETTINGS).spec.outputs or ()
    assert output.labels == ("-", "+")


DECLARED = """
metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}, {"name": "k", "datatype": "INT64", "shape": [1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}, {"name": "z", "datatype": "INT64"}],
}
def predict(inputs, parameters): return {"y": inputs["x"], "z": [1]}
"""


def tensor(name: str, datatype: str, shape: tuple[int, ...] | None, *labels: str) -> TensorSpec:
    return TensorSpec(name, DATATYPES[datatype], shape, labels)


def test_settings_complete_the_metadata_of_a_module(tmp_path: Path) -> None:
    """They do so for an ONNX file, too. A shape of null, and a tensor without an entry, stay as they are."""
    (tmp_path / "model.py").write_text(DECLARED)
    x, k = tensor("x", "FP32", (-1, 2)), tensor("k", "INT64", (1,))
    y, z = tensor("y", "FP32", (-1, 2)), tensor("z", "INT64", None)
    for said, expected in (
        (
            ModelSettings(outputs=(tensor("y", "FP32", None, "no", "yes"),)),
            ((x, k), (y._replace(labels=("no", "yes")), z)),
        ),
        (ModelSettings(inputs=(tensor("x", "FP32", (8, 2)),)), ((x._replace(shape=(8, 2)), k), (y, z))),
        (ModelSettings(outputs=(tensor("z", "INT64", (1,)),)), ((x, k), (y, z._replace(shape=(1,))))),
    ):
        spec = python.load(Source("m", "1", tmp_path, said), SETTINGS).spec
        assert (spec.inputs, spec.outputs) == expected


@pytest.mark.parametrize(("said", "told"), [
    (ModelSettings(outputs=(tensor("q", "FP32", None),)), "describe output 'q', which is not in model.py"),
    (ModelSettings(inputs=(tensor("x", "INT64", None),)), "input 'x' is FP32 in model.py, INT64 in its settings"),
    (ModelSettings(inputs=(tensor("x", "FP32", (-1,)),)), "input 'x' has the shape [-1, 2] in model.py, [-1] in its"),
    (ModelSettings(inputs=(tensor("k", "INT64", (2,)),)), "input 'k' has the shape [1] in model.py, [2] in its"),
])  # fmt: skip
def test_settings_that_contradict_the_metadata_are_refused(tmp_path: Path, said: ModelSettings, told: str) -> None:
    """Every request would fail. The module is not kept."""
    (tmp_path / "model.py").write_text(DECLARED)
    before = modules()
    with pytest.raises(ModelNotLoadable) as refused:
        python.load(Source("m", "1", tmp_path, said), SETTINGS)
    assert told in refused.value.message
    assert modules() == before


def test_an_object_that_can_be_called_is_a_function_as_well(tmp_path: Path) -> None:
    """Its `__call__` decides whether it streams. An async one is refused."""
    code = "class Called:\n    {}def __call__(self, inputs, parameters): {}\npredict = Called()\n"
    assert not load(tmp_path, code.format("", "return {'y': [1]}")).spec.decoupled
    assert load(tmp_path, code.format("", "yield {'y': [1]}")).spec.decoupled
    for kind, body in (("async ", "return {'y': [1]}"), ("async ", "yield {'y': [1]}")):
        with pytest.raises(ModelNotLoadable, match="predict is async; expected a plain function"):
            load(tmp_path, code.format(kind, body))
    whole = "from functools import partial\ndef f(a, inputs, parameters): return {'y': [a]}\npredict = partial(f, 1)\n"
    assert not load(tmp_path, whole).spec.decoupled


def test_numpys_error_state_is_that_of_before(tmp_path: Path) -> None:
    """The thread runs other models and Dragoman's own code, which would raise on what numpy warns of."""
    state = np.geterr()
    code = "import numpy as np\nnp.seterr(all='raise')\ndef predict(inputs, parameters):\n    np.seterr(all='raise')\n"
    model = load(tmp_path, code + "    return {'y': [1]}\n")
    assert np.geterr() == state
    model.predict({}, [], {})
    assert np.geterr() == state


@pytest.mark.parametrize("body", ["return {'y': [1]}", "yield {'y': [1]}"])
@pytest.mark.parametrize("function", list(CALLED))
def test_an_async_function_is_refused_at_its_load(tmp_path: Path, function: str, body: str) -> None:
    """Each of its answers would be a coroutine that nobody awaits."""
    code = f"def predict(inputs, parameters):\n return inputs\nasync def {function}(*given):\n {body}\n"
    with pytest.raises(ModelNotLoadable, match=f"^model 'm': {function} is async; expected a plain function"):
        load(tmp_path, code)


def test_a_stream_that_does_not_end_well_is_the_models_failure(tmp_path: Path) -> None:
    """A model that ends the process where it cleans up does not end the thread that closes its stream."""
    code = "    try:\n        yield {'y': [1]}\n    finally:\n        raise SystemExit\n"
    answers = load(tmp_path, f"def predict(inputs, parameters):\n{code}")._stream({}, [], {})
    next(answers)
    with pytest.raises(ModelFailed, match="^model 'm' raised SystemExit$"):
        answers.close()


def test_classes_of_a_model_find_their_module(tmp_path: Path) -> None:
    """A dataclass with annotations in text looks there for types, and pickle for classes. Another load has its own."""
    first, second = load(tmp_path, CLASSES), load(tmp_path, CLASSES)
    assert first.module is not second.module
    assert [model.predict({}, [], {})[0].array.tolist() for model in (first, second)] == [[2.0], [2.0]]


@pytest.mark.parametrize("wrong", ["", "raise ValueError", "predict = 7", "metadata = {'inputs': 7}"])
def test_the_module_of_a_model_leaves_with_it(tmp_path: Path, wrong: str) -> None:
    """The data of a version that was replaced, or does not load, would fill the memory."""
    before = modules()
    if wrong:
        with pytest.raises(ModelNotLoadable):
            load(tmp_path, f"{CLASSES}\n{wrong}\n")
    else:
        model = load(tmp_path, CLASSES)
        assert len(modules() - before) == 1
        del model
    assert modules() == before


def test_each_load_has_its_own_modules_beside_it(tmp_path: Path) -> None:
    """A version is not answered by the code of another one, nor by that of before a change."""
    before = modules()
    first = beside(tmp_path / "1", 1)
    second = beside(tmp_path / "2", 2)
    with pytest.raises(ModelNotLoadable):
        beside(tmp_path / "3", 30, "raise ValueError")
    third = beside(tmp_path / "3", 31111)  # of another size, so that Python does not take the old compiled file
    models = (first, second, third)
    assert [model.predict({}, [], {})[0].array.tolist() for model in models] == [[1, 1], [2, 2], [31111, 31111]]
    del first, second, third, models
    assert modules() == before


@pytest.mark.parametrize(("path", "code"), [
    ("src/util/deep.py", "from src.util.deep import NUMBER"),
    ("model/layers.py", "from model.layers import NUMBER"),
    ("helper.py", "import helper\nNUMBER = 0\ndef number(): return helper.late()"),
])  # fmt: skip
def test_modules_beside_a_model_are_found_wherever_they_lie(tmp_path: Path, path: str, code: str) -> None:
    """In folders of folders, in a package of the model's own name, and where a module imports the model itself."""
    gc.collect()  # models of other tests
    before = {*sys.modules}
    models = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / path).parent.mkdir(parents=True)
        if path == "model/layers.py":
            (folder / "model" / "__init__.py").touch()  # else model.py goes before the folder
        (folder / path).write_text(f"NUMBER = {number}\ndef late():\n    from model import OWN\n    return OWN\n")
        made = "number()" if path == "helper.py" else "NUMBER"
        models.append(
            load(folder, f"{code}\nOWN = {number}\nMADE = {made}\ndef predict(i, p): return {{'y': [MADE]}}\n")
        )
    assert [model.predict({}, [], {})[0].array.tolist() for model in models] == [[1], [2]]
    models.clear()
    gc.collect()
    assert {*sys.modules} <= before


def test_an_installed_package_is_the_servers_after_a_load(tmp_path: Path) -> None:
    """A module of its name beside a model is that model's alone."""
    sys.modules.pop("wave", None)
    (tmp_path / "wave.py").write_text("NUMBER = 1\n")
    model = load(tmp_path, "import wave\ndef predict(i, p): return {'y': [wave.NUMBER]}\n")
    assert model.predict({}, [], {})[0].array.tolist() == [1]
    assert not hasattr(importlib.import_module("wave"), "NUMBER")


def test_loads_with_modules_of_one_name_take_turns(tmp_path: Path) -> None:
    """One that begins while another imports would get the other's."""
    begun, go_on = threading.Event(), threading.Event()
    builtins.wait_here = lambda: begun.set() or go_on.wait(30)  # type: ignore[attr-defined]
    (tmp_path / "1" / "package").mkdir(parents=True)
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(beside, tmp_path / "1", 1, "wait_here()\n")
        assert begun.wait(30)
        quick = threads.submit(beside, tmp_path / "2", 2)
        alone = threads.submit(load, tmp_path, CLASSES)
        assert alone.result(30).predict({}, [], {})[0].array.tolist() == [2.0]
        assert not quick.done()
        go_on.set()
        found = [each.result(30).predict({}, [], {})[0].array.tolist() for each in (slow, quick)]
    del builtins.wait_here  # type: ignore[attr-defined]
    assert found == [[1, 1], [2, 2]]


def test_a_package_that_is_installed_stays(tmp_path: Path) -> None:
    """A folder with its name is not a package. A second copy of a package in C would end the process."""
    (tmp_path / "orjson").mkdir()
    (tmp_path / "orjson" / "notes.py").write_text("")
    code = "import orjson\ndef predict(inputs, parameters):\n    return {'y': [1]}\n"
    assert load(tmp_path, code).module.orjson is load(tmp_path, code).module.orjson


def test_a_model_writes_into_parameters_of_its_own(tmp_path: Path) -> None:
    """Another step of its pipeline, and a batch that runs again, get what the client has sent."""
    code = "def predict(inputs, parameters):\n parameters['list'][0]['a'].append(1)\n return {'y': [1]}"
    (tmp_path / "model.py").write_text(code)
    model = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    parameters = {"list": [{"a": []}], "text": "b"}
    model.predict({}, [], parameters)
    assert parameters == {"list": [{"a": []}], "text": "b"}
