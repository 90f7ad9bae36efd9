"""handler.backends.python_outputs: outputs that their datatype cannot hold, and names that no protocol can carry."""

from __future__ import annotations

import re
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from core.errors import ModelFailed
from handler.backends import Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})


def load(folder: Path, returned: str, datatype: str = "") -> python.PythonModel:
    """Loads a model whose `predict` returns that expression, with an output `y` of the datatype unless it is ""."""
    outputs = [{"name": "y", "datatype": datatype, "shape": None}]
    declared = f"metadata = {{'outputs': {outputs}}}\n" if datatype else ""
    text = f"import numpy as np\n{declared}def predict(inputs, parameters): return {returned}\n"
    (folder / "model.py").write_text(text, "utf-8")
    return python.load(Source("m", "1", folder, ModelSettings()), SETTINGS)


@pytest.mark.parametrize(("datatype", "returned", "wrong"), [
    ("INT8", "[1, 300]", "300"),
    ("INT8", "np.array([[-129, 0]])", "-129"),
    ("INT32", "np.array([3_000_000_000], 'u4')", "3000000000"),
    ("INT64", "np.array([2**64 - 1], 'u8')", "18446744073709551615"),
    ("UINT8", "np.array([256], '>u2')", "256"),
    ("BF16", "np.array([65_536], 'u4')", "65536"),
    ("UINT8", "[256]", "256"),
    ("UINT64", "[0, -1]", "-1"),
])  # fmt: skip
def test_an_integer_is_never_wrapped(tmp_path: Path, datatype: str, returned: str, wrong: str) -> None:
    """The client would get another number than the model has returned."""
    model = load(tmp_path, f"{{'y': {returned}}}", datatype)
    with pytest.raises(ModelFailed, match=f"model 'm': output 'y' has {wrong}, which is out of range for {datatype}$"):
        model.predict({}, ["y"], {})


@pytest.mark.parametrize("datatype", ["UINT8", "UINT64", "INT32", "FP16", "BOOL"])
def test_a_list_is_of_the_declared_datatype(tmp_path: Path, datatype: str) -> None:
    """By itself it would be INT64, and FP64 for a list without elements."""
    (made,) = load(tmp_path, "{'y': []}", datatype).predict({}, [], {})
    assert (made.datatype.name, made.shape) == (datatype, (0,))
    if datatype != "BOOL":
        (made,) = load(tmp_path, "{'y': [[1, 2]]}", datatype).predict({}, [], {})
        assert (made.datatype.name, made.array.tolist()) == (datatype, [[1, 2]])


@pytest.mark.parametrize("returned", ["[1]", "np.array([1.5])"])
def test_numbers_are_not_taken_for_the_bits_of_bf16(tmp_path: Path, returned: str) -> None:
    """They would be other numbers."""
    with pytest.raises(ModelFailed, match="which is not BF16"):
        load(tmp_path, f"{{'y': {returned}}}", "BF16").predict({}, [], {})


@pytest.mark.parametrize(("datatype", "returned", "wrong"), [
    ("FP32", "np.array([1.0, 1e300])", "1e+300"),
    ("FP32", "-1e300", "-1e+300"),
    ("FP16", "[[70_000, 1]]", "70000"),
    ("FP64", "np.array(['1e4000'], np.longdouble)", "1e+4000"),
])  # fmt: skip
@pytest.mark.parametrize("state", ["warn", "raise"])
def test_a_number_never_becomes_infinite(
    tmp_path: Path, datatype: str, returned: str, wrong: str, state: Literal["warn", "raise"]
) -> None:
    """As for integers, whatever numpy's error state is."""
    model = load(tmp_path, f"{{'y': {returned}}}", datatype)
    text = re.escape(f"model 'm': output 'y' has {wrong}, which is out of range for {datatype}")
    with np.errstate(all=state), pytest.raises(ModelFailed, match=f"{text}$"):
        model.predict({}, ["y"], {})


def test_a_number_that_is_infinite_stays_so(tmp_path: Path) -> None:
    """As NaN does: clients see what the model has computed."""
    (y,) = load(tmp_path, "{'y': np.array([np.inf, -np.inf, np.nan, 1.5])}", "FP32").predict({}, ["y"], {})
    assert str(y.array.tolist()) == "[inf, -inf, nan, 1.5]"


