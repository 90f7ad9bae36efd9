"""handler.stores.transfer.download, regions and retries: how the work is shared, and what is checked at its end.

The tests use a stand-in (tests/support/s3_stand_in.py), whose checksums Swift does not have.
"""

from __future__ import annotations

import base64
import queue
import threading
import zlib
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from core.deadline import Deadline, within
from core.errors import ModelNotLoadable, ModelUnavailable, StillLoading
from handler.settings import Settings
from handler.stores import File
from handler.stores import journal as parts
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store
from handler.stores.transfer import download as fetching
from handler.stores.transfer import ranges as regions
from handler.stores.transfer import streams
from handler.stores.transfer.ranges import Work, claim, most_streams
from handler.stores.transfer.retries import Tries
from tests.support import fault_proxy, s3_stand_in
from tests.support.fault_proxy import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = np.random.default_rng(5).bytes(600_000)
CRC = base64.b64encode(zlib.crc32(CONTENT).to_bytes(4)).decode()


@pytest.fixture
def proxy(stand_in: s3_stand_in.StandIn) -> Iterator[fault_proxy.Proxy]:
    """A proxy in front of the stand-in; it passes listings on."""
    with fault_proxy.running(stand_in.url) as between:
        between.only = ".bin"
        yield between


@pytest.fixture
def store(
    proxy: fault_proxy.Proxy,
    stand_in: s3_stand_in.StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: None,
) -> S3Store:
    """A store that asks the stand-in through the proxy."""
    for name, value in stand_in.variables(proxy.url).items():
        monkeypatch.setenv(name, value)
    environ = {"DRAGOMAN_REPOSITORY": "s3://bucket/p", "DRAGOMAN_CACHE": str(tmp_path / "cache")}
    return S3Store(Settings.from_env(environ)._replace(cpus=1.0))


def fetched(store: S3Store, progress: Progress | None = None) -> bytes:
    """Returns the one file of model m."""
    folder = store.fetch("m", "1", store.files("m"), progress or Progress())
    return (folder.path / "model.bin").read_bytes()


