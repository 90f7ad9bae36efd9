"""Binds GRPS's content to a model's inputs. The spec assigns unnamed tensors, text, bytes and numbers to them."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from core.dialects.grps.content import (
    MAP_FIELDS,
    UINT8,
    Binary,
    Content,
    Map,
    MapEntry,
    Numbers,
    Tensors,
    Text,
    carrier,
    converted,
    element,
)
from core.dtype import BF16, BYTES, FP32, DataType
from core.errors import InvalidInput, counted, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec, as_column, named

UNNAMED: Final = "input-{}"
"""The name, by position, of an input that neither the request nor the model names, as in KServe and MLServer."""


def bound(content: Content, spec: ModelSpec) -> tuple[Tensor, ...]:
    """Returns the inputs that the content describes. Raises InvalidInput if it cannot describe the model's inputs.

    The engine checks for unknown and missing inputs, and the shapes.
    """
    return _BOUND[type(content)](content, spec)


def check_count(count: int, spec: ModelSpec) -> None:
    """Raises InvalidInput if a request has more tensors than the model has inputs; called before they are made."""
    if spec.inputs is not None and count > len(spec.inputs):
        raise InvalidInput(f"the request has {counted(count, 'tensor')}; {_has(spec)}")


def _tensors(content: Tensors, spec: ModelSpec) -> tuple[Tensor, ...]:
    tensors = content.tensors
    names = [tensor.name for tensor in tensors]
    if all(names):
        return _typed(tensors, spec.inputs or ())
    if any(names):
        raise InvalidInput(
            f"tensor {names.index('')} of {len(names)} has no name: name every tensor after its input, or name none: "
            "then they are the inputs in order"
        )
    if spec.inputs is None:
        return tuple(tensor._replace(name=UNNAMED.format(index)) for index, tensor in enumerate(tensors))
    inputs = spec.inputs if len(tensors) == len(spec.inputs) else _needed(spec.inputs)
    if len(tensors) != len(inputs):
        raise InvalidInput(f"the request has {counted(len(tensors), 'tensor')}, without names; {_has(spec)}")
    placed = [tensor._replace(name=given.name) for tensor, given in zip(tensors, inputs, strict=True)]
    return _typed(placed, inputs)


def _needed(inputs: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
    """Returns the inputs that a request may not lack; all of them if it may lack each."""
    return [given for given in inputs if not given.optional] or inputs


def _has(spec: ModelSpec) -> str:
    names = [given.name for given in spec.inputs or ()]
    return f"model {shown(spec.name)} has {len(names)}: {shown(names)}"


def _typed(tensors: Sequence[Tensor], inputs: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
    """Returns the tensors in the inputs' own types (the protocol's can be wider), and scalars as columns."""
    expected = {given.name: given for given in inputs}
    return tuple(_narrowed(tensor, expected.get(tensor.name)) for tensor in tensors)


def _narrowed(tensor: Tensor, expected: TensorSpec | None) -> Tensor:
    if expected is None:
        return tensor
    tensor = as_column(tensor, expected.shape)
    if tensor.datatype is expected.datatype or tensor.datatype is not carrier(expected.datatype):
        return tensor
    return converted(tensor, expected.datatype)


def _only(spec: ModelSpec, kind: str, *datatypes: DataType) -> TensorSpec:
    """Returns the only input; for a model that does not declare its inputs, one of the first datatype.

    Raises InvalidInput if the model needs several inputs, or one of another datatype.
    """
    if spec.inputs is None:
        return TensorSpec(UNNAMED.format(0), datatypes[0], None)
    needed = _needed(spec.inputs)
    if len(needed) != 1:
        raise InvalidInput(f"{kind} is for one input; {_has(spec)}")
    _check_kind(needed[0], kind, *datatypes)
    return needed[0]


def _check_kind(expected: TensorSpec, kind: str, *datatypes: DataType) -> None:
    if expected.datatype not in datatypes:
        told = " or ".join(datatype.name for datatype in datatypes)
        raise InvalidInput(f"{named(expected.name)} is {expected.datatype.name}; {kind} can be {told}")


def _ones(spec: TensorSpec) -> tuple[int, ...]:
    """Returns the shape of a single element in the input's rank."""
    return (1,) if spec.shape is None else (1,) * len(spec.shape)


def _string(spec: TensorSpec, value: bytes) -> Tensor:
    return Tensor(spec.name, BYTES, element(value).reshape(_ones(spec)))


def _bytes(spec: TensorSpec, data: bytes | memoryview) -> Tensor:
    """Returns one BYTES element, or UINT8 along the last axis."""
    if spec.datatype is BYTES:
        return _string(spec, bytes(data))
    array = np.frombuffer(data, np.uint8)
    return Tensor(spec.name, UINT8, array.reshape((*_ones(spec)[1:], len(array))))


def _text(content: Text, spec: ModelSpec) -> tuple[Tensor, ...]:
    return (_string(_only(spec, "str_data", BYTES), content.text.encode()),)


def _binary(content: Binary, spec: ModelSpec) -> tuple[Tensor, ...]:
    return (_bytes(_only(spec, "bin_data", BYTES, UINT8), content.data),)


def _numbers(content: Numbers, spec: ModelSpec) -> tuple[Tensor, ...]:
    only = _only(spec, "ndarray", FP32)
    return (as_column(Tensor(only.name, FP32, content.array), only.shape),)


def _map(content: Map, spec: ModelSpec) -> tuple[Tensor, ...]:
    expected = {given.name: given for given in spec.inputs or ()}
    return tuple(_value(entry, expected.get(entry.tensor.name)) for entry in content.entries)


def _value(entry: MapEntry, expected: TensorSpec | None) -> Tensor:
    """Returns one entry as a tensor. `expected` None: the input is not declared; the engine refuses it if it must."""
    field, tensor = entry
    spec = expected or TensorSpec(tensor.name, MAP_FIELDS[field], None)
    if tensor.datatype is not BYTES:
        _check_number(spec, field, tensor.datatype)
        return converted(tensor._replace(array=tensor.array.reshape(_ones(spec))), spec.datatype)
    _check_kind(spec, field, *((BYTES, UINT8) if field == "s_b" else (BYTES,)))
    return _bytes(spec, tensor.array.item())


def _check_number(expected: TensorSpec, field: str, given: DataType) -> None:
    """Raises InvalidInput for a number in an input of strings, and for a float in an input of integers or booleans."""
    wanted = expected.datatype
    if wanted is BYTES or (given.is_float and not (wanted.is_float or wanted is BF16)):
        kind = "a float" if given.is_float else "a number"
        raise InvalidInput(f"{named(expected.name)} is {wanted.name}; {field} can be {kind}")


_BOUND: Final[dict[type, Callable[[Any, ModelSpec], tuple[Tensor, ...]]]] = {
    Text: _text,
    Binary: _binary,
    Tensors: _tensors,
    Numbers: _numbers,
    Map: _map,
}
