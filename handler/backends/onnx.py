"""ONNX models on ONNX Runtime."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BY_ONNX, BYTES, FP32
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, ServingError, located, shown
from core.operations import ModelSpec
from core.ports import Model
from core.tensor import Tensor, TensorSpec, TextTensor
from handler.backends import BACKENDS, Source, completed, has_reshape, model_spec
from handler.backends.onnx_fields import MalformedFile
from handler.backends.onnx_file import UNCARRIED, Value, operators, signature
from handler.backends.onnx_values import bits, fed, ort_value
from handler.backends.reasons import for_log, is_about_numbers, is_about_shapes, one_line, reason, shapes
from handler.backends.runs import check, stoppable
from handler.backends.sessions import Opening, replacement
from handler.settings import Settings
from handler.settings.providers import CPU, is_absent, refusal

log = logging.getLogger(__name__)
PLATFORM: Final = "onnx_onnxv1"
MARKER: Final = BACKENDS["onnx"].marker
"""The specification's name for ONNX models (section "Platforms")."""
EXTENSIONS: Final = frozenset(("ai.onnx.contrib", "com.microsoft.extensions"))
"""The domains of the operators that the package onnxruntime-extensions has."""
NAMED: Final = 3
"""The most operators that the error about a missing package names."""


def load(source: Source, settings: Settings) -> Model:
    """Loads model.onnx on the settings' execution providers, by default the CPU's.

    On the CPU, a model that was optimised before it was pushed begins with a quick session (handler.backends.sessions).
    The spec has the file's inputs and outputs, refined by the settings.

    Raises ModelNotLoadable, in one line without paths: without ONNX Runtime, for a file that it refuses, for settings
    that contradict the file, and for a provider that does not start.
    """
    runtime = _runtime(source.name)
    path = source.folder / "model.onnx"
    wanted = _providers(runtime, source, settings)
    try:
        inputs, outputs = signature(path)
        spec = _spec(source, inputs, outputs)
        found = operators(path, EXTENSIONS)
        opening = Opening(runtime, path, settings, wanted, _library(source.name, found) if found else "")
        is_quick = source.settings.optimized and source.later is not None and wanted is CPU
        session = opening.quick() if is_quick else opening.usual()
    except MalformedFile as error:
        raise ModelNotLoadable(
            f"model {source.name!r} version {source.version} cannot be loaded: model.onnx: {error}"
        ) from error
    except OSError as error:
        raise ModelNotLoadable(
            f"model {source.name!r} version {source.version} cannot be loaded: model.onnx: {error.strerror}"
        ) from error
    except ModelNotLoadable:
        raise
    except Exception as error:  # ONNX Runtime's own classes have no common base
        log.warning("model %s version %s: %s", source.name, source.version, for_log(error)[0])
        raise ModelNotLoadable(
            f"model {source.name!r} version {source.version} cannot be loaded: {reason(error, source.folder)}"
        ) from error
    if wanted is not CPU:
        spec = spec._replace(providers=_used(source, wanted, session))
    model = OnnxModel(spec, session, runtime, {output.name: output.classes for output in outputs if output.classes})
    if is_quick:
        model.after_first.append(replacement(opening, source, model))
    if has_reshape(source.settings):
        from handler.backends.reshaped import ReshapedModel  # noqa: PLC0415 - for models whose settings reshape

        return ReshapedModel(model)
    return model


def _runtime(name: str) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 - 144 ms of cold start for servers without ONNX models
    except ImportError as error:
        if is_absent(error):
            raise ModelNotLoadable(f"model {name!r} needs ONNX Runtime: pip install 'dragoman[onnx]'") from None
        log.warning("the import of ONNX Runtime fails: %s", for_log(error)[0])
        told = "ONNX Runtime is installed, but its import fails: the log has the reason"
        raise ModelNotLoadable(f"model {name!r} cannot be loaded: {told}") from error
    return onnxruntime


def _providers(runtime: Any, source: Source, settings: Settings) -> Sequence[str]:
    """Returns the execution providers to ask for. Raises ModelNotLoadable for those that this machine does not have."""
    wanted = source.settings.providers or settings.providers
    if problem := refusal(wanted, runtime):
        raise ModelNotLoadable(f"providers of model {source.name!r}: {problem}")
    return wanted or CPU


def _used(source: Source, wanted: Sequence[str], session: Any) -> tuple[str, ...]:
    """Returns the providers of a session: ONNX Runtime leaves out what does not start. Raises ModelNotLoadable."""
    used = tuple(session.get_providers())
    for name in wanted:
        if name not in used:
            told = f"{shown(name)} does not start on this machine: are its driver and libraries installed?"
            raise ModelNotLoadable(f"providers of model {source.name!r}: {told}")
    return used


