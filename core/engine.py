"""Defines every operation once, for REST, gRPC and Connect.

`answer` is the way in, and `core.batches.steps` for requests that run together. Both ask the port `Models`, keep the
model in use for as long as its answer is made, and report to the request's context how long that took.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from core import checks
from core import operations as ops
from core.errors import NotSupported, ServingError, shown
from core.ports import Context, Model, Models, Use
from core.tensor import Tensor

T = TypeVar("T")
Reply = Callable[[Any], Any]


class Finish(Protocol):
    def __call__(self, reply: Any, operation: ops.Operation, use: Use | None, *, lazy: bool) -> Any:
        """Returns the parts of a reply that are sent, in the same thread. `use` None: the server itself answers.

        `lazy`: the parts of the reply are made one by one; `kept` keeps their model in use for as long.
        """
        ...


def answer(operation: ops.Operation, reply: Reply, finish: Finish, models: Models, context: Context) -> Any:
    """Returns `finish(reply(result))` for the operation's result. Raises ServingError.

    The model of a question is in use until this returns, and that of a lazy answer until its parts end (see `kept`).
    """
    meaning = MEANINGS.get(type(operation))
    if meaning is not None:
        return finish(reply(meaning(operation, models, context)), operation, None, lazy=False)
    question: Any = operation  # a question, which names its model
    decode = question.decode if type(operation) is ops.Deferred else lambda _: (operation, reply)
    return answer_with(models.use(question.ref, context), decode, finish, context)


def answer_with(use: Use, decode: Callable[[ops.ModelSpec], Any], finish: Finish, context: Context) -> Any:
    """Returns the answer of a version to a question, and ends its use. Raises ServingError.

    `decode`: returns the question and its reply, by the spec of the very version that answers.
    """
    with use as model:
        context.using(use)
        operation, reply = decode(model.spec)
        return COUNTED[type(operation)](operation, reply, finish, use, context)


def ask(question: ops.Operation, model: Model) -> Any:
    """Returns a model's result; see ANSWERS for the type of each. Raises ServingError."""
    return ANSWERS[type(question)](question, model)


def kept(use: Use, items: Iterable[T]) -> Iterator[T]:
    """Returns the items of an iterator. Their model stays in use until they end, or until they are closed."""

    def each() -> Iterator[Any]:
        with use.again():
            try:
                yield None
                yield from items
            finally:
                getattr(items, "close", lambda: None)()

    begun = each()
    next(begun)  # a generator that never began would not end the use when it is dropped
    return begun


def _counted_infer(operation: ops.Infer, reply: Reply, finish: Finish, use: Use, context: Context) -> Any:
    decoded = time.perf_counter_ns()
    try:
        result = infer(operation, use.model)
        inferred = time.perf_counter_ns()
        sent = finish(reply(result), operation, use, lazy=False)
    except ServingError:
        context.failed(use)
        raise
    context.answered(use, decoded, inferred, rows_of(operation, use.model.spec))
    return sent


def _counted_stream(operation: ops.Stream, reply: Reply, finish: Finish, use: Use, context: Context) -> Any:
    """Counts all answers of a stream as one inference. A stream that its client leaves early is not counted."""
    decoded = time.perf_counter_ns()
    try:
        results = _stream(operation, use.model)
        spent = time.perf_counter_ns() - decoded
        sent = finish(reply(results), operation, use, lazy=False) if isinstance(results, tuple) else None
    except ServingError:
        context.streamed(use, decoded, time.perf_counter_ns() - decoded, success=False)
        raise
    if isinstance(results, tuple):
        context.streamed(use, decoded, spent, success=True)
        return sent
    sent = finish(reply(_timed(results, spent, use, decoded, context)), operation, use, lazy=True)
    context.began(time.perf_counter_ns() - decoded)
    return sent


def _timed(results: Any, spent: int, use: Use, decoded: int, context: Context) -> Iterator[ops.InferResult]:
    try:
        while True:
            stepped = time.perf_counter_ns()
            result = next(results, None)
            spent += time.perf_counter_ns() - stepped
            if result is None:
                break
            yield result
    except ServingError:
        context.streamed(use, decoded, spent, success=False)
        raise
    finally:
        results.close()
    context.streamed(use, decoded, spent, success=True)


def _counted_apart(
    operation: ops.Explain | ops.Custom, reply: Reply, finish: Finish, use: Use, context: Context
) -> Any:
    """Counts a question that is not an inference, until its answer begins."""
    context.asking("explain" if isinstance(operation, ops.Explain) else "custom")
    try:
        sent = finish(reply(ask(operation, use.model)), operation, use, lazy=isinstance(operation, ops.Custom))
    except ServingError:
        context.failed(use)
        raise
    context.asked(use)
    return sent


def rows_of(operation: ops.Infer, spec: ops.ModelSpec) -> int:
    """Returns how many inferences a request is: as many as it has rows, if the model has a batch size.

    Source: Triton's extension_statistics.md, "inference_count".
    """
    if not (spec.max_batch_size or spec.batching) or not operation.inputs:
        return 1
    shape = operation.inputs[0].shape
    return shape[0] if shape else 1


