"""ONNX models on ONNX Runtime."""

import ctypes
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BY_ONNX, BYTES
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends import Source, model_spec
from handler.backends.onnx_file import MalformedFile, Value, signature
from handler.settings import Settings

log = logging.getLogger(__name__)
PLATFORM: Final = "onnx_onnxv1"
"""The specification's name for ONNX models (section "Platforms")."""


def load(source: Source, settings: Settings) -> "OnnxModel":
    """Loads model.onnx on the CPU. The spec has the file's inputs and outputs, refined by the settings.

    Raises ModelNotLoadable, in one line without paths: without ONNX Runtime, for a file that it refuses, and for
    settings that contradict the file.
    """
    runtime = _runtime(source.name)
    path = source.folder / "model.onnx"
    try:
        inputs, outputs = signature(path)
        spec = _spec(source, inputs, outputs)
        session = runtime.InferenceSession(path, _options(runtime, settings), providers=["CPUExecutionProvider"])
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
        raise ModelNotLoadable(
            f"model {source.name!r} version {source.version} cannot be loaded: {_reason(error, source)}"
        ) from error
    return OnnxModel(spec, session, runtime)


def _runtime(name: str) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 - 144 ms of cold start for servers without ONNX models
    except ImportError:
        raise ModelNotLoadable(f"model {name!r} needs ONNX Runtime: pip install 'dragoman[onnx]'") from None
    return onnxruntime


def _options(runtime: Any, settings: Settings) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = max(1, math.ceil(settings.cpus))
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # On Lambda, spinning threads use up the CPU share; elsewhere they take it from other requests.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _reason(error: Exception, source: Source) -> str:
    """Returns ONNX Runtime's text on one line, without this machine's paths."""
    return " ".join(str(error).replace(str(source.folder), "").split())[:256]


def _spec(source: Source, inputs: list[Value], outputs: list[Value]) -> ModelSpec:
    settings = source.settings
    bound = {
        binding.tensor for said in (settings.signatures or {}).values() for binding in (said.inputs or {}).values()
    }
    inputs = [value for value in inputs if not value.optional or value.name in bound]
    return model_spec(
        source,
        PLATFORM,
        _tensors("input", inputs, settings.inputs, settings.labels),
        _tensors("output", outputs, settings.outputs, settings.labels),
    )


def _tensors(
    role: str, values: list[Value], said: tuple[TensorSpec, ...] | None, labels: Mapping[str, tuple[str, ...]]
) -> tuple[TensorSpec, ...]:
    """Returns the graph's tensors in its order. The settings may override a shape, but not a type.

    Raises ModelNotLoadable.
    """
    overrides = {spec.name: spec for spec in said or ()}
    specs = []
    for value in values:
        if value.kind != "tensor" or value.element not in BY_ONNX:
            kind = f"a {value.kind}" + (f" of ONNX type {value.element}" if value.kind == "tensor" else "")
            hint = " (exported by skl2onnx? convert with zipmap=False)" if value.kind == "sequence" else ""
            raise ModelNotLoadable(f"{role} {value.name!r} is {kind}, which no protocol can carry{hint}")
        datatype = BY_ONNX[value.element]
        override = overrides.pop(value.name, None)
        if override is not None and override.datatype is not datatype:
            raise ModelNotLoadable(
                f"{role} {value.name!r} is {datatype.name} in model.onnx, {override.datatype.name} in its settings"
            )
        shape = value.shape if override is None else override.shape
        specs.append(TensorSpec(value.name, datatype, shape, labels.get(value.name, ()), value.optional))
    if overrides:
        raise ModelNotLoadable(f"the settings describe {role} {next(iter(overrides))!r}, which is not in model.onnx")
    return tuple(specs)


class OnnxModel:
    steady = True
    explain = None
    stream = None
    http = None

    def __init__(self, spec: ModelSpec, session: Any, runtime: Any) -> None:
        self.spec = spec
        inputs, outputs = spec.inputs or (), spec.outputs or ()
        self._session = session
        self._runtime = runtime
        self._datatypes = {output.name: output.datatype for output in outputs}
        # numpy has no bfloat16: such tensors are passed as OrtValues, whose bits are read in place.
        self._bf16 = any(tensor.datatype is BF16 for tensor in (*inputs, *outputs))

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        run = self._run_values if self._bf16 else self._run
        arrays = run(outputs, inputs)
        return [self._tensor(name, array) for name, array in zip(outputs, arrays, strict=True)]

    def _tensor(self, name: str, array: Any) -> Tensor:
        datatype = self._datatypes[name]
        return Tensor(name, datatype, _encoded(array) if datatype is BYTES else array)

    def _run(self, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> Any:
        feed = {name: _feed(tensor) for name, tensor in inputs.items()}
        try:
            return self._session.run(list(outputs), feed)
        except Exception as error:
            raise self._failure(error) from error

    def _run_values(self, outputs: Sequence[str], inputs: Mapping[str, Tensor]) -> list[Any]:
        value_of = self._runtime.OrtValue
        feed = {}
        for name, tensor in inputs.items():
            if tensor.datatype is BF16:
                array = tensor.array if tensor.array.flags.c_contiguous else tensor.array.copy()
                feed[name] = value_of.ortvalue_from_numpy_with_onnx_type(array, BF16.onnx)
            else:
                feed[name] = value_of.ortvalue_from_numpy(_feed(tensor))
        try:
            values = self._session.run_with_ort_values(list(outputs), feed)
        except Exception as error:
            raise self._failure(error) from error
        return [
            _bits(value) if self._datatypes[name] is BF16 else value.numpy()
            for name, value in zip(outputs, values, strict=True)
        ]

    def _failure(self, error: Exception) -> ModelFailed:
        log.error("model %s version %s failed", self.spec.name, self.spec.version, exc_info=error)
        return ModelFailed(f"model {self.spec.name!r} failed: {' '.join(str(error).split())[:256]}")


def _feed(tensor: Tensor) -> NDArray[Any]:
    """Returns the array for ONNX Runtime. Strings are objects of `str`: the model would see the repr of `bytes`.

    Raises InvalidInput for BYTES that are not UTF-8.
    """
    if tensor.datatype is not BYTES:
        return tensor.array
    texts = np.empty(tensor.array.shape, object)
    try:
        texts.reshape(-1)[:] = [element.decode() for element in tensor.array.flat]
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"input {shown(tensor.name)} has the bytes {shown(error.object)}, which are not UTF-8: "
            "ONNX Runtime's strings must be UTF-8"
        ) from None
    return texts


def _encoded(texts: NDArray[Any]) -> NDArray[Any]:
    elements = np.empty(texts.shape, object)
    elements.reshape(-1)[:] = [text.encode() for text in texts.flat]
    return elements


def _bits(value: Any) -> NDArray[Any]:
    shape = tuple(value.shape())
    size = math.prod(shape) * BF16.numpy.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), BF16.numpy).reshape(shape)
