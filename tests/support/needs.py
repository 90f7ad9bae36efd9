"""Marks for tests that need a package without a wheel for every supported Python."""

from importlib.util import find_spec
from typing import Final

import pytest

SIMD: Final = pytest.mark.skipif(
    find_spec("simdjson") is None, reason="simdjson has no wheel for this Python, and the other readers make lists"
)
"""For tests that expect arrays from the reader of JSON."""
EXTENSIONS: Final = pytest.mark.skipif(
    find_spec("onnxruntime_extensions") is None, reason="onnxruntime-extensions has no wheel for this Python"
)
"""For tests that run the operators of onnxruntime-extensions."""
