"""THE table of model runtimes, in order of preference: the file that marks each, and its loader."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from core.errors import InvalidInput, ModelNotLoadable, shown
from core.operations import Batching, ModelSpec
from core.ports import Model
from core.records import NamedTuple
from core.signature import NONE, Signatures, plain
from core.tensor import MAX_RANK, TensorSpec, is_possible
from handler import plugins
from handler.settings import Settings
from handler.settings.checked import Wrong
from handler.settings.model import FILE, ModelSettings

log = logging.getLogger(__name__)


class Backend(NamedTuple):
    """`marker`: the file in a version's folder that marks a model of this kind. `runtime`: the module that runs it."""

    marker: str
    module: str
    runtime: str = ""


BACKENDS: Final = {
    "onnx": Backend("model.onnx", "handler.backends.onnx", "onnxruntime"),
    "python": Backend("model.py", "handler.backends.python"),
    "pipeline": Backend("pipeline.json", "handler.backends.pipeline.model", "handler.backends.pipeline.model"),
}
PIPELINE: Final = BACKENDS["pipeline"].marker
EXPECTED: Final = " or ".join(", ".join(backend.marker for backend in BACKENDS.values()).rsplit(", ", 1))
"""The markers, for messages."""


class SeveralAnswers(InvalidInput):
    """A model has more than the one answer that was asked for."""


class PipelinePart(Protocol):
    """A loaded version of another model, which a model calls."""

    @property
    def model(self) -> Model: ...

    def record(self, durations: Sequence[int], size: int, *, success: bool) -> None:
        """Counts an inference. `durations`: nanoseconds in the queue, for decoding, the model, and encoding."""
        ...


class PipelineParts(Protocol):
    """The models that a pipeline calls. They stay in memory for as long as this object lives."""

    @property
    def held(self) -> Mapping[tuple[str, int | None], PipelinePart]:
        """The models by name and wanted version, None for the one that serves."""
        ...

    def renewed(self) -> "PipelineParts | None":
        """Returns the models that serve now, None if they are the same. Loads none. Asked at each inference."""
        ...


class Later(Protocol):
    def __call__(self, work: Callable[[], None], size: int) -> None:
        """Calls `work` in the background, once, unless `size` bytes more do not fit into memory. Does not wait."""
        ...


class Source(NamedTuple):
    """One version on this machine, ready to be loaded."""

    name: str
    version: str
    folder: Path
    settings: ModelSettings
    parts: PipelineParts | None = None
    """The models that a pipeline calls."""
    later: Later | None = None
    """For the part of a load that can follow the first answer. None: a load is whole when it returns."""


class Loader(Protocol):
    def __call__(self, source: Source, settings: Settings) -> Model:
        """Loads the version. Raises ModelNotLoadable with the reason, in one line without paths."""
        ...


def _marked(files: Collection[str]) -> Backend | None:
    """Returns the runtime whose marker is among the files, None without one."""
    return next((backend for backend in BACKENDS.values() if backend.marker in files), None)


def found(files: Collection[str], implementation: str | None) -> bool:
    """Decides whether a version's files are complete.

    They are if a marker is there, which a publisher writes last, or if `implementation` is a third party's runtime.
    """
    if _marked(files) is not None:
        return True
    return implementation is not None and plugins.find(implementation, {}, "dragoman.backends") is not None


def choose(name: str, files: Collection[str], settings: ModelSettings) -> Loader:
    """Returns the loader for a version's files: by marker, else the plugin that the settings name as implementation.

    Raises ModelNotLoadable if there is neither.
    """
    if settings.pipeline is not None:
        _check_alone(name, files)
        files = {PIPELINE}
    backend = _marked(files)
    if backend is not BACKENDS["onnx"]:
        refuse_reshape(name, settings)
    if backend is not None:
        loader: Loader = import_module(backend.module).load
        return loader
    if settings.implementation:
        third_party = plugins.find(settings.implementation, {}, "dragoman.backends")
        if third_party is not None:
            found: Loader = third_party
            return found
    raise ModelNotLoadable(f"model {name!r} has no {EXPECTED}; its files: {', '.join(sorted(files))[:256] or 'none'}")


def has_reshape(declared: ModelSettings | ModelSpec) -> bool:
    """Decides whether requests or answers have other shapes than the model."""
    return any(tensor.reshape is not None for tensor in (*(declared.inputs or ()), *(declared.outputs or ())))


def refuse_reshape(name: str, declared: ModelSettings | ModelSpec) -> None:
    """Raises ModelNotLoadable if a tensor of a model that is not in ONNX has a `reshape`."""
    if has_reshape(declared):
        raise ModelNotLoadable(f"model {name!r} has a tensor with `reshape`, which is for ONNX models only")


def is_pipeline(files: Collection[str], settings: ModelSettings) -> bool:
    """Decides whether a version calls other models: by its marker, else by its settings."""
    backend = _marked(files)
    return settings.pipeline is not None if backend is None else backend.marker == PIPELINE


def _check_alone(name: str, files: Collection[str]) -> None:
    """Raises ModelNotLoadable for a version that has a model of its own beside the pipeline in its settings."""
    other = _marked(files)
    if other is not None:
        raise ModelNotLoadable(f"model {name!r} has {other.marker}, and a pipeline in its settings: remove one of them")


