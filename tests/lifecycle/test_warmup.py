"""Warm-up requests run before a model is ready, and a model that fails them is not."""

from collections.abc import Callable
from pathlib import Path

from tests.support.checks import refusal
from tests.support.publishing import publish, say
from tests.support.server import Server

COUNTS = b"""
seen = []
metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "shapes", "datatype": "INT64", "shape": [-1, 2]}],
}
def predict(inputs, parameters):
    import numpy as np
    if (inputs["x"] < 0).any():
        raise ValueError("negative")
    seen.append(inputs["x"].shape)
    return {"shapes": np.array(seen, np.int64)}
"""
X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 0]}


def test_what_the_settings_ask_for_has_run_when_the_first_answer_comes(
    tmp_path: Path, launch: Callable[..., Server]
) -> None:
    """They are random tensors of the declared shape and of a given one, and a file's."""
    root = tmp_path / "repository"
    publish(root, "m", 1, COUNTS, "model.py")
    (root / "m" / "1" / "warm.json").write_text('{"inputs": [{"name": "x", "shape": [3, 2], "datatype": "FP32", '
                                                '"data": [1, 2, 3, 4, 5, 6]}]}')  # fmt: skip
    say(
        root,
        "m",
        warmup=[{"random": True, "count": 2}, {"random": True, "shapes": {"x": [4, 2]}}, {"file": "warm.json"}],
    )
    with launch(REPOSITORY=str(root), ALLOW_CODE="true").wire() as wire:
        shapes = [[1, 2], [1, 2], [4, 2], [3, 2], [1, 2]]
        assert wire.infer("m", X).tensor().tolist() == shapes


def test_a_version_that_fails_its_warm_up_never_serves(tmp_path: Path, launch: Callable[..., Server]) -> None:
    """The previous version continues to serve."""
    root = tmp_path / "repository"
    publish(root, "m", 1, COUNTS, "model.py")
    with launch(REPOSITORY=str(root), ALLOW_CODE="true").wire() as wire:
        assert wire.infer("m", X).tensor().tolist() == [[1, 2]]
        publish(root, "m", 2, COUNTS.replace(b"< 0", b">= 0"), "model.py")
        (root / "m" / "2" / "model-settings.json").write_text('{"warmup": [{"random": true}]}')
        text = refusal(wire.post("/v2/repository/models/m/load"), 503)
        assert text == ("model 'm' version 2 failed its warm-up: warmup[0]: model 'm' raised ValueError")
        answer = wire.infer("m", X)
        assert answer.headers["model-version"] == "1"
        assert answer.tensor().tolist() == [[1, 2], [1, 2]]
