"""handler.edge.dispatch.lanes: turns, shares and useful waits, without threads or clocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.operations import ModelSpec
from handler.edge.dispatch.lane import Errand, Lane
from handler.edge.dispatch.lanes import QUEUE_SECONDS, STALE_SECONDS, Lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER = float("inf")


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    """A loop for the futures of errands, which no test awaits."""
    made = asyncio.new_event_loop()
    Machine.loop = made
    yield
    made.close()


def spec(name: str, **said: Any) -> ModelSpec:
    """Returns the spec of a model."""
    return ModelSpec(name, "1", "p", None, None, **said)


def errand(lane: Lane, until: float = NEVER) -> Errand:
    """Returns work for a model's latest version."""
    work = Errand(int, lane, Machine.loop, until, None)
    work.spec = lane.spec
    return work


def put(lanes: Lanes, name: str, count: int = 1, at: float = 0.0, **said: Any) -> Lane:
    """Makes so many requests to a model wait."""
    lane = lanes.of(spec(name, **said))
    for _ in range(count):
        lanes.put(errand(lane), at)
    return lane


def served(lanes: Lanes, count: int) -> str:
    """Returns the names of the models that get threads, one after the other; each returns its thread at once."""
    names = ""
    for _ in range(count):
        taken = lanes.take(0.0)
        if taken is not None:
            names += taken.lane.name
            lanes.release(taken.lane, taken.spec, 0.01)
    return names


def test_models_take_turns_whatever_their_lines_lengths() -> None:
    """Five requests of a model that came first do not stand before two of others."""
    lanes = Lanes(1)
    for name, count in (("a", 5), ("b", 2), ("c", 1)):
        put(lanes, name, count)
    assert served(lanes, 10) == "abcabaaa"


@pytest.mark.parametrize(
    ("threads", "seconds", "lost", "said", "cap"),
    [
        (1, 0.0, 0, {}, 1),
        (4, 0.0, 0, {}, 3),
        (4, 0.01, 0, {}, 4),
        (4, 1.5, 0, {}, 3),
        (4, 0.01, 1, {}, 3),
        (4, 1.5, 0, {"max_concurrency": 4}, 4),
        (4, 0.01, 0, {"max_concurrency": 2}, 2),
        (1, 5.0, 1, {"max_concurrency": 9}, 1),
    ],
)
def test_a_slow_model_leaves_a_thread_to_the_others(
    threads: int, seconds: float, lost: int, said: dict[str, int], cap: int
) -> None:
    """So does one that has not answered yet, or has lost one; its settings take precedence."""
    lanes = Lanes(threads)
    lane = lanes.of(spec("m", **said))
    lane.seconds, lane.lost = seconds, lost
    assert lanes.cap(lane, lane.spec) == cap


@pytest.mark.parametrize(
    ("waiting", "seconds", "until", "text", "retry"),
    [
        (79, 0.1, NEVER, None, None),
        (80, 0.1, NEVER, "has 80 requests waiting, 4.0 s of work", 4.05),
        (2, 10.0, NEVER, None, None),
        (3, 10.0, NEVER, "has 3 requests waiting, 40.0 s of work", 40.0),
        (10, 0.1, 0.5, "would answer in 0.65 s, after the request's deadline", 0.55),
        (0, 0.02, 0.01, "would answer in 0.03 s, after the request's deadline", 0.01),
        (0, 1e-5, 1e-9, "would answer in 0.001 s, after the request's deadline", 0.0),
        (10, 0.0, 0.5, None, None),
        (80, 0.1, 0.0, "the request's deadline has passed", None),
    ],
)
def test_what_would_wait_too_long_is_refused(
    waiting: int, seconds: float, until: float, text: str | None, retry: float | None
) -> None:
    """A slow model's client may wait longer than a quick one's."""
    lanes = Lanes(2)
    lane = put(lanes, "m", waiting)
    lane.seconds = seconds
    refusal = lanes.refusal(errand(lane, until), now=0.0)
    told = (None, None) if refusal is None else (refusal.message.removeprefix("model 'm' "), refusal.retry_after)
    assert (told[0] or "").startswith(text or "nothing") == (text is not None)
    assert told[1] == (None if retry is None else pytest.approx(retry, abs=0.06))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([2.0], 2.0),
        ([2.0, 0.01], 0.01),
        ([0.01] * 5 + [2.0], 0.01),
        ([0.01] * 5 + [2.0, 0.02], 0.02),
        ([0.01, 2.0, 2.0], 0.7264),
        ([0.01, 2.0, *[0.01] * 6, 2.0], 0.4915),
        ([2.0, *[0.01] * 6, 2.0], 0.8253),
        ([1.0, 2.0], 1.0),
        ([1.0, 1.0, 0.5], 0.9),
    ],
)
def test_one_long_inference_among_many_does_not_count(times: list[float], expected: float) -> None:
    """If there are two among the latest ones, the estimate is the running mean."""
    lane = Lanes(2).of(spec("m"))
    for seconds in times:
        lane.measure(seconds)
    assert lane.seconds == pytest.approx(expected, abs=1e-4)


