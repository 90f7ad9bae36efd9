"""What every operation means, once, for all protocols."""

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core import operations as ops
from core.classification import classify
from core.errors import InvalidInput, NotSupported, shown
from core.ports import Model, Models
from core.tensor import Tensor, TensorSpec, from_raw


def execute(operation: ops.Operation, models: Models) -> Any:
    """The operation's result; see MEANINGS for the type of each. Raises ServingError."""
    return MEANINGS[type(operation)](operation, models)


def ask(question: ops.Infer | ops.Stream | ops.Explain | ops.Custom, model: Model) -> Any:
    """What a model answers; see ANSWERS for the type of each. Raises ServingError."""
    return ANSWERS[type(question)](question, model)


def _infer(operation: ops.Infer, model: Model) -> ops.InferResult:
    return _inferred(operation, model, _inputs(operation, model.spec))


def _stream(operation: ops.Stream, model: Model) -> Iterable[ops.InferResult]:
    """A tuple where all is there at once. What is wrong with the question is raised here, and not by an iterator."""
    question = operation.infer
    inputs = _inputs(question, model.spec)
    if model.stream is None:
        return (_inferred(question, model, inputs),)
    answers = model.stream(inputs, _checked_outputs(question.outputs, model.spec), question.parameters)
    return _each(question, model.spec, answers)


def _each(operation: ops.Infer, spec: ops.ModelSpec, answers: Generator[Sequence[Tensor]]) -> Iterator[ops.InferResult]:
    try:
        for outputs in answers:
            yield _result(operation, spec, outputs)
    finally:
        answers.close()


def _explain(operation: ops.Explain, model: Model) -> ops.ExplainResult:
    from core import explanation  # noqa: PLC0415 - 2 ms of cold start for servers that explain nothing

    question = operation.infer
    inputs = _inputs(question, model.spec)
    explanations = explanation.explain(model, inputs, question.parameters)
    return ops.ExplainResult(_inferred(question, model, inputs), explanations)


def _custom(operation: ops.Custom, model: Model) -> Any:
    if model.http is None:
        raise NotSupported(f"model {shown(model.spec.name)} has no function http(request)")
    return model.http(operation.request)


def _deferred(operation: ops.Deferred, models: Models) -> Any:
    """In tensors and in words of the very version that told how."""
    model = models.get(operation.ref)
    decoded, phrase = operation.decode(model.spec)
    return phrase(ask(decoded, model))


def _inputs(operation: ops.Infer, spec: ops.ModelSpec) -> dict[str, Tensor]:
    tensors = operation.inputs if operation.raw is None else (_raw_input(operation.raw, spec),)
    return _checked_inputs(tensors, spec, operation.outputs)


def _inferred(operation: ops.Infer, model: Model, inputs: dict[str, Tensor]) -> ops.InferResult:
    spec = model.spec
    return _result(
        operation, spec, model.predict(inputs, _checked_outputs(operation.outputs, spec), operation.parameters)
    )


def _result(operation: ops.Infer, spec: ops.ModelSpec, outputs: Sequence[Tensor]) -> ops.InferResult:
    if any(output.classes for output in operation.outputs):
        outputs = _classified(outputs, operation.outputs, spec)
    return ops.InferResult(spec.name, spec.version, tuple(outputs))


def _raw_input(raw: bytes | memoryview, spec: ops.ModelSpec) -> Tensor:
    """The only input, of a datatype and shape that the model alone tells (the binary extension's raw request)."""
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
    """Whether one of the signatures makes what is wanted of what is given: anything else would be made of nothing."""
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


def _checked_outputs(requested: Sequence[ops.RequestedOutput], spec: ops.ModelSpec) -> list[str]:
    """The names to ask the model for; all in its own order if the client names none."""
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


def _classified(
    outputs: Sequence[Tensor], requested: Sequence[ops.RequestedOutput], spec: ops.ModelSpec
) -> list[Tensor]:
    labels = {output.name: output.labels for output in spec.outputs or ()}
    return [
        classify(tensor, wish.classes, labels.get(wish.name, ())) if wish.classes else tensor
        for tensor, wish in zip(outputs, requested, strict=True)
    ]


def _load(operation: ops.Load, models: Models) -> None:
    models.load(operation.name)


def _unload(operation: ops.Unload, models: Models) -> None:
    models.unload(operation.name)


def _set_online(operation: ops.SetOnline, models: Models) -> None:
    models.set_online(online=operation.online)


def _index(operation: ops.RepositoryIndex, models: Models) -> list[ops.IndexEntry]:
    return [entry for entry in models.index() if entry.state is ops.State.READY or not operation.ready_only]


def _asked(operation: ops.Infer | ops.Stream | ops.Explain | ops.Custom, models: Models) -> Any:
    return ask(operation, models.get(operation.ref))


ANSWERS: Final[dict[type, Callable[[Any, Model], Any]]] = {
    ops.Infer: _infer,
    ops.Stream: _stream,
    ops.Explain: _explain,
    ops.Custom: _custom,
}
MEANINGS: Final[dict[type, Callable[[Any, Models], Any]]] = {
    ops.ServerLive: lambda _, __: ops.Readiness(ready=True),
    ops.ServerReady: lambda _, models: models.ready(),
    ops.ServerMetadata: lambda _, models: models.server(),
    ops.ServerOverview: lambda _, models: (models.server(), models.index()),
    ops.ListModels: lambda _, models: models.names(),
    ops.RepositoryIndex: _index,
    ops.ModelReady: lambda operation, models: models.readiness(operation.ref),
    ops.ModelMetadata: lambda operation, models: models.describe(operation.ref),
    ops.ModelStatus: lambda operation, models: models.status(operation.ref),
    ops.ModelStatistics: lambda operation, models: models.statistics(operation.ref),
    ops.Load: _load,
    ops.Unload: _unload,
    ops.SetOnline: _set_online,
    **dict.fromkeys(ANSWERS, _asked),
    ops.Deferred: _deferred,
}
