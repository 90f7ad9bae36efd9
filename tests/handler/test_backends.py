"""handler.backends: the metadata of ONNX files, and what may fail inside a model."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from core.dtype import BY_ONNX, DATATYPES
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable
from core.operations import Batching
from core.tensor import Tensor, TensorSpec
from handler import backends, plugins
from handler.backends import Source, onnx_fields, onnx_file, python
from handler.backends import onnx as onnx_backend
from handler.backends.runs import LARGE
from handler.edge.dispatch.limits import Hurried, Watchdog
from handler.settings import Settings
from handler.settings import signatures as signature_settings
from handler.settings.model import ModelSettings
from tests.handler.edge.client import ROOT

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})
FP32, BYTES = DATATYPES["FP32"], DATATYPES["BYTES"]


def write(folder: Path, *nodes: Any, inputs: Any, outputs: Any, **more: Any) -> Path:
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, **more)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def value(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
    """Returns a tensor of a graph."""
    return helper.make_tensor_value_info(name, element, shape)


def source(folder: Path, **said: Any) -> Source:
    """Returns version 1 of model `m`."""
    return Source("m", "1", folder, ModelSettings(**said))


@pytest.mark.parametrize("shape", [None, [], [2, 3], [None, 3], ["batch", "n"], [0]])
def test_the_file_tells_shapes_and_unknown_rank_apart(tmp_path: Path, shape: Any) -> None:
    """ONNX Runtime does not distinguish them."""
    path = write(
        tmp_path, helper.make_node("Identity", ["x"], ["y"]), inputs=[value("x", shape)], outputs=[value("y", shape)]
    )
    expected = None if shape is None else tuple(s if isinstance(s, int) else -1 for s in shape)
    (x,), (y,) = onnx_file.signature(path)
    assert (x.name, x.kind, x.element, x.shape) == ("x", "tensor", TensorProto.FLOAT, expected)
    assert y.shape == expected


@pytest.mark.parametrize("shape", [[1] * 33, [2**50], [0, 2**62]])
def test_a_file_whose_shape_no_tensor_can_have_is_refused(tmp_path: Path, shape: Any) -> None:
    """Each request for it, and the description of the API for all models, would be an internal error."""
    identity = helper.make_node("Identity", ["x"], ["y"])
    write(tmp_path, identity, inputs=[value("x", shape)], outputs=[value("y", None)])
    with pytest.raises(ModelNotLoadable, match=r"declares 'x' with the shape \[.*; expected at most 32 sizes"):
        onnx_backend.load(source(tmp_path), SETTINGS)


def test_initializers_are_no_inputs(tmp_path: Path) -> None:
    """Old exporters list them as both. In an ONNX file they may be left out; without a signature they do not show."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    path = write(
        tmp_path, node, inputs=[value("x", [1]), value("w", [1])], outputs=[value("y", [1])], initializer=[weight]
    )
    inputs, _ = onnx_file.signature(path)
    assert [(i.name, i.optional) for i in inputs] == [("x", False), ("w", True)]
    assert [i.name for i in onnx_backend.load(source(tmp_path), SETTINGS).spec.inputs or ()] == ["x"]


def test_a_sparse_initializer_is_a_default_like_any_other(tmp_path: Path) -> None:
    """The runtime replaces the missing input with it."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    sparse = helper.make_sparse_tensor(weight, helper.make_tensor("", TensorProto.INT64, [2], [0, 2]), [4])
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    shapes = [value("x", [4]), value("w", [4])]
    write(tmp_path, node, inputs=shapes, outputs=[value("y", [4])], sparse_initializer=[sparse])
    model = onnx_backend.load(source(tmp_path), SETTINGS)
    assert [each.name for each in model.spec.inputs or ()] == ["x"]
    (y,) = model.predict({"x": Tensor("x", FP32, np.ones(4, np.float32))}, ["y"], {})
    assert y.array.tolist() == [3.0, 0.0, 4.0, 0.0]


@given(st.binary(max_size=200) | st.builds(lambda b: b":" + bytes([len(b)]) + b, st.binary(max_size=100)))
def test_any_bytes_are_a_model_or_a_malformed_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """No other error is raised, whatever the file contains."""
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(content)
    with contextlib.suppress(onnx_fields.MalformedFile):
        onnx_file.signature(path)


def test_a_file_cut_anywhere_is_refused_by_the_backend(tmp_path: Path) -> None:
    """The refusal has one line, without this machine's paths."""
    path = write(
        tmp_path, helper.make_node("Identity", ["x"], ["y"]), inputs=[value("x", [1])], outputs=[value("y", [1])]
    )
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        try:
            onnx.load_from_string(whole[:length])
            loadable = length > 10 and bool(onnx.load_from_string(whole[:length]).graph.output)
        except Exception:  # noqa: BLE001 - protobuf's own errors
            loadable = False
        if loadable:
            continue
        with pytest.raises(ModelNotLoadable) as refusal:
            onnx_backend.load(source(tmp_path), SETTINGS)
        assert str(tmp_path) not in refusal.value.message
        assert "\n" not in refusal.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """It may disappear at any time."""
    with pytest.raises(ModelNotLoadable, match="No such file"):
        onnx_backend.load(source(tmp_path), SETTINGS)