def test_what_has_waited_too_long_is_taken_out() -> None:
    """It stays while slow work holds the threads, until the time limit; a stream that has begun is never removed."""
    lanes = Lanes(1)
    lane = put(lanes, "m", 3)
    next(iter(lane.waiting)).admitted = True
    put(lanes, "m", 1, at=QUEUE_SECONDS)
    lane.seconds = 0.01
    assert len(list(lanes.overdue(lane, QUEUE_SECONDS + 1, 0.0))) == 2
    assert list(lanes.overdue(lane, 50.0, 20.0)) == []
    for work in lane.waiting:
        work.spec = spec("m", timeout=30.0)
    assert len(list(lanes.overdue(lane, 50.0, 20.0))) == 1
    assert [work.admitted for work in lane.waiting] == [True]


@pytest.mark.parametrize(
    ("after", "admitted", "order"),
    [(STALE_SECONDS, False, [0, 1, 2]), (STALE_SECONDS + 0.01, False, [2, 1, 0]), (9.0, True, [0, 2, 1])],
)
def test_in_a_long_line_the_newest_comes_first(after: float, order: list[int], *, admitted: bool) -> None:
    """The others may have left when they are answered. Work that must not starve keeps its place."""
    lanes = Lanes(1)
    lane = put(lanes, "m", 3)
    came = list(lane.waiting)
    came[0].admitted = admitted
    for number in order:
        taken = lanes.take(after)
        assert taken is came[number]
        lanes.release(lane, lane.spec, 0.01)


def of_version(version: str, **said: Any) -> ModelSpec:
    """Returns the spec of a version of the model m."""
    return spec("m", **said)._replace(version=version)


def put_of(lanes: Lanes, said: ModelSpec, at: float = 0.0) -> Errand:
    """Makes a request to a version wait."""
    work = errand(lanes.of(said))
    lanes.put(work, at)
    return work


ONE, TWO = of_version("1", max_concurrency=1), of_version("2")


def test_a_version_has_its_own_most_threads() -> None:
    """Work of another version that came later neither widens nor narrows it."""
    lanes = Lanes(4)
    first, waits = put_of(lanes, ONE), put_of(lanes, ONE)
    assert lanes.take(0.0) is first
    put_of(lanes, TWO)
    assert lanes.take(0.0) is None
    lanes.release(first.lane, ONE, 0.01)
    assert lanes.take(0.0) is waits
    other = lanes.take(0.0)
    assert other is not None
    assert other.spec is TWO
    assert not lanes.takes(errand(lanes.of(ONE)))
    assert lanes.takes(errand(lanes.of(TWO)))
    lanes.release(first.lane, ONE, 0.01)
    assert first.lane.held_of == {}
    assert first.lane.held == 2


def test_a_stale_line_whose_newest_work_has_no_room_goes_on_with_its_oldest() -> None:
    """It would not have a turn again before a thread of the other version is free."""
    lanes = Lanes(4)
    assert lanes.takes(errand(lanes.of(ONE)))
    oldest, _ = put_of(lanes, TWO), put_of(lanes, ONE)
    assert lanes.take(2 * STALE_SECONDS) is oldest
    assert lanes.take(2 * STALE_SECONDS) is None


