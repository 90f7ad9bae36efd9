"""handler.stores.cache and handler.stores.journal: what is kept, what is dropped, what a crash may leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from core.deadline import within
from core.errors import ModelNotLoadable, StillLoading
from handler.stores import cache as caches
from handler.stores import journal as journals
from handler.stores.cache import Cache, Place
from handler.stores.checksums import Checksum
from handler.stores.journal import Identity, Parts
from handler.stores.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from handler.stores import Folder


class Usage(NamedTuple):
    """The usage of a disk."""

    total: int
    used: int
    free: int


def kept(cache: Cache, name: str, size: int, used: float) -> Folder:
    """Makes a complete version of so many bytes that was last used at a time."""
    place = cache.place(name)
    with place.locked(Progress(), name):
        parts = Parts(place.parts)
        part = parts.part("file", size, "etag")
        part.begin(Identity(size, "etag", None))
        part.write(memoryview(os.urandom(size)), 0)
        part.finish()
        parts.close()
        folder = place.publish("content")
    os.utime(folder.path.with_name("content.lock"), (used, used))
    return folder


def there(cache: Cache, *names: str) -> list[str]:
    """Returns the names whose version is complete."""
    return [name for name in names if cache.place(name).held("content") is not None]


def test_the_least_recently_used_version_goes_first(tmp_path: Path) -> None:
    """Versions are dropped until the rest and the new one are within the cap."""
    cache = Cache(tmp_path / "cache", 100_000)
    for number, name in enumerate("abc"):
        kept(cache, name, 30_000, time.time() - 100 + number)
    cache.make_room("d", 40_000, 0)
    assert there(cache, "a", "b", "c") == ["c"]


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    """It stays as long as its Folder lives, in any process, because the lock is a file's."""
    cache = Cache(tmp_path / "cache", 50_000)
    folder = kept(cache, "a", 30_000, 0)
    kept(cache, "b", 10_000, 1)
    cache.make_room("c", 45_000, 0)
    assert folder.path.is_dir()
    assert there(cache, "b") == []
    del folder
    cache.make_room("c", 45_000, 0)
    assert there(cache, "a") == []


def test_older_contents_of_a_version_are_dropped_for_a_newer_one(tmp_path: Path) -> None:
    """Their place is locked meanwhile; fetched parts of the newer one stay."""
    cache = Cache(tmp_path / "cache", 50_000)
    folder = kept(cache, "a", 30_000, 0).path
    place = cache.place("a")
    with place.locked(Progress(), "a"):
        begun(place.parts)
        cache.make_room("a", 45_000, 0)
        assert not folder.exists()
        assert (place.parts / journals.JOURNAL).exists()


def test_a_use_makes_a_version_the_last_to_go(tmp_path: Path) -> None:
    """Holding a version is a use, fetching it is not."""
    cache = Cache(tmp_path / "cache", 70_000)
    kept(cache, "a", 30_000, 0)
    kept(cache, "b", 30_000, 1)
    assert there(cache, "a") == ["a"]
    cache.make_room("c", 20_000, 0)
    assert there(cache, "a", "b") == ["a"]


def test_a_model_above_the_cap_is_refused(tmp_path: Path) -> None:
    """The refusal has both numbers, and no version is dropped for it."""
    cache = Cache(tmp_path / "cache", 50_000)
    kept(cache, "a", 30_000, 0)
    with pytest.raises(ModelNotLoadable, match="'b' has 50001 bytes, DRAGOMAN_CACHE_BYTES is 50000"):
        cache.make_room("b", 50_001, 0)
    assert there(cache, "a") == ["a"]


def test_a_disk_too_small_is_made_room_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule does not need a cap; parts of other models' unfinished fetches count as well."""
    cache = Cache(tmp_path / "cache", None)
    kept(cache, "a", 30_000, 0)
    place = cache.place("b")
    with place.locked(Progress(), "b"):
        parts = Parts(place.parts)
        part = parts.part("file", 20_000, "etag")
        part.begin(Identity(20_000, "etag", None))
        part.write(memoryview(bytes(20_000)), 0)
        part.close()
        parts.close()
        monkeypatch.setattr(caches.shutil, "disk_usage", lambda _: Usage(0, 0, 1000))
        with pytest.raises(ModelNotLoadable, match="'c' has 60000 bytes, 1000 are free"):
            cache.make_room("c", 60_000, 0)
        assert there(cache, "a") == []
        assert place.parts.is_dir()  # another fetch uses it
    with pytest.raises(ModelNotLoadable):
        cache.make_room("c", 60_000, 0)
    assert not place.parts.exists()


