"""Raw binary requests: no JSON at all, the body is the only input of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import alive, refusal
from tests.support.wire import HEADER_LENGTH, from_binary, same

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.support.wire import Answer, Wire

LEFT = np.arange(16, dtype=np.int32)


def raw(wire: Wire, model: str, body: bytes) -> Answer:
    """A request without JSON."""
    return wire.post(f"/v2/models/{model}/infer", body, {HEADER_LENGTH: "0"})


@pytest.mark.row("R-321")
@pytest.mark.parametrize(
    ("model", "datatype", "values"),
    [
        ("vector_int32", "INT32", LEFT),
        ("fixed", "FP32", np.ones((2, 3), np.float32)),
        ("named_dims", "FP32", np.ones((4, 3), np.float32)),
        ("scalar", "FP32", np.array(2.5, np.float32)),
        ("vector_bool", "BOOL", np.array([True, False])),
    ],
)
def test_a_raw_request_is_the_only_input(wire: Wire, model: str, datatype: str, values: NDArray[Any]) -> None:
    """The shape follows from the metadata and the length; the answer is binary."""
    answer = raw(wire, model, values.tobytes())
    head, rest = answer.split()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert same(from_binary(datatype, head["outputs"][0]["shape"], rest), values)
    assert "id" not in head


@pytest.mark.row("R-322")
@pytest.mark.parametrize("content", [b"hello", b"", "日\0".encode()])
def test_a_raw_request_of_one_text_is_its_bytes(wire: Wire, content: bytes) -> None:
    """BYTES [1]: no length before it, one in the answer."""
    assert same(raw(wire, "one_text", content).tensor(), np.array([content], object))


@pytest.mark.row("R-323")
@pytest.mark.parametrize(
    ("model", "body"),
    [("add_sub", bytes(128)), ("matrix", bytes(16)), ("vector_bytes", b"abc"), ("vector_int32", bytes(7))],
)
def test_a_raw_request_of_unknown_shape_is_refused(wire: Wire, model: str, body: bytes) -> None:
    """Two inputs, two variable dimensions, BYTES other than [1], a cut element."""
    refusal(raw(wire, model, body), 400)
    alive(wire)
