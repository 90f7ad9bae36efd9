"""Processes that fetch model m: killed_fetches.py kill TIMES SECONDS, or killed_fetches.py together COUNT.

Everything is imported before they fork, so that a process only has to fetch. Prints how each ended.
"""

import os
import random
import signal
import sys
import time
import traceback

from handler.settings import Settings
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store
from handler.stores.transfer import answers
from handler.stores.transfer import download as fetching
from handler.stores.transfer import ranges as regions


def told(result: str) -> None:
    """Prints a line for the test."""
    sys.stdout.write(f"{result}\n")
    sys.stdout.flush()  # a fork would write it again


def fetch(store: S3Store) -> None:
    """Becomes a process that fetches, and ends."""
    try:
        store.fetch("m", "1", store.files("m"), Progress())
    except BaseException:  # noqa: BLE001 - it must not go on as its parent would
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def begun(store: S3Store) -> int:
    """Forks such a process."""
    process = os.fork()
    if not process:
        fetch(store)
    return process


def ended(process: int) -> str:
    """Waits for its end."""
    _, status = os.waitpid(process, 0)
    return {0: "done", signal.SIGKILL: "killed"}.get(status, f"status-{status}")


def kill(store: S3Store, times: int, seconds: float) -> None:
    """Starts one process after the other, and kills each within `seconds`, until one finishes."""
    chance = random.Random(times)  # noqa: S311 - the same each time
    for _ in range(times):
        process = begun(store)
        time.sleep(chance.uniform(0, seconds))
        os.kill(process, signal.SIGKILL)
        result = ended(process)
        told(result)
        if result != "killed":
            return
    told(ended(begun(store)))


def main(mode: str, *numbers: str) -> None:
    regions.PIECE, regions.LEAST, fetching.SAVE = 256 * 1024, 64 * 1024, 64 * 1024  # type: ignore[misc] # of some kB
    answers.CHUNK = 32 * 1024  # type: ignore[misc]
    store = S3Store(Settings.from_env()._replace(cpus=1.0))
    assert store._client.bucket._signer.sign("GET", "http://h/", {})
    if mode == "kill":
        kill(store, int(numbers[0]), float(numbers[1]))
    else:
        for process in [begun(store) for _ in range(int(numbers[0]))]:
            told(ended(process))


if __name__ == "__main__":
    main(*sys.argv[1:])
