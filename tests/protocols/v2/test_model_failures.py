"""Models that fail or answer nonsense cause an error object, and all other requests are served."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.protocols.v2.refused import BROKEN, RAISED
from tests.support.checks import alive, refusal
from tests.support.server import Server
from tests.support.wire import Wire, binary_input, json_input


def text_input(name: str, value: str) -> dict[str, Any]:
    return json_input(name, "BYTES", np.array([value.encode()], object))


@pytest.mark.parametrize(("kind", "expected"), [("right", [1.5]), ("strided", [0, 2, 4]), ("big_endian", [1.5])])
@pytest.mark.parametrize("binary", [False, True])
def test_any_layout_of_an_array_is_answered_right(
    wire: Wire, kind: str, expected: list[float], *, binary: bool
) -> None:
    """A model may use any strides and byte order."""
    answer = wire.infer("py_returns", text_input("kind", kind), parameters={"binary_data_output": binary})
    assert answer.tensor().tolist() == expected


@pytest.mark.parametrize("binary", [False, True])
def test_a_python_model_may_write_into_its_inputs(wire: Wire, *, binary: bool) -> None:
    """The form of the inputs does not matter, nor their number."""
    for count in (3, 10_000):
        values = np.arange(count, dtype=np.int32)
        own = binary_input("x", "INT32", values) if binary else json_input("x", "INT32", values)
        assert np.array_equal(wire.infer_binary("py_in_place", own).tensor(), values + 1)


def test_a_python_model_without_metadata_answers(wire: Wire) -> None:
    """Its inputs are those of the request, its outputs those that it returns."""
    answer = wire.infer("py_no_metadata", json_input("x", "FP32", np.array([[1.5]], np.float32)))
    assert answer.tensors()["y"].tolist() == [[3.0]]


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


def test_python_models_are_refused_unless_allowed(zoo: Path, launch: Callable[..., Server]) -> None:
    """The 503 names the setting, and the other models answer."""
    with launch(REPOSITORY=str(zoo)).wire() as wire:
        data = json_input("data", "BYTES", np.array([b"a"], object))
        assert "DRAGOMAN_ALLOW_CODE" in refusal(wire.infer("py_raw_bytes", data), 503)
        assert "DRAGOMAN_ALLOW_CODE" in wire.get("/v2/models/py_raw_bytes/ready").json()["reason"]
        alive(wire)


@pytest.mark.row("R-204", "R-205")
def test_a_model_that_has_failed_answers_the_next_request(wire: Wire) -> None:
    """Whatever it raised, its next answer is right."""
    for kind in RAISED:
        refusal(wire.infer("py_raises", text_input("kind", kind)), 500)
        assert wire.infer("py_raises", text_input("kind", "none")).tensor().tolist() == [0.0]
    refusal(wire.infer("fails", json_input("index", "INT64", np.array([7]))), 500)
    assert wire.infer("fails", json_input("index", "INT64", np.array([1]))).tensor().tolist() == [20.0]


@pytest.mark.row("R-204")
def test_inputs_that_do_not_fit_each_other_are_the_clients_mistake(wire: Wire) -> None:
    """Each fits the model's description, which allows any shape."""
    inputs = [json_input(name, "FP32", np.ones(size, np.float32)) for name, size in (("x", 2), ("y", 3))]
    assert "refuses the shapes of its inputs" in refusal(wire.infer("offset", *inputs), 400)