def test_what_a_killed_process_was_deleting_is_deleted(tmp_path: Path) -> None:
    """It had been renamed before."""
    cache = Cache(tmp_path / "cache", 1_000)
    place = cache.place("a")
    trash = place.parts.with_name(f"{caches.TRASH}content")
    trash.mkdir()
    (trash / "file").write_bytes(b"half")
    cache.make_room("a", 10, 0)
    assert not trash.exists()


def test_who_waits_for_another_process_gives_up_at_the_deadline(tmp_path: Path) -> None:
    """The refusal says how far the other process is."""
    place = Cache(tmp_path / "cache", None).place("a")
    progress = Progress(within(0.05))
    progress.total = 7_000_000
    with (
        place.locked(Progress(), "a"),
        pytest.raises(StillLoading, match="model 'a' is 0 of 7 MB loaded"),
        place.locked(progress, "a"),
    ):
        raise AssertionError


FORKED = """
import os, sys
from pathlib import Path
from core.deadline import within
from handler.stores.cache import Cache
from handler.stores.progress import Progress

cache, (waits, stays) = Cache(Path(sys.argv[1]), None), os.pipe()
place = cache.place("b", "p", "a", "1")
with place.locked(Progress(), "a"):
    child = os.fork()
    if not child:
        os.close(stays)
        os.read(waits, 1)
        os._exit(0)
with place.locked(Progress(within(5)), "a"):
    print("locked again")
os.close(stays)
os.waitpid(child, 0)
"""


