"""Triton's ensemble_scheduling as a pipeline (see handler.settings.pipeline)."""

from collections import Counter
from typing import Any

from handler.settings import pipeline
from handler.settings.checked import Wrong
from handler.settings.triton.triton_model_config import TritonConfig

LATEST = -1
"""Triton's number for the version that serves."""


def said(config: TritonConfig) -> dict[str, Any]:
    """Returns the value of the key "pipeline". Raises Wrong."""
    count: Counter[str] = Counter()
    steps = []
    for index, step in enumerate(config.ensemble_scheduling.step):
        path, model, version = f"ensemble_scheduling.step[{index}]", step.model_name, step.model_version
        if version < LATEST:
            raise Wrong(f"{path}.model_version", version, "-1 for the latest, or a version")
        count[model] += 1
        name = model[: pipeline.LONGEST_NAME - 3] + (f"-{count[model]}" if count[model] > 1 else "")
        maps = {"inputs": dict(step.input_map), "outputs": dict(step.output_map)}
        # Protobuf cannot distinguish 0 from no number. Triton has no version 0 in its examples, and -1 for the latest.
        steps.append({"name": name, "model": model} | ({"version": version} if version > 0 else {}) | maps)
    ends = {
        "inputs": [tensor.name for tensor in config.input],
        "outputs": [tensor.name for tensor in config.output],
    }
    found = {"steps": steps} | {key: names for key, names in ends.items() if names}
    pipeline.parse(found, "ensemble_scheduling")
    return found
