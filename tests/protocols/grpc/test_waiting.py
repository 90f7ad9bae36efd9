"""Deadlines, clients that go, and queues: a worker is free again, and what waited for it is not run for nobody."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.support.remote import SECONDS, Remote, question, raw, tensors
from tests.support.zoo.python import LOADS_LATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.server import Server


@pytest.fixture
def single(launch: Callable[..., Server], zoo: Path) -> Iterator[Remote]:
    """A server with one thread for models and room for one more request."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="1", QUEUE="1").rpc_netloc)
    yield remote
    remote.close()


def waiting(remote: Remote, gate: Path, **more: Any) -> Any:
    """An inference under way that ends once the file `gate` is there."""
    message = question("py_waits", raw("gate", "BYTES", np.array([str(gate).encode()], object)))
    return remote.call("ModelInfer").future(message.SerializeToString(), **{"timeout": SECONDS, **more})


def entered(gate: Path) -> bool:
    """Whether the model has begun with it."""
    return gate.with_name(gate.name + ".entered").exists()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def queue_is_free(remote: Remote, gate: Path) -> bool:
    """Whether one more may wait; it waits no longer than to find out."""
    with pytest.raises(grpc.RpcError) as refused:
        waiting(remote, gate, timeout=0.2).result()
    return refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_what_waits_for_a_thread_is_dropped_when_its_client_goes(single: Remote, tmp_path: Path) -> None:
    """By cancelling, and by a deadline; the place is free again, and the model never sees it."""
    first, second, third, last = (tmp_path / name for name in ("first", "second", "third", "last"))
    running = waiting(single, first)
    until(lambda: entered(first))
    cancelled = waiting(single, second)
    until(lambda: not queue_is_free(single, tmp_path / "probe"))
    cancelled.cancel()
    until(lambda: queue_is_free(single, third))
    kept = waiting(single, last)
    until(lambda: not queue_is_free(single, tmp_path / "probe"))
    last.touch()
    first.touch()
    assert oip.ModelInferResponse.FromString(running.result()).model_name == "py_waits"
    assert oip.ModelInferResponse.FromString(kept.result()).model_name == "py_waits"
    assert not entered(second)
    assert not entered(third)


def test_too_many_at_once_are_told_to_come_later(single: Remote, tmp_path: Path) -> None:
    """UNAVAILABLE, which clients try again; health is answered meanwhile."""
    gates = [tmp_path / name for name in ("first", "second")]
    calls = [waiting(single, gates[0])]
    until(lambda: entered(gates[0]))
    calls.append(waiting(single, gates[1]))
    until(lambda: not queue_is_free(single, tmp_path / "probe"))
    with pytest.raises(grpc.RpcError, match="DRAGOMAN_QUEUE") as refused:
        waiting(single, tmp_path / "third").result()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert ("retry-after", "1") in [tuple(pair) for pair in refused.value.trailing_metadata()]
    assert single.ask("ServerLive", b"").live
    assert single.ask("ServerReady", b"").ready
    for gate in gates:
        gate.touch()
    assert all(call.result() for call in calls)


def test_a_deadline_ends_the_call_and_leaves_the_load_of_its_model_alone(
    launch: Callable[..., Server], tmp_path: Path
) -> None:
    """The answer comes before it, and says how far the load is. Who comes later finds the model loaded, once."""
    folder = tmp_path / "models" / "late" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(LOADS_LATE)
    remote = Remote(launch(rpc=True, REPOSITORY=str(tmp_path / "models"), ALLOW_CODE="true").rpc_netloc)
    x = raw("x", "INT32", np.array([1], np.int32))
    with pytest.raises(grpc.RpcError) as refused:
        remote.ask("ModelInfer", question("late", x), timeout=2)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "model 'late' has been loading in its runtime" in refused.value.details()
    assert ("retry-after", "1") in [tuple(pair) for pair in refused.value.trailing_metadata()]
    until((folder / "loads").exists)
    (folder / "gate").touch()
    assert tensors(remote.infer("late", x))["y"].tolist() == [1]
    assert (folder / "loads").read_text() == "x"
    remote.close()
