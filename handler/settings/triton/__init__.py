"""Triton's model configuration, config.pbtxt, read as model-settings.json."""

from typing import Final

FILE: Final = "config.pbtxt"
