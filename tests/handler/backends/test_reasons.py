"""handler.backends.reasons: which of ONNX Runtime's failures are about the shapes of a request's inputs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from core.dtype import of_array
from core.errors import Fault, ServingError
from core.tensor import Tensor
from handler.backends import Source
from handler.backends import onnx as onnx_backend
from handler.backends.reasons import LONGEST, READ, for_log, is_about_numbers, one_line, shapes
from handler.settings import Settings
from handler.settings.model import ModelSettings

KINDS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(object): TensorProto.STRING,
}
TREE = {
    "domain": "ai.onnx.ml", "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [5, 0, 0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
    "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
}  # fmt: skip


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Ones."""
    return np.ones(shape, np.float32)


def integers(*values: int) -> np.ndarray[Any, Any]:
    """A vector."""
    return np.array(values, np.int64)


@pytest.fixture
def fault(tmp_path: Path) -> Callable[..., tuple[Fault, str]]:
    """Runs one node on inputs of any shapes; returns the failure."""

    def run(kind: str, *arrays: np.ndarray[Any, Any], **attributes: Any) -> tuple[Fault, str]:
        names = [f"x{index}" for index in range(len(arrays))]
        node = helper.make_node(kind, names, ["y"], name="a_shape_of_dims", **attributes)
        inputs = [
            helper.make_tensor_value_info(name, KINDS[array.dtype], None)
            for name, array in zip(names, arrays, strict=True)
        ]
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        model = onnx_backend.load(Source("m", "1", tmp_path, ModelSettings()), Settings.from_env({}))
        tensors = {
            name: Tensor(name, of_array(array.dtype), array)  # type: ignore[arg-type] # KINDS are datatypes
            for name, array in zip(names, arrays, strict=True)
        }
        with pytest.raises(ServingError) as refused:
            model.predict(tensors, ["y"], {})
        return refused.value.fault, refused.value.message

    return run


@pytest.mark.parametrize(("kind", "arrays", "attributes"), [
    ("Add", [floats(2), floats(3)], {}),
    ("MatMul", [floats(2, 3), floats(2, 3)], {}),
    ("Gemm", [floats(2, 3, 4), floats(2, 3)], {}),
    ("Concat", [floats(2, 3), floats(2)], {"axis": 0}),
    ("Reshape", [floats(2, 3), integers(4, 2)], {}),
    ("Conv", [floats(1, 3, 4, 4), floats(1, 2, 3, 3)], {}),
    ("Softmax", [floats(2)], {"axis": 1}),
    ("Transpose", [floats(2)], {"perm": [1, 0]}),
    ("TreeEnsembleRegressor", [floats(2)], TREE),
])  # fmt: skip
def test_inputs_that_do_not_fit_each_other_are_the_clients_mistake(
    fault: Callable[..., tuple[Fault, str]], kind: str, arrays: list[Any], attributes: dict[str, Any]
) -> None:
    """Their shapes agree with the model's description; only its nodes know better. The refusal has the shapes."""
    found, message = fault(kind, *arrays, **attributes)
    assert found is Fault.INVALID_ARGUMENT
    told = ", ".join(f"'x{index}' {list(array.shape)}" for index, array in enumerate(arrays))
    assert message.startswith(f"model 'm' refuses the shapes of its inputs: {told}: ")
    assert kind in message
    assert not re.search(r"\.(cc|h)\b|::|\bvoid\b", message)


@pytest.mark.parametrize(("text", "expected"), [
    ("Status Message: ops.h:563 void a::B::Init(ptrdiff_t, const C&) n == 1 was false. 2 by 3",
     "Status Message: n == 1 was false. 2 by 3"),
    ("Message: /x/y/helper.cc:91 a::H::H(const a::Shape&, bool) const Input {2}", "Message: Input {2}"),
    ("Message: ops.cc:703 Compute Integer division (by zero)", "Message: Integer division (by zero)"),
    ("a.h:1 b", "a.h:1 b"), ("see a.h: b c", "see a.h: b c"),
])  # fmt: skip
def test_a_text_has_no_file_names_and_signatures_of_the_runtimes_sources(text: str, expected: str) -> None:
    """A client cannot use them, and the bounded text would end before its reason."""
    assert one_line(text) == expected


@pytest.mark.parametrize(("kind", "arrays"), [
    ("Gather", [floats(2), integers(9)]),
    ("Expand", [floats(1), integers(2**42)]),
])  # fmt: skip
def test_other_failures_are_the_models_whatever_its_nodes_are_called(
    fault: Callable[..., tuple[Fault, str]], kind: str, arrays: list[Any]
) -> None:
    """An index that is out of range, and a lack of memory."""
    found, message = fault(kind, *arrays)
    assert found is Fault.INTERNAL
    assert message.startswith("model 'm' failed: ")


def test_a_failure_that_a_client_can_cause_is_one_line_of_the_log(
    fault: Callable[..., tuple[Fault, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its traceback is always that of the same calls, and would fill the log."""
    fault("Gather", floats(2), integers(9))
    line = caplog.records[-1]
    assert (line.levelname, line.exc_info) == ("ERROR", None)
    assert line.getMessage().startswith("model m version 1 failed: [ONNXRuntimeError]")
    assert line.getMessage().endswith("idx=9 must be within the inclusive range [-2,1]")


def test_only_a_mistake_of_this_server_has_its_traceback_in_the_log() -> None:
    """The runtime's text can be of any length: a file can name a node with millions of characters."""
    own = Exception("[ONNXRuntimeError] : 1 : FAIL :\n" + "x" * 10**6)
    text, trace = for_log(own)
    assert (text[:34], len(text) <= READ, trace) == ("[ONNXRuntimeError] : 1 : FAIL : xx", True, None)
    mistake = TypeError("a mistake")
    assert for_log(mistake) == ("a mistake", mistake)


@pytest.mark.parametrize("text", [b"x", b"", b"1e999"])
def test_a_text_that_is_not_a_number_is_the_clients_mistake(
    fault: Callable[..., tuple[Fault, str]], text: bytes
) -> None:
    """ONNX Runtime says no more than the name of a function of C++."""
    found = fault("Cast", np.array([text], object), to=TensorProto.FLOAT)
    assert found == (
        Fault.INVALID_ARGUMENT,
        "model 'm' reads numbers from the texts of an input, and one is not a number",
    )


@pytest.mark.parametrize("reader", ["stod", "stof", "stoll", "stoull"])
def test_only_a_nodes_own_words_say_that_a_text_is_not_a_number(reader: str) -> None:
    """The node may be called so."""
    assert is_about_numbers(Exception(f"while running Cast node. Name:'n' Status Message: {reader}"))
    assert not is_about_numbers(Exception(f"while running Cast node. Name:'{reader}' Status Message: out of memory"))


def test_shapes_are_those_of_arrays_and_of_the_runtimes_values_within_a_bound() -> None:
    """A model can have any number of inputs."""
    value = onnxruntime.OrtValue.ortvalue_from_numpy(floats(2, 0))
    assert shapes({"a": floats(), "b\n": value}) == r"'a' [], 'b\n' [2, 0]"
    many = shapes({f"x{index}": floats(2, 3) for index in range(100)})
    assert (len(many), many[-3:]) == (LONGEST, "...")
