"""Models, tensors and messages that the tests of GRPS share."""

from typing import Any, Final

import numpy as np

from core.dialects.grps import messages as grps_messages
from core.dialects.grps.content import GrpsQuestion, element
from core.dtype import BF16, DATATYPES, DataType
from core.operations import InferResult, ModelSpec
from core.tensor import Tensor, TensorSpec
from tests.support.samples import sample

FP32: Final = DATATYPES["FP32"]
OWN: Final = [row for row in DATATYPES.values() if row.grps]
"""The datatypes that the protocol itself has."""
by_name = {"ids": lambda row: row.name}


def spec(name: str, datatype: str, *shape: int, rank: bool = True, optional: bool = False) -> TensorSpec:
    """Returns the spec of one input or output; `rank` False: of any shape."""
    return TensorSpec(name, DATATYPES[datatype], shape if rank else None, optional=optional)


def model(*inputs: TensorSpec) -> ModelSpec:
    """Returns version 7 of m with these inputs."""
    return ModelSpec("m", "7", "onnx_onnxv1", inputs, (spec("y", "FP32", -1),))


UNTOLD: Final = ModelSpec("m", "7", "python", None, None)


def tensor(name: str, datatype: str, values: Any, *shape: int) -> Tensor:
    """Returns a tensor of these elements, which is a vector if no shape is given."""
    row = DATATYPES[datatype]
    if row.is_bytes:
        array = np.empty(len(values), object)
        array[:] = values
    else:
        array = np.array(values, row.numpy)
    return Tensor(name, row, array.reshape(shape or array.shape))


def string(name: str, value: bytes) -> Tensor:
    """Returns a BYTES tensor without a dimension."""
    return Tensor(name, DATATYPES["BYTES"], element(value))


def result(*outputs: Tensor) -> InferResult:
    """Returns a model's result."""
    return InferResult("m", "7", outputs)


def filled(datatype: DataType, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor of the samples of a datatype."""
    count = int(np.prod(shape))
    values = [x.encode() if isinstance(x, str) else x for x in sample(datatype, count)]
    array = np.empty(count, datatype.numpy)
    array[:] = values
    return Tensor("t", datatype, array.reshape(shape))


def read(body: bytes) -> GrpsQuestion:
    """Returns what the bytes of a message say."""
    request = grps_messages.read(body)
    return GrpsQuestion(request.model, request.content())


def same(left: Tensor, right: Tensor) -> bool:
    """Compares name, datatype, shape and elements; any NaN equals any NaN."""
    if left[:2] != right[:2] or left.array.shape != right.array.shape or left.array.dtype != right.array.dtype:
        return False
    floats = left.array.dtype.kind == "f" and left.datatype is not BF16
    return bool(np.array_equal(left.array, right.array, equal_nan=floats))