def test_only_the_version_whose_threads_are_lost_is_refused() -> None:
    """The others have threads, whatever came last."""
    lanes = Lanes(4)
    lane = lanes.of(ONE)
    assert lanes.takes(errand(lane))
    lane.lose(ONE, 1)
    waits, other = put_of(lanes, ONE), put_of(lanes, TWO)
    assert lanes.stranded(lane) == [waits]
    assert list(lane.waiting) == [other]
    assert lanes.refusal(errand(lanes.of(TWO)), 0.0) is None
    assert "refuses requests" in str(lanes.refusal(errand(lanes.of(ONE)), 0.0))
    lane.lose(ONE, -1)
    lane.lose(TWO, 1)
    assert lanes.refusal(errand(lanes.of(ONE)), 0.0) is None


class Machine(RuleBasedStateMachine):
    """Threads take and return work of three models, in any order. The reference model is lists of names."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        """Makes a pool of three threads."""
        super().__init__()
        self.lanes = Lanes(3)
        self.waiting: dict[str, list[Errand]] = {name: [] for name in "abc"}
        self.running: list[Errand] = []
        self.now = 0.0

    @rule(name=st.sampled_from("abc"))
    def comes(self, name: str) -> None:
        """Gives a free thread to new work, or lets it wait."""
        lane = self.lanes.of(spec(name, max_concurrency=2 if name == "b" else None))
        work = errand(lane)
        self.now += STALE_SECONDS / 3
        if len(self.running) < 3 and self.lanes.takes(work):
            self.running.append(work)
        else:
            self.lanes.put(work, self.now)
            self.waiting[name].append(work)

    @rule(number=st.integers(0, 2), seconds=st.sampled_from([0.01, 5.0]))
    def ends(self, number: int, seconds: float) -> None:
        """Returns a thread, which takes the oldest or newest work of a model, if any may have it."""
        if number < len(self.running):
            done = self.running.pop(number)
            self.lanes.release(done.lane, done.spec, seconds)
            while len(self.running) < 3 and (work := self.lanes.take(self.now)) is not None:
                line = self.waiting[work.lane.name]
                assert line.pop(-1 if self.now - line[0].put > STALE_SECONDS else 0) is work
                self.running.append(work)

    @rule(name=st.sampled_from("abc"), number=st.integers(0, 5))
    def leaves(self, name: str, number: int) -> None:
        """Drops waiting work whose client leaves."""
        if number < len(self.waiting[name]):
            assert self.lanes.drop(self.waiting[name].pop(number))

    @invariant()
    def nothing_is_lost(self) -> None:
        """Checks that each lane has its work in order, and its model no more threads than its limit."""
        for lane in self.lanes:
            assert list(lane.waiting) == self.waiting[lane.name]
            assert lane.held == sum(work.lane is lane for work in self.running) <= 3
            assert lane.held <= 2 or lane.name != "b"

    @invariant()
    def no_thread_is_idle_in_vain(self) -> None:
        """Checks that, while a thread is free, no work waits whose model may have one more."""
        if len(self.running) < 3:
            assert all(not lane.waiting or lane.held >= self.lanes.cap(lane, lane.spec) for lane in self.lanes)


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLanes = Machine.TestCase


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (1, "an inference exceeded the time limit and still occupies a thread of the model"),
        (2, "2 inferences exceeded the time limit and still occupy threads of the model"),
    ],
)
def test_the_refusal_of_a_stuck_model_says_what_occupies_its_threads(lost: int, text: str) -> None:
    """One inference or several."""
    lane = Lane("m", 1.0, 4.0)
    lane.lost = lost
    assert lane.stuck().message == f"model 'm' refuses requests: {text}; try again, or restart the server"


def test_threads_walk_the_lanes_while_new_ones_come() -> None:
    """A thread of the pool that failed here would be missing for good."""
    lanes = Lanes(2)
    lanes.of(None)
    walk = iter(lanes)
    next(walk)
    lanes.of(ModelSpec("new", "1", "p", None, None))
    assert list(walk) == []
    assert [lane.name for lane in lanes] == ["", "new"]


def test_lanes_without_work_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository can have any number of models."""
    monkeypatch.setattr("handler.edge.dispatch.lanes.MOST_LANES", 3)
    lanes = Lanes(2)
    for number in range(10):
        lane = lanes.of(ModelSpec(f"m{number}", "1", "p", None, None))
        if number == 1:
            assert lanes.takes(errand(lane))
        assert len([*lanes]) <= 3
    assert lanes.find("m1") is not None
