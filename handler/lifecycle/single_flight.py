"""Does one piece of work at a time for each model, however many requests wait for it.

With an executor (ASGI servers) the work is done in its threads, and the request gets Pending, whose future the edge
awaits. Without one (Lambda, where an instance has one request at a time) it is done in the caller's thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from core.deadline import NEVER, Deadline
from core.errors import ServingError, StillLoading, copied
from core.ports import Context
from core.records import NamedTuple
from handler.lifecycle.versions import ServedVersion
from handler.stores.progress import Progress

if TYPE_CHECKING:
    import asyncio


class Load:
    """A look at the repository, and the loads that follow from it. `version`: what is loaded, once that is known.

    `ahead`: the load that has to end before this one begins. `future`: its result, if another thread does it.
    `begun`: it is under way.
    """

    __slots__ = ("_awaited", "_name", "ahead", "begun", "deadline", "future", "version")
    future: Future[Any]

    def __init__(self, name: str, deadline: Deadline = NEVER, ahead: "Load | None" = None) -> None:
        self._name = name
        self._awaited: ServedVersion | None = None
        self.ahead = ahead
        self.begun = False
        self.deadline = deadline
        self.version: ServedVersion | None = None

    def begin(self) -> None:
        """Begins, because its turn has come. The request has waited for the version of the load ahead as well."""
        self.begun = True
        if self.ahead is not None:
            self._awaited, self.ahead = self.ahead.version, None

    @property
    def load_ns(self) -> int:
        """Nanoseconds of it in the model's runtime."""
        return self._progress(self._first.version or self._awaited).load_ns

    def unfinished(self) -> StillLoading:
        """Returns the refusal of a request that can wait no longer."""
        return self._progress(self._first.version).unfinished(self._name)

    @property
    def _first(self) -> "Load":
        """The load that is under way now."""
        load = self
        while (ahead := load.ahead) is not None:
            load = ahead
        return load

    def _progress(self, version: ServedVersion | None) -> Progress:
        return (None if version is None else version.progress) or Progress()


Work = Callable[[Load], Any]


class Background:
    """The context of work that no request waits for."""

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline

    def using(self, use: Any) -> None:
        """Notes nothing."""

    def waited(self, ns: int, load: Any) -> None:
        """Counts nothing."""

    def answered(self, use: Any, decoded: int, inferred: int, rows: int = 1) -> None:
        """Counts nothing."""

    def began(self, spent: int) -> None:
        """Counts nothing."""

    def streamed(self, use: Any, decoded: int, infer: int, *, success: bool) -> None:
        """Counts nothing."""

    def asking(self, kind: str) -> None:
        """Notes nothing."""

    def asked(self, use: Any) -> None:
        """Counts nothing."""

    def failed(self, use: Any) -> None:
        """Counts nothing."""


class Pending(Exception):
    """The answer waits for `load`. `final`: its result is the operation's; otherwise the operation is tried again.

    `since`: when the request joined the load, on time.perf_counter_ns(). The event loop may learn of it much later.
    """

    def __init__(self, load: Load, *, final: bool, since: int) -> None:
        super().__init__()
        self.load = load
        self.final = final
        self.since = since

    @property
    def future(self) -> Future[Any]:
        return self.load.future


T = TypeVar("T")


def settled(work: Callable[[], T], deadline: Deadline) -> T:
    """Returns the work's result, in a thread that may wait for loads. Raises StillLoading at the deadline."""
    while True:
        try:
            return work()
        except Pending as pending:
            wait_for((pending.load,), deadline)
            if not pending.future.done():
                raise pending.load.unfinished() from None
            result: T = outcome(pending.future)
            if pending.final:
                return result


def outcome(future: "Future[Any] | asyncio.Future[Any]") -> Any:
    """Returns the result of a load that has ended. Raises a copy of its ServingError.

    Each request that waited has a traceback of its own then. One in the load's error would hold the requests' frames,
    and these hold the load, which holds the error: a cycle, with the bodies of the requests in it.
    """
    error = future.exception()
    if isinstance(error, ServingError):
        raise copied(error, error.retry_after)
    return future.result()


