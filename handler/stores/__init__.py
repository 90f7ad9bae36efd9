"""THE table of model stores by URI scheme, and the protocol of a store."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from core.errors import ModelNotLoadable, ModelUnavailable
from core.records import NamedTuple
from handler import plugins
from handler.settings import InvalidSettings, Settings
from handler.stores.progress import Progress

if TYPE_CHECKING:
    from handler.stores.checksums import Checksum

STORES: Final = {
    "file": "handler.stores.directory:DirectoryStore",
    "s3": "handler.stores.s3.store:S3Store",
    "gs": "handler.stores.cloud.store:CloudStore",
    "az": "handler.stores.cloud.store:CloudStore",
    "https": "handler.stores.web.store:WebStore",
    "http": "handler.stores.web.store:WebStore",
}
LOOSE: Final = "handler.stores.loose:LooseStore"
"""The store that takes the place of a directory's where a folder may hold a model without versions."""
LOOSE_BUCKET: Final = "handler.stores.loose_bucket:opened"
"""What opens the stores of remote places there."""
REMOTE: Final = ("s3", "gs", "az", "https", "http")
"""The schemes of stores with an attribute `remote`: their place in the remote store."""
VERIFIED: Final = "handler.stores.signing.store:VerifiedStore"
"""The store that wraps any other one if DRAGOMAN_VERIFY is not off."""
SMALL: Final = 16 * 1024 * 1024
"""The most bytes of a file or a listing that is read into memory. A page of a thousand long keys has a quarter."""


class File(NamedTuple):
    """A file as a listing has it. `path`: relative to the model's folder, with slashes.

    `size`: in bytes. `etag`: a content that differs has another one (RFC 9110, section 8.8.3). Both are None where the
    store was not asked or does not have them. `checked`: the store has a checksum of the whole file. `digest`: a
    checksum that the content must have, whatever the store says; listings have none.
    """

    path: str
    size: int | None = None
    etag: str | None = None
    checked: bool = False
    digest: "Checksum | None" = None


class Proof(NamedTuple):
    """What was verified. `digest`: the version's, SHA-256 in hexadecimal. `signer`: empty if only digests were."""

    digest: str
    signer: str = ""

    def __str__(self) -> str:
        return f"digest sha256:{self.digest}" + (f", signed by {self.signer}" if self.signer else "")


class Folder:
    """A version's files on this machine. They stay as long as this object lives. A store may finalize it.

    `proof`: None if nothing was verified. `keeps`: another object that has to live as long.
    """

    __slots__ = ("__weakref__", "keeps", "path", "proof")

    def __init__(self, path: Path, proof: Proof | None = None, keeps: object = None) -> None:
        self.path, self.proof, self.keeps = path, proof, keeps


class Forbidden(Exception):
    """Listing is not permitted. Reading single files may be."""


class DiskShort(ModelNotLoadable):
    """The disk does not have room for a version. `missing`: how many bytes more it needs."""

    def __init__(self, message: str, missing: int) -> None:
        super().__init__(message)
        self.missing = missing


class Gone(ModelUnavailable):
    """A file that was listed is no longer there, or cannot be read: the version can be in another folder by now."""


class WrongContent(ModelNotLoadable):
    """A fetched file does not have the digest that it must have. `path`: in the version's folder."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} differs from its digest")
        self.path = path


class Store(Protocol):
    """Where models are. Callers validate names. Every failure is a ServingError with its cure.

    Each method raises StillLoading soon after the deadline of `progress`. A store can have further members. `has`: a
    model's folder is there, which costs no request. `glance`, `everything`: the files of all models by name, if they
    fit into one listing, and however many there are. `accepts`, `confirm`: something shows that the store accepts the
    keys, and a request that finds it out. `flaw`: why a model's folder has less than it seems to have. `hashes`: see
    `fetch`. `verifies`: files are checked while they are fetched or read. `check_cache`: raises ModelNotLoadable if
    fetched files cannot be kept. `remote`: see REMOTE. `disconnect`: forgets connections and credentials. `doubt`: a
    fetched version did not load, so that its files may have changed on this machine.
    """

    uri: str

    def check(self, progress: Progress | None = None, /) -> None:
        """Raises ServingError if the store does not answer."""
        ...

    def models(self, progress: Progress | None = None, /) -> Sequence[str]:
        """Returns the names of the folders, sorted. Raises ServingError where listing is not permitted."""
        ...

    def files(self, model: str, progress: Progress | None = None, /) -> Sequence[File]:
        """Returns every file of a model, none of an unknown model. Raises Forbidden where only listing is denied."""
        ...

    def read(self, model: str, path: str, progress: Progress | None = None, /) -> bytes | None:
        """Returns the content of a small file, None if the file does not exist.

        Raises ModelNotLoadable for a file of more than SMALL bytes.
        """
        ...

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress, /) -> Folder:
        """Returns the folder of a version with these files in place.

        The next call continues where a deadline ended the last one. Raises Gone where a listed file is missing. A
        store with an attribute `hashes` compares the files with their digests, and raises WrongContent.
        """
        ...


def open_store(settings: Settings) -> Store:
    """Returns the store of DRAGOMAN_REPOSITORY. Raises InvalidSettings for a URI that no store knows."""
    scheme, separator, _ = settings.repository.partition("://")
    scheme = scheme if separator else "file"
    kind = plugins.find(scheme, STORES, "dragoman.stores")
    if kind is None:
        # What follows the scheme can hold a secret, such as the keys of s3a:// or the signature of abfss://.
        expected = f"expected a directory or one of {', '.join(f'{known}://' for known in STORES)}"
        raise InvalidSettings(
            f"DRAGOMAN_REPOSITORY begins with {f'{scheme[:32]}://'!r}; {expected}", f"DRAGOMAN_REPOSITORY: {expected}"
        )
    if settings.is_loose and scheme == "file":
        kind = plugins.resolve(LOOSE)
    elif settings.is_loose and scheme in REMOTE:
        kind = partial(plugins.resolve(LOOSE_BUCKET), kind=kind)
    opened: Store = kind(settings)
    if settings.verify == "off":
        return opened
    verified: Store = plugins.resolve(VERIFIED)(opened, settings)
    return verified
