"""Measures the steps of each request, and writes the Server-Timing of its answer."""

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from core.deadline import NEVER, Deadline
from core.errors import SHOWN_CHARACTERS, ServingError
from core.wire import Header
from handler.lifecycle.single_flight import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMING: Final = b"server-timing"
COLD: Final = b"cold"
RESTORED: Final = b"restored"
WARM: Final = b"warm"


class Timing:
    """A request's times, in nanoseconds; implements core.ports.Context.

    `deadline`: until when it may wait in its own thread. `came`, `begun`: when it came, and when it left the queue (0
    before), on time.perf_counter_ns(). `wait`: in all for its model, `load` of it in the model's runtime. `cold`: it
    waited for a load, and not only for a look at the repository. `durations`: of an answered inference: in the queue
    (with the wait for the model), for decoding, for the model, for encoding; of a stream when it has ended. `size`:
    bytes of its body. `use`: of the version that works on it, once that is known. `is_misplaced`: it waited in no
    model's lane, and may not use one. `steps`: of a pipeline's inference, each with its time. `protocol`: the
    request's, as its record names it, or the kind of a question `apart`, which is not an inference. `spent`: on a
    stream so far. `broken`: fault and text of the error that ended its stream.
    Defaults are in the class, where they cost nothing.
    """

    begun = 0
    wait = 0
    load = 0
    cold = False
    durations: tuple[int, int, int, int] | None = None
    size = 0
    protocol = ""
    apart = False
    spent = 0
    steps: "Sequence[tuple[bytes, int]]" = ()
    use: Any = None
    is_misplaced = False
    ended = False
    broken: tuple[str, str] | None = None

    def __init__(self, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self.came = time.perf_counter_ns()

    def using(self, use: Any) -> None:
        self.use = use
        if self.is_misplaced:
            self.is_misplaced = False
            raise Misplaced

    def expire(self) -> str:
        """Counts a failure at the time limit, and nothing later. Returns the version that was used, "" if none was."""
        if self.use is None:
            return ""
        if self.durations is None and not self.ended:
            self._fail(self.use)  # the statistics have it, whatever the question
        self.ended = True
        return str(self.use.version.decode())

    def waited(self, ns: int, load: Load) -> None:
        self.wait += ns
        self.begun += ns  # a wait in this thread does not count as decoding
        of_load = min(ns, load.load_ns)
        self.load += of_load
        self.cold = self.cold or of_load > 0 or load.version is not None

    def answered(self, use: Any, decoded: int, inferred: int, rows: int = 1) -> None:
        encoded, begun = time.perf_counter_ns(), self.begun
        self.durations = (begun - self.came, decoded - begun, inferred - decoded, encoded - inferred)
        took = getattr(use.model, "steps", None)  # a pipeline's; a third party's model may not have the attribute
        if took is not None:
            self.steps = took()
        if not self.ended:
            use.record(self.durations, self.size, self.protocol, rows, success=True)

    def batched(self, use: Any, decoded: int, resumed: int, waited: int, rows: int = 1) -> None:
        """Counts the time that was spent on others as time in the queue. Implements core.batches.BatchContext."""
        self.begun += waited
        self.answered(use, decoded + waited, resumed, rows)
        if not self.ended:
            use.share()

    def broke(self, error: ServingError) -> None:
        """Notes what ended its stream, whose last part has the error."""
        self.broken = error.fault.name, error.message[:SHOWN_CHARACTERS]

    def began(self, spent: int) -> None:
        self.spent = spent

    def streamed(self, use: Any, decoded: int, infer: int, *, success: bool) -> None:
        error = None if success else sys.exception()
        if isinstance(error, ServingError):
            self.broke(error)
        if not self.ended:
            durations = (self.begun - self.came, decoded - self.begun, infer, 0)
            use.record(durations, self.size, self.protocol, success=success)
        if success:
            rest = time.perf_counter_ns() - decoded - infer  # of one that is written in steps see `stepped`
            self.durations = (self.begun - self.came, decoded - self.begun, infer, rest)

    def stepped(self, ns: int) -> None:
        """Counts a step of a stream, which is the model's work and the writing of what it has made."""
        self.spent += ns
        if self.durations is not None:  # this was the last one
            queue, decode, infer, _ = self.durations
            self.durations = (queue, decode, infer, max(0, self.spent - infer))

    def asking(self, kind: str) -> None:
        self.apart, self.protocol = True, kind

    def asked(self, use: Any, *, success: bool = True) -> None:
        if not self.ended:
            use.asked(time.perf_counter_ns() - self.came, self.protocol, success=success)

    def failed(self, use: Any) -> None:
        if self.apart:
            self.asked(use, success=False)
        elif not self.ended:
            self._fail(use)

    def _fail(self, use: Any) -> None:
        spent = time.perf_counter_ns() - self.begun
        use.record((self.begun - self.came, spent), self.size, self.protocol, success=False)

    def text(self, start: bytes) -> bytes:
        """Returns the value of Server-Timing (W3C, Server Timing): milliseconds by step. `start`: of its process."""
        # Formatting bytes takes 0.7 us here, half the time of a string and its encoding.
        if self.durations is None:
            queue = self.begun - self.came if self.begun else 0
            steps = b"total;dur=%.3f, start;desc=%b" % ((time.perf_counter_ns() - self.came) / 1e6, start)
        else:
            queue, decode, infer, encode = self.durations
            steps = b"decode;dur=%.3f, infer;dur=%.3f, encode;dur=%.3f, start;desc=%b" % (
                *(decode / 1e6, infer / 1e6, encode / 1e6),
                start,
            )
        for step, ns in self.steps:
            steps += b", %b;dur=%.3f" % (step, ns / 1e6)
        if not self.wait:
            return b"queue;dur=%.3f, %b" % (queue / 1e6, steps)
        waits = (max(0, queue - self.wait) / 1e6, (self.wait - self.load) / 1e6, self.load / 1e6)
        return b"queue;dur=%.3f, fetch;dur=%.3f, load;dur=%.3f, %b" % (*waits, steps)


class Misplaced(Exception):
    """A request has to wait in its model's lane: its model, or the meaning of its name, was not known before."""


class Clock:
    """Writes the Server-Timing of one process. `start`: what its next request says, COLD or RESTORED; then WARM."""

    def __init__(self, *, on: bool) -> None:
        self.start = COLD
        self._on = on

    def headers(self, timing: Timing) -> tuple[Header, ...]:
        """Returns the header; none where DRAGOMAN_SERVER_TIMING is off."""
        if not self._on:
            return ()
        start = self.start
        if start is not WARM:
            self.start = WARM
        elif timing.cold:
            start = COLD
        return ((TIMING, timing.text(start)),)
