"""handler.stores.signing.store and contents: what a verified fetch reads, keeps and drops."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from core.deadline import within
from core.errors import ModelNotLoadable, StillLoading
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores import Gone, checksums, open_store
from handler.stores.cache import Cache
from handler.stores.progress import Progress
from handler.stores.signing import hashing
from tests.support.signing import key, public, sign

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support import s3_stand_in

FILES = {"model.onnx": os.urandom(3_000_000), "sub/empty": b""}
VERIFY = {"DRAGOMAN_VERIFY": "signature", "DRAGOMAN_VERIFY_KEY": public(key())}

pytestmark = pytest.mark.usefixtures("no_aws")


@pytest.fixture
def bucket(stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3_stand_in.StandIn]:
    """A signed version in a bucket."""
    stand_in.settings(monkeypatch)
    for path, content in (FILES | {"model.sig": sign(FILES)}).items():
        stand_in.put(f"p/m/1/{path}", content)
    return stand_in


def test_a_verified_bucket_is_listed_like_any_other(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """All models take one request, and keys that are denied everything are not ready."""
    for name in "abc":
        bucket.put(f"p/{name}/1/model.onnx", b"")
    opened = settings(tmp_path)
    assert {entry.name for entry in Registry(opened).index(Background())} == {"a", "b", "c", "m"}
    assert bucket.asked == [""]
    bucket.refusal = (403, "AccessDenied", {})
    assert "check AWS_ACCESS_KEY_ID" in Registry(opened).ready(Background()).reason


def test_a_verified_folder_is_not_ready_if_its_files_cannot_be_copied(tmp_path: Path) -> None:
    """Without verification its files are used in place, whatever the folder for downloads is."""
    root, made = folder(tmp_path / "repository"), tmp_path / "cache"
    made.mkdir()
    made.chmod(0o777)
    unready = Registry(settings(tmp_path, root)).ready(Background())
    assert (unready.ready, unready.reason[:30]) == (False, "DRAGOMAN_CACHE can be written ")
    assert Registry(settings(tmp_path, root, DRAGOMAN_VERIFY="off")).ready(Background()).ready


def test_a_verified_folder_is_asked_for_each_name(tmp_path: Path) -> None:
    """A model that comes a moment after a look is found, as without verification."""
    root = folder(tmp_path / "repository")
    models = Registry(settings(tmp_path, root))
    assert models.names(Background()) == ["m"]
    (root / "n/1").mkdir(parents=True)
    assert models.names(Background()) == ["m", "n"]


def folder(root: Path) -> Path:
    """Writes a signed version, and returns its repository."""
    for path, content in (FILES | {"model.sig": sign(FILES)}).items():
        target = root / "m/1" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def settings(tmp_path: Path, repository: Any = "s3://bucket/p", **more: str) -> Settings:
    cache = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_CACHE": str(tmp_path / "cache")}
    return Settings.from_env(cache | VERIFY | more)


def store(tmp_path: Path, repository: Any = "s3://bucket/p", **more: str) -> Any:
    return open_store(settings(tmp_path, repository, **more))


def fetch(opened: Any, progress: Progress | None = None) -> Any:
    return opened.fetch("m", "1", [f for f in opened.files("m") if f.path.startswith("1/")], progress or Progress())


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the algorithm of each checksum of a content of more than a megabyte."""
    found: list[str] = []
    of_content = checksums.of_content

    def note(wanted: Any, pieces: Any) -> Any:
        content = list(pieces)
        if sum(map(len, content)) > 1_000_000:
            found.append(wanted.algorithm)
        return of_content(wanted, content)

    monkeypatch.setattr(checksums, "of_content", note)
    return found


