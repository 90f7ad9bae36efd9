"""The answers of several workers as one: numbers are summed, and a state is the least of theirs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

from core.operations import IndexEntry, Readiness, State, StatusResult
from core.statistics import COUNTED, BatchCount, Count, Series, Span, Statistics

ORDER: Final = (State.UNAVAILABLE, State.LOADING, State.READY)
PARTLY: Final = "not every worker has loaded it"


def readiness(found: Iterable[Readiness]) -> Readiness:
    """Returns the first that is not ready, else the last."""
    answer = Readiness(ready=True)
    for answer in found:
        if not answer.ready:
            break
    return answer


def index(own: Sequence[IndexEntry], others: Sequence[Sequence[IndexEntry]]) -> list[IndexEntry]:
    """Returns every version of every list, each in its least state. A list without a version counts as not loaded."""
    found: dict[tuple[str, str], IndexEntry | None] = {(each.name, each.version): each for each in own}
    for entries in others:
        known = {(each.name, each.version): each for each in entries}
        found = {key: _least(found.get(key), known.get(key)) for key in (found | known)}
    return [entry for key in sorted(found, key=_in_order) if (entry := found[key]) is not None]


def _least(one: IndexEntry | None, other: IndexEntry | None) -> IndexEntry | None:
    if one is None or other is None:
        entry = one or other
        is_partly = entry is not None and entry.state is not State.UNAVAILABLE
        return entry._replace(state=State.UNAVAILABLE, reason=PARTLY) if entry is not None and is_partly else entry
    if one.state is other.state:
        return one if one.reason else other
    least = min(one, other, key=lambda entry: ORDER.index(entry.state))
    return least if least.reason else least._replace(reason=PARTLY)


def _in_order(key: tuple[str, str]) -> tuple[str, int, str]:
    name, version = key
    return name, int(version) if version.isdecimal() else -1, version


def status(found: Sequence[StatusResult]) -> StatusResult:
    """Returns the first worker's status, ready if all are, with each version in its least state."""
    first = found[0]
    least = index(first.versions, [each.versions for each in found[1:]])
    own = {(each.name, each.version) for each in first.versions}
    versions = tuple(each for each in least if (each.name, each.version) in own)
    return first._replace(versions=versions, ready=all(each.ready for each in found))


def statistics(lists: Sequence[Sequence[Statistics]]) -> list[Statistics]:
    """Returns the sum of each version's numbers."""
    found: dict[tuple[str, str], Statistics] = {}
    for stats in (each for one in lists for each in one):
        known = found.get((stats.name, stats.version))
        found[stats.name, stats.version] = stats if known is None else _sum(known, stats)
    return [found[key] for key in sorted(found, key=_in_order)]


def _sum(one: Statistics, other: Statistics) -> Statistics:
    batches: dict[int, BatchCount] = {}
    for each in (*one.batches, *other.batches):
        known = batches.get(each.rows)
        batches[each.rows] = each if known is None else BatchCount(each.rows, *map(_count, known[1:], each[1:]))
    steps: dict[str, Any] = {step: _count(getattr(one, step), getattr(other, step)) for step in COUNTED}
    return one._replace(
        inference_count=one.inference_count + other.inference_count,
        last_inference_ms=max(one.last_inference_ms, other.last_inference_ms),
        execution_count=one.execution_count + other.execution_count,
        batches=tuple(batches[rows] for rows in sorted(batches)),
        **steps,
    )


def _count(one: Count, other: Count) -> Count:
    return Count(one.times + other.times, one.ns + other.ns)


def series(found: Sequence[Series]) -> Series:
    """Returns the sums of the same spans. Their clock is the machine's, so spans end at the same time."""
    times: dict[int, int] = {}
    for time, count in (pair for each in found for pair in each.times):
        times[time] = times.get(time, 0) + count
    return Series(tuple(_spans([each.spans for each in found])), tuple(sorted(times.items())))


def _spans(lists: Sequence[Sequence[Span]]) -> Iterator[Span]:
    for spans in zip(*lists, strict=True):
        yield reduce(_span, spans)


def _span(one: Span, other: Span) -> Span:
    counts = (one.inferences + other.inferences, one.failures + other.failures, one.ns + other.ns)
    return Span(one.seconds, *counts, max(one.most, other.most))
