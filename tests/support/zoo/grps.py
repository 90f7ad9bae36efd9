"""The models that the tests of GRPS use."""

from pathlib import Path
from typing import Any, Final

from tests.support.zoo.models import adds, identity

_UNTOLD = '''
"""Gives back what it gets, and tells nobody what that is."""
def predict(inputs, parameters):
    return inputs
'''

_RAW = '''
"""data -> data, strings of any bytes."""
metadata = {"inputs": [{"name": "data", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": "data", "datatype": "BYTES", "shape": [-1]}]}

def predict(inputs, parameters):
    return {"data": inputs["data"]}
'''

_SINGLES = '''
"""One element of many types each, given back under another name."""
TYPES = ["BOOL", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP16", "FP32", "FP64", "BYTES"]
metadata = {
    "inputs": [{"name": t.lower(), "datatype": t, "shape": [1]} for t in TYPES],
    "outputs": [{"name": t.lower() + "_out", "datatype": t, "shape": [1]} for t in TYPES],
}

def predict(inputs, parameters):
    return {name + "_out": array for name, array in inputs.items()}
'''

_COUNTS = '''
"""n -> n texts, "0" to n-1, one answer each."""
import numpy as np

metadata = {"inputs": [{"name": "n", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "text", "datatype": "BYTES", "shape": [1]}]}

def predict(inputs, parameters):
    for number in range(int(inputs["n"][0])):
        yield {"text": np.array([b"%d" % number], object)}
'''

_GATED = '''
"""Gives one answer, and the next when the file that the request names is there; then fails, if it is not empty."""
import os
import time
import numpy as np

metadata = {"inputs": [{"name": "gate", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "text", "datatype": "BYTES", "shape": [1]}]}

def predict(inputs, parameters):
    gate = inputs["gate"][0].decode()
    yield {"text": np.array([b"first"], object)}
    deadline = time.monotonic() + 30
    while not os.path.exists(gate) and time.monotonic() < deadline:
        time.sleep(0.005)
    yield {"text": np.array([b"second"], object)}
    if os.path.getsize(gate):
        raise RuntimeError("the bird has flown")
'''

_CHANGES = '''
"""One answer in each form: a text, bytes that are none, two texts."""
import numpy as np

metadata = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}]}

def predict(inputs, parameters):
    for texts in ([b"a"], [b"\\xff\\xfe"], [b"a", b"b"]):
        yield {"y": np.array(texts, object)}
'''

_RAISES = '''
"""Fails with two lines, or with what the protocol cannot carry."""
import numpy as np

metadata = {"inputs": [{"name": "kind", "datatype": "BYTES", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "UINT64", "shape": [-1]}]}

def predict(inputs, parameters):
    if inputs["kind"][0] == b"large":
        return {"y": np.array([2**63], np.uint64)}
    raise ValueError("the bird\\nhas flown from /a/path")
'''

_PYTHON: Final = {
    "untold": _UNTOLD, "raw": _RAW, "singles": _SINGLES, "stream": _COUNTS, "gated": _GATED, "changes": _CHANGES,
    "raises": _RAISES,
}  # fmt: skip


def _onnx() -> dict[str, Any]:
    return {
        "text/1": identity("BYTES", [1]),
        "text-scalar/1": identity("BYTES", []),
        "text-matrix/1": identity("BYTES", [1, 1]),
        "texts/1": identity("BYTES", [None]),
        "octets/1": identity("UINT8", [None]),
        "octets-batch/1": identity("UINT8", [1, None]),
        "octets-fixed/1": identity("UINT8", [3]),
        "pairs/1": identity("FP32", [None, 2]),
        "image/1": identity("FP32", [None, None, None, None]),
        **{f"my-model/{number}": adds(number) for number in (1, 2, 10)},
        # These selectors could mean two things.
        "twin/1": adds(100),
        "twin-1/3": adds(200),
        "dashed-7/1": adds(300),
    }


def build(root: Path) -> Path:
    """Adds them to the repository below root, which is returned."""
    files = {f"{place}/model.onnx": model.SerializeToString() for place, model in _onnx().items()}
    files |= {f"{name}/1/model.py": source.encode() for name, source in _PYTHON.items()}
    files["broken/1/model.onnx"] = b"this is not a model"
    files["my-model/model-settings.json"] = b'{"version_policy": {"all": {}}}'
    return written(root, files)


def only(root: Path) -> Path:
    """Makes a repository of one model."""
    return written(root, {"text/1/model.onnx": identity("BYTES", [1]).SerializeToString()})


def written(root: Path, files: dict[str, bytes]) -> Path:
    for place, content in files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root
