"""The key "embeddings" of model-settings.json: the tensors of a model that answers /v1/embeddings.

    "embeddings": {"input": name, "output": name, "tokens": name, "dimensions": true}

Each name may be left out: then it is the only tensor that can be it. `dimensions`: clients may ask for shorter vectors.
"""

from collections.abc import Sequence
from typing import Any

from core.signature import EmbeddingTensors
from core.tensor import TensorSpec
from handler.settings.checked import Wrong, an_object


def parse(value: Any) -> EmbeddingTensors:
    """Parses the key's value. Raises Wrong."""
    members = an_object(value, "embeddings", "input", "output", "tokens", "dimensions")
    for key in ("input", "output", "tokens"):
        if members.get(key) is not None and not isinstance(members[key], str):
            raise Wrong(f"embeddings.{key}", members[key], "the name of a tensor")
    shorter = members.get("dimensions", False)
    if not isinstance(shorter, bool):
        raise Wrong("embeddings.dimensions", shorter, "true or false")
    return EmbeddingTensors(members.get("input"), members.get("output"), members.get("tokens"), shorter)


def bound(
    said: EmbeddingTensors, inputs: Sequence[TensorSpec] | None, outputs: Sequence[TensorSpec] | None
) -> EmbeddingTensors:
    """Returns the settings, for a model with these inputs and outputs. Raises Wrong."""
    if inputs is None or outputs is None:
        raise Wrong("embeddings", "an object", "no such key, as the model does not declare its inputs and outputs")
    _check("input", said.input, inputs, "BYTES")
    _check("output", said.output, outputs, "FP32", "FP16", "FP64")
    _check("tokens", said.tokens, outputs, "INT64", "INT32")
    return said


def _check(key: str, name: str | None, specs: Sequence[TensorSpec], *datatypes: str) -> None:
    if name is None:
        return
    found = next((spec for spec in specs if spec.name == name), None)
    if found is None:
        raise Wrong(f"embeddings.{key}", name, f"one of the model's tensors: {', '.join(spec.name for spec in specs)}")
    if found.datatype.name not in datatypes:
        raise Wrong(f"embeddings.{key}", f"{name}: {found.datatype.name}", f"a tensor of {' or '.join(datatypes)}")
