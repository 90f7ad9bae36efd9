"""handler.lifecycle.loading: what of a model's settings has an effect where."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from core.operations import Batching, ModelRef
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.lifecycle.samples import PATIENT, add, get, registry

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


SWAPS = """
from pathlib import Path
here = Path(__file__).parent
value = float((here / "value").read_text())
new = here.parents[1] / ".new"
if new.exists():
    here.rename(here.parents[1] / ".old")
    new.rename(here)
again = float((Path(__file__).parent / "value").read_text())

def predict(inputs, parameters):
    return {"y": [value, again]}
"""


def test_a_load_never_has_files_of_two_versions(root: Path) -> None:
    """A push that replaces a folder while its files are read begins the load anew."""
    for folder, value in (("m/1", "1"), (".new", "2")):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for file in (root / folder).iterdir():
            file.unlink()
        (root / folder / "model.py").write_text(SWAPS)
        (root / folder / "value").write_text(f"{value}.{'0' * int(value)}")
    answer = get(registry(root, ALLOW_CODE="true")).predict({}, [], {})
    assert answer[0].array.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("change", ["write_text('x')", "unlink()"])
def test_a_model_that_changes_its_own_files_is_loaded(root: Path, change: str) -> None:
    """Its folder stays the same."""
    for file in (root / "m" / "1").iterdir():
        file.unlink()
    code = f"import pathlib\npathlib.Path(__file__ + '.log').{change}\ndef predict(i, p): return {{'y': [1]}}\n"
    (root / "m" / "1" / "model.py").write_text(code)
    (root / "m" / "1" / "model.py.log").write_text("")
    assert get(registry(root, ALLOW_CODE="true")).predict({}, [], {})[0].array.tolist() == [1]
