"""handler.commands.publish.buckets.cloud: publishing by obstore into its store in memory, whose conditions are real."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from handler.commands.meter import Meter
from handler.commands.publish.buckets import cloud
from handler.commands.publish.buckets.cloud import CloudBucket
from handler.commands.publish.buckets.port import Only, Taken
from handler.commands.publish.files import CommandStopped, Section
from handler.commands.refused import Refused
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from handler.stores.cloud.client import CloudClient
from tests.handler.commands.publish.conftest import adds, answer, large

Run = Callable[..., tuple[int, str, str]]
URI = "gs://bucket/models"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    """The bucket that every client opens."""
    store = MemoryStore()
    monkeypatch.setattr(CloudClient, "_store", lambda _: store)
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
    return store


def settings(tmp_path: Path) -> Settings:
    return Settings.from_env({"DRAGOMAN_REPOSITORY": URI, "DRAGOMAN_CACHE": str(tmp_path / "cache")})


def keys(memory: MemoryStore) -> list[str]:
    return sorted(each["path"].removeprefix("models/") for page in obstore.list(memory) for each in page)


def test_versions_are_pushed_listed_served_replaced_and_pulled(run: Run, memory: MemoryStore, tmp_path: Path) -> None:
    """Each object is one request, and only the version is left."""
    assert run("push", adds(1, tmp_path / "m").parent, f"{URI}/m")[:2] == (0, f"{URI}/m/1: 1 file, 96 B; served\n")
    assert run("push", large(2, tmp_path / "n", 30), f"{URI}/m", "--quiet")[0] == 0
    assert run("push", tmp_path / "m", f"{URI}/m", "--version", 1)[0] == 1
    models = Registry(settings(tmp_path))
    assert (answer(models, "m", 2), keys(memory)) == (2, ["m/1/model.onnx", "m/2/model.onnx", "m/2/weights.bin"])
    for folder, version in ((adds(3, tmp_path / "m").parent, 1), (large(4, tmp_path / "n", 1), 2)):
        assert run("push", folder, f"{URI}/m", "--version", version, "--force", "--quiet")[0] == 0
    assert (answer(Registry(settings(tmp_path)), "m"), len(keys(memory))) == (4, 3)
    rows = json.loads(run("list", URI, "--json")[1])
    assert [(row["version"], row["state"]) for row in rows] == [("1", "not served"), ("2", "served")]
    assert run("pull", f"{URI}/m", tmp_path / "out", "--quiet")[0] == 0
    assert (tmp_path / "out" / "2" / "weights.bin").read_bytes() == (tmp_path / "n" / "weights.bin").read_bytes()
    assert run("verify", "--digest", f"{URI}/m")[2].startswith("dragoman: model 'm' version 1 is not verified")


@pytest.fixture
def bucket(memory: MemoryStore, tmp_path: Path) -> CloudBucket:
    return CloudBucket(settings(tmp_path), URI)


class Bytes(bytes):
    """A body, as a claim's."""

    def read(self) -> bytes:
        return bytes(self)


def put(bucket: CloudBucket, content: bytes, only: Only) -> None:
    bucket.put("m/x", Bytes(content), "", "0" * 64, only)


def test_a_write_with_a_condition_that_does_not_hold_is_refused(bucket: CloudBucket) -> None:
    """That is how one of two publishers wins."""
    with pytest.raises(Taken):
        put(bucket, b"a", Only(etag='"0"'))
    put(bucket, b"a", Only(new=True))
    with pytest.raises(Taken):
        put(bucket, b"b", Only(new=True))
    first, found = bucket.head("m/x"), bucket.find("m/x")
    assert first is not None
    assert found is not None
    assert (first.size, first.sha256, first.etag, found.path) == (1, "0" * 64, found.etag, "")
    put(bucket, b"bc", Only(etag=first.etag))
    for write in (lambda: put(bucket, b"d", Only(etag=first.etag)), lambda: bucket.delete("m/x", first.etag)):
        with pytest.raises(Taken):
            write()
    second = bucket.head("m/x")
    assert second is not None
    assert second.size == 2
    bucket.delete("m/x", second.etag)
    assert bucket.head("m/x") is bucket.find("m/x") is None
    with pytest.raises(Taken):
        bucket.delete("m/x", second.etag)


def test_an_overtaken_write_is_refused_by_the_store(bucket: CloudBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object has changed since the look before: the request carries the condition."""
    put(bucket, b"a", Only())
    seen = bucket.head("m/x")
    assert seen is not None
    stale = bucket._found("m/x")
    put(bucket, b"b", Only())
    monkeypatch.setattr(bucket, "_found", lambda _: stale)
    with pytest.raises(Taken):
        put(bucket, b"c", Only(etag=seen.etag))
    assert bytes(obstore.get(bucket._client.bucket.store, "models/m/x").bytes()) == b"b"


def test_an_object_that_is_too_large_is_refused_before_it_is_sent(bucket: CloudBucket) -> None:
    """The message has both sizes."""
    bucket.part_size = 3
    with pytest.raises(Refused, match="m/x has 4 bytes; storage.googleapis.com takes 3 in one request"):
        put(bucket, b"1234", Only())


def test_a_command_that_is_stopped_ends_its_requests(
    bucket: CloudBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not wait for a store that never answers."""
    asked: list[Any] = []
    stop = threading.Event()

    async def never(*arguments: Any, **_: Any) -> None:
        asked.append(arguments)
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(obstore, "put_async", never)
    monkeypatch.setattr(cloud, "LOOK", 0.01)
    (tmp_path / "file").write_bytes(b"content")
    body = Section(tmp_path / "file", 0, 7, Meter(quiet=True), stop)
    with pytest.raises(CommandStopped):
        bucket.put("m/x", body, "", "0" * 64, Only())
    assert bytes(asked[0][2]) == b"content"
    body.close()
