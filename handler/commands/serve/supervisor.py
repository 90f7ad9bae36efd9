"""`dragoman serve --workers N`: the process that starts the workers, and replaces those that end.

It takes no request and loads no model. It holds the ports, without listening, so that no other user's program can take
them while a worker is replaced. A worker's standard input is a socket: the worker writes to it once it takes requests,
and reads its end when this process ends, however that happens.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

from handler.commands import children
from handler.commands.serve.server import NOT_STARTED, Serving, bind, check_packages
from handler.edge import log_lines
from handler.settings import InvalidSettings, Settings

log = logging.getLogger("dragoman.workers")
MODULE: Final = "handler.commands.serve.worker"
LONGEST_FOLDER: Final = 60
"""Characters of a folder in which a socket's whole path stays below the kernel's 108."""
SETTLED_SECONDS: Final = 30.0
"""A worker that has lived for so long is replaced at once when it ends..."""
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""...and one that ended earlier is replaced after a pause, which doubles up to this one."""
DOUBLINGS: Final = 10
STOP_SECONDS: Final = 25.0
"""A worker that still runs so long after DRAGOMAN_SHUTDOWN_TIMEOUT has passed is killed."""
ENDS: Final = {signal.SIGTERM: 0, signal.SIGINT: 128 + signal.SIGINT}
"""The exit code for each signal that ends the server. Every command returns 130 after Ctrl-C."""


def serve(settings: Settings, how: Serving, environ: Mapping[str, str]) -> int:
    """Serves with several workers until a signal. `environ`: has their settings. Raises InvalidSettings."""
    _check(settings, how)
    log_lines.begin(settings.log_level, settings.log_format)
    with ExitStack() as held:
        for flag, port in (("--port", how.port), ("--grpc-port", how.grpc_port)):
            if port:
                with ExitStack() as tried:  # alone first: another server's workers would share the port, too
                    bind(tried, flag, how.host, port)
                bind(held, flag, how.host, port, shared=True)
        folder = held.enter_context(TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True))
        if len(folder) > LONGEST_FOLDER:
            folder = held.enter_context(TemporaryDirectory(prefix="dragoman-", dir="/tmp", ignore_cleanup_errors=True))
        return asyncio.run(Supervisor(settings, how, environ, folder).run())


def _check(settings: Settings, how: Serving) -> None:
    """Raises InvalidSettings for options that do not go together."""
    if not sys.platform.startswith("linux"):
        raise InvalidSettings("--workers needs Linux, whose kernel shares a port's connections out")
    if how.reload:
        raise InvalidSettings("--reload is for one process: leave out --reload or --workers")
    if any(settings.contract.hooks):
        raise InvalidSettings("SnapStart's hooks reach one process: leave out --workers (DRAGOMAN_WORKERS)")
    check_packages(how)


class Started:
    """One process of a worker. `reader`: of its standard input's other end."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.began = time.monotonic()
        self._reader = reader
        self._writer = writer

    async def listens(self) -> bool:
        """Waits until it takes requests. Returns False if it ends before."""
        return bool(await self._reader.read(1))

    async def ended(self) -> int:
        """Waits for its end, and returns its exit code; minus the number of the signal that ended it."""
        code = await self.process.wait()
        self._writer.close()
        return code


class Supervisor:
    """Keeps DRAGOMAN_WORKERS workers running. `folder`: private, for their sockets and numbers."""

    def __init__(self, settings: Settings, how: Serving, environ: Mapping[str, str], folder: str) -> None:
        self._count = settings.workers
        self._most = settings.shutdown_timeout + STOP_SECONDS
        self._how = how
        self._folder = folder
        self._environ = children.environment({"DRAGOMAN_METRICS_FOLDER": f"{folder}/metrics", **environ})
        self._running: dict[int, Started] = {}
        self._ending = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Returns the exit code: the first worker's if that does not begin to serve."""
        for number, code in ENDS.items():
            asyncio.get_running_loop().add_signal_handler(number, self._end, code)
        first = await self._start(1, announces=True)
        if not await first.listens():  # it says why, and the others would repeat it
            code = await first.ended()
            return self._code if self._ending.is_set() else code if code > 0 else NOT_STARTED
        kept = [asyncio.create_task(self._keep(number, first if number == 1 else None)) for number in self._numbers()]
        await self._ending.wait()
        _, late = await asyncio.wait(kept, timeout=self._most)
        if late:
            log.warning("%d workers still run after %.0f s: they are killed", len(late), self._most)
            self._signal(signal.SIGKILL)
            await asyncio.wait(kept)
        for task in kept:
            task.result()
        return self._code

    def _numbers(self) -> range:
        return range(1, self._count + 1)

    async def _start(self, number: int, *, announces: bool = False) -> Started:
        ours, theirs = socket.socketpair()
        role = json.dumps({
            "number": number, "folder": self._folder, "announces": announces,
            "how": {**self._how._asdict(), "file": self._how.file and str(self._how.file)},
        })  # fmt: skip
        command = children.command(MODULE, role)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs.fileno(),
                env=self._environ,
                process_group=0,  # a terminal's Ctrl-C is for this process, which ends the workers
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        started = self._running[number] = Started(process, *await asyncio.open_connection(sock=ours))
        if self._ending.is_set():
            _send(started, signal.SIGTERM)
        return started

    async def _keep(self, number: int, started: Started | None) -> None:
        """Keeps one worker running until the server ends."""
        early = 0
        while True:
            began = time.monotonic() if started is None else started.began
            try:
                started = started or await self._start(number)
                how = await self._ended(number, started)
            except OSError as error:
                how = f"cannot be started: {error.strerror}"
            if self._ending.is_set():
                return
            lived, started = time.monotonic() - began, None
            early = early + 1 if lived < SETTLED_SECONDS else 0
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(early - 1, DOUBLINGS)) if early else 0.0
            log.error("worker %d %s after %.0f s; another one starts in %g s", number, how, lived, pause)
            if await self._ends_within(pause):
                return

    async def _ended(self, number: int, started: Started) -> str:
        """Waits for a worker's end, and returns its cause in words."""
        code, process = await started.ended(), started.process.pid
        with suppress(OSError):  # its socket, if the folder is still there
            os.unlink(f"{self._folder}/{number}-{process}.sock")  # noqa: PTH108 - pathlib is for synchronous functions
        return f"(process {process}) {reason(code)}"

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _end(self, code: int = 0) -> None:
        """Has the workers end once they have answered; at the second signal at once. `code`: the exit code."""
        self._code = code
        self._signal(signal.SIGKILL if self._ending.is_set() else signal.SIGTERM)
        self._ending.set()

    def _signal(self, number: int) -> None:
        for started in self._running.values():
            _send(started, number)


def _send(started: Started, number: int) -> None:
    if started.process.returncode is None:
        started.process.send_signal(number)


def reason(code: int) -> str:
    """Returns how a process has ended, for the log. `code`: its exit code, or minus the number of a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name: Any = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (by hand, or by the kernel because memory was full)" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"
