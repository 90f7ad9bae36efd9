"""Models that fail or answer nonsense: an error object, and everybody else is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import alive, refusal
from tests.support.wire import binary_input, json_input

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server import Server
    from tests.support.wire import Wire


@pytest.mark.row("R-204", "R-205", "R-208", "R-203")
def test_a_failing_onnx_model_is_an_error_object(wire: Wire) -> None:
    """500 for an index out of range, and the next request is answered by the same model."""
    refusal(wire.infer("fails", json_input("index", "INT64", np.array([7]))), 500)
    assert wire.infer("fails", json_input("index", "INT64", np.array([1]))).tensor().tolist() == [20.0]
    alive(wire)


def text_input(name: str, value: str) -> dict[str, Any]:
    """One string."""
    return json_input(name, "BYTES", np.array([value.encode()], object))


RAISED = [
    "exception",
    "system_exit",
    "recursion",
    "long",
    "surrogate",
    "assertion",
    "keyboard_interrupt",
    "cancelled",
    "generator_exit",
    "stop_iteration",
    "base",
    "silent",
]


@pytest.mark.row("R-204", "R-205")
@pytest.mark.parametrize("kind", RAISED)
def test_a_failing_python_model_is_an_error_object(wire: Wire, kind: str) -> None:
    """500 whatever it raises; the model's files and lines stay inside."""
    refusal(wire.infer("py_raises", text_input("kind", kind)), 500)
    assert wire.infer("py_raises", text_input("kind", "none")).tensor().tolist() == [0.0]
    alive(wire)


WRONG_ANSWERS = [
    "nothing",
    "array",
    "empty",
    "other_name",
    "number_as_name",
    "complex",
    "time",
    "ints_as_objects",
    "none_as_value",
    "class",
]


@pytest.mark.row("R-204", "R-205")
@pytest.mark.parametrize("kind", WRONG_ANSWERS)
def test_a_python_model_that_answers_nonsense_is_an_error_object(wire: Wire, kind: str) -> None:
    """500: what is no dict of arrays of a V2 datatype is the model's fault."""
    refusal(wire.infer("py_returns", text_input("kind", kind)), 500)
    alive(wire)


@pytest.mark.parametrize(("kind", "expected"), [("right", [1.5]), ("strided", [0, 2, 4]), ("big_endian", [1.5])])
@pytest.mark.parametrize("binary", [False, True])
def test_any_layout_of_an_array_is_answered_right(
    wire: Wire, kind: str, expected: list[float], *, binary: bool
) -> None:
    """Strides and byte order are the model's business."""
    answer = wire.infer("py_returns", text_input("kind", kind), parameters={"binary_data_output": binary})
    assert answer.tensor().tolist() == expected


@pytest.mark.parametrize("binary", [False, True])
def test_a_python_model_may_write_into_its_inputs(wire: Wire, *, binary: bool) -> None:
    """In whatever form they came, and also if there are 10,000 of them."""
    for count in (3, 10_000):
        values = np.arange(count, dtype=np.int32)
        own = binary_input("x", "INT32", values) if binary else json_input("x", "INT32", values)
        assert np.array_equal(wire.infer_binary("py_in_place", own).tensor(), values + 1)


def test_a_python_model_without_metadata_answers(wire: Wire) -> None:
    """Its inputs are what the request says, its outputs what it returns."""
    answer = wire.infer("py_no_metadata", json_input("x", "FP32", np.array([[1.5]], np.float32)))
    assert answer.tensors()["y"].tolist() == [[3.0]]


BROKEN = [
    "broken_onnx",
    "broken_empty",
    "broken_newest",
    "broken_settings",
    "py_broken_no_predict",
    "py_broken_import",
    "py_broken_syntax",
    "py_broken_exit",
    "py_broken_interrupt",
]


@pytest.mark.parametrize("model", BROKEN)
def test_a_model_that_cannot_load_says_so_and_stays_unready(wire: Wire, model: str) -> None:
    """503 on infer names the model, and the reason then stands in its readiness and in the index."""
    text = refusal(wire.infer(model, json_input("x", "INT64", np.array([0]))), 503)
    assert model in text
    body = wire.get(f"/v2/models/{model}/ready")
    assert body.status == 503
    assert body.json()["reason"]
    entries = [entry for entry in wire.post("/v2/repository/index").json() if entry["name"] == model]
    assert entries
    assert all(entry["state"] == "UNAVAILABLE" and entry["reason"] for entry in entries)
    alive(wire)


@pytest.mark.parametrize("model", BROKEN)
@pytest.mark.parametrize("path", ["", "/config"])
def test_a_model_that_cannot_load_has_no_metadata(wire: Wire, model: str, path: str) -> None:
    """503 by name."""
    assert model in refusal(wire.get(f"/v2/models/{model}{path}"), 503)
    alive(wire)


def test_python_models_are_refused_unless_allowed(zoo: Path, launch: Callable[..., Server]) -> None:
    """503 that names the setting, and the other models answer."""
    with launch(REPOSITORY=str(zoo)).wire() as wire:
        data = json_input("data", "BYTES", np.array([b"a"], object))
        assert "DRAGOMAN_ALLOW_CODE" in refusal(wire.infer("py_raw_bytes", data), 503)
        assert "DRAGOMAN_ALLOW_CODE" in wire.get("/v2/models/py_raw_bytes/ready").json()["reason"]
        alive(wire)