def _library(name: str, found: Sequence[str]) -> str:
    """Returns the library of onnxruntime-extensions: for texts, images and audio. Raises ModelNotLoadable without it.

    `found`: the model's operators that need it.

    Only its library is used. Importing the package takes 400 ms, and sets PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, with
    which protobuf has other message classes if it is imported after that.
    """
    package = find_spec("onnxruntime_extensions")
    places = None if package is None else package.submodule_search_locations
    library = None if places is None else PathFinder.find_spec("_extensions_pydll", places)
    if library is None or library.origin is None:
        named = ", ".join(each[:64] for each in found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        raise ModelNotLoadable(
            f"model {name!r} has operators of onnxruntime-extensions ({named}): pip install 'dragoman[text]'"
        )
    return library.origin


def _spec(source: Source, inputs: list[Value], outputs: list[Value]) -> ModelSpec:
    settings = source.settings
    named = {
        binding.tensor for said in (settings.signatures or {}).values() for binding in (said.inputs or {}).values()
    }
    named.update(spec.name for spec in settings.inputs or ())
    inputs = [value for value in inputs if not value.optional or value.name in named]  # others are weights
    try:
        tensors = (
            completed("input", [_own("input", each) for each in inputs], settings.inputs, settings.labels, MARKER),
            completed("output", [_own("output", each) for each in outputs], settings.outputs, settings.labels, MARKER),
        )
    except ModelNotLoadable as error:
        raise located(error, f"model {source.name!r} version {source.version} cannot be loaded") from None
    return model_spec(source, PLATFORM, *tensors)


def _own(role: str, value: Value) -> TensorSpec:
    """Returns the file's description of a tensor. Raises ModelNotLoadable if no protocol can carry the tensor."""
    if value.classes:  # a sequence of maps is a tensor of a row for each map
        names = tuple(map(str, value.classes))
        return TensorSpec(value.name, FP32, (-1, len(names)), names, value.optional)
    if value.kind != "tensor" or value.element not in BY_ONNX:
        element = UNCARRIED.get(value.element, f"ONNX type {value.element}")
        kind = f"a tensor of {element}" if value.kind == "tensor" else f"a {value.kind}"
        raise ModelNotLoadable(f"{role} {shown(value.name)} is {kind}, which no protocol can carry")
    return TensorSpec(value.name, BY_ONNX[value.element], value.shape, optional=value.optional)


class OnnxModel:
    steady = True
    explain = None
    steps = None
    stream = None
    http = None

    def __init__(
        self, spec: ModelSpec, session: Any, runtime: Any, classes: Mapping[str, tuple[int | str, ...]]
    ) -> None:
        """`classes`: the keys of the maps, by the outputs that are sequences of maps."""
        self.spec = spec
        self._classes = classes
        outputs = spec.outputs or ()
        self._session = session
        self.after_first: list[Callable[[], None]] = []
        """Called once, after the first inference."""
        self._runtime = runtime
        self._datatypes = {output.name: output.datatype for output in outputs}
        # numpy has no bfloat16: such tensors are passed as OrtValues, whose bits are read in place.
        self._bf16 = frozenset(output.name for output in outputs if output.datatype is BF16)
        tensors = (*(spec.inputs or ()), *outputs)
        self._is_plain = not classes and not any(each.datatype is BF16 or each.datatype is BYTES for each in tensors)

    def take(self, session: Any) -> None:
        """Answers from now on with another session of the same model. Inferences that run end with their own."""
        self._session = session

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        if self._is_plain:
            feed = {name: tensor.array for name, tensor in inputs.items()}
            arrays = self._ran(self._session.run, outputs, feed)
        else:
            run = self._run if self._bf16.isdisjoint(outputs) else self._run_values
            arrays = run(outputs, inputs)
        if self.after_first:
            with suppress(IndexError):  # another thread has had its first inference, too
                self.after_first.pop()()
        if self._is_plain:
            datatypes = self._datatypes
            return [Tensor(name, datatypes[name], array) for name, array in zip(outputs, arrays, strict=True)]
        return [self._tensor(name, array) for name, array in zip(outputs, arrays, strict=True)]

    def _tensor(self, name: str, array: Any) -> Tensor:
        datatype = self._datatypes[name]
        if name in self._classes:
            array = np.array([[row[key] for key in self._classes[name]] for row in array], datatype.numpy)
            array = array.reshape(-1, len(self._classes[name]))
        return TextTensor(name, array) if datatype is BYTES else Tensor(name, datatype, array)

    def _run(self, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> Any:
        value_of = self._runtime.OrtValue
        feed = {name: ort_value(t, value_of) if t.datatype is BF16 else fed(t) for name, t in inputs.items()}
        return self._ran(self._session.run, outputs, feed)

    def _run_values(self, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> Any:
        """Raises ModelFailed with texts and maps: ONNX Runtime makes OrtValues of numbers only, and reads no others."""
        beside = {n for n, t in inputs.items() if t.datatype is BYTES} | (self._classes.keys() & {*outputs})
        if beside:
            both = f"{shown(min(self._bf16 & {*outputs}))} (BF16) in one run with {shown(min(beside))} (texts or maps)"
            raise ModelFailed(f"model {self.spec.name!r}: ONNX Runtime does not return output {both}")
        feed = {name: ort_value(tensor, self._runtime.OrtValue) for name, tensor in inputs.items()}

        def arrays(*given: Any) -> list[Any]:
            made = zip(outputs, self._session.run_with_ort_values(*given), strict=True)
            return [bits(value) if name in self._bf16 else value.numpy() for name, value in made]

        return self._ran(arrays, list(outputs), feed)

    def _ran(self, run: Callable[..., Any], outputs: Sequence[str], feed: Mapping[str, Any]) -> Any:
        try:
            return stoppable(partial(run, outputs, feed), self._runtime.RunOptions)
        except Exception as error:
            check()  # raises why another thread has ended it
            raise self._failure(error, feed) from error

    def _failure(self, error: Exception, feed: Mapping[str, Any]) -> ServingError:
        if is_about_shapes(error):
            log.info("model %s version %s: %s", self.spec.name, self.spec.version, one_line(error))
            told = f"{shapes(feed)}: {one_line(error)}"
            return InvalidInput(f"model {self.spec.name!r} refuses the shapes of its inputs: {told}")
        if is_about_numbers(error):
            told = f"model {self.spec.name!r} reads numbers from the texts of an input, and one is not a number"
            return InvalidInput(told)
        text, trace = for_log(error)
        log.error("model %s version %s failed: %s", self.spec.name, self.spec.version, text, exc_info=trace)
        return ModelFailed(f"model {self.spec.name!r} failed: {one_line(error)}")
