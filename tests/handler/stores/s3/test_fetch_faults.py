"""Fetches survive hundreds of seeded schedules of faults on a stand-in, and processes killed at any moment.

The stand-in is tests/support/s3_stand_in.py, because five hundred fetches must take seconds; test_store.py meets each
kind of fault on a real server.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.deadline import NEVER, within
from core.errors import ServingError
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store
from handler.stores.transfer import answers
from handler.stores.transfer import download as fetching
from tests.support import fault_proxy, s3_stand_in
from tests.support.fault_proxy import Fault

SCHEDULES = 500
GROUPS = 10
KINDS = ("truncate", "reset", "stall", "flip", "short", "refuse", "latency", "expired", "slow", "error", "swap")
SIZES = (0, 1, 5_000, 70_000, 300_000)


def store_at(stand_in: s3_stand_in.StandIn, url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """Returns a store with a separate cache."""
    return S3Store(stand_in.settings(monkeypatch, url, DRAGOMAN_CACHE=str(cache))._replace(cpus=1.0))


class Schedule:
    """One seeded run: a version of some files, the coming faults, perhaps a deadline."""

    def __init__(self, seed: int, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same each time
        self._lock, self._over = threading.Lock(), False
        self.server, self.proxy = stand_in, proxy
        self.model = f"m{seed}"
        self.contents = {f"{number}.bin": self._content() for number in range(self.random.choice((1, 1, 2, 4)))}
        self.all = {name: {content} for name, content in self.contents.items()}
        self.checked = self.random.random() < 0.5  # every other time, only lengths and ETags tell what is right
        for name, content in self.contents.items():
            self._put(name, content)
        self.faults = [self._fault() for _ in range(self.random.randint(1, 6))]
        self.deadline = self.random.choice((None, None, self.random.uniform(0, 0.05)))

    def _content(self) -> bytes:
        return self.random.randbytes(self.random.choice(SIZES))

    def _fault(self) -> Fault:
        kinds = [kind for kind in KINDS if self.checked or kind != "flip"]
        kind = self.random.choices(kinds, [0.2 if kind == "stall" else 1 for kind in kinds])[0]
        after = self.random.choice((0, 1, self.random.randrange(300_000)))
        return Fault(kind, after, self.random.uniform(0, 0.02), self._swap if kind == "swap" else None)

    def _swap(self) -> None:
        """Replaces the content of a file."""
        with self._lock:
            if not self._over:
                self._replace()

    def end(self) -> None:
        """Ends the faults: no request in flight replaces a file any more. A last change may have happened meanwhile."""
        with self._lock:
            self._over = True
            if self.random.random() < 0.5:
                self._replace()

    def _replace(self) -> None:
        """Replaces a file, every other time by one of the same size; or removes it, or makes a folder of its name."""
        name, how = self.random.choice(list(self.contents)), self.random.choice(("size", "any", "gone", "folder"))
        old = self.contents[name]
        if how in ("gone", "folder") and not (how == "gone" and len(self.contents) == 1):
            del self.contents[name], self.server.things[self._key(name)]
            if how == "gone":
                return
            name = f"{name}/{name}"
        content = self.random.randbytes(len(old)) if how == "size" else self._content()
        self.contents[name] = content
        self.all.setdefault(name, set()).add(content)
        self._put(name, content)

    def _key(self, name: str) -> str:
        return f"p/{self.model}/1/{name}"

    def _put(self, name: str, content: bytes) -> None:
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        self.server.put(self._key(name), content, etag if self.checked else f"{etag}-2")

    def is_right(self, folder: Path) -> bool:
        """Returns whether the folder has every file as the bucket has it now, and no other."""
        return found(folder) == self.contents

    def is_clean(self, cache: Path) -> bool:
        """Returns whether every file with its final name has been in the bucket."""
        folders = [path for path in cache.glob("*/*") if path.is_dir() and path.name != "parts"]
        folders += cache.glob("*/parts/new")
        files = [file for folder in folders for file in found(folder).items()]
        return all(content in self.all[name] for name, content in files)


def found(folder: Path) -> dict[str, bytes]:
    """Returns the content of a folder's files, by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.usefixtures("no_aws", "small")
