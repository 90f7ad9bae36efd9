"""Python models: a version's model.py. Off unless DRAGOMAN_ALLOW_CODE=true.

    def predict(inputs: dict[str, ndarray], parameters: dict) -> dict[str, ndarray]

It may yield such dicts instead of returning one; each is an answer of its own for clients that request a stream. If
model.py has a function `stream` with the same arguments, that one answers streams, and `predict` single answers.

    def http(request) -> bytes | str | dict | Generator | tuple[status, headers, body]

This optional function answers whole requests on the path in the model's settings (`http.path`); see
core.dialects.custom.

BYTES are object arrays of `bytes` (results may hold `str`, too), whatever MLServer's content type is; those of "base64"
are decoded. BF16 is uint16. The settings may declare `inputs` and `outputs`, or a module variable `metadata` of the
same form may. Requests are checked against the declaration, and metadata shows it.

    def explain(inputs: dict[str, ndarray], parameters: dict) -> ndarray | dict[str, ndarray] | list[dict]

This function is optional, too. An array has each example's "importance_scores" along its first axis. Arrays in a dict
are the members of each explanation. A list has the explanations themselves, whose members must fit into JSON.

An error ends the request with 500 and the error's class; its text and its traceback are only in the log. To refuse
a request, a model raises `core.errors.InvalidInput(text)`: the client gets 400 and the text.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from inspect import isasyncgenfunction, isclass, iscoroutinefunction, isgeneratorfunction, isroutine, signature, unwrap
from types import ModuleType
from typing import Any, Final
from weakref import finalize

import numpy as np

from core.errors import ModelFailed, ModelNotLoadable, ServingError, located, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends import (
    BACKENDS,
    SeveralAnswers,
    Source,
    completed,
    forks,
    model_module,
    model_spec,
    refuse_reshape,
)
from handler.backends.python_outputs import Returned
from handler.backends.runs import beside, check
from handler.settings import Settings
from handler.settings import model as model_settings

log = logging.getLogger(__name__)
CALLED: Final = {
    "predict": ("inputs", "parameters"),
    "stream": ("inputs", "parameters"),
    "explain": ("inputs", "parameters"),
    "http": ("request",),
}
"""The functions of a module that the server calls, with their arguments. All but `predict` may be absent."""
_END: Final = object()
"""Marks the end of a generator. A model cannot yield it."""


def load(source: Source, settings: Settings) -> "PythonModel":
    """Imports model.py. The spec has the tensors of its `metadata`, as the settings complete them, else the settings'.

    Raises ModelNotLoadable, in one line without paths: unless DRAGOMAN_ALLOW_CODE=true, for a module that raises or
    has no function `predict`, for a function that cannot be called as CALLED says, and for a wrong `metadata`.
    """
    if not settings.allow_code:
        raise ModelNotLoadable(
            f"model {source.name!r} is Python code, which is not run unless DRAGOMAN_ALLOW_CODE=true: "
            "set it if every user with write access to the repository may run code here"
        )
    module = _apart(lambda: model_module.imported(source))
    try:
        model = _model(source, module)
    except BaseException:
        model_module.forget(module.__name__)
        raise
    finalize(model, model_module.forget, module.__name__).atexit = False
    return model


def _model(source: Source, module: ModuleType) -> "PythonModel":
    """Returns the model of an imported model.py. Raises ModelNotLoadable."""
    predict = getattr(module, "predict", None)
    if not callable(predict):
        raise ModelNotLoadable(f"model {source.name!r}: model.py has no function predict(inputs, parameters)")
    for function, arguments in CALLED.items():
        _check_call(source.name, module, function, arguments)
    inputs, outputs = model_settings.described(source.name, getattr(module, "metadata", None))
    said = source.settings
    try:
        inputs, outputs = (
            _stated("input", inputs, said.inputs, {}),
            _stated("output", outputs, said.outputs, said.labels),
        )
    except ModelNotLoadable as error:
        raise located(error, f"model {source.name!r} version {source.version} cannot be loaded") from None
    spec = model_spec(source, "python", inputs, outputs)
    refuse_reshape(source.name, spec)  # the module's metadata can have one, too
    methods = said.http.methods if said.http is not None else None
    return PythonModel(spec._replace(decoupled=isgeneratorfunction(_code(predict))), module, methods)


def _check_call(name: str, module: ModuleType, function: str, arguments: Sequence[str]) -> None:
    """Raises ModelNotLoadable for a function of the module that cannot be called with these arguments."""
    called = getattr(module, function, None)
    if not callable(called):
        return
    if iscoroutinefunction(_code(called)) or isasyncgenfunction(_code(called)):
        text = f"{function} is async; expected a plain function, which runs in a thread"
        raise ModelNotLoadable(f"model {name!r}: {text}")
    try:
        signature(called).bind(*arguments)
    except TypeError as error:
        expected = " and ".join(arguments)
        raise ModelNotLoadable(f"model {name!r}: {function} has to take {expected}: {error}") from None
    except ValueError:  # it is not written in Python, and does not describe itself
        return


def _code(called: Any) -> Any:
    """Returns the function that a call runs: an object may have `__call__`."""
    found = unwrap(called)
    return found if isroutine(found) or isclass(found) or isinstance(found, partial) else found.__call__


def _stated(
    role: str,
    own: tuple[TensorSpec, ...] | None,
    said: tuple[TensorSpec, ...] | None,
    labels: Mapping[str, tuple[str, ...]],
) -> tuple[TensorSpec, ...] | None:
    """Returns the tensors of the module's `metadata`, as the settings complete them; None if neither has any."""
    if own is None and said is None:
        return None
    return completed(role, own or said or (), said, labels, BACKENDS["python"].marker)