def wait_for(loads: Iterable[Load], deadline: Deadline) -> None:
    """Waits until all the loads have ended, or failed, or until the deadline."""
    wait([load.future for load in loads], None if deadline.is_never else max(0.0, deadline.left))


class Here:
    """Does the work at once, in the caller's thread."""

    def run(self, _key: Any, name: str, work: Work, context: Context, *, final: bool, anew: bool = False) -> Any:  # noqa: ARG002 - as below
        """Returns the work's result. Raises what the work raises."""
        load, begun = Load(name, context.deadline), time.perf_counter_ns()
        try:
            return work(load)
        finally:
            context.waited(time.perf_counter_ns() - begun, load)

    def run_if_idle(self, _name: str, work: Callable[[], Any]) -> bool:
        work()
        return True


class Queued(NamedTuple):
    key: Any
    load: Load
    work: Work


class SingleFlight:
    """Does the work in the threads of an executor: one at a time for each key and for each model.

    Work that has to wait until the model's other work has ended occupies no thread.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._loads: dict[Any, Load] = {}
        self._queues: dict[str, deque[Queued]] = {}  # by model; the first of each is under way

    def run(self, key: Any, name: str, work: Work, _context: Context, *, final: bool, anew: bool = False) -> Any:
        """Raises Pending with the load of that key, which may be under way already. `name`: the model's.

        `anew`: does not join work that has begun, which may have looked too early. Raises RuntimeError after the end of
        the executor.
        """
        since = time.perf_counter_ns()
        raise Pending(self.join(key, name, work, anew=anew), final=final, since=since)

    def join(self, key: Any, name: str, work: Work, *, anew: bool = False) -> Load:
        """Returns the load of that key that waits or is under way, or a new one. `anew`: only one that waits."""
        with self._lock:
            load = self._loads.get(key)
            if load is None or (anew and load.begun):
                queue = self._queues.get(name)
                load = Load(name, ahead=queue[-1].load if queue else None)
                load.future = Future()
                self._loads[key] = load
                self._queues.setdefault(name, deque()).append(Queued(key, load, work))
                if queue is None:
                    self._begin(key, name)
        return load

    def run_if_idle(self, name: str, work: Callable[[], Any]) -> bool:
        """Does the work in this thread, while the model's other work waits. Returns False if any is under way."""
        with self._lock:
            if name in self._queues:
                return False
            self._queues[name] = deque([Queued(None, Load(name), lambda _: None)])
        try:
            work()
        finally:
            self._next(name)
        return True

    def _begin(self, key: Any, name: str) -> None:
        """Starts the first of a queue. Raises RuntimeError."""
        try:
            self._submit(name)
        except RuntimeError:
            del self._loads[key], self._queues[name]
            raise

    def _submit(self, name: str) -> None:
        turn = self._executor.submit(self._turn, name)
        turn.add_done_callback(lambda done: self._cancel(name) if done.cancelled() else None)

    def _turn(self, name: str) -> None:
        with self._lock:
            _, load, work = self._queues[name][0]
        load.begin()
        try:
            land = partial(load.future.set_result, work(load))
        except ServingError as error:
            # Its traceback holds the frames of the work, with all that a model has made until then; they hold the load.
            land = partial(load.future.set_exception, copied(error, error.retry_after))
        except BaseException as error:  # noqa: BLE001 - the requests that wait get it
            land = partial(load.future.set_exception, error)
        self._next(name)
        land()
        del load, land  # the error's traceback holds this frame

    def _next(self, name: str) -> None:
        """Ends the first of a queue; a request that comes from now on gets a new load."""
        with self._lock:
            queue = self._queues[name]
            ended = queue.popleft()
            if self._loads.get(ended.key) is ended.load:
                del self._loads[ended.key]
            if not queue:
                del self._queues[name]
                return
            try:
                self._submit(name)
            except RuntimeError:  # the server is ending
                self._cancel(name)

    def _cancel(self, name: str) -> None:
        """Takes no lock: an executor that is shut down cancels while it holds its own, which `submit` asks for."""
        for queued in self._queues.pop(name, ()):
            queued.load.future.cancel()
