"""Fixtures: the called models, and the application that answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.edge.app import App
from tests.handler.edge.calls.connect.client import ROOT, settings
from tests.support.zoo.python import ENDLESS, LOADS_LATE, PYTHON_MODELS

MEETS = '''
"""Answers once two requests are in it at the same time; the one with the parameter `late` as the second."""
import threading
import numpy as np

both, first = threading.Barrier(2), threading.Event()
metadata = {"inputs": [], "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    both.wait(30)
    if parameters["late"]:
        first.wait(30)
    yield {"y": np.array([1])}
    first.set()
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Holds the sample models and python models that return many answers, that fail, and that are not loaded yet."""
    for folder in (ROOT / "models").iterdir():
        if folder.is_dir():
            (tmp_path / folder.name).symlink_to(folder)
    models = {"yields": PYTHON_MODELS["yields"], "late": LOADS_LATE, "endless": ENDLESS, "meets": MEETS}
    for name, source in models.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(source)
    return tmp_path


@pytest.fixture
def app(repository: Path) -> Iterator[App]:
    made = App(settings(repository))
    yield made
    made.close()