def test_onnx_runtime_not_being_installed_names_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cure is the extra."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelNotLoadable, match=r"needs ONNX Runtime: pip install 'dragoman\[onnx\]'"):
        onnx_backend.load(source(tmp_path), SETTINGS)


def test_onnx_runtime_that_cannot_be_imported_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The package manager would say that it is there. The log has the reason, which may have a path."""
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('/usr/lib/x.so: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelNotLoadable) as refusal:
        onnx_backend.load(source(tmp_path), SETTINGS)
    told = "ONNX Runtime is installed, but its import fails: the log has the reason"
    assert refusal.value.message == f"model 'm' cannot be loaded: {told}"
    assert "/usr/lib/x.so: cannot open shared object file" in caplog.text


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime's own text was about the arguments of a constructor."""
    folder = tmp_path / os.fsdecode(b"lat\xfcn")
    folder.mkdir()
    write(folder, helper.make_node("Identity", ["x"], ["y"]), inputs=[value("x", [2])], outputs=[value("y", [2])])
    with pytest.raises(ModelNotLoadable, match=r"model\.onnx: the name of its folder, or of one above, is not UTF-8"):
        onnx_backend.load(source(folder), SETTINGS)


def test_a_folder_may_have_any_name_in_any_locale(tmp_path: Path) -> None:
    """In the locale C, Python has half of a surrogate pair for each byte of an umlaut."""
    folder = tmp_path / "ü"
    folder.mkdir()
    write(folder, helper.make_node("Identity", ["x"], ["y"]), inputs=[value("x", [2])], outputs=[value("y", [2])])
    script = (
        "import sys; from pathlib import Path; from handler.backends import Source, onnx; "
        "from handler.settings import Settings; from handler.settings.model import ModelSettings; "
        "source = Source('m', '1', Path(sys.argv[1]), ModelSettings()); "
        "print(onnx.load(source, Settings.from_env({})).spec.inputs[0].name)"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **locale, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr


X2 = TensorSpec("x", FP32, (2,), format="FORMAT_NHWC")
LABELLED = {"s": {"outputs": {"scores": "y"}, "class_labels": ["a"]}}


def test_settings_may_say_more_of_a_shape_and_nothing_of_another_type(tmp_path: Path) -> None:
    """A scalar may stand against an unknown rank."""
    write(tmp_path, helper.make_node("Identity", ["x"], ["y"]), inputs=[value("x", None)], outputs=[value("y", None)])
    said = source(tmp_path, inputs=(X2,), platform="mine", signatures=signature_settings.parse(LABELLED))
    spec = onnx_backend.load(said, SETTINGS).spec
    assert spec.inputs == (X2,)
    assert spec.outputs == (TensorSpec("y", FP32, None, ("a",)),)
    assert spec.platform == "mine"
    for wrong, message in (
        (TensorSpec("x", DATATYPES["FP64"], (2,)), "input 'x' is FP32 in model.onnx, FP64 in its settings"),
        (TensorSpec("q", FP32, (2,)), "the settings describe input 'q', which is not in model.onnx: it has .'x'."),
    ):
        with pytest.raises(ModelNotLoadable, match=f"^model 'm' version 1 cannot be loaded: {message}$"):
            onnx_backend.load(source(tmp_path, inputs=(wrong,)), SETTINGS)


@pytest.mark.parametrize(("role", "shape", "served"), [
    ("input", [-1], None), ("input", [-1, 1, 1], None), ("input", [-1, 2], None), ("input", [-1, -1], None),
    ("input", [4, 1], [4, 1]), ("input", [-1, 1], [-1, 1]), ("input", None, [-1, 1]),
    ("output", [-1], None), ("output", [-1, 3], [-1, 3]), ("output", None, [-1, 1]),
])  # fmt: skip
def test_settings_that_contradict_the_files_shape_are_refused(
    tmp_path: Path, role: str, shape: list[int] | None, served: list[int] | None
) -> None:
    """Every request would fail. Sizes of outputs may differ: some exporters write wrong ones."""
    name = {"input": "x", "output": "y"}[role]
    write(
        tmp_path,
        helper.make_node("Identity", ["x"], ["y"]),
        inputs=[value("x", [None, 1])],
        outputs=[value("y", [None, 1])],
    )
    said = source(tmp_path, **{f"{role}s": (TensorSpec(name, FP32, None if shape is None else tuple(shape)),)})
    if served is not None:
        spec = onnx_backend.load(said, SETTINGS).spec
        (found,) = (spec.inputs if role == "input" else spec.outputs) or ()
        assert list(found.shape or ()) == served
        return
    where = f"model 'm' version 1 cannot be loaded: {role} '{name}'"
    message = f"{where} has the shape [-1, 1] in model.onnx, {shape} in its settings"
    with pytest.raises(ModelNotLoadable, match=re.escape(message)):
        onnx_backend.load(said, SETTINGS)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None),
            "a sequence, which no protocol can carry",
        ),
        (value("y", [1], TensorProto.COMPLEX64), "a tensor of COMPLEX64, which"),
        (value("y", [1], TensorProto.UNDEFINED), "a tensor of ONNX type 0, which"),
        (
            helper.make_value_info("y", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1]))),
            "a value that is optional, which no protocol can carry",
        ),
    ],
)
def test_what_no_protocol_can_carry_is_refused_at_load(tmp_path: Path, output: Any, message: str) -> None:
    """The refusal has the model, and the output's name and kind."""
    write(tmp_path, helper.make_node("SequenceConstruct", ["x"], ["y"]), inputs=[value("x", [1])], outputs=[output])
    with pytest.raises(ModelNotLoadable, match=f"^model 'm' version 1 cannot be loaded: output 'y' is {message}"):
        onnx_backend.load(source(tmp_path), SETTINGS)


