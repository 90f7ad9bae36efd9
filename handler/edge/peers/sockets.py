"""Questions from worker to worker, over a Unix socket for each in a folder that only their user can enter.

A question is a verb with its arguments. The answer is the verb's result, or the ServingError that it raised. Both are
pickled: a process that could write them could as well trace the worker. A worker says every BEAT_SECONDS that it still
works on a question, so that a worker that hangs can be distinguished from one that loads a large model.
"""

import fcntl
import logging
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from core.errors import ModelFailed, ModelUnavailable, ServingError
from handler.edge.protocols import INTERNAL

log = logging.getLogger("dragoman.workers")
ASK_SECONDS: Final = 2.0
"""The longest wait for an answer that takes no load. A worker without one counts as not there, and is not asked again
for SILENCE_SECONDS: health must not wait for it each time."""
BEAT_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 10.0
"""A worker that works on a question, and is silent for so long, counts as not there."""
PAUSE_SECONDS: Final = 1.0
"""The pause of a worker that could not accept another one's question."""
MOMENT: Final = 0.01
"""After the wait, answers that have arrived are still read: another worker's silence can take all the time."""
BACKLOG: Final = 128
TURNS: Final = 64
"""Files of locks. Two models whose names have the same one wait for each other."""
ENDING: Final = ".sock"
BEAT, DONE, ABSENT = "beat", "done", "absent"
ENDED: Final = (FileNotFoundError, ConnectionError)
"""The errors of a worker that has ended between the listing of the folder and the question."""
GONE: Final = (OSError, EOFError, pickle.UnpicklingError)
"""What reading from a worker raises that has ended or is silent."""


class NotServing(Exception):
    """The worker does not take requests yet, so that its answer does not count."""


class Peers:
    """The other workers. `folder`: has the socket of each. `own`: the name of this worker's socket."""

    def __init__(self, folder: Path, own: str) -> None:
        self._folder = folder
        self._own = own + ENDING
        self._silent: dict[str, float] = {}  # until when they are not asked questions; changes go to all

    @property
    def socket(self) -> Path:
        """The path of the own one."""
        return self._folder / self._own

    def ask(self, verb: str, *arguments: Any, seconds: float = ASK_SECONDS) -> list[Any]:
        """Returns the answers of those that answer in time, ServingErrors among them."""
        return list(self._answers((verb, arguments), time.monotonic() + seconds))

    def tell(self, verb: str, *arguments: Any) -> list[Any]:
        """Returns the answers as `ask` does, however long the others work on them."""
        return list(self._answers((verb, arguments), float("inf")))

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Lets one worker at a time change a model, so that all of them end in the same state.

        The lock is flock's, which ends with its process. It is released, and not only closed: a process that a model's
        code forks meanwhile, such as one of a pool, has a copy of the file, and would keep the lock.
        """
        number = crc32(name.encode(errors="replace")) % TURNS
        with (self._folder / f"{number}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _answers(self, question: tuple[str, tuple[Any, ...]], until: float) -> Iterator[Any]:
        with ExitStack() as opened:
            asked = []
            for name in self._others(until):
                try:
                    asked.append((name, _asked(opened, self._folder / name, question, until)))
                except ENDED:
                    continue
                except OSError as error:  # this process has no more descriptors, or the other one is overwhelmed
                    number = name.removesuffix(ENDING)
                    log.warning("worker %s cannot be asked %r: %s", number, question[0], error)
                    yield ModelUnavailable(f"it cannot be asked: {error.strerror or type(error).__name__}: try again")
            for name, connection in asked:
                try:
                    kind, value = _read(connection, until)
                except GONE as error:
                    self._silent[name] = time.monotonic() + SILENCE_SECONDS
                    number = name.removesuffix(ENDING)
                    log.warning("worker %s does not answer %r, and is left out: %s", number, question[0], error)
                    continue
                if kind != ABSENT:
                    yield value

    def _others(self, until: float) -> list[str]:
        now, may_wait = time.monotonic(), until == float("inf")
        names = sorted(path.name for path in self._folder.glob(f"*{ENDING}"))
        return [name for name in names if name != self._own and (may_wait or self._silent.get(name, 0.0) <= now)]


def _asked(opened: ExitStack, path: Path, question: Any, until: float) -> socket.socket:
    """Sends a question. Raises OSError."""
    connection = opened.enter_context(socket.socket(socket.AF_UNIX))
    connection.settimeout(_left(until))
    connection.connect(str(path))
    connection.sendall(pickle.dumps(question))
    connection.shutdown(socket.SHUT_WR)
    return connection


def _read(connection: socket.socket, until: float) -> tuple[str, Any]:
    """Returns the answer that follows the beats. Raises one of GONE."""
    with connection.makefile("rb") as stream:
        while True:
            connection.settimeout(_left(until))
            kind, value = pickle.load(stream)  # noqa: S301 - of this user's own process, see above
            if kind != BEAT:
                return kind, value


def _left(until: float) -> float:
    """Returns the seconds to wait for the next bytes."""
    return max(MOMENT, min(SILENCE_SECONDS, until - time.monotonic()))


class Desk:
    """Answers the other workers. `verbs`: the function for each verb, called in a thread of its own."""

    def __init__(self, path: Path, verbs: Mapping[str, Callable[..., Any]]) -> None:
        """Raises OSError."""
        self._path, self._verbs = path, verbs
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(BACKLOG)
        threading.Thread(target=self._accept, name="dragoman-desk", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                self._take()
            except (OSError, RuntimeError) as error:
                if not self._closed.wait(PAUSE_SECONDS):  # the process has no more descriptors, or threads
                    log.warning("a question of another worker is not taken: %s", error)

    def _take(self) -> None:
        connection, _ = self._socket.accept()
        try:
            threading.Thread(target=self._serve, args=(connection,), name="dragoman-peer", daemon=True).start()
        except RuntimeError:
            connection.close()
            raise

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(*GONE):  # the other worker has ended, or waits no longer
            connection.settimeout(SILENCE_SECONDS)
            with connection.makefile("rb") as stream:
                verb, arguments = pickle.load(stream)  # noqa: S301 - as above
            work: Future[tuple[str, Any]] = Future()
            call = partial(self._verbs[verb], *arguments)
            threading.Thread(target=_land, args=(work, call), name=f"dragoman-{verb}", daemon=True).start()
            while True:
                try:
                    connection.sendall(pickle.dumps(work.result(BEAT_SECONDS)))
                except NotYet:
                    connection.sendall(pickle.dumps((BEAT, None)))
                else:
                    return


def _land(work: "Future[tuple[str, Any]]", call: Callable[[], Any]) -> None:
    answer: tuple[str, Any] = ABSENT, None
    try:
        answer = DONE, call()
    except ServingError as error:
        is_known = type(error).__module__ == ServingError.__module__  # others cannot always be made from their message
        answer = DONE, error.with_traceback(None) if is_known else ModelUnavailable(error.message)
    except NotServing:
        pass
    except BaseException:
        log.exception("a question of another worker failed")
        answer = DONE, ModelFailed(INTERNAL)
    work.set_result(answer)
