"""A store whose versions are verified before they are loaded or run.

The signature file is read and verified first. Then a version's files are fetched: those that the manifest lists, each
with its digest, and no others. A store that hashes what it fetches compares the digests itself. The files of any other
store, a directory among them, are copied into the cache and hashed by the same reads: what was verified is what is
loaded, whatever becomes of the originals.
"""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from core.errors import ModelNotLoadable
from handler.settings import Settings
from handler.stores import File, Folder, Proof, Store, WrongContent, paths
from handler.stores.cache import Cache, Place, digest
from handler.stores.checksums import Checksum
from handler.stores.contents import KnownContents, of_bytes
from handler.stores.journal import NEW
from handler.stores.private import make_below, unwritable
from handler.stores.progress import Progress
from handler.stores.signing import hashing
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import FILE, LARGEST
from handler.stores.signing.policy import VerifyPolicy
from handler.stores.signing.statement import Manifest

log = logging.getLogger(__name__)
PRIVATE: Final = 0o700


class VerifiedStore:
    """See `handler.stores.Store`. `store`: the one that has the files."""

    verifies = True

    def __init__(self, store: Store, settings: Settings, policy: VerifyPolicy | None = None) -> None:
        self.uri = store.uri
        self._store = store
        self._policy = VerifyPolicy.of(settings) if policy is None else policy
        self._cache = Cache.of(settings)
        self._contents = KnownContents(again=settings.cache_shared)
        self.check_cache = self._cache.check

    def check(self, progress: Progress | None = None) -> None:
        self._store.check(progress)

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        return self._store.models(progress)

    def files(self, model: str, progress: Progress | None = None) -> Sequence[File]:
        return self._store.files(model, progress)

    def read(self, model: str, path: str, progress: Progress | None = None) -> bytes | None:
        return self._store.read(model, path, progress)

    def __getattr__(self, name: str) -> Any:
        """Returns a member that not every store has: how it lists, whether it accepts the keys, its end."""
        return getattr(self._store, name)

    def fetch(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        try:
            return self._fetched(model, version, files, progress)
        except WrongContent as wrong:
            raise _refusal(model, version, hashing.another(wrong.path)) from None
        except Unverified as refusal:
            raise _refusal(model, version, refusal) from None

    def _fetched(self, model: str, version: str, files: Sequence[File], progress: Progress) -> Folder:
        text = self._signature(model, version, files, progress)
        if text is None and not files:
            raise Unverified(
                "it has no files, because its pipeline is in its model's own settings, which no signature covers: put "
                f"the pipeline into {model}/{version}/pipeline.json, and sign that with `dragoman sign`, or push it "
                "with --sign-key"
            )
        manifest, proof = self._policy.judge(text)
        assert text is not None  # noqa: S101 - the policy has refused None
        own = Checksum("sha256", of_bytes(text))
        if getattr(self._store, "hashes", False):
            wanted = _wanted(version, files, {**manifest.files, FILE: own}, manifest)
            folder = self._store.fetch(model, version, wanted, progress)
        else:
            there = self._store.fetch(model, version, files, progress)
            folder = self._copied(_Copy(there, manifest, text, own), model, version, progress)
        return Folder(folder.path, proof, folder)

    def _signature(self, model: str, version: str, files: Sequence[File], progress: Progress) -> bytes | None:
        path = f"{version}/{FILE}"
        listed = next((file for file in files if file.path == path), None)
        if listed is None and _is_listed(files):
            return None
        if listed is not None and (listed.size or 0) > LARGEST:
            raise Unverified(f"{FILE} has more than {LARGEST} bytes")
        return self._store.read(model, path, progress)

    def _copied(self, copy: "_Copy", model: str, version: str, progress: Progress) -> Folder:
        try:
            place = self._cache.place(self.uri, model, version)
            with ExitStack() as stack:
                pace = self._pacer(model, progress)
                if (held := self._held(copy, place)) is not None:
                    return copy.verified(held, pace)
                stack.enter_context(place.locked(progress, model))
                if (held := self._held(copy, place)) is not None:  # another process copied it meanwhile
                    return copy.verified(held, pace)
                self._cache.make_room(model, copy.size(), 0)
                copy.into(place.parts, pace)
                return self._contents.add(place.publish(copy.content), copy.expected)
        except OSError as error:
            raise unwritable(error) from error

    def _held(self, copy: "_Copy", place: Place) -> Folder | None:
        """Returns an existing copy. Drops one whose content was changed."""
        folder = place.held(copy.content)
        if folder is None or self._contents.has(folder, copy.expected):
            return folder
        log.warning("the content of DRAGOMAN_CACHE was changed: it is copied again")
        del folder
        place.drop(copy.content)
        return None

    def _pacer(self, model: str, progress: Progress) -> Callable[[], None]:
        def check() -> None:
            if progress.left <= 0:
                raise progress.out_of_time(model)

        return check


def _refusal(model: str, version: str, reason: Unverified) -> ModelNotLoadable:
    return ModelNotLoadable(f"model {model!r} version {version} is not verified: {reason}")


class _Copy:
    """A version's files on their way into the cache. `source`: where they are. `text`: the signature file."""

    def __init__(self, source: Folder, manifest: Manifest, text: bytes, own: Checksum) -> None:
        self._source = source
        self._manifest = manifest
        self._text = text
        self.expected = {**manifest.files, FILE: own}
        self.content = digest(manifest.digest, own.value)

    def size(self) -> int:
        """Returns the bytes of all files. Raises Unverified if they are not the listed ones."""
        paths = list(hashing.walk(self._source.path, links=self._manifest.links))
        hashing.check_names(self._manifest, paths)
        return len(self._text) + sum((self._source.path / path).stat().st_size for path in self._manifest.files)

    def verified(self, held: Folder, check: Callable[[], None]) -> Folder:
        """Returns a copy that was made before, if the repository still has its files. Raises Unverified."""
        hashing.read(self._source.path, self._manifest, lambda *_: check())
        return held

    def into(self, parts: Path, check: Callable[[], None]) -> None:
        """Copies the files. Raises Unverified, and leaves nothing, if one has another content."""
        shutil.rmtree(parts, ignore_errors=True)
        new = parts / NEW
        for folder in (parts, new):
            folder.mkdir(PRIVATE)
        try:
            self._fill(new, check)
        except BaseException:
            shutil.rmtree(parts, ignore_errors=True)
            raise

    def _fill(self, new: Path, check: Callable[[], None]) -> None:
        def take(path: str, piece: bytes) -> None:
            check()
            _append(new, path, piece)

        hashing.read(self._source.path, self._manifest, take)
        _append(new, FILE, self._text)


def _append(folder: Path, path: str, piece: bytes) -> None:
    make_below(folder, path)
    descriptor = os.open(folder / path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "ab") as file:  # noqa: PTH123 - a descriptor
        file.write(piece)


def _is_listed(files: Sequence[File]) -> bool:
    """Decides whether the files come from a listing. Without the permission to list, their sizes are not known."""
    return any(file.size is not None for file in files)


def _wanted(version: str, files: Sequence[File], expected: dict[str, Checksum], manifest: Manifest) -> Sequence[File]:
    """Returns the files to fetch, with their digests. Raises Unverified for missing files, and those not listed."""
    there = {file.path.partition("/")[2]: file for file in files}
    if _is_listed(files):
        hashing.check_names(manifest, there)
    unknown = File("")
    return [
        there.get(path, unknown)._replace(path=f"{version}/{path}", digest=checksum)
        for path, checksum in expected.items()
    ]


def prove(folder: Path, policy: VerifyPolicy) -> Proof:
    """Verifies a version's folder in place. Raises Unverified, OSError."""
    path = folder / FILE
    text = None
    if paths.is_file(path):
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    manifest, proof = policy.judge(text)
    hashing.read(folder, manifest, lambda *_: None)
    return proof
