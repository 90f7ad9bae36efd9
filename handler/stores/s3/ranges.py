"""Which bytes of which object are still to be fetched, and who fetches them. No I/O, and no lock of its own.

An object is cut into as many regions as it is worth streams. Who is done with a region takes the next free one, or the
second half of the largest that somebody else is in: a slow connection never decides how long the whole takes.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

PIECE: Final = 8 * 1024 * 1024
"""An object is worth one stream for each of so many bytes."""
LEAST: Final = 4 * 1024 * 1024
"""Bytes that are worth another request."""


@dataclass(slots=True, eq=False)
class Region:
    """`start` moves with what has arrived; `saved`: up to where that stands in the journal; `end` may be cut."""

    start: int
    end: int
    saved: int

    @property
    def rest(self) -> int:
        return self.end - self.start


@dataclass(slots=True, eq=False)
class Work:
    """An object's regions. `opened`: its ETag is known, so that several streams get the same content."""

    size: int
    opened: bool = False
    opening: bool = False
    free: list[Region] = field(default_factory=list)
    busy: list[Region] = field(default_factory=list)

    def begin(self) -> Region:
        """All of it for whoever asks first; the rest is given away by `divide`."""
        self.opening = True
        region = Region(0, self.size, 0)
        self.busy.append(region)
        return region

    def divide(self, streams: int) -> None:
        """The first answer is there: keep a share for it."""
        [first] = self.busy
        share = max(1, -(-self.size // min(streams, worth(self.size))))
        self.free = cut([(share, self.size)], share)
        first.end = min(share, self.size)
        self.opened, self.opening = True, False

    def resume(self, missing: list[tuple[int, int]], streams: int) -> None:
        """Go on where an earlier fetch ended. If all has come, an empty region is left: it is to be verified still."""
        total = sum(end - start for start, end in missing)
        self.free = cut(missing, max(1, -(-total // min(streams, worth(total)))))
        if not total:
            self.free = [Region(self.size, self.size, self.size)]
        self.opened = True

    def restart(self) -> None:
        self.opened = self.opening = False
        self.free, self.busy = [], []

    def release(self, region: Region) -> bool:
        """Nobody is in this region any more; what is left of it is for anybody. False if that was so before."""
        if region not in self.busy:
            return False
        self.busy.remove(region)
        self.opening = False
        if self.opened and region.rest > 0:
            self.free.append(Region(region.start, region.end, region.start))
        return True

    @property
    def finished(self) -> bool:
        return self.opened and not self.free and not self.busy


class Task(NamedTuple):
    """Somebody's share of the work."""

    work: Work
    region: Region


def claim(works: list[Work], *, alone: bool = False) -> Task | None:
    """Something to do, None if there is nothing now. `alone`: nobody helps, so let it be as much as one GET gets."""
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
    """Where a connection is slow, as S3's are, 16 fill two CPUs."""
    return min(32, 8 * max(1, round(cpus)))


def worth(size: int) -> int:
    """Streams for so many bytes."""
    return max(1, -(-size // PIECE))


def cut(spans: list[tuple[int, int]], share: int) -> list[Region]:
    """The spans in pieces of at most `share` bytes."""
    return [Region(start, min(start + share, end), start) for first, end in spans for start in range(first, end, share)]