def test_a_large_object_is_asked_for_in_ranges_that_together_are_the_whole(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked for once, at the same time, and without other requests, if no stream has to help another."""
    monkeypatch.setattr(regions, "LEAST", len(CONTENT))
    stand_in.put("p/m/1/model.bin", CONTENT)
    progress = Progress()
    assert fetched(store, progress) == CONTENT
    assert (progress.done, progress.total) == (len(CONTENT), len(CONTENT))
    asked = sorted(tuple(map(int, str(each)[6:].split("-"))) for each in stand_in.ranges_asked)
    assert len(asked) == 8
    assert (asked[0][0], asked[-1][1]) == (0, len(CONTENT) - 1)
    assert all(end + 1 == start for (_, end), (start, _) in pairwise(asked))


@pytest.mark.parametrize("is_fast", [True, False])
def test_one_stream_that_is_fast_is_left_alone(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    """It takes its first range and then all the rest; a slow one gets help."""
    monkeypatch.setattr(fetching, "LOOK", 0.001)
    monkeypatch.setattr(fetching, "FAST", 0.0 if is_fast else float("inf"))
    stand_in.rate = 3_000_000
    stand_in.put("p/m/1/model.bin", CONTENT)
    assert fetched(store) == CONTENT
    asked = sorted(map(str, stand_in.ranges_asked))
    # On a busy machine the stream has proved fast before it asks for its first range.
    assert (asked in (["bytes=0-74999", "bytes=75000-599999"], ["bytes=0-599999"])) == is_fast


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_process_that_can_start_no_more_threads_fetches_with_those_it_has(
    store: S3Store, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The caller's own is enough. The last stream stays if the store asks for fewer requests."""
    started: list[threading.Thread] = []

    class Limited(threading.Thread):
        def start(self) -> None:
            started.append(self)
            if len(started) > most:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(streams, "threading", SimpleNamespace(Thread=Limited))
    monkeypatch.setattr(fetching, "LOOK", 0.001)
    monkeypatch.setattr(fetching, "FAST", float("inf"))
    stand_in.rate = 1_000_000
    stand_in.put("p/m/1/model.bin", CONTENT)
    proxy.faults = [Fault("slow")] * 5
    assert fetched(store) == CONTENT
    assert len(started) == most + 1
    assert not proxy.faults


def test_the_checksum_of_a_large_object_is_asked_for_where_the_listing_tells_of_one(
    store: S3Store, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy
) -> None:
    """S3 does not send it with ranges. A content that differs is fetched again, once."""
    stand_in.put("p/m/1/model.bin", CONTENT, etag="parts-2", x_amz_checksum_crc32=CRC)
    proxy.faults = [Fault("flip", 10)]
    assert fetched(store) == CONTENT
    assert stand_in.ranges_asked.count("HEAD") == 1
    assert stand_in.ranges_asked.count(None) == 1


@pytest.mark.parametrize("size", [600_000, 5_000])
def test_another_content_than_the_checksum_says_is_refused(
    store: S3Store, stand_in: s3_stand_in.StandIn, tmp_path: Path, size: int
) -> None:
    """A second fetch precedes the refusal; the object may be large or small."""
    stand_in.put("p/m/1/model.bin", CONTENT[:size], etag="parts-2", x_amz_checksum_crc32="AAAAAA==")
    with pytest.raises(ModelUnavailable, match="of model 'm' arrived twice, and differs from the store's crc32"):
        fetched(store)
    assert not list((tmp_path / "cache").rglob("model.bin"))


def test_a_weak_etag_is_compared_and_never_a_condition(store: S3Store, stand_in: s3_stand_in.StandIn) -> None:
    """No If-Match matches it, so every range was refused with 412, and the version never stopped being replaced."""
    stand_in.put("p/m/1/model.bin", CONTENT, etag="W/1")
    listed = store.files("m")
    assert store.fetch("m", "1", listed, Progress()).path.joinpath("model.bin").read_bytes() == CONTENT
    stand_in.put("p/m/1/model.bin", CONTENT[::-1], etag="W/2")
    assert store.fetch("m", "1", store.files("m"), Progress()).path.joinpath("model.bin").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("size", [600_000, 5_000])
@pytest.mark.parametrize("conditions", [True, False])
def test_what_was_listed_is_what_its_name_in_the_cache_stands_for(
    store: S3Store, stand_in: s3_stand_in.StandIn, size: int, *, conditions: bool
) -> None:
    """The object was replaced after its listing, and changed back; some stores ignore If-Match."""
    old, new = CONTENT[:size], CONTENT[::-1][:size]
    stand_in.conditions = conditions
    stand_in.put("p/m/1/model.bin", old, etag="old-2")
    listed = store.files("m")
    stand_in.put("p/m/1/model.bin", new, etag="new-2")
    folder = store.fetch("m", "1", listed, Progress())
    assert (folder.path / "model.bin").read_bytes() == new
    stand_in.put("p/m/1/model.bin", old, etag="old-2")
    folder = store.fetch("m", "1", listed, Progress())
    assert (folder.path / "model.bin").read_bytes() == old


def test_an_etag_of_kms_is_no_md5(store: S3Store, stand_in: s3_stand_in.StandIn) -> None:
    """It only looks like one."""
    kms = {"x_amz_server_side_encryption": "aws:kms"}
    stand_in.put("p/m/1/model.bin", b"content", etag="0" * 32, **kms)
    assert fetched(store) == b"content"


def test_streams_that_are_told_to_slow_down_leave_the_work_to_the_others(
    store: S3Store, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy
) -> None:
    """The last one stays."""
    stand_in.put("p/m/1/model.bin", CONTENT)
    proxy.faults = [Fault("slow")] * 10
    assert fetched(store) == CONTENT
    assert not proxy.faults


def test_a_failure_ends_streams_to_which_the_store_says_nothing(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for the head of an answer: the store, without the proxy, sees them leave."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", stand_in.url)
    store = S3Store(store._client._settings)
    waiting, seen = threading.Event(), queue.SimpleQueue[bytes | None]()

    def asked(handler: s3_stand_in.Handler, _: str) -> None:
        if handler.headers["Range"].startswith("bytes=0-"):
            waiting.wait(10)
            handler._error(403, "AccessDenied", {})
            return
        waiting.set()
        handler.connection.settimeout(10)
        with suppress(TimeoutError):
            seen.put(handler.connection.recv(1))
            return
        seen.put(None)

    monkeypatch.setattr(s3_stand_in.Handler, "_object", asked)
    stand_in.put("p/m/1/model.bin", CONTENT)
    with pytest.raises(ModelUnavailable, match="missing or forbidden"):
        fetched(store)
    assert seen.get(timeout=20) == b""


def test_a_version_that_is_listed_again_ends_at_the_deadline(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not answer; the listing is a part of the fetch."""
    stand_in.put("p/m/1/model.bin", CONTENT)
    files = store.files("m")
    stand_in.put("p/m/1/model.bin", CONTENT[::-1])
    end = threading.Event()
    monkeypatch.setattr(s3_stand_in.Handler, "_listing", lambda *_: str(end.wait()))
    with pytest.raises(StillLoading, match="try again"):
        store.fetch("m", "1", files, Progress(within(0.5)))
    end.set()


def test_what_came_of_a_version_that_was_replaced_is_not_in_the_next_one(
    store: S3Store, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy
) -> None:
    """The cases are a file that is gone, and a file that has become a folder."""
    for path in ("a", "w", "model.bin"):
        stand_in.put(f"p/m/1/{path}", b"old")
    proxy.always = Fault("error")
    with pytest.raises(ModelUnavailable, match="500 InternalError"):
        fetched(store)
    proxy.always = None
    del stand_in.things["p/m/1/a"], stand_in.things["p/m/1/w"]
    for path in ("w/0", "model.bin"):
        stand_in.put(f"p/m/1/{path}", b"new")
    folder = store.fetch("m", "1", store.files("m"), Progress()).path
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {"w/0": b"new", "model.bin": b"new"}


def test_many_files_are_fetched_side_by_side(store: S3Store, stand_in: s3_stand_in.StandIn) -> None:
    """Empty ones do not need a request."""
    contents = {f"{number}/file": CONTENT[: number * 20_000] for number in range(10)}
    for name, content in contents.items():
        stand_in.put(f"p/m/1/{name}", content)
    folder = store.fetch("m", "1", store.files("m"), Progress()).path
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("file")} == contents


def test_a_disk_that_fills_up_is_said_so(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has the setting's name and the system's reason; the next call continues."""
    stand_in.put("p/m/1/model.bin", CONTENT)
    with monkeypatch.context() as patch:
        patch.setattr(parts.os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE cannot be written: No space left on device"):
            fetched(store)
    assert fetched(store) == CONTENT


def test_a_deadline_that_has_passed_fetches_nothing(store: S3Store, stand_in: s3_stand_in.StandIn) -> None:
    """A complete model is returned even then."""
    stand_in.put("p/m/1/model.bin", CONTENT)
    with pytest.raises(ModelUnavailable, match="model 'm' is 0 of 1 MB loaded"):
        fetched(store, Progress(Deadline(0.0)))
    assert fetched(store) == CONTENT
    assert fetched(store, Progress(Deadline(0.0))) == CONTENT
    with pytest.raises(ModelUnavailable, match="model 'm' is being looked up"):
        store.fetch("m", "1", [File("1/other")], Progress(Deadline(0.0)))


def test_the_slowest_region_is_shared_when_others_are_done() -> None:
    """Its second half goes to any free stream; less than two requests' worth is not shared."""
    work = Work(100 * regions.LEAST)
    work.resume([(0, work.size)], 2)
    first, second = claim([work]), claim([work])
    assert first is not None
    assert second is not None
    second.region.start = second.region.end
    assert work.release(second.region)
    assert not work.release(second.region)
    third = claim([work])
    assert third is not None
    assert third.region.end == 50 * regions.LEAST
    assert third.region.start == first.region.end == 25 * regions.LEAST
    first.region.start = first.region.end - 1
    third.region.start = third.region.end - regions.LEAST
    assert claim([work]) is None


def test_what_is_missing_is_cut_into_equal_shares() -> None:
    """No share crosses a gap."""
    assert [(region.start, region.end) for region in regions.cut([(0, 5), (7, 8)], 3)] == [(0, 3), (3, 5), (7, 8)]


def test_pauses_double_with_jitter_and_end() -> None:
    """Progress restarts the sequence."""
    tries = Tries(4)
    for most in (0.1, 0.2, 0.4):
        pause = tries.pause()
        assert pause is not None
        assert 0 <= pause <= most
    assert tries.pause() is None
    assert tries.pause(moved=True) is not None


@pytest.mark.parametrize(("cpus", "streams"), [(0.3, 8), (1, 8), (2, 16), (64, 32)])
def test_streams_grow_with_the_platforms_cpus(cpus: float, streams: int) -> None:
    """Each has eight, up to the number that a store accepts."""
    assert most_streams(cpus) == streams
