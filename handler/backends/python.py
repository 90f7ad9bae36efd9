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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from inspect import isgeneratorfunction, signature, unwrap
from types import ModuleType
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BYTES, DataType, NDArray, of_array
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, ServingError, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec, TextTensor, objects
from handler.backends import Source, model_module, model_spec
from handler.backends.runs import beside, check
from handler.settings import Settings
from handler.settings import model as model_settings

log = logging.getLogger(__name__)
PLAIN: Final = (bool, int, float, complex, str, bytes, np.generic)
"""Types whose text is the value alone."""


def load(source: Source, settings: Settings) -> "PythonModel":
    """Imports model.py. The spec has the inputs and outputs of the settings, else those of the module's `metadata`.

    Raises ModelNotLoadable, in one line without paths: unless DRAGOMAN_ALLOW_CODE=true, for a module that raises or
    has no function `predict`, and for a wrong `metadata`.
    """
    if not settings.allow_code:
        raise ModelNotLoadable(
            f"model {source.name!r} is Python code, which is not run unless DRAGOMAN_ALLOW_CODE=true: "
            "set it if every user with write access to the repository may run code here"
        )
    module = model_module.imported(source)
    predict = getattr(module, "predict", None)
    if not callable(predict):
        raise ModelNotLoadable(f"model {source.name!r}: model.py has no function predict(inputs, parameters)")
    _check_arguments(source.name, predict)
    inputs, outputs = model_settings.described(source.name, getattr(module, "metadata", None) or {})
    said = source.settings
    outputs = _labelled(said.outputs or outputs, said.labels)
    spec = model_spec(source, "python", said.inputs or inputs, outputs)
    return PythonModel(spec._replace(decoupled=isgeneratorfunction(unwrap(predict))), module)


def _check_arguments(name: str, predict: Callable[..., Any]) -> None:
    """Raises ModelNotLoadable for a predict that cannot be called with inputs and parameters."""
    try:
        signature(predict).bind({}, {})
    except TypeError as error:
        raise ModelNotLoadable(f"model {name!r}: predict has to take inputs and parameters: {error}") from None
    except ValueError:  # it is not written in Python, and does not describe itself
        return


def _labelled(
    outputs: tuple[TensorSpec, ...] | None, labels: Mapping[str, tuple[str, ...]]
) -> tuple[TensorSpec, ...] | None:
    if outputs is None:
        return None
    return tuple(TensorSpec(o.name, o.datatype, o.shape, labels.get(o.name, ())) for o in outputs)


def _told(value: Any) -> str:
    """Returns a value for messages. The text of an object may have a path, an address of memory or anything else."""
    return shown(value) if value is None or isinstance(value, PLAIN) else f"an object of type {type(value).__name__}"


