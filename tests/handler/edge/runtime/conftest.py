"""Our own runtime in this process, its main loop in a thread, with a Runtime API of our own making."""

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from handler.aws import Function
from handler.edge.runtime.loop import main
from tests.support.publishing import publish, say
from tests.support.runtime_api import RuntimeStandIn, Taken, runtime_api

ROOT = Path(__file__).parents[4]
STEPS = '''
"""Yields 0 to n - 1. The step after the first waits for the file `go`, unless `free`; with n < 0 it fails."""
import os
import time
import numpy as np

HERE = {here!r}
metadata = {{"inputs": [{{"name": "n", "datatype": "INT64", "shape": [1]}}],
             "outputs": [{{"name": "y", "datatype": "INT64", "shape": [1]}}]}}

def note(name):
    open(f"{{HERE}}/{{name}}", "w").close()

def steps(n, tag, free=False):
    try:
        for number in range(abs(n)):
            if number == 1 and not free:
                note(f"waits.{{tag}}")
                while not os.path.exists(HERE + "/go"):
                    time.sleep(0.005)
                if n < 0:
                    raise RuntimeError("a secret of the model")
            yield number
    finally:
        note(f"closed.{{tag}}")

def stream(inputs, parameters):
    for number in steps(int(inputs["n"][0]), parameters.get("tag", "x"), parameters.get("free", False)):
        yield {{"y": np.array([number])}}

def predict(inputs, parameters):
    *_, last = steps(int(inputs["n"][0]), parameters.get("tag", "x"))
    return {{"y": np.array([last])}}

def http(request):
    if "megabytes" in request.query:
        return 200, {{}}, (bytes(2**20) for _ in range(int(request.query["megabytes"])))
    if "trace" in request.query:
        return request.headers.get("x-amzn-trace-id", "none")
    if "header" in request.query:
        return 200, {{"x-long": "x" * 20_000}}, "body"
    return 200, {{"content-type": "text/plain"}}, (f"{{n}}\\n" for n in steps(int(request.query["n"]), "http"))
'''


def steps_model(root: Path, gate: Path) -> None:
    """Publishes the model `steps`, which leaves notes in the folder `gate`."""
    gate.mkdir()
    publish(root, "steps", 1, STEPS.format(here=str(gate)).encode(), "model.py")
    say(root, "steps", http={"path": "/own/steps"})


class Running(NamedTuple):
    """`gate`: the folder of the model's notes. `ended`: waits for the runtime's end, and returns its exit code."""

    api: RuntimeStandIn
    function: Function
    gate: Path
    ended: Callable[[], int]

    def go(self) -> None:
        """Lets the model make its second step."""
        (self.gate / "go").touch()

    def noted(self, name: str) -> bool:
        return (self.gate / name).exists()

    def url(self, path: str, body: str | bytes = "", method: str = "POST", query: str = "", **more: Any) -> Taken:
        """Sends a Function URL's event."""
        return self.api.send(function_url(path, body, method, query), **more)


def function_url(path: str, body: str | bytes = "", method: str = "POST", query: str = "", kind: str = "") -> Any:
    http = {"method": method, "path": path, "sourceIp": "203.0.113.9"}
    context = {"http": http, "stage": "$default", "domainName": "x.lambda-url.us-east-1.on.aws"}
    headers = {"content-type": kind} if kind else {}
    event = {"version": "2.0", "requestContext": context, "headers": headers, "rawPath": path, "rawQueryString": query}
    if isinstance(body, bytes):
        return event | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return event | {"body": body}


Start = Callable[..., Running]


@pytest.fixture
def api() -> Iterator[RuntimeStandIn]:
    with runtime_api() as server:
        yield server


class Runtime:
    """One runtime, whose main loop is in a thread."""

    def __init__(self, api: RuntimeStandIn, make: Any) -> None:
        self.made: list[Any] = []
        self._api, self._make = api, make
        self._loop, self._codes = asyncio.new_event_loop(), list[int]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._codes.append(main(self._function, self._loop))

    def _function(self, carrier: Any) -> Any:
        self.made.append(self._make(carrier))
        return self.made[0]

    def ended(self) -> int:
        self._thread.join(30)
        return self._codes[0]

    def stop(self) -> None:
        pollers = [each for each in threading.enumerate() if each.name.startswith("dragoman-poller")]
        for _ in pollers:
            self._api.waiting.put(None)
        for each in (*pollers, self._thread):
            each.join(30)
            assert not each.is_alive()
        self._loop.close()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: RuntimeStandIn) -> Iterator[Start]:
    """Starts the runtime with these variables, and ends it."""
    root, gate = tmp_path / "models", tmp_path / "gate"
    steps_model(root, gate)
    own = {
        "AWS_LAMBDA_RUNTIME_API": api.address, "AWS_LAMBDA_FUNCTION_NAME": "f", "DRAGOMAN_PRELOAD": "steps",
        "DRAGOMAN_REPOSITORY": str(root), "DRAGOMAN_ALLOW_CODE": "true", "DRAGOMAN_RESPONSE_STREAMING": "true",
    }  # fmt: skip
    with ExitStack() as stack:

        def started(*, make: Any = None, wait: bool = True, **variables: str) -> Running:
            for name, value in (own | variables).items():
                monkeypatch.setenv(name, value)
            runtime = Runtime(api, make or (lambda carrier: Function(carrier=carrier)))
            stack.callback(runtime.stop)
            stack.callback((gate / "go").touch)
            if wait:
                api.await_polling(int(variables.get("AWS_LAMBDA_MAX_CONCURRENCY", "1")))
            return Running(api, next(iter(runtime.made), None), gate, runtime.ended)  # type: ignore[arg-type] # none yet

        yield started
