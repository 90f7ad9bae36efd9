"""Models that take as long as a client wants, all from n to y, INT64 [1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support.publishing import publish, say
from tests.support.zoo.models import IR_VERSION, OPSET

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS: Final = 2**62
"""The n of a loop that takes thousands of years."""
_WAITS: Final = '''
"""Notes each n in a file of its own, and answers once the file `open` exists; 0 at once."""
import os
import time
import uuid
import numpy as np

HERE = {here!r}
metadata = {{"inputs": [{{"name": "n", "datatype": "INT64", "shape": [1]}}],
             "outputs": [{{"name": "y", "datatype": "INT64", "shape": [1]}}]}}

def wait(n):
    if n:
        open(f"{{HERE}}/{{n}}.{{uuid.uuid4()}}", "w").close()
    while n and not os.path.exists(HERE + "/open"):
        time.sleep(0.005)
    return {{"y": np.array([n], np.int64)}}

def predict(inputs, parameters):
    return wait(int(inputs["n"][0]))

def stream(inputs, parameters):
    yield wait(0)
    yield predict(inputs, parameters)

def explain(inputs, parameters):
    return wait(int(inputs["n"][0]))["y"]

def http(request):
    wait(int(request.body))
    return "done"
'''


def loop() -> bytes:
    """Returns a graph that counts from 0 to n."""
    value, scalar = helper.make_tensor_value_info, list[int]()
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "one"], ["w"])],
        "body",
        [
            value("i", TensorProto.INT64, scalar),
            value("go", TensorProto.BOOL, scalar),
            value("v", TensorProto.INT64, [1]),
        ],
        [value("on", TensorProto.BOOL, scalar), value("w", TensorProto.INT64, [1])],
        [numpy_helper.from_array(np.array([1]), "one")],
    )
    nodes = [
        helper.make_node("Squeeze", ["n"], ["count"]),
        helper.make_node("Loop", ["count", "", "zero"], ["y"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "loop",
        [value("n", TensorProto.INT64, [1])],
        [value("y", TensorProto.INT64, [1])],
        [numpy_helper.from_array(np.array([0]), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    made: bytes = model.SerializeToString()
    return made


def write(root: Path, gate: Path, **settings: Any) -> None:
    """Writes `loop` (ONNX), `waits` (Python, for the file `open` in `gate`) with the settings, and `other` (ONNX)."""
    gate.mkdir()
    publish(root, "loop", 1, loop())
    publish(root, "other", 1, loop())
    publish(root, "waits", 1, _WAITS.format(here=str(gate)).encode(), "model.py")
    for name in ("loop", "waits"):
        say(root, name, **settings)
    say(root, "waits", http={"path": "/own/waits"}, **settings)
