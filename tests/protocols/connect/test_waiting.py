"""Deadlines, clients that go, streams that are read while they are made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.support.connect_client import OIP, PROTO, SECONDS, STREAM, WEB, Caller, envelope, split
from tests.support.remote import question, raw
from tests.support.zoo.python import LOADS_LATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.server import Server

DEADLINES = {PROTO: {"connect-timeout-ms": "300"}, WEB: {"grpc-timeout": "300m"}}
X = raw("x", "INT32", np.array([1], np.int32))


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("kind", DEADLINES)
def test_a_deadline_ends_the_call_and_leaves_the_load_of_its_model_alone(
    launch: Callable[..., Server], tmp_path: Path, kind: str
) -> None:
    """The answer comes before it, and says how far the load is. Who comes later finds the model loaded, once."""
    folder = tmp_path / "models" / "late" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(LOADS_LATE)
    caller = Caller(launch(REPOSITORY=str(tmp_path / "models"), ALLOW_CODE="true").netloc)
    message = question("late", X).SerializeToString()
    body = envelope(message) if kind == WEB else message
    outcome = caller.post("ModelInfer", kind, body, **DEADLINES[kind])
    assert outcome.code == "unavailable"
    assert "model 'late'" in outcome.text
    until((folder / "loads").exists)
    (folder / "gate").touch()
    (answer,) = caller.post("ModelInfer", kind, body).messages
    assert oip.ModelInferResponse.FromString(answer).model_name == "late"
    assert (folder / "loads").read_text() == "x"
    caller.close()


@pytest.mark.parametrize("kind", [STREAM, WEB])
def test_an_answer_is_sent_before_the_next_is_made(caller: Caller, tmp_path: Path, kind: str) -> None:
    """A request behind one that waits is answered after it, and one before it at once."""
    gate = tmp_path / "gate"
    waiting = question("py_waits", raw("gate", "BYTES", np.array([str(gate).encode()], object)))
    quick = question("versions", raw("x", "INT64", np.array([0])))
    body = envelope(quick.SerializeToString(), waiting.SerializeToString(), quick.SerializeToString())
    with caller.client.stream(
        "POST", f"/{OIP}/ModelStreamInfer", content=body, headers={"content-type": kind}
    ) as answer:
        parts = answer.iter_raw()
        assert next(parts)
        gate.touch()
        (*messages, _) = split(envelope(b"") + b"".join(parts))
    assert len(messages) == 3


@pytest.fixture
def single(launch: Callable[..., Server], zoo: Path) -> Iterator[Caller]:
    """A server with one thread for models and room for one more request."""
    caller = Caller(launch(REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="1", QUEUE="1").netloc)
    yield caller
    caller.close()


def test_a_place_in_the_queue_is_free_again_after_a_deadline(single: Caller, tmp_path: Path) -> None:
    """And what waited for it is not run for nobody."""
    gates = [tmp_path / name for name in ("running", "dropped", "kept")]
    bodies = [
        question("py_waits", raw("gate", "BYTES", np.array([str(gate).encode()], object))).SerializeToString()
        for gate in gates
    ]
    entered = [gate.with_name(gate.name + ".entered") for gate in gates]
    path, headers = f"/{OIP}/ModelStreamInfer", {"content-type": STREAM}
    with single.client.stream("POST", path, content=envelope(bodies[0]), headers=headers):
        until(entered[0].exists)
        outcome = single.post("ModelInfer", PROTO, bodies[1], **{"connect-timeout-ms": "100"})
        assert outcome.code == "deadline_exceeded"
        gates[2].touch()
        with single.client.stream("POST", path, content=envelope(bodies[2]), headers=headers):
            gates[0].touch()
            until(entered[2].exists)
    assert not entered[1].exists()
