"""handler.edge.dispatch.threads: how a request of a server waits for its model."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import shutil
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from core.deadline import NEVER, Deadline, within
from core.errors import ModelNotFound, StillLoading
from core.operations import ModelRef
from handler.edge.app import App
from handler.edge.dispatch.threads import Threads, _landed
from handler.edge.flight import SMALL
from handler.edge.timing import Timing
from handler.lifecycle.single_flight import Load, Pending
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from tests.handler.calling import infer
from tests.handler.lifecycle.samples import PATIENT, ROOT
from tests.support.asgi import Local, application

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The gate at which a fetch waits at 120 of 300 MB."""
    opened = threading.Event()
    fetch = DirectoryStore.fetch

    def slow(self: Any, model: str, version: str, files: Any, progress: Any) -> Any:
        progress.total = 300 * 10**6
        progress.add(120 * 10**6)
        assert opened.wait(60)
        return fetch(self, model, version, files, progress)

    monkeypatch.setattr(DirectoryStore, "fetch", slow)
    return opened


def test_on_a_server_a_request_gives_up_and_its_load_goes_on(gate: threading.Event, tmp_path: Path) -> None:
    """The next request finds the model loaded."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path), "DRAGOMAN_PATIENCE": "0.3"}))
    path, body = "/v2/models/half_plus_three/infer", infer()["body"].encode()
    client = Local(app)
    refused = client.call("POST", path, body)
    headers = dict(refused.headers)
    assert (refused.status, headers["retry-after"]) == (503, "1")
    assert json.loads(refused.body) == {"error": "model 'half_plus_three' is 120 of 300 MB loaded: try again"}
    assert "start;desc=cold" in headers["server-timing"]
    gate.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.dispatcher, "_patience", None)
        assert client.call("POST", path, body).status == 200
    assert app.registry.readiness(ModelRef("half_plus_three"), PATIENT).ready
    client.close()
    app.close()


@pytest.mark.parametrize(
    ("patience", "deadline", "expected"),
    [
        ("", Deadline(math.inf), math.inf),
        ("10", NEVER, 10),
        ("10", Deadline(4), 3),
        ("2", Deadline(40), 2),
        ("", Deadline(4), 3),
    ],
)
def test_a_request_waits_as_long_as_the_least_patient_lets_it(
    monkeypatch: pytest.MonkeyPatch, patience: str, deadline: Deadline, expected: float
) -> None:
    """It waits for the server's setting, or until the client's deadline less the time to answer."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    threads = Threads(Settings.from_env({"DRAGOMAN_PATIENCE": patience}))
    assert threads._until(deadline) == Deadline(expected)
    threads.close()


def pending(load: Load, ago: int = 0) -> Pending:
    """A request that joined the load so many nanoseconds ago."""
    return Pending(load, final=True, since=time.perf_counter_ns() - ago)


@pytest.mark.parametrize("until", [NEVER, within(3600)])
def test_a_time_out_of_the_load_itself_is_not_taken_for_the_requests(until: Deadline) -> None:
    """A request that still waits gets the load's own TimeoutError, as it gets any failure."""

    def fail() -> None:
        raise TimeoutError("its own")

    async def wait() -> Any:
        load = Load("m")
        load.future = asyncio.get_running_loop().run_in_executor(None, fail)  # type: ignore[assignment]
        return await _landed(pending(load), Timing(), until)

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(wait())


@pytest.mark.parametrize("seconds", [0.01, -1.0])
def test_a_request_that_gives_up_does_not_cancel_its_load(seconds: float) -> None:
    """At its deadline, or after it, a request is refused. Its wait counts from when it joined the load."""
    load, timing = Load("m"), Timing()
    load.future = Future()

    async def wait() -> Any:
        return await _landed(pending(load, ago=5 * 10**9), timing, within(seconds))

    with pytest.raises(StillLoading, match="model 'm' is being looked up: try again"):
        asyncio.run(wait())
    assert not load.future.done()
    assert timing.wait >= 5 * 10**9


def test_a_load_that_fails_after_its_client_has_left_leaves_no_traceback() -> None:
    """An anonymous client could fill the log with them: it asks for an unknown model, and leaves."""
    reported: list[Any] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        load = Load("m")
        load.future = Future()
        waits = asyncio.create_task(_landed(pending(load), Timing(), NEVER))
        await asyncio.sleep(0)
        waits.cancel()
        with suppress(asyncio.CancelledError):
            await waits
        load.future.set_exception(ModelNotFound("model 'm' does not exist"))
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(leave())
    assert reported == []


@pytest.mark.parametrize(("target", "status"), [
    ("none", 404),
    ("half_plus_three/versions/9", 404),
    ("broken", 503),
])  # fmt: skip
def test_a_request_that_its_load_refuses_returns_its_bytes_in_flight(tmp_path: Path, target: str, status: int) -> None:
    """No collector is needed for it: on a quiet server, it might not run for minutes."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.py").write_text("raise ValueError")
    client = Local(application(tmp_path, ALLOW_CODE="true"))
    flight = client.app.flight
    gc.disable()
    try:
        answer = client.call("POST", f"/v2/models/{target}/infer", bytes(SMALL), stays=True)
        until = time.monotonic() + 30
        while flight.held and time.monotonic() < until:  # a thread may be about to drop the last reference
            time.sleep(0.001)
        assert (answer.status, flight.held) == (status, 0)
    finally:
        gc.enable()
        client.close()
