"""What this process takes of the machine's memory, and how its allocator treats large blocks."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT: Final = 32 * 1024 * 1024
"""The most that glibc accepts for M_MMAP_THRESHOLD on 64-bit machines (mallopt(3))."""
SEPARATE_FROM: Final = 128 * 1024
STATM: Final = Path("/proc/self/statm")
STATUS: Final = Path("/proc/self/status")
CLEAR_REFS: Final = Path("/proc/self/clear_refs")
RESET_PEAK: Final = "5"
"""Sets VmHWM back to what is resident now (proc(5), /proc/pid/clear_refs)."""


def keep_large_blocks() -> None:
    """Let glibc reuse the blocks of request bodies and tensors instead of returning each to the kernel.

    By default a block from 128 KB on (growing by use) is a mapping of its own, whose pages are faulted in and zeroed
    again at every request: that took half the time of a binary inference of 600 KB. Other allocators are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_KEPT)


@contextmanager
def separate_blocks() -> Iterator[None]:
    """What is allocated meanwhile, from 128 KB on, is a mapping of its own, which ends when it is freed.

    Models are loaded so: of a model among other blocks, glibc would keep up to 64 MB for each thread that loaded any,
    and malloc_trim gives back what is free in the middle of a thread's arena, but not at its end.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, SEPARATE_FROM)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)


def trim() -> None:
    """Return what is free to the kernel, as far as glibc does that."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def resident() -> int | None:
    """Bytes of this process that are in memory now, None where nobody tells."""
    try:
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return None


def reset_peak() -> None:
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError:
        return  # the peak then is that of the process's whole life, which is no less


def peak() -> int:
    """The most bytes that were in memory since `reset_peak`, 0 where nobody tells."""
    try:
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, ValueError, StopIteration):
        return 0
