"""The bytes that are still to be fetched, shared among streams. No I/O, and no lock: the caller has one.

An object is cut into as many regions as it is worth streams. A stream that has finished a region takes the next free
one, or the second half of the largest busy one: a slow connection never decides how long the whole takes.
"""

from dataclasses import dataclass, field
from typing import Final

from core.records import NamedTuple

PIECE: Final = 8 * 1024 * 1024
"""An object is worth one stream for each of these bytes."""
LEAST: Final = 4 * 1024 * 1024
"""The fewest bytes that are worth another request."""


@dataclass(slots=True, eq=False)
class Region:
    """A span of an object. `start` moves as bytes arrive; the journal has them up to `saved`; `end` may be cut."""

    start: int
    end: int
    saved: int

    @property
    def rest(self) -> int:
        return self.end - self.start


@dataclass(slots=True, eq=False)
class Work:
    """An object's regions. `size`: in bytes.

    `opening`: one stream has asked for the whole, to learn what it is. `opened`: its ETag is known, so that several
    streams get the same content. `free` regions wait for a stream, `busy` ones have one.
    """

    size: int
    opened: bool = False
    opening: bool = False
    free: list[Region] = field(default_factory=list)
    busy: list[Region] = field(default_factory=list)

    def begin(self) -> Region:
        """Returns all of it, for the first stream. `divide` shares it later."""
        self.opening = True
        region = Region(0, self.size, 0)
        self.busy.append(region)
        return region

    def divide(self, streams: int) -> None:
        """Shares the work after the first answer, which keeps one share."""
        [first] = self.busy
        share = max(1, -(-self.size // min(streams, worth(self.size))))
        self.free = cut([(share, self.size)], share)
        first.end = min(share, self.size)
        self.opened, self.opening = True, False

    def resume(self, missing: list[tuple[int, int]], streams: int) -> None:
        """Continues an earlier fetch. If nothing is missing, one empty region is left: the file is not verified yet."""
        total = sum(end - start for start, end in missing)
        self.free = cut(missing, max(1, -(-total // min(streams, worth(total)))))
        if not total:
            self.free = [Region(self.size, self.size, self.size)]
        self.opened = True

    def restart(self) -> None:
        """Begins again, without any bytes."""
        self.opened = self.opening = False
        self.free, self.busy = [], []

    def release(self, region: Region) -> bool:
        """Frees the rest of a region. Returns False if no stream had it."""
        if region not in self.busy:
            return False
        self.busy.remove(region)
        self.opening = False
        if self.opened and region.rest > 0:
            self.free.append(Region(region.start, region.end, region.start))
        return True

    @property
    def finished(self) -> bool:
        """Whether every byte has arrived."""
        return self.opened and not self.free and not self.busy


class Task(NamedTuple):
    """One stream's share of the work."""

    work: Work
    region: Region


def claim(works: list[Work], *, alone: bool = False) -> Task | None:
    """Returns the next task, None if there is none now. `alone`: as much as one GET can fetch, as no stream helps."""
    for work in works:
        if not work.opened and not work.opening:
            return Task(work, work.begin())
    for work in works:
        if work.free:
            region = work.free.pop(0)
            while alone and work.free and work.free[0].start == region.end:
                region.end = work.free.pop(0).end
            work.busy.append(region)
            return Task(work, region)
    return _split(works)


def _split(works: list[Work]) -> Task | None:
    busy = [(region.rest, work, region) for work in works if work.opened for region in work.busy]
    rest, work, region = max(busy, key=lambda each: each[0], default=(0, None, None))
    if work is None or region is None or rest < 2 * LEAST:
        return None
    middle = region.end - rest // 2
    half = Region(middle, region.end, middle)
    region.end = middle
    work.busy.append(half)
    return Task(work, half)


def most_streams(cpus: float) -> int:
    """Returns the most streams for so many CPUs: 16 connections as slow as S3's keep two of them busy."""
    return min(32, 8 * max(1, round(cpus)))


def worth(size: int) -> int:
    """Returns the streams that so many bytes are worth."""
    return max(1, -(-size // PIECE))


def cut(spans: list[tuple[int, int]], share: int) -> list[Region]:
    """Returns the spans in regions of at most `share` bytes."""
    return [Region(start, min(start + share, end), start) for first, end in spans for start in range(first, end, share)]
