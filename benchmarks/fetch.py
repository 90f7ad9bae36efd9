"""The cost of fetching a model from S3, against the fastest of boto3, obstore and a plain GET in the same rounds.

The store is a process of its own on loopback (s3_server.py), unthrottled and at 85 MB/s per connection, which is S3's
rate. Every subject writes a new file, in memory if possible: no disk is measured. The timed fetches are the second and
further ones of a process. The peak of memory is measured in a process of its own.
"""

import contextlib
import http.client
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measure import Row, interleaved, row, table
from handler.settings import Settings
from handler.stores import File
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store

BAR = 1.1
MOST_MEMORY = 64.0
RATE = 85_000_000
MB = 1024 * 1024
SIZES = (1, 50)
FULL = (1, 50, 1024)
ROUNDS = {1: 60, 50: 12, 1024: 5}
QUICK = {1: 20, 50: 5, 1024: 3}
MEMORY = Path("/dev/shm")  # noqa: S108 - of the machine's memory, for the benchmark's own folder
ROOT = Path(__file__).parents[1]
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
Fetch = Callable[[str, int, Path], object]
"""Fetches a key of a size into a file."""


def ours(url: str, folder: Path) -> Fetch:
    environ = {"DRAGOMAN_REPOSITORY": "s3://bucket/p", "DRAGOMAN_CACHE": str(folder / "cache")}
    os.environ["AWS_ENDPOINT_URL_S3"] = url
    store = S3Store(Settings.from_env(environ))

    def fetch(key: str, size: int, _target: Path) -> object:
        return store.fetch("m", "1", [File(f"1/{key}", size, f"{size:032x}-9")], Progress())

    return fetch


def boto3_fetches(url: str) -> dict[str, Fetch]:
    import boto3  # noqa: PLC0415 - one subject at a time, where memory is measured
    from boto3.s3.transfer import TransferConfig  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        s3={"addressing_style": "path"}, max_pool_connections=32, response_checksum_validation="when_required"
    )
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=config)
    tuned = TransferConfig(multipart_chunksize=8 * MB, max_concurrency=16, io_chunksize=MB)

    def get(key: str, _size: int, target: Path) -> None:
        with target.open("wb") as file:
            for chunk in client.get_object(Bucket="bucket", Key=key)["Body"].iter_chunks(MB):
                file.write(chunk)

    return {
        "boto3 download_file": lambda key, _, target: client.download_file("bucket", key, str(target)),
        "boto3 tuned": lambda key, _, target: client.download_file("bucket", key, str(target), Config=tuned),
        "boto3 get_object": get,
    }


def plain(url: str) -> Fetch:
    """Returns a fetch without signature and checks: Python's best with one connection."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    buffer = memoryview(bytearray(MB))

    def fetch(key: str, _size: int, target: Path) -> None:
        connection.request("GET", f"/bucket/{key}")
        answer = connection.getresponse()
        with target.open("wb", buffering=0) as file:
            while count := answer.readinto(buffer):
                file.write(buffer[:count])

    return fetch


def obstore_fetches(url: str) -> dict[str, Fetch]:
    import obstore  # noqa: PLC0415 - as boto3
    from obstore.store import S3Store as Store  # noqa: PLC0415

    options: Any = {"allow_http": True}
    login = {"access_key_id": "key", "secret_access_key": "secret"}
    store = Store("bucket", endpoint=url, region="us-east-1", client_options=options, **login)
    pool = ThreadPoolExecutor(16)

    def stream(key: str, _size: int, target: Path) -> None:
        with target.open("wb", buffering=0) as file:
            for chunk in obstore.get(store, key).stream(min_chunk_size=MB):
                file.write(chunk)

    def ranges(key: str, size: int, target: Path) -> None:
        with target.open("wb") as file:

            def part(start: int) -> None:
                os.pwrite(
                    file.fileno(), obstore.get_range(store, key, start=start, end=min(start + 8 * MB, size)), start
                )

            list(pool.map(part, range(0, size, 8 * MB)))

    return {"obstore": stream, "obstore in ranges": ranges}


def subjects(url: str, folder: Path) -> dict[str, Fetch]:
    """Returns the subjects, ours first."""
    return {"ours": ours(url, folder), **boto3_fetches(url), "plain GET": plain(url), **obstore_fetches(url)}


def timed(fetch: Fetch, key: str, size: int, folder: Path) -> Callable[[], float]:
    """Returns a call that measures one fetch into an empty cache in milliseconds."""

    def once() -> float:
        target = folder / "target"
        shutil.rmtree(folder / "cache", ignore_errors=True)
        target.unlink(missing_ok=True)
        start = perf_counter()
        fetch(key, size, target)
        taken = (perf_counter() - start) * 1e3
        [found] = [path for path in (target, *folder.glob(f"cache/*/*/{key}")) if path.exists()]
        if found.stat().st_size != size:
            raise RuntimeError(f"{found} is not whole")
        return taken

    return once


def compared(title: str, url: str, mb: int, folder: Path, rounds: int) -> list[Row]:
    """Compares ours with each control. The first row is the fastest control's, with the bar."""
    calls = {name: timed(fetch, str(mb), mb * MB, folder) for name, fetch in subjects(url, folder).items()}
    for call in calls.values():
        call()
    values = interleaved(calls, rounds)
    mine = values.pop("ours")
    order = sorted(values, key=lambda name: statistics.median(values[name]))
    return [row(f"{title}: {name}", mine, values[name], "ms", BAR if name == order[0] else None) for name in order]


