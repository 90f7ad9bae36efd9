"""What some tests need, and not every supported Python has."""

from importlib.util import find_spec
from typing import Final

import pytest

SIMD: Final = pytest.mark.skipif(
    find_spec("simdjson") is None, reason="simdjson has no wheel for this Python, and the other readers make lists"
)
"""For tests of which texts are read as arrays."""
EXTENSIONS: Final = pytest.mark.skipif(
    find_spec("onnxruntime_extensions") is None, reason="onnxruntime-extensions has no wheel for this Python"
)
"""For tests that run the operators of onnxruntime-extensions."""
