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
        for upto, version in self.canaries:
            if drawn < upto:
                return self.stable if version.is_failing else version
        return self.stable

    def is_quick(self, size: int) -> bool:
        """Decides whether each version that `pick` may return is quick; see ServedVersion.is_quick."""
        versions = (self.stable, *(version for _, version in self.canaries if not version.is_failing))
        return all(version.is_quick(size) for version in versions)


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
        """Makes an entry. Unchanged versions stay as they are. `due`: the time of the next look at the others."""
        versions = {}
        for listed in listing.versions:
            version = known.same(listing, listed) if known is not None else None
            if version is None:
                before = known.versions.get(listed.number) if known is not None else None
                version = ServedVersion(listing, listed, Traffic() if before is None else before.traffic, due)
            version.relist(listing)
            versions[listed.number] = version
        if listing.partial and known is not None:
            used = (version for version in known.versions.values() if version.serves or version.state is State.LOADING)
            there = {version.version.number: version for version in used}
            versions = dict(sorted((there | versions).items()))
        return cls(listing, versions, look)

    def same(self, listing: Listing, listed: Version) -> ServedVersion | None:
        """Returns the version of this entry that was listed now, if its files and settings are unchanged."""
        for versions in (self.versions, self.coming.versions if self.coming is not None else {}):
            version = versions.get(listed.number)
            if (
                version is not None
                and version.version == listed
                and model.loads_alike(version.listing.settings, listing.settings)
            ):
                return version
        return None

    def is_like(self, other: "ListedModel") -> bool:
        return self.versions == other.versions and self.listing.settings == other.listing.settings

    @property
    def all_versions(self) -> tuple[ServedVersion, ...]:
        """The versions of this entry, and those of the coming one."""
        coming = self.coming.all_versions if self.coming is not None else ()
        return tuple(dict.fromkeys((*self.versions.values(), *coming)))

    @property
    def said(self) -> ModelSettings:
        return self.listing.said

    @property
    def serves(self) -> bool:
        return any(version.serves for version in self.versions.values())

    @property
    def stable(self) -> ServedVersion:
        """The newest version that is not a canary."""
        others = [version for number, version in self.versions.items() if number not in self.said.canary]
        return others[-1] if others else next(reversed(self.versions.values()))

    @property
    def canaries(self) -> tuple[ServedVersion, ...]:
        return tuple(version for number, version in self.versions.items() if number in self.said.canary)

    @property
    def target(self) -> Target:
        """The target of requests that name neither a version nor a label."""
        canaries = self.canaries
        if not canaries:
            return self.stable
        shares = accumulate(self.said.canary[version.version.number] for version in canaries)
        return CanarySplit(self.stable, tuple(zip(shares, canaries, strict=True)))

    def find(self, version: str) -> ServedVersion | None:
        """Finds a version by the text of its number."""
        return self.versions.get(int(version)) if VERSION.fullmatch(version) else None

    def labelled(self) -> Iterator[tuple[str, ServedVersion]]:
        for label, number in self.said.version_labels.items():
            version = self.versions.get(number)
            if version is not None:
                yield label, version

    @property
    def regular(self) -> tuple[ServedVersion, ...]:
        """The versions that the policy serves, newest first: all but canaries, unless there are only canaries."""
        others = [version for number, version in self.versions.items() if number not in self.said.canary]
        return tuple(reversed(others)) or (self.stable,)

    def served(self) -> dict[ModelRef, Target]:
        """Returns the serving targets by each reference that needs no other look."""
        name = self.listing.name
        served: dict[ModelRef, Target] = {
            ModelRef(name, str(number)): version for number, version in self.versions.items() if version.serves
        }
        served |= {ModelRef(name, None, label): version for label, version in self.labelled() if version.serves}
        if self.stable.serves:
            served[ModelRef(name)] = self.target
        if self.versions.get(0, self.stable).serves:
            served[ModelRef(name, "0", zero_is_newest=True)] = self.versions.get(0, self.target)
        return served

    def successors(self, after: "ListedModel") -> list[ServedVersion]:
        """Returns a later entry's versions that replace serving ones. They must be in memory before it takes over."""
        labels = dict(after.labelled())
        pairs = [(self.stable, after.stable)]
        pairs += [(old, after.versions[number]) for number, old in self.versions.items() if number in after.versions]
        pairs += [(old, labels[label]) for label, old in self.labelled() if label in labels]
        canaries = after.canaries
        wanted = dict.fromkeys(new for old, new in pairs if old.serves)
        return [version for version in wanted if version is after.stable or version not in canaries]

    def overview(self) -> Iterator[IndexEntry]:
        """Yields every version with its state: this entry's first, then those that have yet to take over."""
        coming = self.coming.versions if self.coming is not None else {}
        for number, version in self.versions.items():
            entry, after = version.entry, coming.get(number)
            if after is not None and after is not version and after.failure is not None:
                entry = entry._replace(reason=after.reason)
            elif entry.state is State.READY:
                entry = entry._replace(reason=self.trouble)
            yield _noted(entry, version)
        yield from (_noted(version.entry, version) for number, version in coming.items() if number not in self.versions)
        yield from self._missing(coming)

    def _missing(self, coming: Iterable[int]) -> Iterator[IndexEntry]:
        said = (self.coming or self).said
        for number in said.canary:
            if number not in self.versions and number not in coming:
                yield IndexEntry(self.listing.name, str(number), State.UNAVAILABLE, NOT_THERE)


def _noted(entry: IndexEntry, version: ServedVersion) -> IndexEntry:
    """Adds the unused keys of the version's settings; its own file is known when it is in memory."""
    loaded = version.loaded
    note = version.listing.said.note if loaded is None else loaded.note
    return entry._replace(reason="; ".join(filter(None, (entry.reason, note)))) if note else entry
