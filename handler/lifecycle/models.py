"""A model as its files were last listed: its served versions, and the choice of one for a request."""

import os
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from core.operations import IndexEntry, ModelRef, State
from core.records import NamedTuple
from handler.lifecycle.repository import VERSION, Listing, Version
from handler.lifecycle.usage import Traffic
from handler.lifecycle.versions import ServedVersion
from handler.settings import model
from handler.settings.model import ModelSettings

NOT_THERE: Final = "a canary in its settings, which the repository does not have"


def draw() -> float:
    """Returns a random number, uniform in [0, 1). It decides whether a canary answers a request."""
    return int.from_bytes(os.urandom(6)) / 2**48  # `random` would cost the init phase 1 ms


class CanarySplit(NamedTuple):
    """The targets of requests without a version. `canaries`: each with the sum of the shares up to its own."""

    stable: ServedVersion
    canaries: tuple[tuple[float, ServedVersion], ...]

    @property
    def name(self) -> str:
        return self.stable.name

    def pick(self, drawn: float) -> ServedVersion:
        """Returns the version for one request: the stable one instead of a canary that could not be loaded."""
        for upto, slot in self.canaries:
            if drawn < upto:
                return self.stable if slot.is_failing else slot
        return self.stable

    def is_quick(self, size: int) -> bool:
        """Decides whether each version that `pick` may return is quick; see ServedVersion.is_quick."""
        slots = (self.stable, *(slot for _, slot in self.canaries if not slot.is_failing))
        return all(slot.is_quick(size) for slot in slots)


Target = ServedVersion | CanarySplit


def stable(target: Target) -> ServedVersion:
    """Returns the version of a target that is not a canary."""
    return target.stable if isinstance(target, CanarySplit) else target


