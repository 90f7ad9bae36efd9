"""A server in this process whose requests meet: the first one holds the only thread until enough others wait."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any, Final

from tests.support.asgi import Local, application

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from pathlib import Path

    from handler.edge.dispatch.lane import Lane

HOLD, LOOP, BAD = 99, 77, -1
"""The values of rows that wait for the gate, that wait for the second gate, and that the model refuses."""
MODEL: Final = """
import os, threading, time
import numpy as np
from core.errors import InvalidInput

metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": name, "datatype": "FP32", "shape": [-1] + more}
                for name, more in (("y", [2]), ("rows", []), ("beside", []), ("version", []))],
}
LOCK, RUNNING = threading.Lock(), []

def predict(inputs, parameters):
    x = inputs["x"]
    with LOCK:
        RUNNING.append(1)
        beside = len(RUNNING)
    if (x == 77).any():
        open(os.path.join(FOLDER, "loops"), "w").close()
    for value, gate in ((99, "gate"), (77, "gate2")):
        while (x == value).any() and not os.path.exists(os.path.join(FOLDER, gate)):
            time.sleep(0.002)
    with LOCK:
        RUNNING.pop()
    if (x == -1).any():
        raise InvalidInput("a row is -1")
    full = lambda value: np.full(len(x), value, np.float32)
    return {"y": x * 2, "rows": full(len(x)), "beside": full(beside), "version": full(VERSION)}
"""
BATCHING: Final = {"max_batch_size": 8, "max_delay_ms": 1000}
INFER: Final = "/v2/models/m/infer"


def rows(*values: float, **members: Any) -> bytes:
    """Returns the body of a request with a row for each value."""
    data = [value for value in values for _ in "xx"]
    x = {"name": "x", "datatype": "FP32", "shape": [len(values), 2], "data": data}
    return json.dumps({"inputs": [x], **members}).encode()


def binary(value: float) -> tuple[bytes, dict[str, str | bytes]]:
    """Returns the body of a request of one row in the binary extension, and its headers."""
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [x]}).encode()
    return head + struct.pack("<2f", value, value), {"inference-header-content-length": str(len(head))}


class Meeting:
    """The application of a model `m`. `said`: its batching; `settings`: of the process."""

    def __init__(
        self,
        folder: Path,
        said: Any = BATCHING,
        versions: Sequence[int] = (1,),
        max_concurrency: int | None = None,
        **settings: str,
    ) -> None:
        self.folder = folder
        for version in versions:
            (folder / "m" / str(version)).mkdir(parents=True)
            code = f"FOLDER, VERSION = {str(folder)!r}, {version}\n{MODEL}"
            (folder / "m" / str(version) / "model.py").write_text(code)
        members = {"batching": said, "version_policy": {"all": {}}, "max_concurrency": max_concurrency}
        (folder / "m" / "model-settings.json").write_text(json.dumps(members))
        self.local = Local(application(folder, ALLOW_CODE="true", **{"THREADS": "1", **settings}))

    @property
    def lane(self) -> Lane:
        """The model's."""
        return self.local.app.dispatcher._workers._lanes.find("m")  # type: ignore[union-attr, return-value] # threads

    async def until(self, waiting: int, held: int = 1) -> None:
        """Returns when so many requests wait, and so many threads work."""
        async with asyncio.timeout(60):
            while self.lane is None or (len(self.lane.waiting), self.lane.held) != (waiting, held):  # noqa: ASYNC110 - threads change it
                await asyncio.sleep(0.001)

    async def loops(self) -> None:
        """Returns when a row waits for the second gate: the requests of its run are settled."""
        async with asyncio.timeout(60):
            while not (self.folder / "loops").exists():  # noqa: ASYNC110 - a thread makes it
                await asyncio.sleep(0.001)

    def ask(self, body: bytes, path: str = INFER, headers: Any = None) -> asyncio.Task[Any]:
        """Begins a request."""
        return asyncio.ensure_future(self.local._call("POST", path, body, headers or {}, stays=True))

    async def hold(self, path: str = INFER) -> asyncio.Task[Any]:
        """Begins a request that keeps a thread. The model is loaded before."""
        await self.ask(rows(0), path)
        await self.until(waiting=0, held=0)
        first = self.ask(rows(HOLD), path)
        await self.until(waiting=0)
        return first

    def open(self, gate: str = "gate") -> None:
        """Lets requests go on."""
        (self.folder / gate).touch()

    def together(self, *bodies: bytes) -> list[tuple[int, Any]]:
        """Returns the status and the outputs, or the error, of requests that wait at the same time."""

        async def work() -> list[Any]:
            first = await self.hold()
            others = [self.ask(body) for body in bodies]
            await self.until(len(bodies))
            self.open()
            await first
            return [told(await other) for other in others]

        return self.run(work())

    def run(self, work: Awaitable[Any]) -> Any:
        return self.local.run(work)

    def close(self) -> None:
        """Ends everything, and whatever still waits."""
        self.open()
        self.open("gate2")
        self.local.close()


def told(answer: Any) -> tuple[int, Any]:
    """Returns the status of an answer, and its outputs by name, or its error."""
    members = json.loads(answer.body)
    if "error" in members:
        return answer.status, members["error"]
    return answer.status, {output["name"]: output["data"] for output in members["outputs"]}
