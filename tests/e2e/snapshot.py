"""A stand-in for Lambda's side of SnapStart: the runtime API, to the runtime's own client (awslambdaric).

Its emulator does not take snapshots. Here the process itself continues where the copy of its memory would: hooks are
called as Lambda calls them. Effects that only a copy has (the same random numbers twice, another clock) do not show.
"""

import contextlib
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.rie import HANDLER
from tests.e2e.tools import HOME, RUNTIME, daemon, environment
from tests.support import web

API = "/2018-06-01/runtime"
SECONDS = 60


@dataclass
class Snapshot:
    """An instance that waits for its snapshot to be restored."""

    events: "queue.Queue[Any]" = field(default_factory=queue.Queue)
    answers: "queue.Queue[Any]" = field(default_factory=queue.Queue)
    taken: threading.Event = field(default_factory=threading.Event)
    wanted: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    log: Path = Path()
    pid: int = 0

    def restore(self) -> float:
        """Let the instance continue; return the seconds that its hooks take."""
        begun = time.perf_counter()
        self.wanted.set()
        if not self.asked.wait(SECONDS):
            raise RuntimeError(self.log.read_text(errors="replace")[-4000:])
        return time.perf_counter() - begun

    def invoke(self, event: Any) -> Any:
        """Return what the function answered."""
        self.events.put(event)
        return self.answers.get(timeout=SECONDS)


def _handler(snapshot: Snapshot) -> type[web.Handler]:
    """Return Lambda's runtime API. The function is ended while it waits for its next event."""

    class Handler(web.Handler):
        def do_GET(self) -> None:
            if self.path == f"{API}/restore/next":
                snapshot.taken.set()
                snapshot.wanted.wait()
                self._send(200, b"{}")
                return
            snapshot.asked.set()
            event = snapshot.events.get()
            deadline = str(int((time.time() + 29) * 1e3))
            self._send(200, json.dumps(event).encode(), {"Lambda-Runtime-Deadline-Ms": deadline})

        def do_POST(self) -> None:
            snapshot.answers.put(json.loads(self.body()))
            self._send(202, b"{}")

        def _send(self, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
            headers = {
                "Lambda-Runtime-Aws-Request-Id": "1",
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:1:function:dragoman",
                "Content-Type": "application/json",  # without it the client crashes
            }
            self.answer(status, body, headers | dict(more or {}))

    return Handler


@contextlib.contextmanager
def taken(artifact: Path, variables: Mapping[str, str]) -> Iterator[Snapshot]:
    """Offer an initialised instance, up to the moment of its snapshot."""
    snapshot = Snapshot()
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with web.serving(_handler(snapshot)) as server, tempfile.TemporaryDirectory() as temporary:
        snapshot.log = HOME / "log" / f"snapshot-{server.server_port}.log"
        with daemon(
            *(environment("runtime") / "python", "-m", "awslambdaric", HANDLER),
            ready=snapshot.taken.is_set,
            log=snapshot.log,
            cwd=artifact,
            env={
                **inherited,
                "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}",
                "AWS_LAMBDA_FUNCTION_NAME": "dragoman",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
                "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start",
                "AWS_EXECUTION_ENV": f"AWS_Lambda_python{RUNTIME}",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_REGION": "us-east-1",
                "LAMBDA_TASK_ROOT": str(artifact),
                "TMPDIR": temporary,
                **variables,
            },
        ) as process:
            snapshot.pid = process.pid
            yield snapshot
