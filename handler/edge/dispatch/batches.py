"""What a thread does with requests that run together: it reads them, runs the model once, and writes each answer.

What fails together runs again alone, so an error concerns only the request that caused it.
"""

import logging
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from core.batches import Prepared, Ran, join, split
from core.errors import ServingError
from core.records import NamedTuple
from core.tensor import Tensor
from handler.backends.runs import Run
from handler.edge.dispatch.lane import Errand, Lane, Left, hand_over
from handler.lifecycle.single_flight import Pending

log = logging.getLogger(__name__)
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of requests, and of their tensors, that one batch holds; a single request can be larger."""
FLUSH_NS: Final = 500_000
"""Answers that are ready wait so long for the others of their batch: each visit to the event loop costs 10 us."""


class Again(Exception):
    """Ends a request's part in a batch. It runs again, alone."""


class _Halted(NamedTuple):
    """A request that waits for its inference."""

    member: Errand
    steps: Generator[Prepared | None, Ran, Any]
    asked: Prepared

    def has_left(self) -> bool:
        """Decides whether no client waits for the answer any more. Then it ends the use of the model."""
        if self.member.future.done():
            self.steps.close()
            return True
        return False


class Batch:
    """The work of one thread for several requests, or for one. `run`: ends all of it. `is_late`: it was ended.

    `spec`: of the version that all of them were put for.
    """

    __slots__ = ("is_late", "lane", "members", "run", "spec")

    def __init__(self, lane: Lane, members: Sequence[Errand]) -> None:
        self.lane = lane
        self.members = members
        self.spec = members[0].spec
        self.is_late = False
        self.run = Run() if len(members) > 1 else members[0].run
        if len(members) > 1:
            for member in members:
                member.batch = self

    def end(self, error: Callable[[], BaseException]) -> None:
        """Ends the work, once no client waits for any of its requests."""
        if self.is_left:
            self.run.end(error)

    @property
    def is_left(self) -> bool:
        """Whether no client waits for any of its requests."""
        return all(member.future.done() for member in self.members)

    @property
    def limit(self) -> float | None:
        """The seconds that it may run: the fewest of its requests', because canaries may answer some of them."""
        limits = [limit for member in self.members if (limit := member.limit) is not None]
        return min(limits, default=None)

    def overrun(self) -> None:
        """Ends the work at its time limit. Which request is to blame shows when each runs alone."""
        members = self.members  # its thread removes them when the work is done, perhaps during this call
        if len(members) == 1:
            members[0].overrun()
            return
        self.run.end(Again)
        hand_over([(member, None, Again()) for member in members])

    def do(self) -> bool:
        """Does the work in this thread. Returns whether an inference has ended by itself."""
        try:
            return self._do()
        except BaseException as error:
            log.exception("a batch of %s failed", self.lane.title)
            hand_over([(member, None, error if len(self.members) == 1 else Again()) for member in self.members])
            return False
        finally:
            self.members = ()  # they hold the batch, and the bodies of their requests

    def _do(self) -> bool:
        largest, rows, is_done = 1, 0, False
        for halted in self._held():
            for run in self._runs(halted):
                largest = max(largest, len(run))
                rows += sum(each.asked.rows for each in run)
                is_done = self._answer(run) or is_done
        self.lane.batches.observe(largest, rows, len(self.members))
        return is_done

    def _held(self) -> Iterator[list[_Halted]]:
        """Yields the requests that have been read, as many at a time as fit into the bounds of memory."""
        held: list[_Halted] = []
        size = 0
        for member in self.members:
            halted = self._begun(member)
            if halted is not None:
                held.append(halted)
                size += halted.asked.size
            if size > MOST_BYTES:
                yield held
                held, size = [], 0
        yield held

    def _begun(self, member: Errand) -> _Halted | None:
        """Reads a request up to its inference. Returns None if it has none, and answers it."""
        part = member.part
        if part is None or member.future.done():
            return None
        steps, error = _tried(part.steps)
        asked = None
        if error is None:
            asked, error = _tried(steps.__next__)
        if error is None and asked is None and len(self.members) == 1:
            _, error = _tried(partial(steps.send, None))
        if error is not None:
            hand_over((_outcome(member, error),))
        elif asked is None:
            steps.close()
            hand_over(((member, None, Again()),))
        else:
            return _Halted(member, steps, asked)
        return None

    def _runs(self, halted: Sequence[_Halted]) -> Iterator[list[_Halted]]:
        """Yields the requests whose inferences run together."""
        groups: dict[Hashable, list[_Halted]] = {}
        for number, each in enumerate(halted):
            groups.setdefault(each.asked.kind if self._is_fit(each.asked) else number, []).append(each)
        for group in groups.values():
            yield from _cut(group)

    def _is_fit(self, asked: Prepared) -> bool:
        spec = asked.use.model.spec
        return len(self.members) > 1 and asked.rows > 0 and bool(spec.batching) and not self._is_unfit(asked)

    def _is_unfit(self, asked: Prepared) -> bool:
        spec = asked.use.model.spec
        return self.lane.batches.unfit.get(spec.version) is spec

    def _answer(self, run: Iterable[_Halted]) -> bool:
        """Runs the model for requests that may run together, and answers them.

        Returns whether it has ended by itself.
        """
        staying = [each for each in run if not each.has_left()]
        if not staying:
            return False
        found, error = _tried(partial(_ran, [each.asked for each in staying]))
        if self.run.ended and len(self.members) > 1:
            return _again(staying)
        if error is not None:
            return _fail(staying[0], error) if len(staying) == 1 else _again(staying)
        shares, ns = found
        if shares is None:
            self._note_unfit(staying[0].asked)
            return _again(staying)
        _finish(staying, shares, ns)
        return True

    def _note_unfit(self, asked: Prepared) -> None:
        """Lets a version's requests run alone from now on."""
        spec = asked.use.model.spec
        if not self._is_unfit(asked):
            self.lane.batches.unfit[spec.version] = spec
            log.warning(
                "model %s version %s: its requests run alone from now on: its outputs do not have a row for each row "
                "of its inputs",
                spec.name,
                spec.version,
            )


