"""Marks for tests that need what not every supported Python or system has."""

import platform
import sys
from typing import Final

import pytest

NEWEST: Final = sys.version_info >= (3, 14)
"""Whether the markers in pyproject.toml leave these packages out. Elsewhere a missing package fails the tests."""
SIMD: Final = pytest.mark.skipif(NEWEST, reason="pysimdjson has no wheel for Python 3.14")
"""For tests that expect arrays from the reader of JSON. The other readers make lists."""
EXTENSIONS: Final = pytest.mark.skipif(NEWEST, reason="onnxruntime-extensions has no wheel for Python 3.14")
"""For tests that run the operators of onnxruntime-extensions."""
GLIBC: Final = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="needs Linux's /proc/self/statm and RLIMIT_AS, and glibc's allocator"
)
"""For tests that limit the memory of a process: macOS ignores RLIMIT_AS, and musl ignores MALLOC_MMAP_THRESHOLD_."""
