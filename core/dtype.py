"""THE datatype table: the names of each element type in every format, one row per type."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from core.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import DTypeLike as DTypeLike  # noqa: PLC0414 - exports
    from numpy.typing import NDArray as NDArray  # noqa: PLC0414
else:  # numpy.typing takes 1 ms of each cold start
    DTypeLike, NDArray = object, np.ndarray

OBJECT: Final = 64
"""Bytes that an element of BYTES takes beside its own: its place in the array, and a Python object."""


class DataType(NamedTuple):
    """One element type of the Open Inference Protocol (spec section "Tensor Data Types")."""

    name: str
    """The protocol's name, e.g. FP32."""
    numpy: np.dtype[np.generic]
    """The core's arrays of it are little-endian as on the wire. BYTES: objects of `bytes`. BF16: its 16 bits."""
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

    is_float: bool
    """Whether numpy has these elements as floats, which it does not have for BF16."""
    is_bytes: bool

    @property
    def accepts(self) -> tuple[str, ...]:
        """The names of the narrower datatypes whose every value it has, and that a model of it takes as well."""
        return ("FP32",) if self.name == "FP64" else ()

    def memory(self, array: "NDArray[Any]") -> int:
        """Returns the bytes that an array of it takes, with its texts."""
        return sum(map(len, array.flat)) + OBJECT * array.size if self.is_bytes else array.nbytes

    @property
    def grps_field(self) -> str:
        """The field of GRPS's GenericTensor that holds its elements."""
        return "flat_" + self.grps.removeprefix("DT_").lower()


def _row(name: str, numpy: str, onnx: int, *names: str) -> DataType:
    dtype = np.dtype(numpy)
    return DataType._make((name, dtype, onnx, *names, dtype.kind == "f", dtype.kind == "O"))


DATATYPES: Final = {
    row.name: row
    for row in (
        _row("BOOL", "?", 9, "TYPE_BOOL", "DT_BOOL", "bool_contents", ""),
        _row("UINT8", "u1", 2, "TYPE_UINT8", "DT_UINT8", "uint_contents", "DT_UINT8"),
        _row("UINT16", "<u2", 4, "TYPE_UINT16", "DT_UINT16", "uint_contents", ""),
        _row("UINT32", "<u4", 12, "TYPE_UINT32", "DT_UINT32", "uint_contents", ""),
        _row("UINT64", "<u8", 13, "TYPE_UINT64", "DT_UINT64", "uint64_contents", ""),
        _row("INT8", "i1", 3, "TYPE_INT8", "DT_INT8", "int_contents", "DT_INT8"),
        _row("INT16", "<i2", 5, "TYPE_INT16", "DT_INT16", "int_contents", "DT_INT16"),
        _row("INT32", "<i4", 6, "TYPE_INT32", "DT_INT32", "int_contents", "DT_INT32"),
        _row("INT64", "<i8", 7, "TYPE_INT64", "DT_INT64", "int64_contents", "DT_INT64"),
        _row("FP16", "<f2", 10, "TYPE_FP16", "DT_HALF", "", "DT_FLOAT16"),
        _row("FP32", "<f4", 1, "TYPE_FP32", "DT_FLOAT", "fp32_contents", "DT_FLOAT32"),
        _row("FP64", "<f8", 11, "TYPE_FP64", "DT_DOUBLE", "fp64_contents", "DT_FLOAT64"),
        _row("BYTES", "O", 8, "TYPE_STRING", "DT_STRING", "bytes_contents", "DT_STRING"),
        _row("BF16", "<u2", 16, "TYPE_BF16", "DT_BFLOAT16", "", ""),
    )
}
BYTES: Final = DATATYPES["BYTES"]
BF16: Final = DATATYPES["BF16"]
BOOL: Final = DATATYPES["BOOL"]
FP16: Final = DATATYPES["FP16"]
FP32: Final = DATATYPES["FP32"]
FP64: Final = DATATYPES["FP64"]
INT64: Final = DATATYPES["INT64"]
BY_GRPS: Final = {row.grps: row for row in DATATYPES.values() if row.grps}
BY_ONNX: Final = {row.onnx: row for row in DATATYPES.values()}
# BF16 shares numpy's uint16 with UINT16, so an array alone never means BF16.
BY_NUMPY: Final = {row.numpy: row for row in DATATYPES.values() if row is not BF16}


def of_array(dtype: np.dtype[np.generic]) -> DataType | None:
    """Returns the datatype of an array's elements, None for elements outside the protocol (complex, datetime, ...)."""
    return BYTES if dtype.kind in "OSUT" else BY_NUMPY.get(dtype.newbyteorder("<"))
