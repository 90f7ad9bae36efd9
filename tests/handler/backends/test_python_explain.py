"""handler.backends.python: a model's own explanations."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from core import engine
from core.dtype import DATATYPES
from core.errors import InvalidInput, ModelFailed
from core.explain.explanation import explain
from core.operations import Explain, Explainer, Infer, ModelRef
from core.tensor import Tensor
from handler.backends import Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

SETTINGS = Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"})
PREDICT = "import numpy as np\ndef predict(inputs, parameters): return {'y': inputs['x']}\n"


def load(folder: Path, text: str) -> python.PythonModel:
    """Loads version 1 of model `m`, with that text in its model.py."""
    (folder / "model.py").write_text(PREDICT + text)
    return python.load(Source("m", "1", folder, ModelSettings()), SETTINGS)


def answer(folder: Path, returned: str) -> Any:
    """Returns the result of an explain that returns so, for the examples [1, 2, 3] and [4, 5, 6], parsed from JSON."""
    model = load(folder, f"def explain(inputs, parameters):\n    x = inputs['x']\n    return {returned}")
    return orjson.loads(orjson.dumps(explain(model, inputs(), {"k": 1}), option=orjson.OPT_SERIALIZE_NUMPY))


def inputs() -> dict[str, Tensor]:
    """Returns two examples, read-only as a request's are."""
    array = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    array.flags.writeable = False
    return {"x": Tensor("x", DATATYPES["FP32"], array)}


def test_a_model_without_explain_has_none(tmp_path: Path) -> None:
    """The same holds for something of that name that cannot be called."""
    assert load(tmp_path, "").explain is None
    assert load(tmp_path, "explain = 1").explain is None


@pytest.mark.parametrize(("returned", "found"), [
    ("x * 2", [{"importance_scores": [2, 4, 6]}, {"importance_scores": [8, 10, 12]}]),
    ("x[:, 0]", [{"importance_scores": 1}, {"importance_scores": 4}]),
    ("[[1, 2], [3, 4]]", [{"importance_scores": [1, 2]}, {"importance_scores": [3, 4]}]),
    ("x.T.copy().T.astype('>f8')", [{"importance_scores": [1, 2, 3]}, {"importance_scores": [4, 5, 6]}]),
    ("x.astype(np.longdouble)", [{"importance_scores": [1, 2, 3]}, {"importance_scores": [4, 5, 6]}]),
    ("x[:, 0].astype(np.longdouble)", [{"importance_scores": 1}, {"importance_scores": 4}]),
    ("{'importance_scores': x > 2, 'base_value': [0.5, 1.5], 'names': [['a', 'b']] * 2, 1: x[:, 0]}",
     [{"importance_scores": [False, False, True], "base_value": 0.5, "names": ["a", "b"], "1": 1},
      {"importance_scores": [True, True, True], "base_value": 1.5, "names": ["a", "b"], "1": 4}]),
    ("[{'why': 'because'}, {'scores': x[1]}]", [{"why": "because"}, {"scores": [4, 5, 6]}]),
    ("({'k': parameters['k']},) * 2", [{"k": 1}, {"k": 1}]),
    ("{'predictions': x, 'explanations': [{'why': 'because'}, {'scores': x[1]}]}",
     [{"why": "because"}, {"scores": [4, 5, 6]}]),
    ("{'explanations': x[:, 0]}", [{"explanations": 1}, {"explanations": 4}]),
])  # fmt: skip
def test_explain_returns_scores_or_members_or_explanations(tmp_path: Path, returned: str, found: Any) -> None:
    """There is one per example, in types that JSON accepts."""
    assert answer(tmp_path, returned) == found


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "explain returned 'importance_scores' of null; expected an array of numbers or text"),
        ("1.0", "explain returned 'importance_scores' of 1.0"),
        ("[[1], [1, 2]]", "explain returned 'importance_scores', which is not an array: "),
        ("np.ma.masked_array(x, True)", "explain returned 'importance_scores', which is not an array: it has masked"),
        ("{'a': x * 1j}", r"explain returned 'a' of \[\[1j, 2j, .*; expected an array of numbers or text"),
        ("{'a': x, 'b': x[:1]}", "explain returned members of unequal length: {'a': 2, 'b': 1}"),
        ("{}", "explain returned members of unequal length: {}"),
        ("x[:1]", "model 'm' returned 1 explanations for 2 examples"),
        ("[]", "model 'm' returned 0 explanations for 2 examples"),
        ("1 / 0", "model 'm' raised ZeroDivisionError$"),
        ("exit()", "model 'm' raised SystemExit"),
    ],
)
def test_an_explain_that_returns_something_else_is_at_fault(tmp_path: Path, returned: str, message: str) -> None:
    """The same holds for predict."""
    with pytest.raises(ModelFailed, match=message):
        answer(tmp_path, returned)


def test_explain_may_write_into_its_inputs_and_run_an_event_loop(tmp_path: Path) -> None:
    """A loop may already run in the thread that asks. A refusal that the model raised itself stays one."""
    model = load(
        tmp_path,
        "import asyncio\nfrom core.errors import InvalidInput\n"
        "def explain(inputs, parameters):\n"
        "    if parameters: raise InvalidInput('no')\n"
        "    inputs['x'] *= 2\n"
        "    return asyncio.run(asyncio.sleep(0, inputs['x']))\n",
    )

    async def ask() -> Any:
        return explain(model, inputs(), {})

    assert asyncio.run(ask())[0]["importance_scores"].tolist() == [2, 4, 6]
    assert explain(model, inputs(), {})[1]["importance_scores"].tolist() == [8, 10, 12]
    with pytest.raises(InvalidInput, match="no"):
        explain(model, inputs(), {"refuse": True})


def test_a_model_that_writes_into_its_inputs_is_explained_as_it_predicts(tmp_path: Path) -> None:
    """The examples are predicted several times, in arrays that may be writable: those of JSON are."""
    text = "def predict(inputs, parameters):\n    x = inputs['x']\n    x *= 2\n    return {'y': x.sum(1)}\n"
    model = load(tmp_path, text)
    model.spec = model.spec._replace(explainer=Explainer({"x": np.array([[0, 0, 1]], np.float32)}))
    examples = Tensor("x", DATATYPES["FP32"], np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    found = engine.ask(Explain(Infer(ModelRef("m"), (examples,))), model)
    assert [output.array.tolist() for output in found.inferred.outputs] == [[12.0, 30.0]]
    assert [(each["prediction"], each["importance_scores"].tolist()) for each in found.explanations] == [
        (12.0, [2.0, 4.0, 4.0]),
        (30.0, [8.0, 10.0, 10.0]),
    ]
    assert examples.array.tolist() == [[1, 2, 3], [4, 5, 6]]
