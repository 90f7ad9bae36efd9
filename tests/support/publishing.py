"""Puts models into a repository as a publisher does: complete versions, each in one move."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from tests.support.zoo.models import graph

X = {"name": "x", "shape": [3], "datatype": "INT64", "data": [0, 1, 2]}


def weighty(number: int, megabytes: float = 0) -> bytes:
    """Writes y = x + number, INT64 [-1], with weights of that size, which the model's other output z shows."""
    weights = np.full(max(3, int(megabytes * 250_000)), number, np.float32)
    nodes = [helper.make_node("Add", ["x", "number"], ["y"]), helper.make_node("Gather", ["weights", "x"], ["z"])]
    outputs = [("y", "INT64", [None]), ("z", "FP32", [None])]
    constants = {"number": np.array([number]), "weights": weights}
    content: bytes = graph("weighty", nodes, [("x", "INT64", [None])], outputs, constants).SerializeToString()
    return content


def publish(root: Path, name: str, version: int, content: bytes, file: str = "model.onnx") -> None:
    """Publishes a version, which is in the repository completely or not at all."""
    staged = root.with_name(f"staged-{name}")
    staged.mkdir()
    (staged / file).write_bytes(content)
    (root / name).mkdir(parents=True, exist_ok=True)
    staged.rename(root / name / str(version))


def say(root: Path, name: str, **settings: Any) -> None:
    """Replaces the model's settings in one move."""
    staged = root.with_name(f"settings-{name}")
    staged.write_text(json.dumps(settings))
    staged.rename(root / name / "model-settings.json")
