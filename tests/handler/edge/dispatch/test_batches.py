"""handler.edge.dispatch.batches: requests that run together, each of which notices nothing of the others."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from core.batches import Prepared
from handler.edge.dispatch import batches
from handler.edge.dispatch.batches import Batch
from handler.edge.dispatch.lane import Errand
from handler.edge.jobs import Job
from tests.handler.edge.dispatch.meeting import BAD, BATCHING, INFER, LOOP, Meeting, rows, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def meet(tmp_path: Path) -> Iterator[Callable[..., Meeting]]:
    """Makes a server whose requests meet, and ends it."""
    made: list[Meeting] = []

    def make(**more: Any) -> Meeting:
        made.append(Meeting(tmp_path, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def counts(outcomes: list[tuple[int, Any]]) -> list[Any]:
    """Returns the rows of the run in which each request was, or its refusal."""
    return [outputs["rows"][0] if status == 200 else (status, outputs) for status, outputs in outcomes]


def test_requests_that_wait_at_the_same_time_run_as_one(meet: Callable[..., Meeting]) -> None:
    """Each gets its own rows of the outputs that it asked for."""
    found = meet().together(rows(1), rows(2, 3), rows(4))
    assert [outputs["y"] for _, outputs in found] == [[2, 2], [4, 4, 6, 6], [8, 8]]
    assert counts(found) == [4, 4, 4]


@pytest.mark.parametrize(
    ("said", "bodies", "expected"),
    [
        ({}, [rows(1), rows(2, parameters={"k": 1}), rows(3), rows(4, parameters={"k": 1})], [2, 2, 2, 2]),
        ({}, [rows(1, outputs=[{"name": "rows"}]), rows(2), rows(3, outputs=[{"name": "rows"}])], [2, 1, 2]),
        ({}, [rows(1), rows(), rows(2)], [2, None, 2]),
        ({"max_batch_size": 3}, [rows(1), rows(2, 2), rows(3), rows(*range(5))], [3, 3, 1, 5]),
        ({"max_batch_size": 2}, [rows(1), rows(2), rows(3)], [2, 2, 1]),
        ({"preferred": [2]}, [rows(1), rows(2), rows(3)], [2, 2, 1]),
        ({"max_delay_ms": 0}, [rows(1), rows(2), rows(3)], [3, 3, 3]),
    ],
)
def test_what_may_not_be_mixed_is_not(
    meet: Callable[..., Meeting], said: dict[str, Any], bodies: list[bytes], expected: list[int | None]
) -> None:
    """Parameters, outputs, requests without rows, more rows than a batch has, sizes that are not preferred."""
    found = meet(said=BATCHING | said).together(*bodies)
    assert [(outputs["rows"] or [None])[0] for _, outputs in found] == expected


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (rows(BAD), (400, "a row is -1")),
        (b"{", (400, "the body is not JSON")),
        (
            rows(1, outputs=[{"name": "z"}]),
            (400, "model 'm' has no output 'z'; it has"),
        ),
        (rows(1).replace(b"FP32", b"FP64"), (400, "input 'x' is FP64; the model expects FP32")),
    ],
)
def test_an_error_concerns_only_the_request_that_caused_it(
    meet: Callable[..., Meeting], bad: bytes, refusal: tuple[int, str]
) -> None:
    """Requests whose run fails run again, each alone."""
    found = meet().together(rows(1), bad, rows(2))
    assert (found[1][0], found[1][1][: len(refusal[1])]) == refusal
    assert [(status, outputs["y"]) for status, outputs in (found[0], found[2])] == [(200, [2, 2]), (200, [4, 4])]


def test_an_endless_request_does_not_end_those_that_ran_with_it(meet: Callable[..., Meeting]) -> None:
    """At the time limit each runs again alone, and the failure is counted for one."""
    meeting = meet(said=BATCHING | {"max_batch_size": 3}, THREADS="4", TIMEOUT="0.5")

    async def work() -> list[Any]:
        first = await meeting.hold()
        others = [meeting.ask(rows(value)) for value in (1, LOOP, 2)]
        await meeting.until(waiting=0, held=2)
        meeting.open()
        await first
        return [told(await other) for other in others]

    before, after, last = meeting.run(work())
    assert counts([before, last]) == [1, 1]
    assert (after[0], after[1]) == (
        504,
        "model 'm' version 1 did not answer within 0.5 s, the time limit of an inference (DRAGOMAN_TIMEOUT)",
    )
    stats = json.loads(meeting.local.call("GET", "/v2/models/m/stats").body)["model_stats"][0]
    assert stats["inference_stats"]["fail"]["count"] == 1


def test_a_client_that_leaves_takes_its_request_with_it(meet: Callable[..., Meeting]) -> None:
    """While it waits, and while its batch runs, which goes on for the others."""
    meeting = meet()

    async def work() -> Any:
        first = await meeting.hold()
        others = [meeting.ask(rows(value)) for value in (1, 2, LOOP, 3)]
        await meeting.until(4)
        others[0].cancel()
        await meeting.until(3)
        meeting.open()
        await first
        await meeting.loops()
        others[1].cancel()
        meeting.open("gate2")
        found = [told(await other) for other in others[2:]]
        return found, [(await other).status for other in others]

    found, statuses = meeting.run(work())
    assert (counts(found), statuses) == ([3, 3], [503, 503, 200, 200])


def test_a_batch_ends_once_nobody_waits_for_it(meet: Callable[..., Meeting]) -> None:
    """The model is free, and the thread takes other requests."""
    meeting = meet()

    async def work() -> Any:
        first = await meeting.hold()
        others = [meeting.ask(rows(value)) for value in (LOOP, 1)]
        await meeting.until(2)
        meeting.open()
        await first
        await meeting.loops()
        run = meeting.local.app.dispatcher._workers._threads[0].work.run  # type: ignore[union-attr] # threads
        ends = []
        for other in others:
            other.cancel()
            await asyncio.sleep(0.01)
            ends.append(run.ended)
        meeting.open("gate2")
        return ends, told(await meeting.ask(rows(5)))

    ends, (status, outputs) = meeting.run(work())
    assert (ends, status, outputs["y"]) == ([False, True], 200, [10, 10])
    (version,) = meeting.local.app.registry.known()
    assert version.loaded is not None
    assert not version.loaded.in_use()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"QUEUE": "2"}, [200, 200, 503]),
        ({"QUEUE": "9"}, [200, 200, 200]),
        ({"QUEUE": "9", "BYTES_IN_FLIGHT": "400000"}, [200, 503, 503]),
    ],
)
def test_limits_hold_for_each_request(
    meet: Callable[..., Meeting], settings: dict[str, str], expected: list[int]
) -> None:
    """The length of the queue, and the bytes in flight, of those that wait for a batch."""
    meeting = meet(**settings)
    filler = " " * (150_000 if "BYTES_IN_FLIGHT" in settings else 0)

    async def work() -> list[int]:
        first = await meeting.hold()
        others = [meeting.ask(rows(value) + filler.encode()) for value in (1, 2, 3)]
        await meeting.until(expected.count(200))
        meeting.open()
        await first
        return [told(await other)[0] for other in others]

    assert meeting.run(work()) == expected


def test_a_model_whose_threads_are_lost_takes_no_request(meet: Callable[..., Meeting]) -> None:
    """Although other threads are idle: nobody waits for partners in vain."""
    meeting = meet(max_concurrency=1, THREADS="4", TIMEOUT="0.3")

    async def work() -> list[Any]:
        await meeting.ask(rows(0))
        late = told(await meeting.ask(rows(LOOP)))
        async with asyncio.timeout(60):
            while not meeting.lane.lost:  # noqa: ASYNC110 - a thread changes it
                await asyncio.sleep(0.01)
        return [late[0], *told(await meeting.ask(rows(1)))]

    *statuses, text = meeting.run(work())
    assert (statuses, text[:43]) == ([504, 503], "model 'm' refuses requests: an inference ex")


def test_max_concurrency_counts_batches(meet: Callable[..., Meeting]) -> None:
    """While one runs, others gather, however many threads are idle."""
    meeting = meet(said={"max_batch_size": 2, "max_delay_ms": 0}, max_concurrency=1, THREADS="4")
    found = meeting.together(*(rows(value) for value in range(6)))
    assert [(outputs["rows"][0], outputs["beside"][0]) for _, outputs in found] == [(2, 1)] * 6


def test_versions_do_not_meet(meet: Callable[..., Meeting]) -> None:
    """Each request is answered by the version that it names."""
    meeting = meet(versions=(1, 2))

    async def work() -> list[Any]:
        paths = [f"/v2/models/m/versions/{number}/infer" for number in (1, 2)]
        await meeting.ask(rows(0), paths[1])
        first = await meeting.hold(paths[0])
        others = [meeting.ask(rows(value), paths[value % 2]) for value in range(5)]
        await meeting.until(5)
        meeting.open()
        await first
        return [told(await other)[1] for other in others]

    found = meeting.run(work())
    assert [outputs["version"][0] for outputs in found] == [1, 2, 1, 2, 1]
    assert [outputs["rows"][0] for outputs in found] == [3, 2, 3, 2, 3]


def test_a_model_without_a_row_for_each_row_is_told_once(
    meet: Callable[..., Meeting], caplog: pytest.LogCaptureFixture
) -> None:
    """Its requests run alone, and right."""
    meeting = meet()
    code = meeting.folder / "m" / "1" / "model.py"
    code.write_text(code.read_text().replace('"outputs"', '"others"').replace('"y": x * 2', '"y": x.sum()'))
    with caplog.at_level(logging.WARNING, batches.__name__):
        found = meeting.together(rows(1), rows(2))
        assert meeting.lane.batches.unfit.keys() == {"1"}
        again = [meeting.run(meeting.local._call("POST", INFER, rows(value), {}, stays=True)) for value in (3, 4)]
    assert [outputs["y"] for _, outputs in found] == [[2], [4]]
    assert [told(answer)[1]["y"] for answer in again] == [[6], [8]]
    (record,) = caplog.records
    assert record.getMessage().startswith("model m version 1: its requests run alone from now on: its outputs do not")


def test_times_and_counts_of_a_batch_are_each_requests_own(meet: Callable[..., Meeting]) -> None:
    """The steps add up to the whole; one run is one execution."""
    meeting = meet()

    async def work() -> Any:
        first = await meeting.hold()
        others = [meeting.ask(rows(*values)) for values in ((1,), (2, 3), (4,))]
        await meeting.until(3)
        meeting.open()
        await first
        return [(await other).headers["server-timing"] for other in others]

    timings = meeting.run(work())
    steps = [dict(part.split(";dur=") for part in text.split(", ")[:-1]) for text in timings]
    assert all(each.keys() == {"queue", "decode", "infer", "encode"} for each in steps)
    assert len({each["infer"] for each in steps}) > 0
    assert all(float(value) >= 0 for each in steps for value in each.values())
    (stats,) = json.loads(meeting.local.call("GET", "/v2/models/m/stats").body)["model_stats"]
    assert (stats["inference_count"], stats["execution_count"]) == (6, 3)  # one of five requests has two rows
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in stats["batch_stats"]] == [(1, 2), (4, 1)]


def test_nothing_of_a_batch_stays_in_memory(meet: Callable[..., Meeting]) -> None:
    """Neither after an answer nor after an error, or a client that left; no collector is needed for it."""

    def requests() -> list[Any]:
        # Not isinstance: it asks for __class__, which some packages' stand-ins for missing modules refuse.
        return [each for each in gc.get_objects() if type(each) in (Job, Errand, Batch, Prepared)]

    async def leave() -> None:
        leaving = meeting.ask(rows(LOOP))
        await meeting.loops()
        leaving.cancel()
        await leaving
        meeting.open("gate2")
        await meeting.until(waiting=0, held=0)

    meeting = meet()
    gc.collect()
    before = requests()  # the rows of other tests
    gc.disable()
    try:
        meeting.together(rows(1), rows(BAD), rows(2), b"{")
        meeting.run(leave())
        left = [each for each in requests() if not any(each is old for old in before)]
    finally:
        gc.enable()
    assert left == []
