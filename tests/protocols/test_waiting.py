"""After deadlines, leaving clients and queues, a thread is free again, and an abandoned request is not run."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.support.connect_client import OIP, PROTO, SECONDS, STREAM, WEB, Caller, envelope, split
from tests.support.remote import Remote, question, raw
from tests.support.server import Server
from tests.support.zoo.python import LOADS_LATE

X = raw("x", "INT32", np.array([1], np.int32))
DEADLINES = {PROTO: {"connect-timeout-ms": "1000"}, WEB: {"grpc-timeout": "1000m"}}
EXCHANGE = f"/{OIP}/ModelStreamInfer"


def until(condition: Callable[[], bool]) -> None:
    """Waits for an event that is sure to come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def held(gate: Path) -> oip.ModelInferRequest:
    """Returns a request whose model answers once the file `gate` exists."""
    return question("py_waits", raw("gate", "BYTES", np.array([str(gate).encode()], object)))


def entered(gate: Path) -> bool:
    """Returns whether the model has begun with it."""
    return gate.with_name(gate.name + ".entered").exists()


@pytest.fixture
def single(launch: Callable[..., Server], zoo: Path) -> Iterator[tuple[Remote, Caller]]:
    """Connections to a server with one thread for models and room for one more request."""
    server = launch(rpc=True, REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="1", QUEUE="1")
    with closing(Remote(server.rpc_netloc)) as remote, closing(Caller(server.netloc)) as caller:
        yield remote, caller


def waiting(remote: Remote, gate: Path, **more: Any) -> Any:
    """Returns an inference in progress that ends once the file `gate` exists."""
    return remote.call("ModelInfer").future(held(gate).SerializeToString(), **{"timeout": SECONDS, **more})


def in_queue(caller: Caller, count: int) -> bool:
    """Returns whether so many requests wait for a thread, as the server counts them."""
    lines = caller.client.get("/metrics").text.splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith("dragoman_queue ")] == [count]


def test_a_request_in_the_queue_is_dropped_when_its_client_leaves(
    single: tuple[Remote, Caller], tmp_path: Path
) -> None:
    """The client cancels or has a deadline; the place is free again, and the model never sees the request."""
    remote, caller = single
    first, second, third, last = (tmp_path / name for name in ("first", "second", "third", "last"))
    running = waiting(remote, first)
    until(lambda: entered(first))
    cancelled = waiting(remote, second)
    until(lambda: in_queue(caller, 1))
    cancelled.cancel()
    until(lambda: in_queue(caller, 0))
    with pytest.raises(grpc.RpcError) as late:
        waiting(remote, third, timeout=0.5).result()
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: in_queue(caller, 0))
    kept = waiting(remote, last)
    until(lambda: in_queue(caller, 1))
    last.touch()
    first.touch()
    assert oip.ModelInferResponse.FromString(running.result()).model_name == "py_waits"
    assert oip.ModelInferResponse.FromString(kept.result()).model_name == "py_waits"
    assert not entered(second)
    assert not entered(third)


def test_too_many_at_once_are_refused_until_later(single: tuple[Remote, Caller], tmp_path: Path) -> None:
    """UNAVAILABLE is a code that clients try again; health is answered meanwhile."""
    remote, caller = single
    gates = [tmp_path / name for name in ("first", "second")]
    calls = [waiting(remote, gates[0])]
    until(lambda: entered(gates[0]))
    calls.append(waiting(remote, gates[1]))
    until(lambda: in_queue(caller, 1))
    with pytest.raises(grpc.RpcError, match="DRAGOMAN_QUEUE") as refused:
        waiting(remote, tmp_path / "third").result()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert ("retry-after", "1") in [tuple(pair) for pair in refused.value.trailing_metadata()]
    assert remote.ask("ServerLive", b"").live
    assert remote.ask("ServerReady", b"").ready
    for gate in gates:
        gate.touch()
    assert all(call.result() for call in calls)


def test_a_place_in_the_queue_is_free_again_after_a_deadline(single: tuple[Remote, Caller], tmp_path: Path) -> None:
    """Over Connect, the request that waited for it is not run either."""
    _, caller = single
    gates = [tmp_path / name for name in ("running", "dropped", "kept")]
    bodies = [held(gate).SerializeToString() for gate in gates]
    headers = {"content-type": STREAM}
    with caller.client.stream("POST", EXCHANGE, content=envelope(bodies[0]), headers=headers):
        until(lambda: entered(gates[0]))
        outcome = caller.post("ModelInfer", PROTO, bodies[1], **{"connect-timeout-ms": "100"})
        assert outcome.code == "deadline_exceeded"
        gates[2].touch()
        with caller.client.stream("POST", EXCHANGE, content=envelope(bodies[2]), headers=headers):
            gates[0].touch()
            until(lambda: entered(gates[2]))
    assert not entered(gates[1])


@pytest.mark.parametrize("over", ["grpc", *DEADLINES])
def test_a_deadline_ends_the_call_and_leaves_the_load_of_its_model_alone(
    launch: Callable[..., Server], tmp_path: Path, over: str
) -> None:
    """The answer comes before it and says how far the load is; a later client finds the model loaded, once."""
    folder = tmp_path / "models" / "late" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(LOADS_LATE)
    server = launch(rpc=True, REPOSITORY=str(tmp_path / "models"), ALLOW_CODE="true")
    message = question("late", X).SerializeToString()
    body = envelope(message) if over == WEB else message
    with closing(Remote(server.rpc_netloc)) as remote, closing(Caller(server.netloc)) as caller:
        if over == "grpc":
            with pytest.raises(grpc.RpcError) as refused:
                remote.ask("ModelInfer", message, timeout=2)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "model 'late' has been loading in its runtime" in refused.value.details()
            assert ("retry-after", "1") in [tuple(pair) for pair in refused.value.trailing_metadata()]
        else:
            outcome = caller.post("ModelInfer", over, body, **DEADLINES[over])
            assert outcome.code == "unavailable"
            assert "model 'late'" in outcome.text
        until((folder / "loads").exists)
        (folder / "gate").touch()
        if over == "grpc":
            assert remote.ask("ModelInfer", message).model_name == "late"
        else:
            (answer,) = caller.post("ModelInfer", over, body).messages
            assert oip.ModelInferResponse.FromString(answer).model_name == "late"
    assert (folder / "loads").read_text() == "x"


@pytest.mark.parametrize("kind", [STREAM, WEB])
def test_an_answer_is_sent_before_the_next_is_made(caller: Caller, tmp_path: Path, kind: str) -> None:
    """A request behind one that waits is answered after it, and one before it at once."""
    gate = tmp_path / "gate"
    quick = question("versions", raw("x", "INT64", np.array([0])))
    body = envelope(*(each.SerializeToString() for each in (quick, held(gate), quick)))
    with caller.client.stream("POST", EXCHANGE, content=body, headers={"content-type": kind}) as answer:
        parts = answer.iter_raw()
        assert next(parts)
        gate.touch()
        (*messages, _) = split(envelope(b"") + b"".join(parts))
    assert len(messages) == 3
