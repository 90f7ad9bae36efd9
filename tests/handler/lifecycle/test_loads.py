"""handler.lifecycle.traffic.loads, and what counts there."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from core.errors import ModelNotLoadable, ServingError
from core.operations import ModelRef
from handler.edge.app import App
from handler.lifecycle import loading
from handler.lifecycle.backoff import named
from handler.lifecycle.single_flight import Background
from handler.lifecycle.traffic.loads import Loads
from handler.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"DRAGOMAN_REPOSITORY": "models"}


def test_a_load_counts_when_it_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A good one with its seconds, a bad one as a failure; a folder's files are fetched from nowhere."""
    loads = Loads()
    monkeypatch.setattr(loading, "LOADS", loads)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no")
    for repository, name in (("models", "half_plus_three"), (str(tmp_path), "broken")):
        with closing(App(Settings.from_env({"DRAGOMAN_REPOSITORY": repository}), inline=True)) as app:
            try:
                app.registry.load(name, Background())
            except ModelNotLoadable:
                assert name == "broken"
    assert (loads.loaded, loads.failed, loads.cached, loads.fetched) == (1, 1, 1, 0)
    assert loads.seconds > 0


def test_parts_of_a_load_count_what_they_fetched() -> None:
    """A load that goes on with the next request has not failed."""
    loads = Loads()
    loads.stopped(10, failed=False)
    loads.stopped(0, failed=True)
    loads.succeeded(1.5, 5)
    loads.evict()
    found = (loads.loaded, loads.failed, loads.seconds, loads.fetches, loads.fetched, loads.cached, loads.evicted)
    assert found == (1, 1, 1.5, 2, 15, 0, 1)


@pytest.mark.parametrize(("message", "line"), [
    ("model 'm' version 1 cannot be loaded: no", "model 'm' version 1 cannot be loaded: no"),
    ("the disk is full", "model 'm' version 1 cannot be loaded: the disk is full"),
    ("model 'mm' is odd", "model 'm' version 1 cannot be loaded: model 'mm' is odd"),
])  # fmt: skip
def test_the_line_of_a_failure_names_its_model_once(message: str, line: str) -> None:
    """Most errors begin with the model, as clients need it."""
    assert named(ServingError(message), "m", 1) == line


def test_a_model_is_known_by_its_versions() -> None:
    """Without a look at the repository."""
    with closing(App(Settings.from_env(SETTINGS), inline=True)) as app:
        assert app.registry.numbers("half_plus_three") == frozenset()
        app.registry.use(ModelRef("half_plus_three"), Background())
        assert app.registry.numbers("half_plus_three") == {"123"}
        assert app.registry.in_memory()[0] == 1