class ListedModel(NamedTuple):
    """A model's entry. `versions`: by number, ascending; never empty. `coming`: a later entry that has yet to load.

    `look`: the number of the look that made this entry. `trouble`: the reason why a later look found nothing.
    """

    listing: Listing
    versions: dict[int, ServedVersion]
    look: int
    coming: "ListedModel | None" = None
    trouble: str = ""

    @classmethod
    def of(cls, listing: Listing, known: "ListedModel | None", look: int, due: float) -> "ListedModel":
        """Makes an entry. Unchanged versions keep their slots. `due`: the time of the next look at the others."""
        slots = {}
        for version in listing.versions:
            slot = known.same(listing, version) if known is not None else None
            if slot is None:
                before = known.versions.get(version.number) if known is not None else None
                slot = ServedVersion(listing, version, Traffic() if before is None else before.traffic, due)
            slot.relist(listing)
            slots[version.number] = slot
        if listing.partial and known is not None:
            used = (slot for slot in known.versions.values() if slot.serves or slot.state is State.LOADING)
            there = {slot.version.number: slot for slot in used}
            slots = dict(sorted((there | slots).items()))
        return cls(listing, slots, look)

    def same(self, listing: Listing, version: Version) -> ServedVersion | None:
        """Returns the slot of a version if its files and settings are unchanged."""
        for slots in (self.versions, self.coming.versions if self.coming is not None else {}):
            slot = slots.get(version.number)
            if (
                slot is not None
                and slot.version == version
                and model.loads_alike(slot.listing.settings, listing.settings)
            ):
                return slot
        return None

    def is_like(self, other: "ListedModel") -> bool:
        return self.versions == other.versions and self.listing.settings == other.listing.settings

    @property
    def slots(self) -> tuple[ServedVersion, ...]:
        """The slots of this entry, and those of the coming one."""
        return tuple(dict.fromkeys((*self.versions.values(), *(self.coming.slots if self.coming is not None else ()))))

    @property
    def said(self) -> ModelSettings:
        return self.listing.said

    @property
    def serves(self) -> bool:
        return any(slot.serves for slot in self.versions.values())

    @property
    def stable(self) -> ServedVersion:
        """The newest version that is not a canary."""
        others = [slot for number, slot in self.versions.items() if number not in self.said.canary]
        return others[-1] if others else next(reversed(self.versions.values()))

    @property
    def canaries(self) -> tuple[ServedVersion, ...]:
        return tuple(slot for number, slot in self.versions.items() if number in self.said.canary)

    @property
    def target(self) -> Target:
        """The target of requests that name neither a version nor a label."""
        canaries = self.canaries
        if not canaries:
            return self.stable
        shares = accumulate(self.said.canary[slot.version.number] for slot in canaries)
        return CanarySplit(self.stable, tuple(zip(shares, canaries, strict=True)))

    def find(self, version: str) -> ServedVersion | None:
        """Finds a version by the text of its number."""
        return self.versions.get(int(version)) if VERSION.fullmatch(version) else None

    def labelled(self) -> Iterator[tuple[str, ServedVersion]]:
        for label, number in self.said.version_labels.items():
            slot = self.versions.get(number)
            if slot is not None:
                yield label, slot

    @property
    def regular(self) -> tuple[ServedVersion, ...]:
        """The versions that the policy serves, newest first: all but canaries, unless there are only canaries."""
        others = [slot for number, slot in self.versions.items() if number not in self.said.canary]
        return tuple(reversed(others)) or (self.stable,)

    def served(self) -> dict[ModelRef, Target]:
        """Returns the serving targets by each reference that needs no other look."""
        name = self.listing.name
        served: dict[ModelRef, Target] = {
            ModelRef(name, str(number)): slot for number, slot in self.versions.items() if slot.serves
        }
        served |= {ModelRef(name, None, label): slot for label, slot in self.labelled() if slot.serves}
        if self.stable.serves:
            served[ModelRef(name)] = self.target
        if self.versions.get(0, self.stable).serves:
            served[ModelRef(name, "0", zero_is_newest=True)] = self.versions.get(0, self.target)
        return served

    def successors(self, after: "ListedModel") -> list[ServedVersion]:
        """Returns a later entry's versions that replace serving ones. They must be in memory before it takes over."""
        labels = dict(after.labelled())
        pairs = [(self.stable, after.stable)]
        pairs += [(slot, after.versions[number]) for number, slot in self.versions.items() if number in after.versions]
        pairs += [(slot, labels[label]) for label, slot in self.labelled() if label in labels]
        canaries = after.canaries
        wanted = dict.fromkeys(new for old, new in pairs if old.serves)
        return [slot for slot in wanted if slot is after.stable or slot not in canaries]

    def overview(self) -> Iterator[IndexEntry]:
        """Yields every version with its state: this entry's first, then those that have yet to take over."""
        coming = self.coming.versions if self.coming is not None else {}
        for number, slot in self.versions.items():
            entry, after = slot.entry, coming.get(number)
            if after is not None and after is not slot and after.failure is not None:
                entry = entry._replace(reason=after.reason)
            elif entry.state is State.READY:
                entry = entry._replace(reason=self.trouble)
            yield _noted(entry, slot)
        yield from (_noted(slot.entry, slot) for number, slot in coming.items() if number not in self.versions)
        yield from self._missing(coming)

    def _missing(self, coming: Iterable[int]) -> Iterator[IndexEntry]:
        said = (self.coming or self).said
        for number in said.canary:
            if number not in self.versions and number not in coming:
                yield IndexEntry(self.listing.name, str(number), State.UNAVAILABLE, NOT_THERE)


def _noted(entry: IndexEntry, slot: ServedVersion) -> IndexEntry:
    """Adds the unused keys of the version's settings; its own file is known when it is in memory."""
    loaded = slot.loaded
    note = slot.listing.said.note if loaded is None else loaded.note
    return entry._replace(reason="; ".join(filter(None, (entry.reason, note)))) if note else entry