def infer(operation: ops.Infer, model: Model) -> ops.InferResult:
    """Returns the outputs of one inference. Raises InvalidInput, ModelFailed."""
    spec = model.spec
    inputs, names = checks.checked(operation, spec)
    return result_of(operation, spec, model.predict(inputs, names, operation.parameters))


def _stream(operation: ops.Stream, model: Model) -> Iterable[ops.InferResult]:
    """Returns a tuple where every answer is there at once, else a generator. Raises InvalidInput before the first."""
    question = operation.infer
    if model.stream is None:
        return (infer(question, model),)
    inputs, names = checks.checked(question, model.spec)
    answers = model.stream(inputs, names, question.parameters)
    return _each(question, model.spec, answers)


def _each(operation: ops.Infer, spec: ops.ModelSpec, answers: Generator[Sequence[Tensor]]) -> Iterator[ops.InferResult]:
    try:
        for outputs in answers:
            yield result_of(operation, spec, outputs)
    finally:
        answers.close()


def _explain(operation: ops.Explain, model: Model) -> ops.ExplainResult:
    from core.explain import explanation  # noqa: PLC0415 - 2 ms of cold start for servers that explain nothing

    question = operation.infer
    inputs, names = checks.checked(question, model.spec)
    explanations = explanation.explain(model, inputs, question.parameters)
    outputs = model.predict(inputs, names, question.parameters)
    return ops.ExplainResult(result_of(question, model.spec, outputs), explanations)


def _custom(operation: ops.Custom, model: Model) -> Any:
    if model.http is None:
        raise NotSupported(f"model {shown(model.spec.name)} has no function http(request)")
    return model.http(operation.request)


def result_of(operation: ops.Infer, spec: ops.ModelSpec, outputs: Sequence[Tensor]) -> ops.InferResult:
    """Returns a model's outputs in the form that the client asked for."""
    if operation.outputs and any(output.classes for output in operation.outputs):
        outputs = _classified(outputs, operation, spec)
    return ops.InferResult(spec.name, spec.version, tuple(outputs), spec.raw_outputs)


def _classified(outputs: Sequence[Tensor], operation: ops.Infer, spec: ops.ModelSpec) -> list[Tensor]:
    from core.classification import classify  # noqa: PLC0415 - few clients ask for classes

    labels = {output.name: output.labels for output in spec.outputs or ()}
    has_batches = checks.has_batches(spec)
    asked = sum(tensor.array.size for tensor in operation.inputs) + len(operation.raw or b"")
    return [
        classify(
            tensor, wish.classes, labels.get(wish.name, ()), asked, is_batch=has_batches and _has_rows(tensor, spec)
        )
        if wish.classes
        else tensor
        for tensor, wish in zip(outputs, operation.outputs, strict=True)
    ]


def _has_rows(tensor: Tensor, spec: ops.ModelSpec) -> bool:
    """Decides whether a tensor's first axis is a batch. A vector of a model without a batch size has one row."""
    return spec.max_batch_size > 0 or tensor.array.ndim > 1


def _index(operation: ops.RepositoryIndex, models: Models, context: Context) -> list[ops.IndexEntry]:
    return [entry for entry in models.index(context) if entry.state is ops.State.READY or not operation.ready_only]


COUNTED: Final[dict[type, Callable[[Any, Reply, Finish, Use, Context], Any]]] = {
    ops.Infer: _counted_infer,
    ops.Stream: _counted_stream,
    ops.Explain: _counted_apart,
    ops.Custom: _counted_apart,
}
"""How each question to a model is answered and counted. The statistics extension counts the first two."""
ANSWERS: Final[dict[type, Callable[[Any, Model], Any]]] = {
    ops.Infer: infer,
    ops.Stream: _stream,
    ops.Explain: _explain,
    ops.Custom: _custom,
}
MEANINGS: Final[dict[type, Callable[[Any, Models, Context], Any]]] = {
    ops.ServerLive: lambda _, __, ___: ops.Readiness(ready=True),
    ops.ServerReady: lambda _, models, context: models.ready(context),
    ops.ServerMetadata: lambda _, models, __: models.server(),
    ops.ServerOverview: lambda _, models, context: (models.server(), models.index(context)),
    ops.ServerSeries: lambda _, models, __: models.series(),
    ops.ListModels: lambda _, models, context: models.names(context),
    ops.RepositoryIndex: _index,
    ops.ModelReady: lambda operation, models, context: models.readiness(operation.ref, context),
    ops.ModelMetadata: lambda operation, models, context: models.describe(operation.ref, context),
    ops.ModelStatus: lambda operation, models, context: models.status(operation.ref, context),
    ops.ModelStatistics: lambda operation, models, context: models.statistics(operation.ref, context),
    ops.Load: lambda operation, models, context: models.load(operation.name, context, anew=operation.anew),
    ops.Unload: lambda operation, models, context: models.unload(operation.name, context),
    ops.SetOnline: lambda operation, models, _: models.set_online(online=operation.online),
}
"""The operations that the server answers itself; every other one is a question to a model."""