def _array(value: Any) -> NDArray[Any]:
    """Returns what a model returned as an array. Raises ValueError for a ragged list, and for masked elements.

    Under a mask, numpy keeps values that mean nothing.
    """
    if isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False)):
        raise ValueError("it has masked elements, which need values: filled()")
    return np.asarray(value)


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

    def __init__(self, spec: ModelSpec, module: ModuleType) -> None:
        self.spec = spec
        self.module = module
        self._datatypes = {output.name: output.datatype for output in spec.outputs or ()}
        self.explain = self._explain if callable(getattr(module, "explain", None)) else None
        self.http = self._http if callable(getattr(module, "http", None)) else None
        self.stream = self._stream if spec.decoupled or hasattr(module, "stream") else None

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        answered = self._call(self.module.predict, inputs, parameters)
        if not isinstance(answered, Generator):
            return self._outputs(outputs, answered)
        with closing(answered):
            only = self._next(answered)
            if only is None:
                raise self._wrong("predict yielded nothing")
            if self._next(answered) is not None:
                name = shown(self.spec.name)
                raise InvalidInput(f"model {name} returns more than one answer: request a stream")
            return self._outputs(outputs, only)

    def _stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> Generator[list[Tensor]]:
        """Yields each answer in the form of `predict`."""
        answered = self._call(getattr(self.module, "stream", self.module.predict), inputs, parameters)
        if not isinstance(answered, Generator):
            yield self._outputs(outputs, answered)
            return
        with closing(answered):
            while (answer := self._next(answered)) is not None:
                yield self._outputs(outputs, answer)

    def _next(self, answers: Generator[Any]) -> Any:
        """Returns the next answer, None at the end."""
        return self._guarded(lambda: next(answers, None))

    def _http(self, request: Any) -> Any:
        answered = self._guarded(lambda: self.module.http(request))
        if isinstance(answered, tuple) and answered and isinstance(answered[-1], Generator):
            return (*answered[:-1], self._chunks(answered[-1]))
        return self._chunks(answered) if isinstance(answered, Generator) else answered

    def _chunks(self, body: Generator[Any]) -> Generator[Any]:
        with closing(body):
            while (chunk := self._next(body)) is not None:
                yield chunk

    def _outputs(self, wanted: Sequence[str], answered: Any) -> list[Tensor]:
        if not isinstance(answered, Mapping):
            raise self._wrong(f"predict returned {type(answered).__name__}, not a dict of arrays")
        return [self._output(name, answered) for name in wanted or map(self._name, answered)]

    def _name(self, key: Any) -> str:
        """Returns the name of an undeclared output. Raises ModelFailed unless it is Unicode text."""
        try:
            return str(key.encode(), "utf-8")
        except (AttributeError, UnicodeEncodeError):
            raise self._wrong(f"predict returned an output with the name {_told(key)}; expected text") from None

    def _explain(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        answered = self._call(self.module.explain, inputs, parameters)
        if isinstance(answered, list | tuple) and all(isinstance(member, Mapping) for member in answered):
            return list(answered)
        members = answered if isinstance(answered, Mapping) else {"importance_scores": answered}
        arrays = {str(name): self._members(str(name), member) for name, member in members.items()}
        if len({len(array) for array in arrays.values()}) != 1:
            counts = {name: len(array) for name, array in arrays.items()}
            raise self._wrong(f"explain returned members of unequal length: {shown(counts)}")
        return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]

    def _members(self, name: str, value: Any) -> Sequence[Any]:
        """Returns one value per example for JSON: an array of numbers, a number, or lists of text."""
        try:
            array = _array(value)
        except ValueError as error:
            raise self._wrong(f"explain returned {name!r}, which is not an array: {error}") from error
        if not array.ndim or array.dtype.kind not in "biufU":
            found = _told(value) if array.dtype.kind == "O" else shown(value)
            raise self._wrong(f"explain returned {name!r} of {found}; expected an array of numbers or text")
        if array.dtype.kind != "U":
            # JSON writers do not know long doubles and foreign byte orders.
            native = np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
            array = np.ascontiguousarray(array, native)
        values: list[Any] = array.tolist() if array.dtype.kind == "U" or array.ndim == 1 else list(array)
        return values

    def _call(self, function: Callable[..., Any], inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> Any:
        # Model code may write into its inputs. Explanations, and other steps of a pipeline, read the same tensors.
        arrays = {name: tensor.array.copy() for name, tensor in inputs.items()}
        try:
            return self._guarded(lambda: function(arrays, dict(parameters)))
        except ModelFailed as failed:
            if self.spec.inputs is not None or not isinstance(failed.__cause__, KeyError):
                raise
            names = f"without `metadata` its inputs have the names in the request: {shown(list(inputs))}"
            raise ModelFailed(f"{failed.message}; {names}") from failed.__cause__

    def _guarded(self, work: Callable[[], Any]) -> Any:
        check()
        try:
            answered = _beside_any_loop(work)
        except ServingError:
            raise
        except BaseException as error:
            log.exception("model %s version %s failed", self.spec.name, self.spec.version)
            raise ModelFailed(f"model {self.spec.name!r} raised {model_module.kind(error)}") from error
        check()  # an answer that comes after its time limit is dropped
        return answered

    def _output(self, name: str, answered: Mapping[str, Any]) -> Tensor:
        if name not in answered:
            kind = self._wrong if name in self._datatypes else InvalidInput
            raise kind(f"predict returned no output {name!r}; it returned {shown(list(answered))}")
        try:
            array = _array(answered[name])
        except ValueError as error:
            raise self._wrong(f"output {name!r} is not an array: {error}") from error
        found = of_array(array.dtype)
        datatype = self._datatypes.get(name, found)
        if datatype is BYTES:
            return self._strings(name, answered[name])
        same = found is datatype or (datatype is BF16 and array.dtype == BF16.numpy)
        if datatype is None or not (same or np.can_cast(array.dtype, datatype.numpy, "same_kind")):
            expected = "a type that the protocols have" if datatype is None else datatype.name
            raise self._wrong(f"output {name!r} is {array.dtype}, which is not {expected}")
        if not same and datatype.numpy.kind in "iu":
            self._check_range(name, array, datatype)
        # Model code may fill the same array again, while pipelines, batches and explanations still need this answer.
        return Tensor(name, datatype, array.astype(datatype.numpy))

    def _check_range(self, name: str, array: NDArray[Any], datatype: DataType) -> None:
        """Raises ModelFailed for an integer that numpy would wrap: 300 as INT8 is 44."""
        limits = np.iinfo(datatype.numpy.str)
        for extreme in (array.min().item(), array.max().item()) if array.size else ():
            if not limits.min <= extreme <= limits.max:
                raise self._wrong(f"output {name!r} has {extreme}, which is out of range for {datatype.name}")

    def _strings(self, name: str, value: Any) -> Tensor:
        array = np.asarray(value, dtype=object)
        given = array.reshape(-1).tolist()
        kinds = set(map(type, given))
        if kinds == {bytes}:
            return Tensor(name, BYTES, objects(given).reshape(array.shape))
        if kinds == {str} and "".join(given).isascii():
            return TextTensor(name, objects(given).reshape(array.shape))
        return Tensor(name, BYTES, self._encoded(name, given).reshape(array.shape))

    def _encoded(self, name: str, given: Sequence[Any]) -> NDArray[Any]:
        flat = np.empty(len(given), object)
        for index, element in enumerate(given):
            try:
                flat[index] = element.encode() if isinstance(element, str) else element
            except UnicodeEncodeError:
                raise self._wrong(f"output {name!r} has a lone surrogate, which is not Unicode text") from None
            if not isinstance(flat[index], bytes):
                raise self._wrong(f"output {name!r} has {_told(element)} where BYTES needs str or bytes")
        return flat

    def _wrong(self, text: str) -> ModelFailed:
        return ModelFailed(f"model {self.spec.name!r}: {text}")
