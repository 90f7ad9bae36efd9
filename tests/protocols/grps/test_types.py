"""Every element type comes back in every shape, to the bit, over HTTP and gRPC."""

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.grps_client import FLAT, NUMBERS, Http, Rpc, to_json, to_message
from tests.support.wire import same

SHAPES: Final = [(), (0,), (3,), (2, 0), (2, 3)]
SPECIAL: Final = [np.nan, np.inf, -np.inf, -0.0, 0.1, 65504.0]
SAMPLES: Final[dict[str, tuple[str, list[Any]]]] = {
    "uint8": ("DT_UINT8", [0, 255, 1, 2, 3, 4]), "int8": ("DT_INT8", [-128, 127, 0, 1, 2, 3]),
    "int16": ("DT_INT16", [-(2**15), 2**15 - 1, 0, 1, 2, 3]), "int32": ("DT_INT32", [-(2**31), 2**31 - 1, 0, 1, 2, 3]),
    "int64": ("DT_INT64", [-(2**63), 2**63 - 1, 2**53 + 1, 0, 1, 2]), "fp16": ("DT_FLOAT16", SPECIAL),
    "fp32": ("DT_FLOAT32", [*SPECIAL[:5], 3.4028235e38]),
    "fp64": ("DT_FLOAT64", [*SPECIAL[:5], 1.7976931348623157e308]),
    "bytes": ("DT_STRING", ["", "a", "żółw", "\0", "\U0001f422", "x" * 1000]),
}  # fmt: skip
WIDENED: Final[dict[str, tuple[str, list[Any], list[Any]]]] = {
    "bool": ("DT_UINT8", [0, 1, 1], [2, 255]), "uint16": ("DT_INT32", [0, 65535, 1], [-1, 65536]),
    "uint32": ("DT_INT64", [0, 2**32 - 1, 1], [-1, 2**32]), "uint64": ("DT_INT64", [0, 2**63 - 1, 1], [-1]),
    "bf16": ("DT_FLOAT32", [0.5, -1.0, np.inf], [3.4e38]),
}  # fmt: skip
"""Each model's carrier: the type that carries its own, elements, and elements that are too large."""


def array_of(dtype: str, values: list[Any], shape: tuple[int, ...]) -> Any:
    """Returns elements in this shape."""
    return np.array(values[: int(np.prod(shape))], FLAT[dtype][1]).reshape(shape)


CARRIED = [
    *(row("GRPS-080", model, *SAMPLES[model], shape, name=f"{model} {shape}") for model in SAMPLES for shape in SHAPES),
    *(row("GRPS-082", model, *WIDENED[model][:2], shape, name=f"{model} {shape}")
      for model in WIDENED for shape in SHAPES[:3]),
]  # fmt: skip


@pytest.mark.parametrize(("model", "dtype", "values", "shape"), CARRIED)
def test_every_type_comes_back_in_every_shape(
    http: Http, rpc: Rpc, model: str, dtype: str, values: list[Any], shape: tuple[int, ...]
) -> None:
    """The model changes nothing; a type that the protocol lacks travels in a wider one."""
    array = array_of(dtype, values, shape)
    answer = http.infer(f"identity_{model}", to_json("INPUT0", dtype, array))
    assert same(answer.tensors()["OUTPUT0"], array)
    assert same(rpc.infer(f"identity_{model}", to_message("INPUT0", dtype, array))["OUTPUT0"], array)


@pytest.mark.row("GRPS-081")
@pytest.mark.parametrize("model", list(SAMPLES))
def test_a_type_is_named_or_numbered(http: Http, model: str) -> None:
    """The answer names it."""
    dtype, values = SAMPLES[model]
    array = array_of(dtype, values, (3,))
    tensor = {**to_json("INPUT0", dtype, array), "dtype": NUMBERS[dtype]}
    assert same(http.infer(f"identity_{model}", tensor).tensors()["OUTPUT0"], array)


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    """It is the oracle of the next test."""
    assert float(ml_dtypes.bfloat16(1.003)) == 1.0


@pytest.mark.row("GRPS-084")
def test_floats_that_bfloat16_does_not_hold_are_rounded(http: Http) -> None:
    """Every float is rounded to the width of its type."""
    values = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    found = http.infer("identity_bf16", to_json("INPUT0", "DT_FLOAT32", values)).tensors()["OUTPUT0"]
    assert np.array_equal(found, values.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.row("GRPS-085")
@pytest.mark.parametrize(("dtype", "value", "text"), [
    ("DT_FLOAT32", 0.1, b"[0.1]"), ("DT_FLOAT32", 16777217, b"[16777216.0]"), ("DT_FLOAT16", 0.1, b"[0.099975586]"),
    ("DT_FLOAT16", 65504, b"[65504.0]"), ("DT_INT64", 1, b'["1"]'), ("DT_INT32", 1, b"[1]"),
])  # fmt: skip
def test_numbers_are_printed_as_protobuf_prints_them(http: Http, dtype: str, value: Any, text: bytes) -> None:
    """Floats of 16 bits have the digits of 32; integers of 64 bits are strings."""
    assert text in http.infer("untold", to_json("x", dtype, np.array([value], FLAT[dtype][1]))).body


@pytest.mark.row("GRPS-086")
@pytest.mark.parametrize("name", ["flat_double", "flatDouble"])
def test_the_field_of_the_interface_document_is_read_and_the_right_one_written(http: Http, name: str) -> None:
    """Its example uses the field."""
    tensor = {"name": "in2", "dtype": "DT_FLOAT64", "shape": [3, 3], name: [float(i) for i in range(9)]}
    answer = http.infer("untold", tensor)
    assert b"flat_float64" in answer.body
    assert answer.tensors()["in2"].tolist() == np.arange(9.0).reshape(3, 3).tolist()