def test_the_types_of_elements_that_no_protocol_has_have_onnxs_names() -> None:
    """Each type of the package is one or the other."""
    of_onnx = {number: name for name, number in TensorProto.DataType.items() if number}
    named = {number: name for number, name in onnx_file.UNCARRIED.items() if number in of_onnx}
    assert named == {number: name for number, name in of_onnx.items() if number in named}
    assert not onnx_file.UNCARRIED.keys() & BY_ONNX.keys()


def test_a_graph_that_the_runtime_refuses_is_refused_with_its_reason(tmp_path: Path) -> None:
    """Its operator does not exist."""
    write(tmp_path, helper.make_node("NoSuchOp", ["x"], ["y"]), inputs=[value("x", [1])], outputs=[value("y", [1])])
    with pytest.raises(ModelNotLoadable, match="NoSuchOp"):
        onnx_backend.load(source(tmp_path), SETTINGS)


def test_text_reaches_the_runtime_as_text(tmp_path: Path) -> None:
    """Bytes objects would arrive as their repr; bytes that are not UTF-8 cannot be passed."""
    write(
        tmp_path,
        helper.make_node("Identity", ["x"], ["y"]),
        inputs=[value("x", None, TensorProto.STRING)],
        outputs=[value("y", None, TensorProto.STRING)],
    )
    model = onnx_backend.load(source(tmp_path), SETTINGS)
    array = np.array([[b"a\0b", "é".encode()]], object)
    (answer,) = model.predict({"x": Tensor("x", BYTES, array)}, ["y"], {})
    assert answer.array.tolist() == array.tolist()
    with pytest.raises(InvalidInput, match="input 'x' has the bytes '.xff', which are not UTF-8"):
        model.predict({"x": Tensor("x", BYTES, np.array([b"\xff"], object))}, ["y"], {})


