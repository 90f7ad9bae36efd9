"""The lane in which a model's work waits for a thread, the work itself, and how its result comes back."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from core.errors import ServerBusy, TimedOut
from core.operations import ModelSpec
from core.records import NamedTuple
from handler.backends.runs import Run
from handler.edge.dispatch.limits import late
from handler.edge.timing import Timing

if TYPE_CHECKING:
    from core.batches import Prepared, Ran

PATIENCE_RUNS: Final = 3
"""A client of a slow model waits for so many of its inferences, if that takes longer than DRAGOMAN_QUEUE_TIME."""
NEW: Final = 0.2
"""The weight of the newest inference in the average of their times."""
RECENT: Final = 8
"""One long inference among so many is an exception. The estimate of a wait ignores it."""


class BatchPart(NamedTuple):
    """The part that a request may have in a batch. `steps`: as core.batches.steps. `size`: bytes of the request.

    `spec`: of the version that it names. `gathers`: it may run with others.
    """

    steps: "Callable[[], Generator[Prepared | None, Ran, Any]]"
    spec: ModelSpec
    size: int
    gathers: bool = True


class Left(Exception):
    """Ends the work of a client that has left."""


class Ends(Protocol):
    def end(self, error: Callable[[], BaseException], /) -> None:
        """Ends work, which raises what `error` returns."""
        ...


class _Over:
    """The future of work whose client has left."""

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return True


OVER: "Final[Any]" = _Over()


class Errand:
    """One piece of work. `run`: ends it. `until`: the client's deadline on time.monotonic(). `put`: when it came.

    `admitted`: it continues an admitted request, and is never refused for the length of its lane. `part`: of a
    model whose requests run together. `batch`: the one in which it runs with others. `spec`: of the version that it
    was put for; that of the stable version, if a canary may answer it.
    """

    __slots__ = (
        *("admitted", "batch", "call", "future", "is_late", "lane", "loop", "owner"),
        *("part", "put", "run", "spec", "until"),
    )

    def __init__(
        self,
        call: Callable[[], Any] | BatchPart,
        lane: "Lane",
        loop: asyncio.AbstractEventLoop,
        until: float,
        owner: Timing | None,
    ) -> None:
        self.call: Any = call
        self.spec: ModelSpec | None = None
        self.lane = lane
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.run = Run()
        self.until = until
        self.put = 0.0
        self.owner = owner
        self.is_late = False
        self.admitted = False
        self.part = call if isinstance(call, BatchPart) else None
        self.batch: Ends | None = None

    def do(self) -> bool:
        """Does the work in this thread. Returns whether it has ended by itself."""
        if self.future.cancelled():
            return False
        try:
            outcome, error = self.call(), None
        except BaseException as raised:  # noqa: BLE001 - raised where the work is awaited
            outcome, error = None, raised
        is_done = error is None
        hand_over(((self, outcome, error),))
        del outcome, error  # the error's traceback holds this frame: a cycle, with the request's body in it
        return is_done

    def leave(self) -> None:
        """Drops the result, because its client has left.

        An error's traceback holds the frames of its thread, and these hold the work: another cycle, with the future.
        """
        self.future = OVER

    @property
    def is_left(self) -> bool:
        """Whether no client waits for it any more."""
        return self.future is OVER

    @property
    def served(self) -> ModelSpec | None:
        """The spec of the version that works on it, once that is known; else the one that it was put for."""
        use = None if self.owner is None else self.owner.use
        return self.spec if use is None else use.model.spec

    @property
    def limit(self) -> float | None:
        """The seconds that it may run."""
        return self.lane.limit(self.served)

    def end(self, error: Callable[[], BaseException]) -> None:
        """Ends the work because its client has left."""
        (self.batch or self.run).end(error)

    def overrun(self) -> None:
        """Ends the work at its time limit, and refuses its request."""
        hand_over(((self, None, self.late()),))

    def late(self) -> TimedOut:
        """Ends the work at its time limit, and returns the refusal."""
        version = self.owner.expire() if self.owner is not None else ""
        spec, default = self.served, self.lane.default

        def refusal() -> TimedOut:
            if spec is None:
                return TimedOut(f"the request was not read within {default or 0:g} s (DRAGOMAN_TIMEOUT)")
            return late(spec, version or spec.version, default)

        self.run.end(refusal)
        return refusal()


def hand_over(outcomes: "Sequence[tuple[Errand, Any, BaseException | None]]") -> None:
    """Gives results and errors to those who await them, in one event loop."""
    if outcomes:
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            outcomes[0][0].loop.call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple[Errand, Any, BaseException | None]]) -> None:
    for work, outcome, error in outcomes:
        if work.future.done():
            continue
        if error is None:
            work.future.set_result(outcome)
        else:
            work.future.set_exception(error)


class BatchStats:
    """What a lane has learned of its batches. Only the event loop's thread uses `watched`.

    `last`: how many requests the last batch ran together, at most. `rows`: the mean rows of a request in it. `company`:
    the running mean of requests in a batch. `unfit`: versions whose outputs could not be split, each with the spec for
    which that is so. `watched`: the event loop that looks at the lane when its batch is due.
    """

    __slots__ = ("company", "last", "rows", "unfit", "watched")

    def __init__(self) -> None:
        self.last = 1
        self.rows = 1.0
        self.company = 1.0
        self.unfit: dict[str, ModelSpec] = {}
        self.watched: asyncio.AbstractEventLoop | None = None

    def observe(self, largest: int, rows: int, members: int) -> None:
        """Takes a batch into account. `largest`: requests in its largest run. `rows`: of all requests."""
        self.last = largest
        self.rows = max(1.0, rows / members)
        self.company += NEW * (members - self.company)


class Lane:
    """One model's work.

    `spec`: of the version that its latest work is for; each version can have its own limits. `held`: its threads;
    `lost`: those of them that run on beyond their limit. `held_of`, `lost_of`: the same by version, of versions that
    have a max_concurrency. `seconds`: the time of an inference, 0 before the first answer. `default`: DRAGOMAN_TIMEOUT.
    `queue`: DRAGOMAN_QUEUE_TIME. `mean`: the running mean of all times. `recent`: the last ones.
    """

    __slots__ = (
        *("batches", "default", "held", "held_of", "in_ring", "lost", "lost_of", "mean"),
        *("name", "queue", "recent", "seconds", "spec", "waiting"),
    )

    def __init__(self, name: str, default: float | None, queue: float) -> None:
        self.name = name
        self.default = default
        self.queue = queue
        self.spec: ModelSpec | None = None
        self.held = 0
        self.lost = 0
        self.held_of: dict[str, int] = {}
        self.lost_of: dict[str, int] = {}
        self.seconds = self.mean = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.in_ring = False
        self.batches = BatchStats()
        self.waiting: OrderedDict[Errand, None] = OrderedDict()

    def limit(self, spec: ModelSpec | None) -> float | None:
        """Returns the seconds that an inference of a version may run."""
        return self.default if spec is None or spec.timeout is None else spec.timeout

    def pending(self) -> dict[str, int]:
        """Returns how many requests wait, by version; "" for work without a spec."""
        counts = {"" if self.spec is None else self.spec.version: 0}
        for work in self.waiting:
            version = "" if work.spec is None else work.spec.version
            counts[version] = counts.get(version, 0) + 1
        return counts

    def hold(self, spec: ModelSpec | None, change: int) -> None:
        """Counts threads. `spec`: of the version that they work for."""
        self.held += change
        if spec is not None and spec.max_concurrency is not None:
            _count(self.held_of, spec.version, change)

    def lose(self, spec: ModelSpec | None, change: int) -> None:
        """Counts lost threads, as `hold` does."""
        self.lost += change
        if spec is not None and spec.max_concurrency is not None:
            _count(self.lost_of, spec.version, change)

    @property
    def title(self) -> str:
        return f"model {self.name!r}" if self.name else "the request"

    def measure(self, seconds: float) -> None:
        """Takes the time of an inference into account."""
        self.mean = seconds if not self.recent else (1 - NEW) * self.mean + NEW * seconds
        self.recent.append(seconds)
        self.seconds = min([self.mean, *sorted(self.recent)[-2:-1]])

    def allowed(self, seconds: float) -> float:
        """Returns how long work can wait. `seconds`: the time of an inference."""
        return max(self.queue, PATIENCE_RUNS * seconds)

    def stuck(self, spec: ModelSpec | None = None) -> ServerBusy:
        """Returns the refusal of a version's work while the model's threads are lost."""
        text = f"{self.title} refuses requests: {self.loss}; try again, or restart the server"
        return ServerBusy(text, retry_after=self.limit(spec))

    @property
    def loss(self) -> str:
        """What occupies the model's lost threads, for its refusals and its readiness."""
        if self.lost == 1:
            return "an inference exceeded the time limit and still occupies a thread of the model"
        return f"{self.lost} inferences exceeded the time limit and still occupy threads of the model"


def _count(counts: dict[str, int], version: str, change: int) -> None:
    counts[version] = counts.get(version, 0) + change
    if not counts[version]:
        del counts[version]  # any number of versions come and go