@pytest.mark.parametrize("datatype", ["", "FP32", "BYTES"])
@pytest.mark.parametrize("function", ["predict", "stream", "explain"])
def test_an_object_that_cannot_be_read_is_the_models_failure(tmp_path: Path, function: str, datatype: str) -> None:
    """As a tensor of torch that needs gradients: it raises when numpy asks for its array."""
    (tmp_path / "model.py").write_text(
        f"metadata = {{'outputs': [{{'name': 'y', 'datatype': {datatype!r}, 'shape': None}}]}}\n"
        * bool(datatype)
        + "class Odd:\n    def __array__(self, *_, **__): raise SystemExit('detach() first')\n"
        "def predict(inputs, parameters): return {'y': Odd()}\nexplain = predict\n"
        "def stream(inputs, parameters): yield {'y': Odd()}\n"
    )
    model = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    assert model.explain is not None
    assert model.stream is not None
    calls: dict[str, Callable[[], object]] = {
        "predict": partial(model.predict, {}, ["y"], {}),
        "stream": partial(list, model.stream({}, ["y"], {})),
        "explain": partial(model.explain, {}, {}),
    }
    with pytest.raises(ModelFailed, match="^model 'm' raised SystemExit$"):
        calls[function]()


@pytest.mark.parametrize("datatype", ["", "FP64", "BYTES"])
@pytest.mark.parametrize(
    "returned", ["np.ma.array(['1', '2'], mask=[0, 1])", "np.ma.masked_less([1.5, -1], 0)", "np.ma.masked"]
)
def test_a_masked_element_is_no_answer(tmp_path: Path, returned: str, datatype: str) -> None:
    """Numpy keeps a value under the mask, which the client would take for the model's."""
    model = load(tmp_path, f"{{'y': {returned}}}", datatype)
    with pytest.raises(
        ModelFailed, match=r"output 'y' is not an array: it has masked elements, which need values: filled\(\)$"
    ):
        model.predict({}, ["y"], {})


def test_a_masked_array_without_masked_elements_is_an_array(tmp_path: Path) -> None:
    """Functions of numpy.ma return one whatever their input was."""
    (y,) = load(tmp_path, "{'y': np.ma.masked_invalid([1.5])}").predict({}, [], {})
    assert (type(y.array), y.array.tolist()) == (np.ndarray, [1.5])


@pytest.mark.parametrize(("datatype", "numbers"), [
    ("INT8", [-128, 127]),
    ("INT16", []),
    ("UINT8", [0, 255]),
    ("UINT32", [2**32 - 1]),
    ("INT64", [2**63 - 1]),
])  # fmt: skip
def test_integers_of_a_wider_type_are_narrowed_if_they_fit(tmp_path: Path, datatype: str, numbers: list[int]) -> None:
    """Most of numpy's functions return 64 bits."""
    wide = "u8" if datatype != "INT8" else "i8"
    (y,) = load(tmp_path, f"{{'y': np.array({numbers}, '{wide}')}}", datatype).predict({}, ["y"], {})
    assert (y.datatype.name, y.array.dtype, y.array.tolist()) == (datatype, y.datatype.numpy, numbers)


@pytest.mark.parametrize(("key", "told"), [
    ("1", "1"),
    ("None", "null"),
    ("b'y'", "'y'"),
    ("'\\ud800'", r"'\\ud800'"),
])  # fmt: skip
def test_an_output_whose_name_is_not_text_is_the_models_failure(tmp_path: Path, key: str, told: str) -> None:
    """No protocol can carry such a name."""
    with pytest.raises(ModelFailed, match=f"predict returned an output with the name {told}; expected text$"):
        load(tmp_path, f"{{{key}: [1]}}").predict({}, [], {})


def test_a_name_may_be_a_text_of_numpy(tmp_path: Path) -> None:
    """The answer has plain text."""
    (output,) = load(tmp_path, "{np.str_('é'): [1]}").predict({}, [], {})
    assert (output.name, type(output.name)) == ("é", str)


