"""What a request's inputs and outputs are checked for, against what the model says of its own."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from core import operations as ops
from core.errors import InvalidInput, shown
from core.tensor import Tensor, TensorSpec, from_raw


def inputs(operation: ops.Infer, spec: ops.ModelSpec) -> dict[str, Tensor]:
    """Returns the inputs by name, each of the datatype and shape that the model expects. Raises InvalidInput."""
    tensors = operation.inputs if operation.raw is None else (_raw_input(operation.raw, spec),)
    return _checked_inputs(tensors, spec, operation.outputs)


def outputs(requested: Sequence[ops.RequestedOutput], spec: ops.ModelSpec) -> list[str]:
    """Returns the names to ask the model for; all in its own order if the client names none. Raises InvalidInput."""
    known = None if spec.outputs is None else [output.name for output in spec.outputs]
    if not requested:
        return known or []
    names = [output.name for output in requested]
    if len(set(names)) != len(names):
        raise InvalidInput(f"output {shown(_twice(names))} is asked for twice")
    for name in names:
        if known is not None and name not in known:
            raise InvalidInput(f"model {shown(spec.name)} has no output {shown(name)}; it has {shown(known)}")
    return names


def _raw_input(raw: bytes | memoryview, spec: ops.ModelSpec) -> Tensor:
    """Returns the only input. Its datatype and shape are the model's (the binary extension's raw request)."""
    if spec.inputs is None or len(spec.inputs) != 1:
        has = "does not say its inputs" if spec.inputs is None else f"has {len(spec.inputs)}"
        raise InvalidInput(f"a raw binary request is for one input; model {shown(spec.name)} {has}")
    only = spec.inputs[0]
    what = f"input {shown(only.name)} of a raw binary request"
    if only.datatype.is_bytes:
        if only.shape != (1,):
            raise InvalidInput(f"{what} is BYTES {_shape_text(only)}; only BYTES [1] can be one element")
        element = np.empty(1, object)
        element[0] = bytes(raw)
        return Tensor(only.name, only.datatype, element)
    if only.shape is None or only.shape.count(-1) > 1:
        raise InvalidInput(f"{what} has the shape {_shape_text(only)}, which its size alone does not tell")
    known = math.prod(size for size in only.shape if size != -1) * only.datatype.numpy.itemsize
    variable = len(raw) // known if known else 0
    return from_raw(only.name, only.datatype, tuple(variable if s == -1 else s for s in only.shape), raw)


def _shape_text(spec: TensorSpec) -> str:
    return "of any rank" if spec.shape is None else str(list(spec.shape))


def _checked_inputs(
    tensors: Sequence[Tensor], spec: ops.ModelSpec, wanted: Sequence[ops.RequestedOutput]
) -> dict[str, Tensor]:
    given = {tensor.name: tensor for tensor in tensors}
    if len(given) != len(tensors):
        raise InvalidInput(f"input {shown(_twice([tensor.name for tensor in tensors]))} is given twice")
    if spec.inputs is None:
        return given
    missing = [expected for expected in spec.inputs if expected.name not in given]
    if len(given) + len(missing) != len(spec.inputs) or (missing and not _dispensable(missing, given, wanted, spec)):
        raise _wrong_names(given, [expected.name for expected in spec.inputs], spec)
    for expected in spec.inputs:
        tensor = given.get(expected.name)
        if tensor is not None:
            _check_input(tensor, expected)
    return given


def _dispensable(
    missing: Iterable[TensorSpec],
    given: Mapping[str, Tensor],
    wanted: Sequence[ops.RequestedOutput],
    spec: ops.ModelSpec,
) -> bool:
    """Decides whether one of the signatures makes the wanted outputs out of the given inputs alone."""
    if not all(expected.optional for expected in missing):
        return False
    names = [output.name for output in wanted or spec.outputs or ()]
    return any(
        {binding.spec.name for binding in (signature.inputs or {}).values()} <= given.keys()
        and {binding.spec.name for binding in signature.outputs.values()}.issuperset(names)
        for signature in spec.signatures.values()
    )


def _wrong_names(given: Iterable[str], known: Sequence[str], spec: ops.ModelSpec) -> InvalidInput:
    for name in given:
        if name not in known:
            return InvalidInput(f"model {shown(spec.name)} has no input {shown(name)}; it has {shown(known)}")
    missing = next(name for name in known if name not in given)
    return InvalidInput(f"model {shown(spec.name)} needs input {shown(missing)}, which is missing")


def _twice(names: Sequence[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)


def _check_input(tensor: Tensor, expected: TensorSpec) -> None:
    if tensor.datatype is not expected.datatype:
        what = f"input {shown(tensor.name)}"
        raise InvalidInput(f"{what} is {tensor.datatype.name}; the model expects {expected.datatype.name}")
    shape = tensor.array.shape
    if expected.shape is None or shape == expected.shape:
        return
    if len(shape) != len(expected.shape) or any(e not in (-1, s) for s, e in zip(shape, expected.shape, strict=True)):
        what = f"input {shown(tensor.name)}"
        raise InvalidInput(f"{what} has shape {shown(list(shape))}; the model expects {list(expected.shape)}")