def test_a_process_that_was_forked_meanwhile_does_not_keep_a_lock(tmp_path: Path) -> None:
    """A model's pool of processes may begin during the fetch of another model, and lives as long as its model."""
    command = [sys.executable, "-c", FORKED, str(tmp_path / "cache")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout.splitlines() == ["locked again"], ended.stderr


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a name that is gone does not exclude any process."""
    flock, path = caches.fcntl.flock, tmp_path / "lock"
    removed = []

    def locked(file: int, kind: int) -> None:
        flock(file, kind)
        if not removed:
            removed.append(path.unlink())

    monkeypatch.setattr(caches.fcntl, "flock", locked)
    lock = caches._lock(path, caches.fcntl.LOCK_EX)
    assert lock is not None
    assert os.path.samestat(os.fstat(lock), path.stat())
    os.close(lock)


def test_a_cache_in_a_shared_folder_must_be_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user could have made it in /tmp, and models in it."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    root = shared / "dragoman"
    assert isinstance(Cache(root, None).place("a"), Place)
    assert root.stat().st_mode & 0o777 == 0o700
    if os.getuid() == 0:  # everybody may use what belongs to root
        os.chown(root, 54321, -1)
    monkeypatch.setattr(caches.os, "geteuid", lambda: 12345)
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE belongs to another user"):
        Cache(root, None).place("a")


def test_another_boot_is_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are not synced to the disk: after a crash of the machine, names may be there and contents missing."""
    cache = Cache(tmp_path / "cache", None)
    kept(cache, "a", 10, 0)
    monkeypatch.setattr(caches, "BOOT", tmp_path / "none")
    caches._boot.cache_clear()
    assert there(cache, "a") == []
    caches._boot.cache_clear()


ETAG = Identity(10, "etag", Checksum("crc32", "00000000"))


def begun(folder: Path) -> None:
    """A file of ten bytes, of which the first four are there."""
    parts = Parts(folder)
    part = parts.part("a/file", 10, "etag")
    part.begin(ETAG)
    part.write(memoryview(b"0123"), 0)
    part.save(0, 4)
    part.close()
    parts.close()


def test_parts_are_found_again(tmp_path: Path) -> None:
    """They are found by path, size and ETag, with the checksum."""
    begun(tmp_path)
    parts = Parts(tmp_path)
    part = parts.part("a/file", 10, "etag")
    assert part.identity == ETAG
    assert part.ranges == [(0, 4)]
    part.resume()
    assert part.read(10, 0) == b"0123" + bytes(6)
    part.close()
    for other in (("a/file", 11, "etag"), ("a/file", 10, "other"), ("file", 10, "etag")):
        assert parts.part(*other).identity is None
    parts.close()


def test_a_checksum_that_came_later_is_found_again(tmp_path: Path) -> None:
    """S3 does not send it with every answer."""
    parts = Parts(tmp_path)
    part = parts.part("file", 3, "etag")
    part.begin(Identity(3, "etag", None))
    part.learn(Checksum("md5", "ab"))
    part.save(0, 3)
    part.close()
    parts.close()
    again = Parts(tmp_path)
    found = again.part("file", 3, "etag")
    assert found.identity == Identity(3, "etag", Checksum("md5", "ab"))
    assert found.ranges == [(0, 3)]
    again.close()


@pytest.mark.parametrize("cut", range(1, 90, 3))
def test_a_journal_cut_anywhere_never_says_more_than_was_written(tmp_path: Path, cut: int) -> None:
    """It accepts further lines."""
    begun(tmp_path)
    journal = tmp_path / journals.JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    parts = Parts(tmp_path)
    part = parts.part("a/file", 10, "etag")
    assert part.ranges in ([], [(0, 4)])
    assert part.ranges == [] or cut == 1
    parts.record("range", "a/file", 2, 6)
    parts.close()
    again = Parts(tmp_path)
    assert again.part("a/file", 10, "etag").ranges in ([], [(2, 6)], [(0, 6)])
    again.close()


def test_parts_whose_file_is_gone_or_of_another_length_are_none(tmp_path: Path) -> None:
    """The rule holds whatever the journal says."""
    begun(tmp_path)
    [partial] = tmp_path.glob("*.partial")
    os.truncate(partial, 9)
    parts = Parts(tmp_path)
    assert parts.part("a/file", 10, "etag").ranges == []
    partial.unlink()
    assert parts.part("a/file", 10, "etag").ranges == []
    parts.close()


def complete(parts: Parts, path: str, etag: str = "etag") -> None:
    """Makes a complete file of three bytes."""
    part = parts.part(path, 3, etag)
    part.begin(Identity(3, etag, None))
    part.write(memoryview(b"new"), 0)
    part.finish()


def test_nothing_of_an_earlier_content_is_kept(tmp_path: Path) -> None:
    """The test covers complete and incomplete files; a folder may become a file, and a file a folder."""
    begun(tmp_path)
    parts = Parts(tmp_path)
    for path in ("same", "gone", "other", "file", "folder/in/it", "folder/same"):
        complete(parts, path)
    parts.close()
    parts = Parts(tmp_path)
    wanted = [
        ("same", "etag"),
        ("other", "newer"),
        ("file/in/it", "newer"),
        ("folder/in", "newer"),
        ("folder/same", "etag"),
    ]
    parts.keep([parts.part(path, 3, etag) for path, etag in wanted])
    new = tmp_path / journals.NEW
    assert {str(path.relative_to(new)) for path in new.rglob("*")} == {"same", "folder", "folder/same"}
    assert {path.name for path in tmp_path.iterdir()} == {journals.JOURNAL, journals.NEW}
    for path, etag in wanted:
        complete(parts, path, etag)
    parts.close()


def test_what_has_come_of_a_file_is_kept(tmp_path: Path) -> None:
    """The journal records it."""
    begun(tmp_path)
    parts = Parts(tmp_path)
    part = parts.part("a/file", 10, "etag")
    parts.keep([part])
    assert part.there is not None
    assert part.there.read_bytes() == b"0123" + bytes(6)
    parts.close()


def test_a_file_that_was_complete_stays_so(tmp_path: Path) -> None:
    """It is removed when another content is begun."""
    begun(tmp_path)
    parts = Parts(tmp_path)
    part = parts.part("a/file", 10, "etag")
    part.resume()
    part.finish()
    part = parts.part("a/file", 10, "etag")
    assert part.complete
    part.begin(Identity(3, "other", None))
    assert not (tmp_path / "new" / "a" / "file").exists()
    part.close()
    assert parts.allocated() >= 0
    parts.close()


def test_ranges_are_merged_and_their_gaps_are_what_is_missing() -> None:
    """They come in any order; nonsense and ranges outside of the file do not count."""
    assert journals.merged([(4, 6), (0, 2), (1, 4), (8, 99), (7, 7), (-1, 3)], 10) == [(0, 6)]
    assert journals.gaps([(0, 2), (4, 6)], 9) == [(2, 4), (6, 9)]
    assert journals.gaps([], 3) == [(0, 3)]
    assert journals.gaps([(0, 3)], 3) == []


def test_a_journal_on_a_full_disk_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated line would be useless, and nobody would notice."""
    parts = Parts(tmp_path)
    monkeypatch.setattr(journals.os, "write", lambda *_: 1)
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE is full"):
        parts.record("range", "file", 0, 1)
    parts.close()
