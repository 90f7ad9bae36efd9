"""THE table of model runtimes, in order of preference: the file that marks each, and its loader."""

from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from core.errors import ModelNotLoadable
from core.operations import ModelSpec
from core.ports import Model
from core.signature import NONE, Signatures, plain
from core.tensor import TensorSpec
from handler import plugins
from handler.settings import Settings
from handler.settings.checked import Wrong
from handler.settings.model import FILE, ModelSettings


class Backend(NamedTuple):
    """`marker`: the file in a version's folder that marks a model of this kind. `runtime`: the module that runs it."""

    marker: str
    module: str
    runtime: str = ""


BACKENDS: Final = {
    "onnx": Backend("model.onnx", "handler.backends.onnx", "onnxruntime"),
    "python": Backend("model.py", "handler.backends.python"),
}


class Source(NamedTuple):
    """One version on this machine, ready to be loaded."""

    name: str
    version: str
    folder: Path
    settings: ModelSettings


class Loader(Protocol):
    def __call__(self, source: Source, settings: Settings) -> Model:
        """Loads the version. Raises ModelNotLoadable with the reason, in one line without paths."""
        ...


def found(files: Collection[str], implementation: str | None) -> bool:
    """Decides whether a version's files are complete.

    They are if a marker is there, which a publisher writes last, or if `implementation` is a third party's runtime.
    """
    if any(backend.marker in files for backend in BACKENDS.values()):
        return True
    return implementation is not None and plugins.find(implementation, {}, "dragoman.backends") is not None


def choose(name: str, files: Collection[str], settings: ModelSettings) -> Loader:
    """Returns the loader for a version's files: by marker, else the plugin that the settings name as implementation.

    Raises ModelNotLoadable if there is neither.
    """
    for backend in BACKENDS.values():
        if backend.marker in files:
            loader: Loader = import_module(backend.module).load
            return loader
    if settings.implementation:
        third_party = plugins.find(settings.implementation, {}, "dragoman.backends")
        if third_party is not None:
            found: Loader = third_party
            return found
    expected = " or ".join(backend.marker for backend in BACKENDS.values())
    raise ModelNotLoadable(f"model {name!r} has no {expected}; its files: {', '.join(sorted(files))[:256] or 'none'}")


def prepare(files: Collection[str]) -> None:
    """Imports the runtime for a version's files. If it is missing, the loader raises later."""
    for backend in BACKENDS.values():
        if backend.marker in files:
            with suppress(ImportError):
                import_module(backend.runtime or __name__)
            return


def model_spec(
    source: Source, platform: str, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> ModelSpec:
    """Builds the spec of a loaded version from its model's declaration and from its settings, which come first.

    Raises ModelNotLoadable with the path of the key that does not fit the model.
    """
    said = source.settings
    platform = said.platform or platform
    spec = ModelSpec(source.name, source.version, platform, inputs, outputs, said.max_batch_size)
    try:
        spec = spec._replace(signatures=_signatures(source, inputs, outputs), v1_dialect=said.v1_dialect)
        if said.explainer is not None:
            from handler.settings import explainer  # noqa: PLC0415 - 2 ms of cold start for models without one

            spec = spec._replace(explainer=explainer.build(said.explainer, source.folder, spec))
    except Wrong as wrong:
        raise ModelNotLoadable(f"{FILE} of model {source.name!r}: {wrong}") from None
    return spec


def _signatures(
    source: Source, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> Signatures:
    if source.settings.signatures is not None:
        from handler.settings import signatures  # noqa: PLC0415 - 2 ms of cold start for models without any

        return signatures.bind(source.settings.signatures, inputs, outputs)
    return NONE if inputs is None else plain(inputs, outputs or ())