@pytest.mark.parametrize("group", range(GROUPS))
def test_after_any_schedule_of_faults_the_next_fetch_is_right_and_the_cache_was_never_wrong(
    group: int,
    stand_in: s3_stand_in.StandIn,
    behind: fault_proxy.Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are five hundred in all; the seed is in the assertion."""
    monkeypatch.setattr(fetching, "READ", 32 * 1024)
    store = store_at(stand_in, behind.url, tmp_path / "cache", monkeypatch)
    for seed in range(group, SCHEDULES, GROUPS):
        cache = tmp_path / str(seed)
        store._fetcher._cache._root = cache
        schedule = Schedule(seed, stand_in, behind)
        files = store.files(schedule.model)
        behind.faults = list(schedule.faults)
        deadline = NEVER if schedule.deadline is None else within(schedule.deadline)
        with monkeypatch.context() as impatient, suppress(ServingError):
            impatient.setattr(answers, "STALL", 0.15)
            store.fetch(schedule.model, "1", files, Progress(deadline))
        assert schedule.is_clean(cache), seed
        behind.faults = []
        schedule.end()
        files = store.files(schedule.model)
        folder = store.fetch(schedule.model, "1", files, Progress())
        assert schedule.is_right(folder.path), seed
        assert schedule.is_clean(cache), seed


def run(stand_in: s3_stand_in.StandIn, cache: Path, *arguments: str) -> list[str]:
    """Runs tests/handler/stores/s3/killed_fetches.py, whose processes do what the arguments say."""
    script = Path(__file__).with_name("killed_fetches.py")
    environ = {**stand_in.variables(), "DRAGOMAN_CACHE": str(cache), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=Path(__file__).parents[4],
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_a_process_killed_at_any_moment_leaves_what_the_next_one_goes_on_with(
    stand_in: s3_stand_in.StandIn, tmp_path: Path
) -> None:
    """None lives long enough to fetch it all; together they do, and hardly fetch anything twice."""
    content = np.random.default_rng(1).bytes(3_000_000)
    stand_in.put("p/m/1/big.bin", content, etag="unverifiable-2")
    stand_in.put("p/m/1/small.bin", b"small")
    stand_in.rate = 500_000
    results = run(stand_in, tmp_path, "kill", "200", "0.12")
    assert results.count("killed") >= 12, results
    assert results[-1] == "done"
    [folder] = [path.parent for path in tmp_path.glob("*/*/big.bin")]
    assert (folder / "big.bin").read_bytes() == content
    assert (folder / "small.bin").read_bytes() == b"small"
    assert not list(tmp_path.glob("*/parts"))


def test_processes_that_want_the_same_model_fetch_it_once(stand_in: s3_stand_in.StandIn, tmp_path: Path) -> None:
    """The others wait and find it. A connection that is quicker may ask for a part of the other one's half, too."""
    stand_in.put("p/m/1/model.bin", np.random.default_rng(2).bytes(500_000))
    stand_in.rate = 4_000_000
    assert run(stand_in, tmp_path, "together", "4") == ["done"] * 4
    asked = sorted(map(str, stand_in.ranges_asked))
    halves = ["bytes=0-249999", "bytes=250000-499999"]
    shared = [each for each in asked if each not in halves]
    assert sorted([*halves, *shared]) == asked
    assert all(each.endswith(("-249999", "-499999")) for each in shared)
    assert len({*shared}) == len(shared)


def test_the_schedules_are_many_and_their_kinds_all(stand_in: s3_stand_in.StandIn) -> None:
    """Seeds alone decide."""
    unused: Any = None
    kinds = {fault.kind for seed in range(SCHEDULES) for fault in Schedule(seed, stand_in, unused).faults}
    assert kinds == set(KINDS)
