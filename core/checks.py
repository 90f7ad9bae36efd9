"""Checks a request's inputs and outputs against the model's own declaration."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from core import operations as ops
from core.bounds import check_empty_together
from core.errors import InvalidInput, shown
from core.tensor import Tensor, TensorSpec, from_raw

TEXT_OF_ELEMENT: Final = 128
"""The most bytes of text for an element of a tensor: 25 digits, in a line of its own, with its indentation."""
REMEMBERED: Final = 1024
"""Pairs of shapes whose comparison is remembered."""
TEXT_OF_REQUEST: Final = 4 * 1024 * 1024
"""The most bytes of text around a request's tensors."""


def checked(operation: ops.Infer, spec: ops.ModelSpec) -> tuple[dict[str, Tensor], list[str]]:
    """Returns the inputs by name, each of the expected datatype and shape, and the outputs to ask the model for.

    Raises InvalidInput.
    """
    tensors = operation.inputs if operation.raw is None else (_raw_input(operation.raw, spec),)
    return _checked_inputs(tensors, spec, operation.outputs), _checked_outputs(operation.outputs, spec)


def has_batches(spec: ops.ModelSpec) -> bool:
    """Decides whether the first axis of the model's tensors is the batch: it has a batch size, or they all vary there.

    Triton gives such a model a batch size by itself (model_configuration.md, "Auto-Generated Model Configuration").
    """
    if spec.max_batch_size:
        return True
    known = (*(spec.inputs or ()), *(spec.outputs or ())) if spec.inputs and spec.outputs else ()
    return bool(known) and all(tensor.shape is not None and tensor.shape[:1] == (-1,) for tensor in known)


def _checked_outputs(requested: Sequence[ops.RequestedOutput], spec: ops.ModelSpec) -> list[str]:
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
    what, shape = f"input {shown(only.name)} of a raw binary request", _shape_of_one(only, spec)
    if only.datatype.is_bytes:
        if shape is None or -1 in shape or math.prod(shape) != 1:
            raise InvalidInput(f"{what} is BYTES {_shape_text(only)}; only BYTES [1] can be one element")
        element = np.empty(shape, object)
        element[...] = bytes(raw)
        return Tensor(only.name, only.datatype, element)
    if shape is None or shape.count(-1) > 1:
        raise InvalidInput(f"{what} has the shape {_shape_text(only)}, which does not follow from its size")
    known = math.prod(size for size in shape if size != -1) * only.datatype.numpy.itemsize
    if -1 in shape and known and len(raw) % known:
        needs = f"{only.datatype.name} {list(shape)} needs a multiple of {known}"
        raise InvalidInput(f"{what} has {len(raw)} bytes; {needs}")
    variable = len(raw) // known if known else 0
    return from_raw(only.name, only.datatype, tuple(variable if s == -1 else s for s in shape), raw)


def _shape_of_one(only: TensorSpec, spec: ops.ModelSpec) -> tuple[int, ...] | None:
    """Returns the shape of a raw request, with -1 for the size that follows from its bytes.

    A request to a model with a batch size is a batch of one (Triton's extension_binary_data.md).
    """
    shape = only.shape
    return (1, *shape[1:]) if shape and shape[0] == -1 and spec.max_batch_size else shape


def _shape_text(spec: TensorSpec) -> str:
    return "of any rank" if spec.shape is None else str(list(spec.shape))


def _check_empty(tensors: Sequence[Tensor]) -> None:
    """Raises TooMany for tensors without elements whose product could have too many."""
    empty = [tensor.shape for tensor in tensors if 0 in tensor.shape]
    if len(empty) > 1:
        check_empty_together(empty)


def _checked_inputs(
    tensors: Sequence[Tensor], spec: ops.ModelSpec, wanted: Sequence[ops.RequestedOutput]
) -> dict[str, Tensor]:
    if spec.inputs is not None and len(spec.inputs) == len(tensors) == 1 and spec.inputs[0].name == tensors[0].name:
        return {tensors[0].name: fitting(tensors[0], spec.inputs[0], spec)}  # most models have one input
    given = {tensor.name: tensor for tensor in tensors}
    if len(given) != len(tensors):
        raise InvalidInput(f"input {shown(_twice([tensor.name for tensor in tensors]))} is given twice")
    if len(tensors) > 1:
        _check_empty(tensors)
    if spec.inputs is None:
        return given
    missing = [expected for expected in spec.inputs if expected.name not in given]
    if len(given) + len(missing) != len(spec.inputs) or (missing and not _dispensable(missing, given, wanted, spec)):
        raise _wrong_names(given, [expected.name for expected in spec.inputs], spec)
    for expected in spec.inputs:
        tensor = given.get(expected.name)
        if tensor is not None and (same := fitting(tensor, expected, spec)) is not tensor:
            given[expected.name] = same
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
        {binding.spec.name for binding in (signature.inputs or {}).values() if not binding.optional} <= given.keys()
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


def fitting(tensor: Tensor, expected: TensorSpec, spec: ops.ModelSpec) -> Tensor:
    """Returns the tensor in the model's datatype: each FP32 is an FP64, exactly. Raises InvalidInput."""
    if tensor.datatype is not expected.datatype:
        if tensor.datatype.name not in expected.datatype.accepts:
            what = f"input {shown(tensor.name)}"
            raise InvalidInput(f"{what} is {tensor.datatype.name}; the model expects {expected.datatype.name}")
        tensor = Tensor(tensor.name, expected.datatype, tensor.array.astype(expected.datatype.numpy))
    shape = tensor.shape
    if not is_of_shape(shape, expected.shape):
        what = f"input {shown(tensor.name)}"
        hint = _freeing(shape, expected, spec)
        raise InvalidInput(
            f"{what} has shape {shown(list(shape))}; the model expects {list(expected.shape or ())}{hint}"
        )
    return tensor


@lru_cache(REMEMBERED)
def is_of_shape(shape: tuple[int, ...], expected: tuple[int, ...] | None) -> bool:
    """Decides whether a tensor's shape is one that the model's declaration permits."""
    if expected is None or shape == expected:
        return True
    if len(shape) != len(expected):
        return False
    for size, wanted in zip(shape, expected, strict=True):  # noqa: SIM110 - any() would call a generator for each
        if wanted not in (-1, size):
            return False
    return True


def _freeing(shape: tuple[int, ...], expected: TensorSpec, spec: ops.ModelSpec) -> str:
    """Returns how to export a model whose batch is fixed at 1, the exporters' default; "" for other mistakes."""
    one, rest = (expected.shape or ())[:1], (expected.shape or ())[1:]
    fits = len(shape) == len(rest) + 1 and all(e in (-1, s) for s, e in zip(shape[1:], rest, strict=True))
    if one != (1,) or not rest or not fits or not spec.platform.startswith("onnx"):
        return ""
    return (
        ", one row at a time, as it was exported. Export it with a free batch: torch.onnx.export(..., "
        f"dynamic_shapes={{{shown(expected.name)}: {{0: 'batch'}}}}), in skl2onnx FloatTensorType([None, ...])"
    )


def longest_text(spec: ops.ModelSpec) -> int | None:
    """Returns the most bytes of text that a request for the model has, None for a model of any size.

    It is known of a model whose inputs are numbers of fixed shapes.
    """
    elements = 0
    for given in spec.inputs or ():
        if given.shape is None or -1 in given.shape or given.datatype.is_bytes:
            return None
        elements += math.prod(given.shape)
    return None if spec.inputs is None else TEXT_OF_REQUEST + TEXT_OF_ELEMENT * elements
