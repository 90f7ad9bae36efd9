"""Reads a server's process and its log while clients ask it."""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server import Server
from tests.support.wire import Answer

LOOK_SECONDS = 0.02
LINE = re.compile(r"model (\S+) version (\d+) (is being loaded|loaded in|is unloaded|cannot be loaded:)")


def resident(pid: int) -> int:
    """Returns the bytes of a process in memory, from the kernel."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def sampled(pid: int) -> Iterator[list[int]]:
    """Samples the memory of the process every 20 ms."""
    over = threading.Event()
    samples = [resident(pid)]

    def sample() -> None:
        while not over.wait(LOOK_SECONDS):
            samples.append(resident(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def events(server: Server, since: int = 0) -> list[tuple[str, str]]:
    """Returns (model and version, event), as logged after so many bytes of the log."""
    found = LINE.finditer(server.log.read_bytes()[since:].decode(errors="replace"))
    return [(f"{match[1]}/{match[2]}", match[3].split()[-1]) for match in found]


def loads(server: Server) -> Counter[str]:
    """Returns how often each version was loaded. Fails if one was loaded while it was being loaded or in memory."""
    states: dict[str, str] = {}
    counted: Counter[str] = Counter()
    moves = {"loaded": ("", "loading"), "in": ("loading", "in"), "loaded:": ("loading", ""), "unloaded": ("in", "")}
    for model, event in events(server):
        before, after = moves[event]
        assert states.get(model, "") == before, (model, event)
        states[model] = after
        counted[model] += event == "in"
    return counted


def waited(answer: Answer) -> bool:
    """Returns whether an inference waited for its model to be loaded, as its Server-Timing says."""
    return answer.headers["server-timing"].endswith("start;desc=cold")


def crowd(count: int, ask: Callable[[int], Any]) -> list[Any]:
    """Returns the answers to so many clients that ask at the same time."""
    together = threading.Barrier(count)

    def one(index: int) -> Any:
        together.wait()
        return ask(index)

    with ThreadPoolExecutor(count) as clients:
        return list(clients.map(one, range(count)))


@contextmanager
def asking(count: int, ask: Callable[[], list[Any]]) -> Iterator[list[Any]]:
    """Lets so many clients ask until the block ends; yields the list that collects their answers."""
    over = threading.Event()
    told: list[Any] = []

    def keep_asking() -> None:
        while not over.is_set():
            told.extend(ask())

    with ThreadPoolExecutor(count) as clients:
        futures = [clients.submit(keep_asking) for _ in range(count)]
        try:
            yield told
        finally:
            over.set()
    for future in futures:
        future.result()
