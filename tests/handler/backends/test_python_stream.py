"""handler.backends.python: models that return more than one answer."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.dtype import DATATYPES
from core.errors import ModelFailed
from core.tensor import Tensor
from handler.backends import SeveralAnswers, Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})
INPUTS = {"n": Tensor("n", DATATYPES["INT64"], np.array([3]))}
COUNTS = """
import numpy as np

def predict(inputs, parameters):
    for number in range(int(inputs["n"][0])):
        yield {"y": np.array([number]), "z": np.array([-number])}
"""


def model(folder: Path, code: str) -> python.PythonModel:
    """Returns a version with this model.py."""
    (folder / "model.py").write_text(code)
    return python.load(Source("m", "1", folder, ModelSettings()), SETTINGS)


def asked(of: python.PythonModel, *outputs: str) -> Any:
    assert of.stream is not None
    return of.stream(INPUTS, outputs, {})


def numbers(answers: Any) -> list[list[int]]:
    """Returns the outputs of each answer."""
    return [[int(output.array[0]) for output in outputs] for outputs in answers]


def test_every_dict_that_predict_yields_is_an_answer(tmp_path: Path) -> None:
    """It has the outputs that were asked for."""
    counts = model(tmp_path, COUNTS)
    assert counts.spec.decoupled
    assert numbers(asked(counts)) == [[0, 0], [1, -1], [2, -2]]
    assert numbers(asked(counts, "z")) == [[0], [-1], [-2]]


def test_one_answer_can_be_had_of_what_yields_one(tmp_path: Path) -> None:
    """The client cannot get more than one this way, and an empty stream has no answer to return."""
    counts = model(tmp_path, COUNTS)
    (y,) = counts.predict({"n": Tensor("n", DATATYPES["INT64"], np.array([1]))}, ["y"], {})
    assert y.array.tolist() == [0]
    with pytest.raises(SeveralAnswers, match=r"model 'm' returns more than one answer: request a stream"):
        counts.predict(INPUTS, [], {})
    with pytest.raises(ModelFailed, match="predict yielded nothing"):
        counts.predict({"n": Tensor("n", DATATYPES["INT64"], np.array([0]))}, [], {})


def test_answers_of_a_generator_that_predict_only_returns_are_no_stream(tmp_path: Path) -> None:
    """The refusal does not send the client to a stream, which would be refused alike."""
    passed_on = model(tmp_path, "def predict(inputs, _):\n    return ({'y': inputs['n']} for _ in range(2))")
    assert passed_on.stream is None
    with pytest.raises(
        ModelFailed, match=r"predict returned a generator of several answers; to stream them, yield them$"
    ):
        passed_on.predict(INPUTS, [], {})


def test_who_returns_one_answer_streams_nothing(tmp_path: Path) -> None:
    """A separate function may stream; it may return one answer, too."""
    once = model(tmp_path, "def predict(inputs, parameters):\n    return {'y': inputs['n']}")
    assert once.stream is None
    assert model(tmp_path, "stream = 5\ndef predict(inputs, _):\n    return {'y': inputs['n']}").stream is None
    either = model(tmp_path, "def predict(inputs, _):\n    return {'y': inputs['n']}\n\nstream = predict")
    assert numbers(asked(either)) == [[3]]


def test_a_function_of_its_own_may_answer_streams(tmp_path: Path) -> None:
    """It stands beside predict, which returns one answer."""
    both = model(
        tmp_path, COUNTS.replace("predict", "stream") + "\n\ndef predict(inputs, _):\n    return {'y': inputs['n']}"
    )
    assert not both.spec.decoupled
    assert numbers([both.predict(INPUTS, [], {})]) == [[3]]
    assert numbers(asked(both, "y")) == [[0], [1], [2]]


def test_what_fails_between_two_answers_is_the_models_failure(tmp_path: Path) -> None:
    """The same holds for predict; what it yields has to be arrays in a dict."""
    failing = model(tmp_path, "def predict(inputs, _):\n    yield {'y': inputs['n']}\n    raise KeyError('gone')")
    answers = asked(failing)
    assert numbers([next(answers)]) == [[3]]
    with pytest.raises(ModelFailed, match="model 'm' raised KeyError$"):
        next(answers)
    wrong = model(tmp_path, "def predict(inputs, _):\n    yield 3")
    with pytest.raises(ModelFailed, match="returned int, not a dict of arrays"):
        next(asked(wrong))
    nothing = model(tmp_path, "def predict(inputs, _):\n    yield None\n    yield {'y': inputs['n']}")
    with pytest.raises(ModelFailed, match="returned NoneType, not a dict of arrays"):
        next(asked(nothing))
    with pytest.raises(SeveralAnswers, match="returns more than one answer"):
        nothing.predict(INPUTS, [], {})


def test_leaving_a_stream_ends_the_models_generator(tmp_path: Path) -> None:
    """The generator can then free its resources."""
    closing = model(
        tmp_path,
        "ended = []\n\ndef predict(inputs, _):\n    try:\n        while True:\n            yield inputs\n"
        "    finally:\n        ended.append(1)",
    )
    answers = asked(closing)
    next(answers)
    answers.close()
    assert closing.module.ended == [1]


def test_a_stream_may_run_an_event_loop_of_its_own_inside_one(tmp_path: Path) -> None:
    """On Lambda it is called in the thread of the server's loop."""
    nested = model(
        tmp_path,
        "import asyncio\n\ndef predict(inputs, _):\n    for _ in range(2):\n"
        "        asyncio.run(asyncio.sleep(0))\n        yield inputs",
    )

    async def main() -> list[list[int]]:
        return numbers(asked(nested))

    assert asyncio.run(main()) == [[3], [3]]
