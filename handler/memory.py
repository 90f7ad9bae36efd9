"""How the process's allocator treats large blocks."""

import ctypes
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT: Final = 32 * 1024 * 1024
"""The most that glibc accepts for M_MMAP_THRESHOLD on 64-bit machines (mallopt(3))."""


def keep_large_blocks() -> None:
    """Let glibc reuse the blocks of request bodies and tensors instead of returning each to the kernel.

    By default a block from 128 KB on (growing by use) is a mapping of its own, whose pages are faulted in and zeroed
    again at every request: that took half the time of a binary inference of 600 KB. Other allocators are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_KEPT)