def cost_of_checking(url: str, mb: int, folder: Path, rounds: int) -> Row:
    """Compares ours with the store's CRC32 to ours without one."""
    fetch, size = ours(url, folder), mb * MB
    calls = {key: timed(fetch, f"{key}{mb}", size, folder) for key in ("checked-", "")}
    values = interleaved(calls, rounds)
    return row(f"{mb} MB: checked with CRC32 (control: unchecked)", values["checked-"], values[""], "ms")


def memory(url: str, mb: int, folder: Path) -> Row:
    """Measures the peak MB of a process of its own while it fetches, above its memory before; the control is the bar.

    The file lies in the page cache, which does not count as the process's memory.
    """
    command = (sys.executable, "-m", "benchmarks.fetch", url, str(mb), str(folder))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return row(f"{mb} MB: memory above the file (control: the bar)", [float(done.stdout)], [MOST_MEMORY], "MB", 1.0)


def peak(url: str, mb: str, folder: str) -> None:
    fetch = ours(url, Path(folder))
    timed(fetch, "1", MB, Path(folder))()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak (Linux, proc(5))
    before = resident("VmHWM")
    timed(fetch, mb, int(mb) * MB, Path(folder))()
    print(resident("VmHWM") - before)


def resident(kind: str) -> float:
    """Returns the MB of this process in a field of its status."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{kind}:")[2].split()[0]) / 1024


@contextlib.contextmanager
def server(folder: Path, rate: int) -> Iterator[str]:
    command = (sys.executable, Path(__file__).with_name("s3_server.py"), folder, str(rate))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"  # type: ignore[union-attr] # it is a pipe
        finally:
            process.terminate()


def fill(folder: Path, sizes: tuple[int, ...]) -> None:
    for mb in sizes:
        with (folder / str(mb)).open("wb") as file:
            for _ in range(mb):
                file.write(os.urandom(MB))
        (folder / f"checked-{mb}").hardlink_to(folder / str(mb))


def main(*, quick: bool = False, full: bool = False) -> list[Row]:
    os.environ.update(KEYS)
    sizes, rounds = FULL if full else SIZES, QUICK if quick else ROUNDS
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as made:
        objects, work = Path(made) / "objects", Path(made) / "work"
        objects.mkdir()
        work.mkdir()
        fill(objects, sizes)
        for rate in (0, RATE):
            with server(objects, rate) as url:
                for mb in sizes:
                    title = f"{mb} MB{' at 85 MB/s' if rate else ''}"
                    rows += compared(title, url, mb, work, rounds[mb])
                    if not rate:
                        rows += [cost_of_checking(url, mb, work, rounds[mb]), memory(url, mb, work)]
    print(table("Fetching from S3 (control: see each row)", rows))
    return rows


if __name__ == "__main__":
    peak(*sys.argv[1:])
