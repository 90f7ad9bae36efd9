"""handler.lifecycle.loading: what of a model's settings has an effect where."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from core.operations import Batching, ModelRef
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.lifecycle.samples import PATIENT, add

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("environ", "batching", "told"),
    [({}, Batching(32, 0.005), 0), ({"AWS_LAMBDA_FUNCTION_NAME": "f"}, None, 1)],
)
def test_batching_does_nothing_on_lambda(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, environ: dict[str, Any], batching: Any, told: int
) -> None:
    """Requests come one by one there; the log says so once, whatever the number of models."""
    for name in "ab":
        add(tmp_path, name, "1")
        (tmp_path / name / "model-settings.json").write_text('{"batching": {}}')
    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path), **environ}))
    with caplog.at_level(logging.INFO):
        for name in "ab":
            with models.use(ModelRef(name), PATIENT) as model:
                assert model.spec.batching == batching
    models.close()
    assert caplog.text.count("batching in model-settings.json does nothing on Lambda") == told
