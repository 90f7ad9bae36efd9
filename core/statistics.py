"""The numbers of the statistics extension, and of a server over time: how often it ran, and how long each step took."""

from typing import Final

from core.records import NamedTuple

STEPS: Final = ("compute_input", "compute_infer", "compute_output")
"""Names of a batch's counts, in their order: those of a BatchCount behind its rows."""
COUNTED: Final = ("success", "fail", "queue", *STEPS)
"""Names of the counts of a version, each a field of Statistics."""


class Count(NamedTuple):
    """A number of events, and their total time in nanoseconds."""

    times: int = 0
    ns: int = 0


class BatchCount(NamedTuple):
    """The runs with so many rows: how long joining the inputs took, the model, and splitting the outputs."""

    rows: int
    joined: Count
    inferred: Count
    split: Count


class Statistics(NamedTuple):
    """The statistics extension's numbers of one version, since this process first listed it."""

    name: str
    version: str
    inference_count: int = 0
    """Inferences; a request to a model with a batch size is as many as it has rows."""
    last_inference_ms: int = 0
    success: Count = Count()
    fail: Count = Count()
    queue: Count = Count()
    compute_input: Count = Count()
    compute_infer: Count = Count()
    compute_output: Count = Count()
    execution_count: int = 0
    """Runs of the model; fewer than inferences if it runs several together."""
    batches: tuple[BatchCount, ...] = ()
    """The runs of a model with batching, by their rows."""


class Span(NamedTuple):
    """A span of time. `inferences`: how many ended in it. `ns`: what they took in all. `most`: the longest of them."""

    seconds: int
    inferences: int = 0
    failures: int = 0
    ns: int = 0
    most: int = 0


class Series(NamedTuple):
    """The inferences of a server over time.

    `spans`: the last 30 days, 24 hours, 60 minutes and 60 seconds, in this order, the newest of each last. `times`: of
    the last second, nanoseconds and how many inferences took about as long, in ascending order.
    """

    spans: tuple[Span, ...]
    times: tuple[tuple[int, int], ...] = ()
