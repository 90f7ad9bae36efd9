"""A version in a bucket: its folders, the one that servers take, and the leftovers in the others."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from core.records import NamedTuple
from handler.commands.publish.buckets.port import Bucket, ListedFile
from handler.commands.publish.versions import MARKERS, PushJob
from handler.commands.refused import Refused

YOUNG: Final = timedelta(minutes=15)
"""A younger object may belong to a push in progress: the time from its first object to its marker is short."""


class Standing(NamedTuple):
    """A version's folders, by their names as written. `folders`: each folder's objects, by their paths in it.

    `current`: the folder that servers take. If both 1 and 01 have a marker, they take the shorter name.
    `main`: its marker, which decides that. None and None if the version does not exist yet.
    """

    folders: Mapping[str, Mapping[str, ListedFile]]
    current: str | None
    main: str | None

    @property
    def marker(self) -> ListedFile | None:
        """The object that makes the version visible."""
        return None if self.current is None or self.main is None else self.folders[self.current][self.main]

    @property
    def files(self) -> Mapping[str, ListedFile]:
        """The objects of the current folder."""
        return {} if self.current is None else self.folders[self.current]

    def is_like(self, other: "Standing") -> bool:
        """Decides whether servers take the same objects for the version."""
        return (self.current, self.files) == (other.current, other.files)


def look(bucket: Bucket, job: PushJob) -> Standing:
    """Lists the version's folders, with one listing."""
    folders: dict[str, dict[str, ListedFile]] = {}
    for item in bucket.items(f"{job.model}/"):
        if job.has(item.path):
            folder, _, path = item.path.partition("/")
            folders.setdefault(folder, {})[path] = item
    for folder in sorted(folders, key=len):
        for marker in (*MARKERS, job.version.last):
            if marker in folders[folder]:
                return Standing(folders, folder, marker)
    return Standing(folders, None, None)


def is_debris(bucket: Bucket, item: ListedFile, marker: ListedFile | None) -> bool:
    """Decides whether an object that servers do not see is abandoned: it is old, or older than the visible marker.

    If a push in progress had put it, that push finds another marker than before, and stops.
    """
    return bucket.now - item.modified >= YOUNG or (marker is not None and item.modified < marker.modified)


def under_way(key: str) -> Refused:
    """Returns the refusal for an object that may belong to another push."""
    minutes = YOUNG.seconds // 60
    return Refused(
        f"{key} was put less than {minutes} minutes ago by a push that is under way, or has died: try again later, or "
        "with another --version"
    )
