"""Imports TensorFlow and tf2onnx: once, without their log lines, for the CPU."""

import logging
import os
import warnings
from typing import Final

from core.dtype import DATATYPES, DataType
from handler.commands.refused import Refused

# TensorFlow's libraries read these while they are loaded. oneDNN's kernels round in another order than the plain ones.
QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
for variable, value in QUIET.items():
    os.environ.setdefault(variable, value)

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern TensorFlow's own code: a publisher cannot act on them
        import onnx
        import onnxruntime
        import tensorflow as tf
        from tensorflow.core.framework import types_pb2
        from tensorflow.python.framework import convert_to_constants
        from tensorflow.python.grappler import tf_optimizer
        from tf2onnx import optimizer, tfonnx
        from tf2onnx.onnx_opset import math
except ImportError as error:
    if "bad_alloc" in str(error):  # within --memory
        raise MemoryError from None
    raise Refused(
        f"`dragoman convert` needs TensorFlow, tf2onnx and ONNX Runtime ({error}): pip install 'dragoman[convert]'"
    ) from None

__all__ = [
    "convert_to_constants",
    "math",
    "onnx",
    "onnxruntime",
    "optimizer",
    "tf",
    "tf2onnx_log",
    "tf_optimizer",
    "tfonnx",
]

for name in ("tensorflow", "absl"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
tf2onnx_log: Final = logging.getLogger("tf2onnx")
tf2onnx_log.setLevel(logging.ERROR)  # its log is the only place that names a failed node
tf2onnx_log.propagate = False
tf2onnx_log.addHandler(logging.NullHandler())

BY_TENSORFLOW: Final = {row.tensorflow: row for row in DATATYPES.values()}


def datatype(number: int, what: str) -> DataType:
    """Returns the row of a tensorflow.DataType. Raises Refused with the name of `what` has it."""
    name = types_pb2.DataType.Name(number)
    if name not in BY_TENSORFLOW:
        raise Refused(f"{what} is {name}, which no protocol carries")
    return BY_TENSORFLOW[name]
