"""Triton's model configuration, config.pbtxt, read as model-settings.json."""
