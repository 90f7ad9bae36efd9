"""Where a request's time went, as the header Server-Timing says it (W3C, Server Timing): milliseconds by step."""

import time
from typing import Final

from handler.lifecycle.single_flight import Flight

HEADER: Final = b"server-timing"
COLD: Final = b"cold"
RESTORED: Final = b"restored"
WARM: Final = b"warm"


class Timing:
    """Of one request, in nanoseconds. `came`: on time.perf_counter_ns; `begun`: when it left the queue, 0 before.

    `waited`: in all for its model, of which `load` in the model's runtime. `cold`: for a load, and not only for a look
    at the repository. `durations`: of an inference that was answered: in the queue (waiting for the model included),
    for decoding, for the model, for encoding.
    """

    __slots__ = ("begun", "came", "cold", "durations", "load", "waited")

    def __init__(self) -> None:
        self.came = time.perf_counter_ns()
        self.begun = 0
        self.waited = 0
        self.load = 0
        self.cold = False
        self.durations: tuple[int, int, int, int] | None = None

    def wait(self, ns: int, flight: Flight) -> None:
        """The request has waited for a flight, perhaps not from its beginning."""
        self.waited += ns
        load = min(ns, flight.load_ns)
        self.load += load
        self.cold = self.cold or load > 0 or flight.slot is not None

    def text(self, start: bytes) -> bytes:
        """The header's value. `start`: how its process stood when the request came."""
        # Formatting bytes takes 0.7 us here, half of what a string and its encoding do.
        if self.durations is None:
            queue = self.begun - self.came if self.begun else 0
            steps = b"total;dur=%.3f, start;desc=%b" % ((time.perf_counter_ns() - self.came) / 1e6, start)
        else:
            queue, decode, infer, encode = self.durations
            steps = b"decode;dur=%.3f, infer;dur=%.3f, encode;dur=%.3f, start;desc=%b" % (
                *(decode / 1e6, infer / 1e6, encode / 1e6),
                start,
            )
        if not self.waited:
            return b"queue;dur=%.3f, %b" % (queue / 1e6, steps)
        waits = (max(0, queue - self.waited) / 1e6, (self.waited - self.load) / 1e6, self.load / 1e6)
        return b"queue;dur=%.3f, fetch;dur=%.3f, load;dur=%.3f, %b" % (*waits, steps)


class Clock:
    """Of one process. `start`: what is said of its next request, COLD or RESTORED; WARM from then on."""

    def __init__(self, *, on: bool) -> None:
        self.start = COLD
        self._on = on

    def text(self, timing: Timing) -> bytes:
        """Empty where it is not to be said."""
        if not self._on:
            return b""
        start = self.start
        if start is not WARM:
            self.start = WARM
        elif timing.cold:
            start = COLD
        return timing.text(start)