def prepare(files: Collection[str]) -> None:
    """Imports the runtime for a version's files. If it is missing, the loader raises later."""
    backend = _marked(files)
    if backend is not None and backend.runtime:
        with suppress(ImportError):
            import_module(backend.runtime)


def model_spec(
    source: Source, platform: str, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> ModelSpec:
    """Builds the spec of a loaded version from its model's declaration and from its settings, which come first.

    Raises ModelNotLoadable with the path of the key that does not fit the model, or with a shape that is impossible.
    """
    said = source.settings
    for tensor in (*(inputs or ()), *(outputs or ())):
        if tensor.shape is not None and not is_possible(tensor.shape):
            raise ModelNotLoadable(
                f"model {source.name!r} declares {shown(tensor.name)} with the shape {shown(list(tensor.shape))}; "
                f"expected at most {MAX_RANK} sizes, and at most 2**48 elements"
            )
    platform = said.platform or platform
    spec = ModelSpec(source.name, source.version, platform, inputs, outputs, said.max_batch_size)
    try:
        spec = spec._replace(signatures=_signatures(source, inputs, outputs), v1_dialect=said.v1_dialect)
        spec = spec._replace(timeout=said.timeout, max_concurrency=said.max_concurrency)
        spec = spec._replace(raw_outputs=said.grpc_outputs == "raw")
        if said.batching is not None:
            spec = _batched(spec, said.batching)
        if said.embeddings is not None:
            from handler.settings import embeddings  # noqa: PLC0415 - 1 ms of cold start for models without them

            spec = spec._replace(embeddings=embeddings.bound(said.embeddings, inputs, outputs))
        if said.explainer is not None:
            from handler.settings import explainer  # noqa: PLC0415 - 2 ms of cold start for models without one

            spec = spec._replace(explainer=explainer.build(said.explainer, source.folder, spec))
    except Wrong as wrong:
        raise ModelNotLoadable(f"{FILE} of model {source.name!r}: {wrong}") from None
    return spec


def completed(
    role: str,
    own: Sequence[TensorSpec],
    said: Sequence[TensorSpec] | None,
    labels: Mapping[str, tuple[str, ...]],
    file: str,
) -> tuple[TensorSpec, ...]:
    """Returns the model's tensors in its order. The settings may say more of a shape, and nothing against the file.

    `own`: the tensors in the model's `file`. `labels`: class labels, by tensor. Raises ModelNotLoadable.
    """
    overrides = {spec.name: spec for spec in said or ()}
    known = [spec.name for spec in own]
    foreign = next((name for name in overrides if name not in known), None)
    if foreign is not None:
        told = f"the settings describe {role} {shown(foreign)}, which is not in {file}: it has {shown(known)}"
        raise ModelNotLoadable(told)
    specs = []
    for spec in own:
        found = _refined(role, spec, overrides[spec.name], file) if spec.name in overrides else spec
        specs.append(found._replace(labels=labels.get(spec.name) or spec.labels, optional=spec.optional))
    return tuple(specs)


def _refined(role: str, own: TensorSpec, said: TensorSpec, file: str) -> TensorSpec:
    """Returns the settings' description of a tensor; a shape of null leaves the file's. Raises ModelNotLoadable.

    ONNX Runtime keeps to the sizes of inputs that a file fixes. Those of outputs are known to be wrong in some exports.
    A `reshape` is the shape that the settings say of the file's tensor.
    """
    if said.datatype is not own.datatype:
        raise ModelNotLoadable(
            f"{role} {shown(own.name)} is {own.datatype.name} in {file}, {said.datatype.name} in its settings"
        )
    if own.shape is None or said.shape is None:
        return said._replace(shape=own.shape if said.shape is None else said.shape)
    shape = said.shape if said.reshape is None else said.reshape
    same_rank = len(shape) == len(own.shape)
    if not same_rank or (role == "input" and any(o not in (-1, s) for s, o in zip(shape, own.shape, strict=True))):
        raise ModelNotLoadable(
            f"{role} {shown(own.name)} has the shape {shown([*own.shape])} in {file}, {shown([*shape])} in its settings"
        )
    return said


def _batched(spec: ModelSpec, batching: Batching) -> ModelSpec:
    """Returns the spec with its batching, unless the shapes of its inputs and outputs do not let rows be added."""
    for tensor in (*(spec.inputs or ()), *(spec.outputs or ())):
        for shape in (tensor.shape, tensor.reshape):
            if shape is not None and shape[:1] != (-1,):
                log.warning(
                    "model %s version %s: its requests run alone in spite of its settings: the first axis of %r %s is "
                    "not variable",
                    *(spec.name, spec.version, tensor.name, list(shape)),
                )
                return spec
    return spec._replace(batching=batching)


def _signatures(
    source: Source, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> Signatures:
    if source.settings.signatures is not None:
        from handler.settings import signatures  # noqa: PLC0415 - 2 ms of cold start for models without any

        return signatures.bind(source.settings.signatures, inputs, outputs)
    return NONE if inputs is None else plain(inputs, outputs or ())