def test_a_fetch_from_a_bucket_reads_a_large_file_once(
    bucket: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest takes the place of the store's checksum, and the same process does not read the file again."""
    read, opened = counted(monkeypatch), store(tmp_path)
    for _ in range(2):
        assert fetch(opened).proof.signer.startswith("key:")
    assert read == ["sha256"]
    fetch(store(tmp_path))
    assert read == ["sha256"] * 2
    assert [key for key in bucket.gets() if key.endswith("onnx")] == ["p/m/1/model.onnx"]


def test_a_shared_cache_is_read_each_time(
    bucket: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users may have changed it since."""
    read, opened = counted(monkeypatch), store(tmp_path, DRAGOMAN_CACHE_SHARED="true")
    for _ in range(3):
        fetch(opened)
    assert read == ["sha256"] * 3


def test_what_an_unverified_fetch_has_left_is_read_again(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """A complete file of an unfinished fetch is fetched anew if its content differs."""
    listed = [file for file in store(tmp_path).files("m") if file.path == "1/model.onnx"]
    opened = store(tmp_path)
    place = opened._store._fetcher._cache.place(bucket.url, "bucket", "p/", "m", "1")
    from handler.stores.journal import Identity, Parts  # noqa: PLC0415 - the format of the cache

    parts = Parts(place.parts)
    part = parts.part("model.onnx", len(FILES["model.onnx"]), listed[0].etag or "")
    part.begin(Identity(listed[0].size or 0, listed[0].etag or "", None))
    part.write(memoryview(bytes(len(FILES["model.onnx"]))), 0)
    part.finish()
    parts.close()
    assert (fetch(opened).path / "model.onnx").read_bytes() == FILES["model.onnx"]


def test_a_tampered_object_is_fetched_once(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """The store sends the content that it has, so another try would return the same."""
    bucket.put("p/m/1/model.onnx", bytes(3_000_000))
    with pytest.raises(ModelNotLoadable, match="'model.onnx' differs from model.sig"):
        fetch(store(tmp_path))
    assert [key for key in bucket.gets() if key.endswith("onnx")] == ["p/m/1/model.onnx"]


def test_an_object_that_no_checksum_comes_with_is_tried_again(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """It may have been damaged in transit."""
    bucket.put("p/m/1/model.onnx", bytes(3_000_000), etag="no-md5")
    with pytest.raises(ModelNotLoadable, match="'model.onnx' differs from model.sig"):
        fetch(store(tmp_path))
    assert [key for key in bucket.gets() if key.endswith("onnx")] == ["p/m/1/model.onnx"] * 2


def test_a_version_replaced_meanwhile_is_looked_for_again(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """The digests are those of the old one."""
    opened = store(tmp_path)
    listed = opened.files("m")
    bucket.put("p/m/1/model.onnx", b"new")
    with pytest.raises(Gone, match="has been replaced"):
        opened.fetch("m", "1", listed, Progress())


def test_a_huge_signature_file_is_not_fetched(bucket: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """Its size in the listing is enough."""
    bucket.put("p/m/1/model.sig", bytes(9_000_000))
    with pytest.raises(ModelNotLoadable, match="model.sig has more than 8388608 bytes"):
        fetch(store(tmp_path))
    assert bucket.gets() == []


def test_a_folder_is_copied_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later changes do not reach the loaded copy."""
    repository, read = folder(tmp_path / "models"), counted(monkeypatch)
    held = fetch(store(tmp_path, repository))
    assert read == ["sha256"]
    (repository / "m/1/model.onnx").write_bytes(b"changed")
    assert {path: (held.path / path).read_bytes() for path in FILES} == FILES


def test_a_copy_is_made_once(tmp_path: Path) -> None:
    """Every load reads the original, and processes share the copy."""
    repository = folder(tmp_path / "models")
    paths = {fetch(store(tmp_path, repository)).path for _ in range(3)}
    assert len(paths) == 1
    (repository / "m/1/model.onnx").write_bytes(b"changed")
    with pytest.raises(ModelNotLoadable, match="'model.onnx' differs from model.sig"):
        fetch(store(tmp_path, repository))


def test_a_refused_version_leaves_nothing(tmp_path: Path) -> None:
    """Even the right files are removed."""
    repository = folder(tmp_path / "models")
    (repository / "m/1/sub/empty").write_bytes(b"x")
    with pytest.raises(ModelNotLoadable, match="'sub/empty' differs from model.sig"):
        fetch(store(tmp_path, repository))
    assert list((tmp_path / "cache").rglob("model.onnx")) == []


@pytest.mark.parametrize("path", FILES)
def test_a_copy_that_lost_a_file_is_made_again(tmp_path: Path, path: str) -> None:
    """Machines remove old files from /tmp one by one, in the life of a server, too."""
    opened = store(tmp_path, folder(tmp_path / "repository"))
    (fetch(opened).path / path).unlink()
    assert (fetch(opened).path / path).read_bytes() == FILES[path]


def test_a_copy_stops_at_its_deadline(tmp_path: Path) -> None:
    """The next request begins again."""
    with pytest.raises(StillLoading):
        fetch(store(tmp_path, folder(tmp_path / "models")), Progress(within(0.0)))


@pytest.mark.parametrize("path", ["sub/__pycache__", "sub/__pycache__/__pycache__"])
def test_what_python_compiles_in_a_copy_does_not_matter(tmp_path: Path, path: str) -> None:
    """The next process removes it, since nobody has signed it."""
    repository = folder(tmp_path / "models")
    held = fetch(store(tmp_path, repository))
    (held.path / path).mkdir(0o700, parents=True)
    assert fetch(store(tmp_path, repository)).path == held.path
    assert not (held.path / "sub/__pycache__").exists()
    assert not list((tmp_path / "cache").rglob("trash-*"))


def test_a_link_in_the_place_of_compiled_code_is_a_changed_content(tmp_path: Path) -> None:
    """Python would import what it leads to. Nothing there is removed."""
    shared, repository = {"DRAGOMAN_CACHE_SHARED": "true"}, folder(tmp_path / "models")
    held = fetch(store(tmp_path, repository, **shared)).path
    (tmp_path / "code").mkdir()
    (held / "sub/__pycache__").symlink_to(tmp_path / "code")
    again = fetch(store(tmp_path, repository, **shared)).path
    assert sorted(path.relative_to(again).as_posix() for path in again.rglob("*") if path.is_file()) == [
        "model.onnx",
        "model.sig",
        "sub/empty",
    ]
    assert (tmp_path / "code").is_dir()


def test_processes_that_use_one_copy_do_not_disturb_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers that start together compare a copy, and import its modules, at the same time."""
    repository, over = folder(tmp_path / "models"), threading.Event()
    held = fetch(store(tmp_path, repository))

    def compiles() -> None:
        while not over.is_set():
            with suppress(FileNotFoundError):
                (held.path / "sub/__pycache__").mkdir(exist_ok=True)
                (held.path / "sub/__pycache__/x.pyc").write_bytes(b"x")

    def compares(_: int) -> Path:
        return fetch(store(tmp_path, repository, DRAGOMAN_CACHE_SHARED="true")).path

    with ThreadPoolExecutor(3) as pool:
        pool.submit(compiles)
        try:
            assert set(pool.map(compares, range(100))) == {held.path}
        finally:
            over.set()
    assert "it is copied again" not in caplog.text


def test_a_loop_of_folders_ends(tmp_path: Path) -> None:
    """A manifest may permit links."""
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(hashing.Unverified, match="more than 16 folders"):
        list(hashing.walk(tmp_path, links=True))


def test_without_room_nothing_is_copied(tmp_path: Path) -> None:
    """The rule is the same as for fetched files."""
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE_BYTES is 1000"):
        fetch(store(tmp_path, folder(tmp_path / "models"), DRAGOMAN_CACHE_BYTES="1000"))
    assert isinstance(store(tmp_path, tmp_path)._cache, Cache)
