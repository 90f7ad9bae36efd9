"""THE table of model stores by URI scheme, and what a store must offer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from core.errors import ModelUnavailable
from handler import plugins
from handler.settings import InvalidSettings, Settings
from handler.stores.progress import Progress

STORES: Final = {"file": "handler.stores.directory:DirectoryStore", "s3": "handler.stores.s3.store:S3Store"}


class File(NamedTuple):
    """`path`: relative to the model's folder, with slashes. None where the store was not asked, or has none.

    `size` in bytes; `etag`: another one means another content (RFC 9110, section 8.8.3); `checked`: the store has a
    checksum of the whole file, and tells it when asked.
    """

    path: str
    size: int | None = None
    etag: str | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Folder:
    """A version's files on this machine, for as long as this object lives; a store may finalize it."""

    path: Path


class Forbidden(Exception):
    """The store may not be listed; single files may still be read."""


class Gone(ModelUnavailable):
    """A file that was listed is no longer there, or cannot be read: the version may be in another folder by now."""


class Store(Protocol):
    """Where models are. Names have been validated. Every failure is a ServingError that says what to do.

    Everything raises StillLoading soon after the deadline of `progress`.
    """

    uri: str

    def check(self, progress: Progress | None = None, /) -> None:
        """Whether the store answers. Raises ServingError."""
        ...

    def models(self, progress: Progress | None = None, /) -> Sequence[str]:
        """Names of the folders, sorted."""
        ...

    def files(self, model: str, progress: Progress | None = None, /) -> Sequence[File]:
        """Every file of a model; none if there is no such model. Raises Forbidden where only listing is denied."""
        ...

    def read(self, model: str, path: str, progress: Progress | None = None, /) -> bytes | None:
        """A small file, None if there is none."""
        ...

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress, /) -> Folder:
        """The folder of a version with these files in place. What came before a deadline is kept for the next call.

        Raises Gone where a file is missing that was listed.
        """
        ...


def open_store(settings: Settings) -> Store:
    """Raises InvalidSettings for a URI that no store knows."""
    scheme, separator, _ = settings.repository.partition("://")
    scheme = scheme if separator else "file"
    store = plugins.find(scheme, STORES, "dragoman.stores")
    if store is None:
        raise InvalidSettings(
            f"DRAGOMAN_REPOSITORY is {settings.repository[:256]!r}; expected a directory or one of "
            + ", ".join(f"{known}://" for known in STORES)
        )
    opened: Store = store(settings)
    return opened
