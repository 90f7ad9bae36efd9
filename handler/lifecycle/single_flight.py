"""Loads under way, of which there is one at a time for each model, however many requests wait for it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple

from core.errors import StillLoading
from handler.lifecycle.phases import Phases
from handler.lifecycle.versions import Slot


class Flight:
    """A look-up, and a load or several. `slot`: what is loaded, once that is known.

    `ahead`: the one that has to end before this one begins. `future`: where another thread does it.
    """

    __slots__ = ("_awaited", "_name", "ahead", "future", "ns", "slot")
    future: Future[Any]
    slot: Slot | None

    def __init__(self, name: str, ahead: "Flight | None" = None) -> None:
        self._name = name
        self.ahead = ahead
        self._awaited: Slot | None = None
        self.ns = 0
        self.slot = None

    def begin(self) -> None:
        """Its turn has come; what the one ahead has loaded was waited for as well."""
        if self.ahead is not None:
            self._awaited, self.ahead = self.ahead.slot, None

    def here(self, work: Callable[["Flight"], Any]) -> Any:
        """Its result, done in this thread; `ns` adds up how long that took, however it ends."""
        begun = time.perf_counter_ns()
        try:
            return work(self)
        finally:
            self.ns += time.perf_counter_ns() - begun

    @property
    def load_ns(self) -> int:
        """Of which so many nanoseconds in the model's runtime."""
        return self._phases(self._first.slot or self._awaited).load_ns

    def unfinished(self) -> StillLoading:
        """What is told to a request that can wait no longer."""
        return self._phases(self._first.slot).unfinished()

    @property
    def _first(self) -> "Flight":
        """The one that is under way now."""
        flight = self
        while (ahead := flight.ahead) is not None:
            flight = ahead
        return flight

    def _phases(self, slot: Slot | None) -> Phases:
        return (None if slot is None else slot.phases) or Phases(self._name)


class Pending(Exception):
    """The answer waits for `flight`. `final`: its result is the operation's; else the operation is tried again."""

    def __init__(self, flight: Flight, *, final: bool) -> None:
        super().__init__()
        self.flight = flight
        self.final = final

    @property
    def future(self) -> Future[Any]:
        return self.flight.future


class Queued(NamedTuple):
    key: Any
    flight: Flight
    work: Callable[[Flight], Any]


class Flights:
    """In the threads of an executor: one at a time for each key and for each model.

    Who has to wait until the model's others have ended occupies no thread.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._flights: dict[Any, Flight] = {}
        self._queues: dict[str, deque[Queued]] = {}  # by model; the first of each is under way

    def join(self, key: Any, name: str, work: Callable[[Flight], Any]) -> Flight:
        """The one that is under way or waits, or a new one. `name`: the model's. Raises RuntimeError after the end."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                queue = self._queues.get(name)
                flight = Flight(name, queue[-1].flight if queue else None)
                flight.future = Future()
                self._flights[key] = flight
                self._queues.setdefault(name, deque()).append(Queued(key, flight, work))
                if queue is None:
                    self._begin(key, name)
        return flight

    def at_once(self, name: str, work: Callable[[], Any]) -> bool:
        """Do it in this thread, while others of the model wait. False, and not done, if one of them is under way."""
        with self._lock:
            if name in self._queues:
                return False
            self._queues[name] = deque([Queued(None, Flight(name), lambda _: None)])
        try:
            work()
        finally:
            self._next(name)
        return True

    def _begin(self, key: Any, name: str) -> None:
        """The first of a queue. Raises RuntimeError."""
        try:
            self._submit(name)
        except RuntimeError:
            del self._flights[key], self._queues[name]
            raise

    def _submit(self, name: str) -> None:
        turn = self._executor.submit(self._turn, name)
        turn.add_done_callback(lambda done: self._cancel(name) if done.cancelled() else None)

    def _turn(self, name: str) -> None:
        with self._lock:
            _, flight, work = self._queues[name][0]
        flight.begin()
        try:
            land = partial(flight.future.set_result, flight.here(work))
        except BaseException as error:  # noqa: BLE001 - for those who wait
            land = partial(flight.future.set_exception, error)
        self._next(name)
        land()
        del flight, land  # the error's traceback holds this frame

    def _next(self, name: str) -> None:
        """The first has ended; whoever asks from now on gets a new one."""
        with self._lock:
            queue = self._queues[name]
            self._flights.pop(queue.popleft().key, None)
            if not queue:
                del self._queues[name]
                return
            try:
                self._submit(name)
            except RuntimeError:  # the server is ending
                self._cancel(name)

    def _cancel(self, name: str) -> None:
        """Without the lock: an executor that is shut down cancels while it holds its own, which `submit` asks for."""
        for queued in self._queues.pop(name, ()):
            queued.flight.future.cancel()
