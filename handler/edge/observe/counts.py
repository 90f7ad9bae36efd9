"""All requests of this process: by protocol and status, with their times and bytes, and the refusals by reason.

THE place where requests are counted. Each edge counts in its event loop, so that no lock is needed. Inferences are
counted by usage.Traffic, and loads by traffic.loads.
"""

from bisect import bisect_left
from typing import Final

STEPS: Final = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
"""Upper ends of the histogram's steps, in milliseconds; the last step has none."""
STEPS_NS: Final = tuple(int(ms * 1e6) for ms in STEPS)
TFS_STEPS_NS: Final = tuple(int(10e3 * 1.8**power) for power in range(33))
"""TensorFlow Serving's: 10 us, and 1.8 times as much each (servables/tensorflow/util.cc)."""
CANCELED: Final = "CANCELED"
"""The reason of a request whose client has left, beside the names of faults."""


class Histogram:
    """`ends`: nanoseconds, ascending. `steps`: how many were at most so long, of each step alone."""

    __slots__ = ("ends", "ns", "steps")

    def __init__(self, ends: tuple[int, ...] = STEPS_NS) -> None:
        self.ends = ends
        self.steps = [0] * (len(ends) + 1)
        self.ns = 0

    def add(self, ns: int) -> None:
        self.steps[bisect_left(self.ends, ns)] += 1
        self.ns += ns


class AnswerTally:
    """The requests of one protocol that got one status."""

    __slots__ = ("received", "sent", "times")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.times = Histogram()


class StepTimes:
    """The times of a version's inferences, for servers' names that have histograms of them."""

    __slots__ = ("decode", "encode", "infer", "request", "run")

    def __init__(self) -> None:
        self.decode = Histogram()
        self.infer = Histogram()
        self.encode = Histogram()
        self.request = Histogram(TFS_STEPS_NS)
        self.run = Histogram(TFS_STEPS_NS)


class Counts:
    """`failures`: by model, version and kind of fault; a model that does not exist is "". `payloads`: by outcome."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, int | str], AnswerTally] = {}
        self.refusals: dict[tuple[str, str], int] = {}
        self.failures: dict[tuple[str, str, str], int] = {}
        self.steps: dict[tuple[str, str, str], StepTimes] = {}
        self.payloads: dict[str, int] = {}
        self.cold = 0

    def answered(self, protocol: str, status: int | str, ns: int, received: int, sent: int) -> None:
        tally = self.tallies.get((protocol, status))
        if tally is None:
            tally = self.tallies[protocol, status] = AnswerTally()
        tally.received += received
        tally.sent += sent
        times = tally.times
        times.steps[bisect_left(times.ends, ns)] += 1
        times.ns += ns

    def refuse(self, protocol: str, fault: str, count: int = 1) -> None:
        self.refusals[protocol, fault] = self.refusals.get((protocol, fault), 0) + count

    def fail(self, model: str, version: str, fault: str, count: int = 1) -> None:
        self.failures[model, version, fault] = self.failures.get((model, version, fault), 0) + count

    def step(self, model: str, version: str, protocol: str, durations: tuple[int, int, int, int], ns: int) -> None:
        """Takes an inference into the histograms of its version."""
        steps = self.steps.get((model, version, protocol))
        if steps is None:
            steps = self.steps[model, version, protocol] = StepTimes()
        steps.decode.add(durations[1])
        steps.infer.add(durations[2])
        steps.encode.add(durations[3])
        steps.request.add(ns)
        steps.run.add(durations[2])