def test_bfloat16_passes_as_its_bits_beside_other_tensors(tmp_path: Path) -> None:
    """Numpy does not have such a type; a failure inside is the model's."""
    bf16 = DATATYPES["BF16"]
    nodes = [helper.make_node("Identity", ["b"], ["c"]), helper.make_node("Gather", ["t", "i"], ["v"])]
    write(
        tmp_path,
        *nodes,
        inputs=[value("b", None, TensorProto.BFLOAT16), value("t", [2]), value("i", [1], TensorProto.INT64)],
        outputs=[value("c", None, TensorProto.BFLOAT16), value("v", [1])],
    )
    model = onnx_backend.load(source(tmp_path), SETTINGS)
    inputs = {
        "b": Tensor("b", bf16, np.array([[1, 65535]], "<u2").T),
        "t": Tensor("t", FP32, np.array([3, 4], "f4")),
        "i": Tensor("i", DATATYPES["INT64"], np.array([1])),
    }
    c, v = model.predict(inputs, ["c", "v"], {})
    assert (c.array.tolist(), v.array.tolist()) == ([[1], [65535]], [4.0])
    with pytest.raises(ModelFailed, match="model 'm' failed: .*"):
        model.predict(inputs | {"i": Tensor("i", DATATYPES["INT64"], np.array([9]))}, ["c", "v"], {})


def test_a_large_output_of_bfloat16_ends_quick_work_like_any_other(tmp_path: Path) -> None:
    """The event loop would write it. The runtime returns it as a value that has no size of its own."""
    bf16 = TensorProto.BFLOAT16
    write(
        tmp_path,
        helper.make_node("Identity", ["b"], ["c"]),
        inputs=[value("b", None, bf16)],
        outputs=[value("c", None, bf16)],
    )
    model = onnx_backend.load(source(tmp_path), SETTINGS)
    with contextlib.closing(Watchdog()) as watchdog:
        for size, is_large in ((LARGE, False), (LARGE + 1, True)):
            inputs = {"b": Tensor("b", DATATYPES["BF16"], np.zeros(size, "<u2"))}
            with pytest.raises(Hurried) if is_large else contextlib.nullcontext():
                watchdog.hurry(lambda given=inputs: model.predict(given, ["c"], {}))


def test_bfloat16_is_beside_texts_and_maps_as_far_as_the_runtime_permits(tmp_path: Path) -> None:
    """It returns BF16 only with inputs and outputs that are numbers; the refusal names both."""
    maps = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    nodes = [
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Identity", ["t"], ["u"]),
        helper.make_node("ZipMap", ["p"], ["m"], domain="ai.onnx.ml", classlabels_strings=["yes", "no"]),
    ]
    bf16, text = TensorProto.BFLOAT16, TensorProto.STRING
    inputs = [value("b", [1], bf16), value("t", [1], text), value("p", [1, 2])]
    outputs = [value("c", [1], bf16), value("u", [1], text)]
    outputs.append(helper.make_value_info("m", helper.make_sequence_type_proto(maps)))
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    model = onnx_backend.load(source(tmp_path), SETTINGS)
    given = {
        "b": Tensor("b", DATATYPES["BF16"], np.array([16256], "<u2")),
        "t": Tensor("t", BYTES, np.array(["é".encode()], object)),
        "p": Tensor("p", FP32, np.array([[0.25, 0.75]], np.float32)),
    }
    u, m = model.predict(given, ["u", "m"], {})
    assert (u.array.tolist(), m.array.tolist()) == (["é".encode()], [[0.25, 0.75]])
    with pytest.raises(ModelFailed, match=r"does not return output 'c' \(BF16\) in one run with 't' \(texts or maps\)"):
        model.predict(given, ["c", "u"], {})


@pytest.mark.parametrize(
    ("x", "y", "fits"),
    [
        (["n", 2], ["n", 2], True),
        ([None, 2], ["m"], True),
        ([1, 2], ["n", 2], False),
        (["n"], [], False),
        ([], ["n"], False),
    ],
)
def test_batching_needs_a_first_axis_of_any_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, x: Any, y: Any, *, fits: bool
) -> None:
    """Otherwise requests run alone, and the log says why."""
    node = helper.make_node("Identity", ["x"], ["z"])
    more = helper.make_node("Reshape", ["z", "shape"], ["y"])
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(y)], [-1] * min(len(y), 1) + [1] * (len(y) - 1))
    write(tmp_path, node, more, inputs=[value("x", x)], outputs=[value("y", y)], initializer=[shape])
    loaded = onnx_backend.load(source(tmp_path, batching=Batching(8, 0.1)), SETTINGS)
    assert (loaded.spec.batching is not None) == fits
    assert ("its requests run alone in spite of its settings: the first axis of" in caplog.text) != fits


def load_python(folder: Path, text: str, **said: Any) -> python.PythonModel:
    """Returns a model of this text."""
    (folder / "model.py").write_text(text)
    return python.load(source(folder, **said), SETTINGS)