def _cut(group: Sequence[_Halted]) -> Iterator[list[_Halted]]:
    """Yields the parts of a group, with at most as many rows as a batch; a single request can have more."""
    batching = group[0].asked.use.model.spec.batching
    run: list[_Halted] = []
    rows = 0
    for each in group:
        rows += each.asked.rows
        if run and batching is not None and rows > batching.rows:
            yield run
            run, rows = [], each.asked.rows
        run.append(each)
    yield run


def _ran(several: Sequence[Prepared]) -> tuple[list[Sequence[Tensor]] | None, int]:
    """Returns the outputs of each inference, None if they cannot be split, and the nanoseconds that the model took."""
    first, is_alone = several[0], len(several) == 1
    rows = [each.rows for each in several]
    begun = time.perf_counter_ns()
    inputs = first.inputs if is_alone else join(several)
    joined = time.perf_counter_ns()
    outputs = first.use.model.predict(inputs, first.names, first.parameters)
    ran = time.perf_counter_ns()
    shares: Any = [outputs] if is_alone else split(outputs, rows)
    if shares is not None:
        batching, total = first.use.model.spec.batching, sum(rows)
        counted = total if batching is not None and total <= batching.rows else 0
        first.use.executed(counted, joined - begun, ran - joined, time.perf_counter_ns() - ran)
    return shares, ran - joined


def _again(run: Sequence[_Halted]) -> bool:
    """Lets the requests run again, each alone. Returns False."""
    for each in run:
        each.steps.close()
    hand_over([(each.member, None, Again()) for each in run])
    return False


def _fail(one: _Halted, error: BaseException) -> bool:
    """Answers a request whose own inference has failed. Returns False."""
    hand_over((_outcome(one.member, _tried(partial(one.steps.throw, error))[1]),))
    return False


def _finish(run: Sequence[_Halted], shares: Sequence[Sequence[Tensor]], ns: int) -> None:
    """Writes each request's answer, and hands them over, several at a time."""
    outcomes: list[tuple[Errand, Any, BaseException | None]] = []
    flushed = time.perf_counter_ns()
    for each, share in zip(run, shares, strict=True):
        outcomes.append(_outcome(each.member, _tried(partial(each.steps.send, Ran(share, ns)))[1]))
        now = time.perf_counter_ns()
        if now - flushed > FLUSH_NS:
            hand_over(outcomes)
            outcomes, flushed = [], now
    hand_over(outcomes)


def _outcome(member: Errand, error: BaseException | None) -> tuple[Errand, Any, BaseException | None]:
    """Returns what a request gets at the end of its steps, which raise its answer in a StopIteration, or its error."""
    if isinstance(error, StopIteration):
        return member, error.value, None
    return member, None, error


def _tried(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Returns the result of `call`, or its error.

    An error that is not a bug loses its traceback, and those of its causes, which backends log. They hold the frames of
    this module, which hold the error: a cycle, with the requests of a whole batch in it.
    """
    try:
        return call(), None
    except (ServingError, StopIteration, Pending, Again, Left) as raised:
        cause: BaseException | None = raised
        while cause is not None:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__
        return None, raised
    except BaseException as raised:  # noqa: BLE001 - raised where the request is awaited
        return None, raised
    finally:
        del call
