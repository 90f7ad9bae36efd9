"""The memory of this process: its size, and its allocator's treatment of large blocks."""

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT: Final = 32 * 1024 * 1024
"""The largest value that glibc accepts for M_MMAP_THRESHOLD on 64-bit machines (mallopt(3))."""
SEPARATE_FROM: Final = 128 * 1024
LOOK_SECONDS: Final = 1.0
IDLE: Final = 0.05
"""The part of one CPU up to which the process counts as idle."""
WORTH_RETURNING: Final = 32 * 1024 * 1024
STATM: Final = Path("/proc/self/statm")
STATUS: Final = Path("/proc/self/status")
CLEAR_REFS: Final = Path("/proc/self/clear_refs")
RESET_PEAK: Final = "5"
"""Sets VmHWM back to the bytes that are resident now (proc(5), /proc/pid/clear_refs)."""


def _glibc(name: str, *arguments: int) -> None:
    """Calls a function of glibc's allocator. Does nothing with another allocator."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)


def keep_large_blocks() -> None:
    """Makes glibc reuse the blocks of request bodies and tensors instead of returning each to the kernel.

    By default a block from 128 KB on (growing by use) is a mapping of its own. The kernel faults in and zeroes its
    pages again at every request: that took half the time of a binary inference of 600 KB.
    """
    _glibc("mallopt", M_MMAP_THRESHOLD, LARGEST_KEPT)
    _glibc("mallopt", M_TRIM_THRESHOLD, 2 * LARGEST_KEPT)


@contextmanager
def separate_blocks() -> Iterator[None]:
    """Makes each block from 128 KB on a mapping of its own, which ends when the block is freed.

    Models are loaded so. Among other blocks, glibc would keep up to 64 MB of a model for each thread that loaded one.
    malloc_trim returns free blocks in the middle of a thread's arena, but not those at its end.
    """
    _glibc("mallopt", M_MMAP_THRESHOLD, SEPARATE_FROM)
    try:
        yield
    finally:
        _glibc("mallopt", M_MMAP_THRESHOLD, LARGEST_KEPT)


def trim() -> None:
    """Returns free memory to the kernel, as far as glibc does that."""
    _glibc("malloc_trim", 0)


@cache
def give_back_when_idle() -> threading.Thread:
    """Starts the thread that returns the memory of a finished burst of requests to the kernel. Starts it once."""
    thread = threading.Thread(target=_watch, name="dragoman-memory", daemon=True)
    thread.start()
    return thread


def _watch() -> None:
    burst = Burst()
    while True:
        time.sleep(LOOK_SECONDS)
        burst.look(time.process_time(), resident() or 0)


class Burst:
    """Finds the end of a burst. Memory that is returned while requests come has to be faulted in again by the next."""

    def __init__(self) -> None:
        self._used = 0.0
        self._least = 0

    def look(self, used: float, size: int) -> bool:
        """Returns free memory if there was little work since the last look, and the process has grown meanwhile.

        `used`: seconds of CPU of this process. `size`: its bytes in memory. Returns whether it did.
        """
        is_idle = used - self._used < IDLE * LOOK_SECONDS
        self._used = used
        self._least = min(self._least, size)
        if not is_idle or size - self._least < WORTH_RETURNING:
            return False
        trim()
        self._least = resident() or 0
        return True


def resident() -> int | None:
    """Returns this process's bytes in memory, None where the system does not report them."""
    try:
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return None


def reset_peak() -> None:
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError:
        return  # the peak is then the whole process's, which is at least as large


def peak() -> int:
    """Returns the most bytes in memory since `reset_peak`, 0 where the system does not report them."""
    try:
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, ValueError, StopIteration):
        return 0
