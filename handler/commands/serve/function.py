"""The instance of the function behind `serve --lambda`: a process that answers, and is ended when it is late."""

import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from core.records import NamedTuple
from handler.commands import children

NAME: Final = "dragoman"
INIT_SECONDS: Final = 10.0
"""Lambda's init phase on demand. If it takes longer, the phase begins again, within the invocation."""


class FunctionTimedOut(Exception):
    """The function took longer than its timeout, and its instance was ended."""


class FunctionFailed(Exception):
    """The function raised an error, or its process ended."""


class Invoked(NamedTuple):
    """What an invocation returned, and the bytes of that as JSON."""

    answer: Any
    size: int


class LambdaInstance:
    """Runs the function in a process of its own. One invocation at a time: others wait.

    `environ`: of the process. `seconds`: the function's timeout. `report`: gets the lines that Lambda's log would have.
    """

    def __init__(self, environ: Mapping[str, str], seconds: float, report: Callable[[str], None]) -> None:
        self._environ = children.environment({**environ, "AWS_LAMBDA_FUNCTION_NAME": NAME})
        self._seconds, self._report = seconds, report
        self._process: subprocess.Popen[bytes] | None = None
        self._questions: Any = None
        self._answers: Any = None
        self._turn = threading.Lock()
        self._is_closed = False

    def invoke(self, event: dict[str, Any]) -> Invoked:
        """Raises FunctionTimedOut, FunctionFailed."""
        with self._turn:
            try:
                return self._invoke(event)
            except (EOFError, OSError):
                self._end()
                raise FunctionFailed("the function's process ended: see its log") from None

    def _invoke(self, event: dict[str, Any]) -> Invoked:
        init = "" if self._process is not None else f"  Init Duration: {self._start() * 1000:.2f} ms"
        number, began = str(uuid.uuid4()), time.monotonic()
        context = {"request_id": number, "function": NAME, "seconds": self._seconds}
        self._questions.send_bytes(json.dumps({"event": event, "context": context}).encode())
        if not self._answers.poll(self._seconds):
            self._end()
            self._report(f"{number} Task timed out after {self._seconds:.2f} seconds")
            raise FunctionTimedOut
        body = self._answers.recv_bytes()
        found, milliseconds = json.loads(body), (time.monotonic() - began) * 1000
        peak = f"  Max Memory Used: {found['peak']} MB"
        self._report(f"REPORT RequestId: {number}  Duration: {milliseconds:.2f} ms{peak}{init}")
        if "answer" not in found:
            raise FunctionFailed(f"{found['errorType']}: {found['errorMessage']}")
        return Invoked(found["answer"], len(body))

    def _start(self) -> float:
        """Starts the process, and returns the seconds of its init phase. Raises EOFError if it ends."""
        reads, self_writes = os.pipe()
        self_reads, writes = os.pipe()
        command = children.command("handler.commands.serve.runtime", str(reads), str(writes))
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command,
            env=self._environ,
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            process_group=0,  # a terminal's Ctrl-C would end an invocation that the server still waits for
        )
        if self._is_closed:
            self._process.kill()
        os.close(reads)
        os.close(writes)
        self._questions, self._answers = Connection(self_writes, readable=False), Connection(self_reads, writable=False)
        began = time.monotonic()
        if not self._answers.poll(INIT_SECONDS):
            self._report(f"INIT_REPORT Init Duration: {INIT_SECONDS * 1000:.2f} ms  Phase: init  Status: timeout")
        json.loads(self._answers.recv_bytes())
        return time.monotonic() - began

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._questions.close()
            self._answers.close()

    def close(self) -> None:
        """Ends the process. An invocation that is still under way fails: the server has waited for its answer."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._end()