@pytest.mark.parametrize("returned", ["kept", "kept[::-1]", "kept.astype('<f4')", "memoryview(kept)", "texts"])
def test_an_answer_stays_when_the_model_fills_its_array_again(tmp_path: Path, returned: str) -> None:
    """A pipeline's steps, parts of rows, and records of a batch are all written later than the model runs again."""
    (tmp_path / "model.py").write_text(
        "import numpy as np\nkept, texts = np.zeros(2, 'f4'), np.array(['', ''], object)\n"
        "def predict(inputs, parameters):\n    kept[:], texts[:] = parameters['k'], str(parameters['k'])\n"
        f"    return {{'y': {returned}}}\n"
    )
    model = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    answers = [model.predict({}, ["y"], {"k": k})[0] for k in (1, 2)]
    assert [float(answer.array[0]) for answer in answers] == [1.0, 2.0]


@pytest.mark.parametrize(("returned", "told"), [
    ("{'y': pathlib.Path('/opt/weights')}", "output 'y' has an object of type PosixPath where BYTES needs str or"),
    ("{'y': (n for n in [1])}", "output 'y' has an object of type generator where BYTES needs str or bytes"),
    ("{'y': {'a': object()}}", "output 'y' has an object of type dict where BYTES needs str or bytes"),
    ("{'y': ['a', None]}", "output 'y' has null where BYTES needs str or bytes"),
    ("{pathlib.Path('/opt/weights'): 1}", "output with the name an object of type PosixPath; expected text"),
])  # fmt: skip
def test_a_message_has_the_type_of_an_object_and_not_its_text(tmp_path: Path, returned: str, told: str) -> None:
    """The text may have a path of the machine, or an address of memory."""
    (tmp_path / "model.py").write_text(f"import pathlib\ndef predict(inputs, parameters): return {returned}\n")
    model = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    with pytest.raises(ModelFailed, match=told):
        model.predict({}, [], {})


@pytest.mark.parametrize(("returned", "texts"), [
    ("['a', b'\\xc3\\xbc']", [b"a", b"\xc3\xbc"]),
    ("[b'\\xff', 'a']", [b"\xff", b"a"]),
    ("np.array(['a', 'ü'])", [b"a", b"\xc3\xbc"]),
    ("np.array(['a', 'ü'], np.dtypes.StringDType()) if hasattr(np.dtypes, 'StringDType') else ['a', 'ü']",
     [b"a", b"\xc3\xbc"]),
    ("[['a'], ['bb']]", [[b"a"], [b"bb"]]),
])  # fmt: skip
@pytest.mark.parametrize("declared", [True, False])
def test_texts_come_in_any_form(tmp_path: Path, returned: str, texts: list[Any], *, declared: bool) -> None:
    """Text and bytes may be mixed, and numpy's own strings are texts."""
    metadata = "metadata = {'outputs': [{'name': 'y', 'datatype': 'BYTES', 'shape': [-1]}]}\n" if declared else ""
    (tmp_path / "model.py").write_text(
        f"import numpy as np\n{metadata}def predict(inputs, parameters): return {{'y': {returned}}}\n", "utf-8"
    )
    (tensor,) = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS).predict({}, ["y"], {})
    assert (tensor.datatype.name, tensor.array.tolist()) == ("BYTES", texts)


@pytest.mark.parametrize("function", ["predict", "explain"])
def test_a_long_text_takes_its_own_memory_alone(tmp_path: Path, function: str) -> None:
    """In numpy's arrays of text each element takes as much as the longest: of these 1.2 GB."""
    code = "TEXTS = ['x' * 1_000_000, *['y'] * 300]\n"
    code += "def predict(inputs, parameters): return {'y': TEXTS}\ndef explain(inputs, parameters): return TEXTS\n"
    (tmp_path / "model.py").write_text(code)
    model = python.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    tracemalloc.start()
    try:
        found = model.predict({}, ["y"], {}) if function == "predict" else model._explain({}, {})
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert len(found[0].array if function == "predict" else found) == 301  # type: ignore[union-attr] # of either