def test_code_is_not_run_unless_it_is_allowed(tmp_path: Path) -> None:
    """The refusal names the cure."""
    (tmp_path / "model.py").write_text("raise SystemExit")
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_ALLOW_CODE=true"):
        python.load(source(tmp_path), Settings.from_env({}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_it", "model.py imports 'nothing_like_it', which is not installed$"),
        ("import triton_python_backend_utils as utils", "which is Triton's: expected a function predict"),
        ("raise ModuleNotFoundError('s3cret')", "raised ModuleNotFoundError$"),
        ("raise SystemExit(3)", "raised SystemExit$"),
        ("predict = 1", "has no function predict"),
        ("def predict(i, p): ...\nmetadata = {'inputs': 1}", "metadata of model 'm': inputs is 1"),
        ("def predict(x): ...", "predict has to take inputs and parameters: too many positional arguments"),
        ("def predict(*_): ...\ndef stream(x): ...", "stream has to take inputs and parameters: too many"),
        ("def predict(*_): ...\ndef explain(): ...", "explain has to take inputs and parameters: too many"),
        ("def predict(*_): ...\ndef http(a, b): ...", "http has to take request: missing a required argument: 'b'"),
        ("import core.own\ndef predict(i, p): ...", "core.py has the name of a package of Dragoman: rename it"),
    ],
)
def test_a_python_file_that_is_no_model_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """No mistake in it ends the server."""
    if "core" in text:
        (tmp_path / "core.py").write_text("")
    with pytest.raises(ModelNotLoadable, match=message):
        load_python(tmp_path, text)


def test_a_missing_name_is_explained_by_the_names_that_are_there(tmp_path: Path) -> None:
    """Clients that know no names, as rows under V1, get along with a model that has `metadata`."""
    lacks = "def predict(inputs, _):\n    return {'y': inputs['X']}\n"
    x = {"input-0": Tensor("input-0", FP32, np.zeros(1, "f4"))}
    with pytest.raises(ModelFailed, match=r"raised KeyError; without `metadata` its inputs .*: \['input-0'\]$"):
        load_python(tmp_path, lacks).predict(x, [], {})
    known = "metadata = {'inputs': [{'name': 'x', 'datatype': 'FP32', 'shape': [-1]}]}"
    with pytest.raises(ModelFailed, match="raised KeyError$"):
        load_python(tmp_path, lacks + known).predict(x, [], {})


