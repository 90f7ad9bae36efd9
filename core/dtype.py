"""THE datatype table: what each element type is called in every format, one row per type."""

from typing import Final, NamedTuple

import numpy as np


class DataType(NamedTuple):
    """One element type of the Open Inference Protocol (spec section "Tensor Data Types")."""

    name: str
    """The protocol's name, e.g. FP32."""
    numpy: np.dtype[np.generic]
    """How the core holds elements: little-endian as on the wire. BYTES: objects of `bytes`. BF16: its 16 bits."""
    onnx: int
    """onnx.TensorProto.DataType."""
    triton: str
    """The name in Triton's model configuration."""
    tensorflow: str
    """tensorflow.DataType; its messages write it in lower case, without DT_."""

    @property
    def is_float(self) -> bool:
        return self.numpy.kind == "f"

    @property
    def is_bytes(self) -> bool:
        return self.numpy.kind == "O"


def _row(name: str, numpy: str, onnx: int, triton: str, tensorflow: str) -> DataType:
    return DataType(name, np.dtype(numpy), onnx, triton, tensorflow)


DATATYPES: Final = {
    row.name: row
    for row in (
        _row("BOOL", "?", 9, "TYPE_BOOL", "DT_BOOL"),
        _row("UINT8", "u1", 2, "TYPE_UINT8", "DT_UINT8"),
        _row("UINT16", "<u2", 4, "TYPE_UINT16", "DT_UINT16"),
        _row("UINT32", "<u4", 12, "TYPE_UINT32", "DT_UINT32"),
        _row("UINT64", "<u8", 13, "TYPE_UINT64", "DT_UINT64"),
        _row("INT8", "i1", 3, "TYPE_INT8", "DT_INT8"),
        _row("INT16", "<i2", 5, "TYPE_INT16", "DT_INT16"),
        _row("INT32", "<i4", 6, "TYPE_INT32", "DT_INT32"),
        _row("INT64", "<i8", 7, "TYPE_INT64", "DT_INT64"),
        _row("FP16", "<f2", 10, "TYPE_FP16", "DT_HALF"),
        _row("FP32", "<f4", 1, "TYPE_FP32", "DT_FLOAT"),
        _row("FP64", "<f8", 11, "TYPE_FP64", "DT_DOUBLE"),
        _row("BYTES", "O", 8, "TYPE_STRING", "DT_STRING"),
        _row("BF16", "<u2", 16, "TYPE_BF16", "DT_BFLOAT16"),
    )
}
BYTES: Final = DATATYPES["BYTES"]
BF16: Final = DATATYPES["BF16"]
BOOL: Final = DATATYPES["BOOL"]
BY_ONNX: Final = {row.onnx: row for row in DATATYPES.values()}
# BF16 shares numpy's uint16 with UINT16, so an array alone never means BF16.
BY_NUMPY: Final = {row.numpy: row for row in DATATYPES.values() if row is not BF16}


def of_array(dtype: np.dtype[np.generic]) -> DataType | None:
    """The datatype of an array's elements; None where the protocol has none (complex, datetime, ...)."""
    return BYTES if dtype.kind in "OSU" else BY_NUMPY.get(dtype.newbyteorder("<"))
