"""The python models of the zoo, as the text of their `model.py`: the server under test runs them, never the test."""

from typing import Final

_ECHO_PARAMETERS = '''
"""x -> the request's parameters as JSON text, and x."""
import json
import numpy as np

metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [
        {"name": "x", "datatype": "FP32", "shape": [-1]},
        {"name": "parameters", "datatype": "BYTES", "shape": [1]},
    ],
}

def predict(inputs, parameters):
    text = json.dumps(parameters, sort_keys=True, default=repr).encode()
    return {"x": inputs["x"], "parameters": np.array([text], object)}
'''

_RAW_BYTES = '''
"""data -> data, BYTES of any content: python models take and give `bytes` objects."""
metadata = {"inputs": [{"name": "data", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": "data", "datatype": "BYTES", "shape": [-1]}]}

def predict(inputs, parameters):
    assert all(type(element) is bytes for element in inputs["data"].ravel())
    return {"data": inputs["data"]}
'''

_BF16 = '''
"""x -> x, BF16 as it travels: a uint16 array."""
metadata = {"inputs": [{"name": "x", "datatype": "BF16", "shape": [-1]}],
            "outputs": [{"name": "x", "datatype": "BF16", "shape": [-1]}]}

def predict(inputs, parameters):
    assert inputs["x"].dtype == "uint16"
    return {"x": inputs["x"]}
'''

_RAISES = '''
"""Fails in the way that `kind` names."""
import asyncio
import numpy as np

metadata = {"inputs": [{"name": "kind", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}

class Silent(Exception):
    def __str__(self):
        raise ValueError("no words")

class Base(BaseException):
    pass

BEYOND_EXCEPTION = {
    "keyboard_interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "generator_exit": GeneratorExit,
    "stop_iteration": StopIteration,
    "base": Base,
    "silent": Silent,
}

def deep(n):
    return deep(n + 1) + 1

def predict(inputs, parameters):
    kind = inputs["kind"][0].decode()
    if kind == "exception":
        raise ValueError("the bird has flown")
    if kind == "system_exit":
        raise SystemExit(3)
    if kind == "recursion":
        deep(0)
    if kind == "long":
        raise RuntimeError("x" * 1_000_000)
    if kind == "surrogate":
        raise RuntimeError("\\ud800")
    if kind == "assertion":
        assert kind == "another"
    if kind in BEYOND_EXCEPTION:
        raise BEYOND_EXCEPTION[kind]()
    return {"y": np.zeros(1, np.float32)}
'''

_RETURNS = '''
"""Answers in the way that `kind` names, most of them not what its metadata promises."""
import numpy as np

metadata = {"inputs": [{"name": "kind", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}
ANSWERS = {
    "right": lambda: {"y": np.array([1.5], np.float32)},
    "strided": lambda: {"y": np.arange(6, dtype=np.float32)[::2]},
    "big_endian": lambda: {"y": np.array([1.5], ">f4")},
    "nothing": lambda: None,
    "array": lambda: np.zeros(1, np.float32),
    "empty": dict,
    "other_name": lambda: {"z": np.zeros(1, np.float32)},
    "number_as_name": lambda: {1: np.zeros(1, np.float32)},
    "complex": lambda: {"y": np.zeros(1, complex)},
    "time": lambda: {"y": np.zeros(1, "M8[s]")},
    "ints_as_objects": lambda: {"y": np.array([1], object)},
    "none_as_value": lambda: {"y": None},
    "class": lambda: {"y": object},
}

def predict(inputs, parameters):
    return ANSWERS[inputs["kind"][0].decode()]()
'''

_WAITS = '''
"""Answers once the file `gate` exists: a slow model without a clock."""
import os
import time
import numpy as np

metadata = {"inputs": [{"name": "gate", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT32", "shape": [1]}]}

def predict(inputs, parameters):
    gate = inputs["gate"][0].decode()
    open(gate + ".entered", "w").close()
    deadline = time.monotonic() + 30
    while not os.path.exists(gate) and time.monotonic() < deadline:
        time.sleep(0.005)
    return {"y": np.array([7], np.int32)}
'''

LOADS_LATE: Final = '''
"""Is loading until a file `gate` stands beside it, and writes `loads` once per load."""
import pathlib
import time
import numpy as np

here = pathlib.Path(__file__).parent
with (here / "loads").open("a") as loads:
    loads.write("x")
deadline = time.monotonic() + 30
while not (here / "gate").exists() and time.monotonic() < deadline:
    time.sleep(0.005)

metadata = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT32", "shape": [1]}]}

def predict(inputs, parameters):
    return {"y": inputs["x"]}
'''

ENDLESS: Final = '''
"""Counts until its client leaves, and notes that in a file beside it, which `note` can name."""
import pathlib
import numpy as np

metadata = {"inputs": [], "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    number = 0
    try:
        while True:
            yield {"y": np.array([number])}
            number += 1
    finally:
        pathlib.Path(__file__).with_name(parameters.get("note", "left")).touch()
'''

_NO_METADATA = '''
"""x -> 2 x, and tells nobody its inputs."""
def predict(inputs, parameters):
    return {"y": inputs["x"] * 2}
'''

_IN_PLACE = '''
"""x -> x + 1, calculated in the very array that came."""
metadata = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [-1]}],
            "outputs": [{"name": "y", "datatype": "INT32", "shape": [-1]}]}

def predict(inputs, parameters):
    inputs["x"] += 1
    parameters["own"] = True
    return {"y": inputs["x"]}
'''

_NO_PREDICT = '''
"""Has nothing to call."""
answer = 42
'''

_BAD_IMPORT = '''
"""Cannot be imported."""
import a_module_that_nobody_has
'''

_EXIT = '''
"""Ends the process, if it may."""
import sys
sys.exit(3)
'''

_INTERRUPT = '''
"""Interrupts the process, if it may."""
raise KeyboardInterrupt
'''

_SYNTAX = "def predict(:\n"

_YIELDS = '''
"""n -> 0 to n-1, one answer each; with the parameter `fail`, it fails after them."""
import numpy as np

metadata = {"inputs": [{"name": "n", "datatype": "INT64", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    for number in range(int(inputs["n"][0])):
        yield {"y": np.array([number])}
    if parameters.get("fail"):
        raise RuntimeError("no more")
'''

PYTHON_MODELS: Final = {
    "yields": _YIELDS, "py_echo_parameters": _ECHO_PARAMETERS, "py_raw_bytes": _RAW_BYTES, "py_bf16": _BF16,
    "py_raises": _RAISES, "py_returns": _RETURNS, "py_waits": _WAITS, "py_no_metadata": _NO_METADATA,
    "py_in_place": _IN_PLACE, "py_broken_no_predict": _NO_PREDICT, "py_broken_import": _BAD_IMPORT,
    "py_broken_exit": _EXIT, "py_broken_interrupt": _INTERRUPT, "py_broken_syntax": _SYNTAX,
}  # fmt: skip
