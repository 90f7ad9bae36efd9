"""handler.edge.peers.merged and shares: several answers as one, and one limit as several."""

import pytest

from core.operations import IndexEntry, State, StatusResult
from core.statistics import BatchCount, Count, Series, Span, Statistics
from handler.edge.flight import SHARE, machine_memory
from handler.edge.peers import merged
from handler.edge.peers.shares import share
from handler.settings import Settings


def entry(state: State, reason: str = "", version: str = "1", name: str = "m") -> IndexEntry:
    return IndexEntry(name, version, state, reason)


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        (entry(State.READY), entry(State.READY, "old"), entry(State.READY, "old")),
        (entry(State.READY), entry(State.LOADING), entry(State.LOADING, merged.PARTLY)),
        (entry(State.LOADING), entry(State.UNAVAILABLE, "broken"), entry(State.UNAVAILABLE, "broken")),
    ],
)
def test_a_state_is_the_least(one: IndexEntry, other: IndexEntry, least: IndexEntry) -> None:
    """With its reason, whichever worker is asked; versions are in the order of their numbers."""
    ten, two = entry(State.READY, version="10"), entry(State.READY, version="2")
    partly = {each: each._replace(state=State.UNAVAILABLE, reason=merged.PARTLY) for each in (two, ten)}
    assert merged.index([ten, one], [[other, two]]) == [least, partly[two], partly[ten]]
    assert merged.index([other], [[one], [one]])[0].state is least.state
    assert merged.index([other], [[]])[0].state is State.UNAVAILABLE
    assert merged.index([], []) == []
    found = merged.status([StatusResult((one,), ready=True), StatusResult((other,), ready=False)])
    assert found == StatusResult((least,), ready=False)


def test_batches_and_spans_are_summed() -> None:
    """Rows by rows, span by span; what took longest stays the longest."""
    batch = BatchCount(2, Count(1, 10), Count(1, 20), Count(1, 30))
    one = Statistics("m", "1", 1, 5, success=Count(1, 2), execution_count=1, batches=(batch,))
    other = Statistics("m", "1", 2, 4, fail=Count(1, 1), execution_count=2, batches=(batch._replace(rows=1), batch))
    (found,) = merged.statistics([[one], [other, Statistics("n", "1")]])[:1]
    assert (found.inference_count, found.last_inference_ms, found.execution_count) == (3, 5, 3)
    assert (found.success, found.fail) == (Count(1, 2), Count(1, 1))
    assert found.batches[0].rows == 1
    assert found.batches[1] == BatchCount(2, Count(2, 20), Count(2, 40), Count(2, 60))
    series = [Series((Span(1, 1, 0, 5, 5),), ((3, 1),)), Series((Span(1, 2, 1, 9, 8),), ((3, 2), (1, 1)))]
    assert merged.series(series) == Series((Span(1, 3, 1, 14, 8),), ((1, 1), (3, 3)))


def test_limits_are_shared_out() -> None:
    """Rounded up where they are counts. A limit that is off stays off."""
    base = Settings.from_env({"DRAGOMAN_WORKERS": "4"})._replace(cpus=3.0, threads=6, memory_limit=None)
    found = share(base)
    assert (found.cpus, found.threads, found.queue, found.connections) == (0.75, 2, 256, None)
    assert (found.memory_limit, found.bytes_in_flight) == (None, machine_memory() // SHARE // 4)
    limited = share(base._replace(memory_limit=400, connections=9, payload_log_memory=8))
    assert (limited.memory_limit, limited.bytes_in_flight, limited.connections) == (100, None, 3)
    assert limited.payload_log_memory == 2
    assert share(base._replace(bytes_in_flight=0)).bytes_in_flight == 0
