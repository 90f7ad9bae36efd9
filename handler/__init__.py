"""Everything that touches the world: edges, lifecycle of models, runtimes, stores, settings, site, command line."""

import os

# Without this, ONNX Runtime 1.32 sends usage data to Microsoft, and writes a device's id to ~/.cache.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
