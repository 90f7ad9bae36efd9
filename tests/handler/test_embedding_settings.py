"""handler.settings.embeddings: the tensors that a publisher names for /v1/embeddings."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelSpec
from core.signature import EmbeddingTensors
from handler.backends import Source, model_spec
from handler.settings.model import parse
from tests.support.pipelines import tensor

INPUTS = (tensor("text", "BYTES"), tensor("x", "FP32"))
SAID = EmbeddingTensors("text", "b", "n", may_shorten=True)
OUTPUTS = (tensor("a", "FP32", -1, 2), tensor("b", "FP16", -1, 2), tensor("n", "INT32"))


def spec(said: str, inputs: Any = INPUTS, outputs: Any = OUTPUTS) -> ModelSpec:
    """Describes a model with these settings, as a load does."""
    settings = parse("m", f'{{"embeddings": {said}}}'.encode())
    return model_spec(Source("m", "1", Path("/nowhere"), settings), "p", inputs, outputs)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("null", EmbeddingTensors()),
        ("{}", EmbeddingTensors()),
        ('{"input": "text", "output": "b", "tokens": "n", "dimensions": true}', SAID),
    ],
)  # fmt: skip
def test_names_are_optional(said: str, expected: EmbeddingTensors) -> None:
    """The spec has those that are given."""
    assert spec(said).embeddings == expected


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("[]", "embeddings is []; expected an object"),
        (
            '{"outputs": "a"}',
            "embeddings.outputs is 'a'; expected no such key; the keys are input, output, tokens, dim",
        ),
        ('{"tokens": 1}', "embeddings.tokens is 1; expected the name of a tensor"),
        ('{"dimensions": 3}', "embeddings.dimensions is 3; expected true or false"),
        ('{"output": "c"}', "embeddings.output is 'c'; expected one of the model's tensors: a, b, n"),
        ('{"input": "x"}', "embeddings.input is 'x: FP32'; expected a tensor of BYTES"),
        ('{"output": "n"}', "embeddings.output is 'n: INT32'; expected a tensor of FP32 or FP16 or FP64"),
        ('{"tokens": "a"}', "embeddings.tokens is 'a: FP32'; expected a tensor of INT64 or INT32"),
    ],
)
def test_what_does_not_fit_is_refused(said: str, message: str) -> None:
    """With the path of its key."""
    with pytest.raises(ModelNotLoadable) as refused:
        spec(said)
    assert f"model-settings.json of model 'm': {message}" in refused.value.message


def test_a_model_has_to_declare_its_tensors() -> None:
    """Those of a Python model are in its metadata or its settings."""
    with pytest.raises(ModelNotLoadable, match="as the model does not declare its inputs and outputs"):
        spec("{}", None, None)