def test_a_python_model_may_import_its_neighbours_and_write_into_its_inputs(tmp_path: Path) -> None:
    """Arrays read from a request are views of it; the model gets copies."""
    (tmp_path / "helper_of_m.py").write_text("FACTOR = 2")
    model = load_python(
        tmp_path,
        "from helper_of_m import FACTOR\n"
        "metadata = {'outputs': [{'name': 'y', 'datatype': 'FP32', 'shape': [-1]}]}\n"
        "def predict(inputs, parameters):\n    inputs['x'] *= FACTOR\n    return {'y': inputs['x'], 'z': 1}\n",
        signatures=signature_settings.parse(LABELLED),
    )
    body = np.array([1.0, 2.0], "f4")
    body.flags.writeable = False
    (answer,) = model.predict({"x": Tensor("x", FP32, body)}, ["y"], {})
    assert answer.array.tolist() == [2.0, 4.0]
    assert body.tolist() == [1.0, 2.0]
    assert model.spec.outputs == (TensorSpec("y", FP32, (-1,), ("a",)),)
    assert model.spec.inputs is None
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("more", ["", "sys.path.append('kept')", "sys.path.pop(0)"])
def test_an_import_of_another_thread_finds_its_module_while_a_model_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """It goes through the entries of sys.path one by one. What the model itself does to sys.path stays."""
    before = ["first", "second", "third", *sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    entries = iter(sys.path)
    passed = [next(entries)]
    monkeypatch.setattr(sys, "go_on", lambda: passed.append(next(entries)), raising=False)
    load_python(tmp_path, f"import sys\nsys.go_on()\n{more}\ndef predict(inputs, parameters): ...\n")
    assert [*passed, *entries] == before
    assert sys.path == [*before, "kept"] if "kept" in more else sys.path == before


@pytest.mark.parametrize(("returned", "error", "message"), [
    ("1", ModelFailed, "returned int, not a dict of arrays"),
    ("{}", ModelFailed, r"returned no output 'y'; it returned \[\]"),
    ("{'y': [[1], [1, 2]]}", ModelFailed, "output 'y' is not an array"),
    ("{'y': 1j}", ModelFailed, "output 'y' is complex128, which is not FP32"),
    ("{'y': 1.0, 'b': 1}", ModelFailed, "output 'b' has 1 where BYTES needs str or bytes"),
    ("{'y': 1.0, 'b': '\\ud800'}", ModelFailed, "output 'b' has a lone surrogate"),
    ("{'y': 1.0, 'b': b'', 'h': 1.0}", ModelFailed, "output 'h' is float64, which is not BF16"),
])  # fmt: skip
def test_a_python_model_that_returns_something_else_is_at_fault(
    tmp_path: Path, returned: str, error: type[Exception], message: str
) -> None:
    """The refusal names the output, what came and what was declared."""
    outputs = [{"name": n, "datatype": d, "shape": None} for n, d in (("y", "FP32"), ("b", "BYTES"), ("h", "BF16"))]
    model = load_python(tmp_path, f"metadata = {{'outputs': {outputs}}}\ndef predict(i, p): return {returned}")
    with pytest.raises(error, match=message):
        model.predict({}, ["y", "b", "h"], {})


def test_a_python_model_that_says_nothing_answers_what_it_has(tmp_path: Path) -> None:
    """Datatypes follow from the arrays; an output that it does not return is the client's mistake."""
    model = load_python(
        tmp_path,
        "import numpy as np\n"
        "def predict(i, p): return {'a': np.ones(2, 'i2'), 's': ['x', b'y'], 'c': np.ones(1, 'c8')}",
    )
    a, s = model.predict({}, ["a", "s"], {})
    assert (a.datatype.name, s.datatype.name, s.array.tolist()) == ("INT16", "BYTES", [b"x", b"y"])
    with pytest.raises(InvalidInput, match="returned no output 'q'"):
        model.predict({}, ["q"], {})
    with pytest.raises(ModelFailed, match="'c' is complex64, which is not a type that the protocols have"):
        model.predict({}, [], {})


def test_a_python_model_may_run_an_event_loop_of_its_own(tmp_path: Path) -> None:
    """A loop may already run in the thread that asks."""
    model = load_python(
        tmp_path, "import asyncio\ndef predict(i, p): return {'y': asyncio.run(asyncio.sleep(0, [1.0, 2.0]))}"
    )

    async def ask() -> Any:
        return model.predict({}, [], {})

    assert model.predict({}, [], {})[0].array.tolist() == [1.0, 2.0]
    assert asyncio.run(ask())[0].array.tolist() == [1.0, 2.0]


def test_bfloat16_of_a_python_model_is_uint16(tmp_path: Path) -> None:
    """The same holds for its input."""
    model = load_python(
        tmp_path,
        "import numpy as np\nmetadata = {'outputs': [{'name': 'y', 'datatype': 'BF16', 'shape': [1]}]}\n"
        "def predict(i, p): return {'y': np.array([7], 'u2')}",
    )
    assert model.predict({}, [], {})[0].array.tolist() == [7]


def test_what_a_model_raises_is_told_in_one_line(tmp_path: Path) -> None:
    """A refusal that the model raised itself stays one."""
    model = load_python(
        tmp_path,
        "from core.errors import InvalidInput\n"
        "def predict(i, p):\n    raise InvalidInput('no') if p else ValueError('a\\nb')",
    )
    with pytest.raises(ModelFailed, match="model 'm' raised ValueError$"):
        model.predict({}, [], {})
    with pytest.raises(InvalidInput, match="no"):
        model.predict({}, [], {"refuse": True})


class Entry:
    """An installed package's entry point; no package of the tests has one of ours."""

    def load(self) -> Any:
        """Returns what the package offers."""
        return lambda source, settings: (source, settings)


def test_third_parties_runtimes_are_found_by_the_settings_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked for only if the version has no file of ours."""
    found = {"theirs": [Entry()]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: found.get(name, []))
    assert backends.choose("m", {"model.bin"}, ModelSettings(implementation="theirs")) is not None
    assert not backends.is_pipeline({"model.bin"}, ModelSettings(implementation="theirs"))
    with pytest.raises(ModelNotLoadable, match="has no model.onnx, model.py or pipeline.json; its files: model.bin"):
        backends.choose("m", {"model.bin"}, ModelSettings(implementation="nobodys"))
    with pytest.raises(ModelNotLoadable, match="its files: none"):
        backends.choose("m", set(), ModelSettings())


def test_a_plugin_of_ours_is_found_without_looking_at_packages() -> None:
    """A string names it."""
    assert plugins.find("x", {"x": "math:pi"}, "g") == pytest.approx(3.14159, abs=1e-5)
