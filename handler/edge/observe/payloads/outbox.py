"""Events on their way to their place: bounded in memory, and written by a thread of their own."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from core.errors import counted, escaped
from handler.edge.observe.aside import Aside, left
from handler.edge.observe.payloads.events import CloudEvent
from handler.edge.observe.payloads.places import EventPlace, Interrupted

log = logging.getLogger(__name__)
WRITTEN: Final = "written"
FAILED: Final = "failed"
FULL: Final = "memory"
REFUSED: Final = "refused"
BATCH_BYTES: Final = 8 * 2**20
OVERHEAD: Final = 2048
"""The bytes that an event takes beside its payload."""
RETRIES: Final = (0.5, 2.0, 5.0)
"""Seconds before each further try."""
PAUSE_SECONDS: Final = 30.0
"""A function tries again so long after a failure, and a failure is logged at most so often."""
LAMBDA_SECONDS: Final = 2.0
"""The most that a function's answer waits for its events."""
LAST_SECONDS: Final = 10.0
"""The most that the end of a process waits for its events."""


class Outbox:
    """`most`: bytes that may wait. `counts`: of requests, by the outcome of their events.

    `freezes`: nothing runs after a request, so that its events are written before it ends, and not again. Requests may
    end in several threads at once: one of them writes, also for those that wait for it.
    """

    def __init__(self, place: EventPlace, most: int, counts: dict[str, int], *, freezes: bool = False) -> None:
        self._place = place
        self._most = most
        self._counts = counts
        self._freezes = freezes
        self._aside = Aside(LAMBDA_SECONDS)
        self._waiting: list[Sequence[CloudEvent]] = []
        self._bytes = 0
        self._lock, self._counting, self._writing = threading.Lock(), threading.Lock(), threading.Lock()
        self._filled, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._hurries, self._ends = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._is_stuck = False
        self._told = self._again = float("-inf")

    def put(self, events: Sequence[CloudEvent], until: float = math.inf) -> None:
        """Takes the events of one request. Waits only for a function's. `until`: when its answer has to leave."""
        if self._freezes:
            self._put_now(events, until)
            return
        size = sum(event.size + OVERHEAD for event in events)
        with self._lock:
            if self._bytes + size > self._most:
                self.count(FULL)
                return
            self._bytes += size
            self._waiting.append(events)
            self._idle.clear()
            if self._bytes > BATCH_BYTES:
                self._hurries.set()
        self._filled.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="payload log", daemon=True)
            self._thread.start()

    def _put_now(self, events: Sequence[CloudEvent], until: float) -> None:
        with self._lock:
            self._waiting.append(events)
        if not self._writing.acquire(timeout=left(until, LAMBDA_SECONDS)):
            return  # the next thread takes them along
        try:
            with self._lock:
                batch, self._waiting = self._waiting, []
            if batch:  # else the thread before has written the events
                self._write(batch, (), until)
        finally:
            self._writing.release()

    def _run(self) -> None:
        while True:
            self._filled.wait()
            self._hurries.wait(self._place.pause)  # others come meanwhile
            with self._lock:
                batch, size = self._taken()
                if not self._waiting:
                    self._filled.clear()
                    self._hurries.clear()
            if batch:
                self._write(batch, RETRIES)
            with self._lock:
                self._bytes -= size
                if not self._waiting:
                    self._idle.set()

    def _taken(self) -> tuple[list[Sequence[CloudEvent]], int]:
        """Takes the events of one batch, and returns them with their bytes."""
        size = taken = 0
        for events in self._waiting:
            taken += 1
            size += sum(event.size + OVERHEAD for event in events)
            if size >= BATCH_BYTES:
                break
        batch = self._waiting[:taken]
        del self._waiting[:taken]
        return batch, size

    def _write(self, batch: Sequence[Sequence[CloudEvent]], retries: Sequence[float], until: float = math.inf) -> None:
        """Writes the events of so many requests, and counts the outcomes."""
        if self._freezes and time.monotonic() < self._again:
            self.count(FAILED, len(batch))
            return
        rest, refused = [event for each in batch for event in each], set[int]()
        pauses = iter(retries)
        while True:
            failure, done, more = self._tried(rest, until)
            rest, refused = rest[done:], refused.union(map(id, more))
            if failure is not None and done and retries:  # the place takes events: it missed one
                pauses = iter(retries)
                continue
            seconds = None if failure is None else next(pauses, None)
            if seconds is None or self._ends.wait(seconds):
                break
        lost = set(map(id, rest))
        sent = [each for each in batch if id(each[-1]) not in lost]
        gone = sum(any(id(event) in refused for event in each) for each in sent)
        if failure is None:
            self._is_stuck = False
        else:
            self._fail(failure, len(batch) - len(sent))
        self.count(WRITTEN, len(sent) - gone)
        self.count(REFUSED, gone)
        self.count(FAILED, len(batch) - len(sent))

    def _fail(self, failure: Exception, requests: int) -> None:
        """Notes that the events of so many requests were not written."""
        self._again = time.monotonic() + PAUSE_SECONDS
        if time.monotonic() - self._told >= PAUSE_SECONDS:
            self._told = time.monotonic()
            log.warning(
                "payloads of %s were not written: %s", counted(requests, "request"), escaped(str(failure))[:256]
            )

    def _tried(self, events: Sequence[CloudEvent], until: float) -> tuple[Exception | None, int, Sequence[CloudEvent]]:
        """Returns why events were not written, None if all were, the number that were, and those that were refused."""
        write = partial(self._place.write, events)
        try:
            return None, len(events), self._aside.run(write, until) if self._freezes else write()
        except Interrupted as error:
            return error, error.done, error.refused
        except Exception as error:  # noqa: BLE001 - each place's client has errors of its own
            return error, 0, ()

    def count(self, outcome: str, number: int = 1) -> None:
        """Counts requests whose events have ended so."""
        if number:
            with self._counting:
                self._counts[outcome] = self._counts.get(outcome, 0) + number

    def close(self) -> None:
        """Waits until the events are written, but not for long. Further ones may come.

        A server with gRPC closes twice. After a wait in vain it does not wait again before something was written.
        """
        if self._thread is not None:
            self._hurries.set()
            self._ends.set()
            if not self._is_stuck:
                self._is_stuck = not self._idle.wait(LAST_SECONDS)
