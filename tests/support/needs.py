"""Marks for tests that need a package without a wheel for every supported Python."""

from importlib.util import find_spec
from typing import Final

import pytest

SIMD: Final = pytest.mark.skipif(not find_spec("simdjson"), reason="simdjson has no wheel for this Python")
"""For tests that expect arrays from the reader of JSON. The other readers make lists."""
EXTENSIONS: Final = pytest.mark.skipif(not find_spec("onnxruntime_extensions"), reason="no wheel for this Python")
"""For tests that run the operators of onnxruntime-extensions."""