def _copied(value: Any) -> Any:
    """Returns a value of JSON with lists and dicts of its own."""
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list) else value


def _apart(work: Callable[[], Any]) -> Any:
    """Returns the result of the model's code, which changes numpy's error state for itself only.

    A process that the code has forked, and that comes back from it, ends here.
    """
    process = os.getpid()
    try:
        with np.errstate():
            return work()
    finally:
        forks.end_unless(process)


def _beside_any_loop(call: Callable[[], Any]) -> Any:
    """Returns the result of `call`, from another thread if this one runs an event loop (Lambda).

    A model may run an event loop of its own.
    """
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - documented for this; the other one raises
        return call()
    return beside(call)


class PythonModel:
    steps = None
    steady = False  # its time is unknown, and it may call asyncio.run()

    def __init__(self, spec: ModelSpec, module: ModuleType, methods: Collection[str] | None = None) -> None:
        """Takes the HTTP methods of the model's path, None if its settings do not name a path."""
        self.spec = spec
        self.module = module
        self._returned = Returned(spec)
        self._methods = methods
        self.explain = self._explain if callable(getattr(module, "explain", None)) else None
        self.http = self._http if callable(getattr(module, "http", None)) else None
        stream = getattr(module, "stream", None)
        self._answers = stream if callable(stream) else module.predict
        self.stream = self._stream if spec.decoupled or callable(stream) else None

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        tensors: list[Tensor] = self._call(
            lambda *given: self._only(self.module.predict(*given), outputs), inputs, parameters
        )
        return tensors

    def _only(self, answered: Any, outputs: Sequence[str]) -> list[Tensor]:
        """Returns the one answer of `predict`, which may be a generator."""
        if not isinstance(answered, Generator):
            return self._returned.tensors(outputs, answered)
        with closing(answered):
            only = next(answered, _END)
            if only is _END:
                raise self._returned.wrong("predict yielded nothing")
            check()
            if next(answered, _END) is not _END:
                raise self._too_many()
            return self._returned.tensors(outputs, only)

    def _too_many(self) -> ServingError:
        """Returns the refusal of a second answer. A stream is possible if predict itself has `yield`."""
        if self.stream is None:
            return self._returned.wrong("predict returned a generator of several answers; to stream them, yield them")
        return SeveralAnswers(f"model {shown(self.spec.name)} returns more than one answer: request a stream")

    def _stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> Generator[list[Tensor]]:
        """Yields each answer in the form of `predict`."""
        answered = self._call(self._answers, inputs, parameters)
        if not isinstance(answered, Generator):
            yield self._guarded(lambda: self._returned.tensors(outputs, answered))
            return
        with self._closing(answered):
            while (answer := self._next(answered)) is not _END:
                yield self._guarded(partial(self._returned.tensors, outputs, answer))

    def _next(self, answers: Generator[Any]) -> Any:
        """Returns the next answer, _END at the end."""
        return self._guarded(lambda: next(answers, _END))

    def _http(self, request: Any) -> Any:
        if self._methods is not None and request.method not in self._methods:
            from core.dialects.custom import not_allowed  # noqa: PLC0415 - it is loaded with the first such request

            raise not_allowed(request.method, request.path, self._methods)
        answered = self._guarded(lambda: self.module.http(request))
        if isinstance(answered, tuple) and answered and isinstance(answered[-1], Generator):
            return (*answered[:-1], self._chunks(answered[-1]))
        return self._chunks(answered) if isinstance(answered, Generator) else answered

    def _chunks(self, body: Generator[Any]) -> Generator[Any]:
        with self._closing(body):
            while (chunk := self._next(body)) is not _END:
                yield chunk

    def _explain(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        explained: list[Mapping[str, Any]] = self._call(
            lambda *given: self._returned.explanations(self.module.explain(*given)), inputs, parameters
        )
        return explained

    def _call(self, function: Callable[..., Any], inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> Any:
        # Model code may write into what it gets. Explanations, and other steps of a pipeline, read the same.
        arrays = {name: tensor.array.copy() for name, tensor in inputs.items()}
        own = {name: _copied(value) for name, value in parameters.items()}
        try:
            return self._guarded(lambda: function(arrays, own))
        except ModelFailed as failed:
            if self.spec.inputs is not None or not isinstance(failed.__cause__, KeyError):
                raise
            names = f"without `metadata` its inputs have the names in the request: {shown(list(inputs))}"
            raise ModelFailed(f"{failed.message}; {names}") from failed.__cause__

    @contextmanager
    def _closing(self, answers: Generator[Any]) -> Iterator[None]:
        """Closes a generator at the end, also that of a run that was ended."""
        try:
            yield
        finally:
            self._blamed(answers.close)

    def _guarded(self, work: Callable[[], Any]) -> Any:
        check()
        answered = self._blamed(work)
        check()  # an answer that comes after its time limit is dropped
        return answered

    def _blamed(self, work: Callable[[], Any]) -> Any:
        """Returns the result of the model's code. Raises ServingError: ModelFailed for any other error of the code."""
        try:
            return _beside_any_loop(partial(_apart, work))
        except ServingError:
            raise
        except BaseException as error:
            log.exception("model %s version %s failed", self.spec.name, self.spec.version)
            raise ModelFailed(f"model {self.spec.name!r} raised {model_module.kind(error)}") from error
