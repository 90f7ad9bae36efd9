"""The keys "inputs" and "outputs" of model-settings.json, and of a Python model's `metadata`."""

import math
from typing import Any, Final

from core.dtype import DATATYPES
from core.tensor import TensorSpec
from handler.settings.checked import Wrong, a_shape, an_object, texts

FORMATS: Final = ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")
"""The formats of an input, as Triton's model configuration names them."""


def parse(members: dict[str, Any], key: str) -> tuple[TensorSpec, ...] | None:
    """Parses the tensors under a key; None for [], which MLServer writes for "not declared". Raises Wrong."""
    value = members[key]
    if not isinstance(value, list):
        raise Wrong(key, value, "an array of tensors")
    tensors = tuple(_tensor(member, f"{key}[{index}]") for index, member in enumerate(value))
    names: set[str] = set()
    for index, tensor in enumerate(tensors):
        if tensor.name in names:
            raise Wrong(f"{key}[{index}].name", tensor.name, "each name once")
        names.add(tensor.name)
    return tensors or None


def _tensor(member: Any, path: str) -> TensorSpec:
    members = an_object(member, path)
    name, datatype, shape = members.get("name"), members.get("datatype"), members.get("shape")
    if not isinstance(name, str):
        raise Wrong(f"{path}.name", name, "text")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise Wrong(f"{path}.datatype", datatype, f"one of {', '.join(DATATYPES)}")
    shape = None if shape is None else a_shape(shape, f"{path}.shape", otherwise=", or null for any rank")
    form = members.get("format", FORMATS[0])
    if form not in FORMATS:
        raise Wrong(f"{path}.format", form, f"one of {', '.join(FORMATS)}")
    labels = () if members.get("labels") is None else texts(members["labels"], f"{path}.labels")
    reshape = None if members.get("reshape") is None else _reshape(members["reshape"], f"{path}.reshape", shape)
    return TensorSpec(name, DATATYPES[datatype], shape, labels, format=form, reshape=reshape)


def _reshape(value: Any, path: str, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Returns the shape in the model, None if it is the same. Raises Wrong unless it has the same elements."""
    found = a_shape(value, path)
    if shape is None:
        raise Wrong(path, value, "none without a shape")
    # The variable sizes follow each other, so the product of the fixed ones has to be the same.
    if (found.count(-1), math.prod(found)) != (shape.count(-1), math.prod(shape)):
        raise Wrong(path, value, f"as many elements and variable sizes as in the shape {list(shape)}")
    return None if found == shape else found
