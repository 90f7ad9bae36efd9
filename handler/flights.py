"""Loads under way, of which there is one at a time for each model, however many requests wait for it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from core.errors import StillLoading
from handler.phases import Phases
from handler.slots import Slot


class Flight:
    """A look-up, and a load or several. `slot`: what is loaded, once that is known.

    `future`: where another thread does it.
    """

    __slots__ = ("_name", "future", "ns", "slot")
    future: Future[Any]
    slot: Slot | None

    def __init__(self, name: str) -> None:
        self._name = name
        self.ns = 0
        self.slot = None

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
        return self._phases.load_ns

    def unfinished(self) -> StillLoading:
        """What is told to a request that can wait no longer."""
        return self._phases.unfinished()

    @property
    def _phases(self) -> Phases:
        phases = None if self.slot is None else self.slot.phases
        return phases or Phases(self._name)


class Pending(Exception):
    """The answer waits for `flight`. `final`: its result is the operation's; else the operation is tried again."""

    def __init__(self, flight: Flight, *, final: bool) -> None:
        super().__init__()
        self.flight = flight
        self.final = final

    @property
    def future(self) -> Future[Any]:
        return self.flight.future


class Flights:
    """In the threads of an executor, one at a time for each key."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._flights: dict[Any, Flight] = {}

    def join(self, key: Any, name: str, work: Callable[[Flight], Any]) -> Flight:
        """The one that is under way, or one that begins now. `name`: the model's."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = Flight(name)
                flight.future = self._executor.submit(flight.here, work)
                self._flights[key] = flight
                flight.future.add_done_callback(lambda _: self._flights.pop(key, None))
        return flight
