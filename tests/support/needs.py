"""Marks for tests that need a package without a wheel for every supported Python."""

import sys
from typing import Final

import pytest

NEWEST: Final = sys.version_info >= (3, 14)
"""Whether the markers in pyproject.toml leave these packages out. Elsewhere a missing package fails the tests."""
SIMD: Final = pytest.mark.skipif(NEWEST, reason="pysimdjson has no wheel for Python 3.14")
"""For tests that expect arrays from the reader of JSON. The other readers make lists."""
EXTENSIONS: Final = pytest.mark.skipif(NEWEST, reason="onnxruntime-extensions has no wheel for Python 3.14")
"""For tests that run the operators of onnxruntime-extensions."""
