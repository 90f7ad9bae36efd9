"""The facts of the other processes of one server, as `uvicorn --workers N` starts them: a file for each, in one folder.

A scrape reaches one process. It adds what the others have written, each after the second in which it counted. The
folder has the number of their common parent and its start in its name, so that an earlier server's files do not count.
A process that has ended leaves its file, so that its counters still count.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from handler.edge.observe.facts import Facts, Key

SECONDS: Final = 1.0
"""From a request until its process has written its numbers."""


class Shared:
    """The file of this process among those of the others. `folder`: private to this user."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder, and removes those of servers that have ended. Raises OSError."""
        parent = os.getppid()
        self._folder = folder / "-".join(filter(None, (str(parent), begun(parent))))
        self._file = self._folder / f"{os.getpid()}-{time.time_ns()}.json"
        self._writes = threading.Lock()
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        for other in folder.iterdir():
            process, _, start = other.name.partition("-")
            if process.isdecimal() and has_ended(int(process), start):
                shutil.rmtree(other, ignore_errors=True)

    def write(self, facts: Facts) -> None:
        """Writes this process's facts, as a whole or not at all."""
        new = self._file.with_suffix(".new")
        with self._writes, suppress(OSError):  # a full disk must not end a request; the next second tries again
            self._folder.mkdir(0o700, exist_ok=True)  # another container's server, with other processes, removes it
            new.write_bytes(orjson.dumps([[name, labels, value] for (name, labels), value in facts.items()]))
            new.replace(self._file)

    def others(self) -> Iterator[tuple[bool, list[tuple[Key, Any]]]]:
        """Yields the facts of each other process, with whether it is alive."""
        for file in sorted(self._folder.glob("*.json")):
            if file == self._file:
                continue
            with suppress(OSError, ValueError):
                rows = orjson.loads(file.read_bytes())
                process = int(file.name.partition("-")[0])
                yield is_alive(process), [((name, tuple(labels)), value) for name, labels, value in rows]


def begun(process: int) -> str:
    """Returns the start of a process, in ticks of a boot; "" where the system does not state it, as on macOS.

    The number alone does not identify a process: in a container, each server has the number 1.
    """
    with suppress(OSError, IndexError):
        after_name = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2]  # the name may have any characters
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        return f"{after_name.split()[19].decode()}-{boot[:8]}"  # field 22 of proc_pid_stat(5), from field 3 on
    return ""


def has_ended(process: int, start: str) -> bool:
    """Returns whether the process with this number and this start has ended. `start`: "" if it is not known."""
    return not is_alive(process) or (bool(start) and begun(process) not in ("", start))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def folder_of(setting: str, own: Path) -> Path | None:
    """Returns the folder for a process that is one of several; None for one that is alone.

    `setting`: the operator's folder. `own`: a private folder, for processes that Python's multiprocessing has started,
    as uvicorn's are.
    """
    if setting:
        return Path(setting)
    started = sys.modules.get("multiprocessing.process")  # such a process has it; importing it would take 10 ms
    return own / "metrics" if started is not None and started.parent_process() is not None else None
