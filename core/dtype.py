"""THE datatype table: the names of each element type in every format, one row per type."""

from typing import Final, NamedTuple

import numpy as np


class DataType(NamedTuple):
    """One element type of the Open Inference Protocol (spec section "Tensor Data Types")."""

    name: str
    """The protocol's name, e.g. FP32."""
    numpy: np.dtype[np.generic]
    """The core's arrays of it: little-endian as on the wire. BYTES: objects of `bytes`. BF16: its 16 bits."""
    onnx: int
    """onnx.TensorProto.DataType."""
    triton: str
    """The name in Triton's model configuration."""
    tensorflow: str
    """tensorflow.DataType; its messages write it in lower case, without DT_."""
    contents: str
    """The field of InferTensorContents (open_inference.proto); "" for floats of 16 bits, which are sent raw."""
    grps: str
    """GRPS's DataType (grps.proto); "" if GRPS does not have such elements."""

    @property
    def grps_field(self) -> str:
        """The field of GRPS's GenericTensor that holds its elements."""
        return "flat_" + self.grps.removeprefix("DT_").lower()

    @property
    def is_float(self) -> bool:
        return self.numpy.kind == "f"

    @property
    def is_bytes(self) -> bool:
        return self.numpy.kind == "O"


DATATYPES: Final = {
    row.name: row
    for row in (
        DataType("BOOL", np.dtype("?"), 9, "TYPE_BOOL", "DT_BOOL", "bool_contents", ""),
        DataType("UINT8", np.dtype("u1"), 2, "TYPE_UINT8", "DT_UINT8", "uint_contents", "DT_UINT8"),
        DataType("UINT16", np.dtype("<u2"), 4, "TYPE_UINT16", "DT_UINT16", "uint_contents", ""),
        DataType("UINT32", np.dtype("<u4"), 12, "TYPE_UINT32", "DT_UINT32", "uint_contents", ""),
        DataType("UINT64", np.dtype("<u8"), 13, "TYPE_UINT64", "DT_UINT64", "uint64_contents", ""),
        DataType("INT8", np.dtype("i1"), 3, "TYPE_INT8", "DT_INT8", "int_contents", "DT_INT8"),
        DataType("INT16", np.dtype("<i2"), 5, "TYPE_INT16", "DT_INT16", "int_contents", "DT_INT16"),
        DataType("INT32", np.dtype("<i4"), 6, "TYPE_INT32", "DT_INT32", "int_contents", "DT_INT32"),
        DataType("INT64", np.dtype("<i8"), 7, "TYPE_INT64", "DT_INT64", "int64_contents", "DT_INT64"),
        DataType("FP16", np.dtype("<f2"), 10, "TYPE_FP16", "DT_HALF", "", "DT_FLOAT16"),
        DataType("FP32", np.dtype("<f4"), 1, "TYPE_FP32", "DT_FLOAT", "fp32_contents", "DT_FLOAT32"),
        DataType("FP64", np.dtype("<f8"), 11, "TYPE_FP64", "DT_DOUBLE", "fp64_contents", "DT_FLOAT64"),
        DataType("BYTES", np.dtype("O"), 8, "TYPE_STRING", "DT_STRING", "bytes_contents", "DT_STRING"),
        DataType("BF16", np.dtype("<u2"), 16, "TYPE_BF16", "DT_BFLOAT16", "", ""),
    )
}
BYTES: Final = DATATYPES["BYTES"]
BF16: Final = DATATYPES["BF16"]
BOOL: Final = DATATYPES["BOOL"]
BY_GRPS: Final = {row.grps: row for row in DATATYPES.values() if row.grps}
BY_ONNX: Final = {row.onnx: row for row in DATATYPES.values()}
# BF16 shares numpy's uint16 with UINT16, so an array alone never means BF16.
BY_NUMPY: Final = {row.numpy: row for row in DATATYPES.values() if row is not BF16}


def of_array(dtype: np.dtype[np.generic]) -> DataType | None:
    """Returns the datatype of an array's elements, None for elements outside the protocol (complex, datetime, ...)."""
    return BYTES if dtype.kind in "OSU" else BY_NUMPY.get(dtype.newbyteorder("<"))
