"""handler.backends.python: what a model's code does to the process around it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core.errors import ModelFailed
from handler.backends import Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})
FORKS = """
import os, sys
def predict(inputs, parameters):
    child = os.fork()
    if not child:
        sys.exit(3)
    return {"y": [os.waitpid(child, 0)[0] == child]}
"""
RUNS = """
import sys
from pathlib import Path
from handler.backends import Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

source = Source("m", "1", Path(sys.argv[1]), ModelSettings())
model = python.load(source, Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"}))
try:
    print(model.predict({}, [], {})[0].array.tolist())
except BaseException as error:
    print(repr(error))
"""


def load(folder: Path, code: str) -> python.PythonModel:
    """Returns a version with this model.py."""
    (folder / "model.py").write_text(code)
    return python.load(Source("m", "1", folder, ModelSettings()), SETTINGS)


def test_numpys_error_state_is_that_of_before(tmp_path: Path) -> None:
    """The thread runs other models and Dragoman's own code, which would raise on what numpy warns of."""
    state = np.geterr()
    code = "import numpy as np\nnp.seterr(all='raise')\ndef predict(inputs, parameters):\n    np.seterr(all='raise')\n"
    model = load(tmp_path, code + "    return {'y': [1]}\n")
    assert np.geterr() == state
    model.predict({}, [], {})
    assert np.geterr() == state


def test_a_process_that_a_model_has_forked_does_not_serve(tmp_path: Path) -> None:
    """It would wait for ever with the server's sockets open, so that no other server could listen there."""
    (tmp_path / "model.py").write_text(FORKS)
    command = [sys.executable, "-W", "ignore", "-c", RUNS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[True]"])


def test_a_stream_that_does_not_end_well_is_the_models_failure(tmp_path: Path) -> None:
    """A model that ends the process where it cleans up does not end the thread that closes its stream."""
    code = "    try:\n        yield {'y': [1]}\n    finally:\n        raise SystemExit\n"
    answers = load(tmp_path, f"def predict(inputs, parameters):\n{code}")._stream({}, [], {})
    next(answers)
    with pytest.raises(ModelFailed, match="^model 'm' raised SystemExit$"):
        answers.close()
