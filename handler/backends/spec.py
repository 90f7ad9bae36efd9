"""Builds the spec of a loaded version from its model's declaration and from its settings, which come first."""

from core.errors import ModelNotLoadable
from core.operations import ModelSpec
from core.signature import NONE, Signatures, plain
from core.tensor import TensorSpec
from handler.backends import Source
from handler.settings import model as model_settings
from handler.settings import signatures
from handler.settings.checked import Wrong


def model_spec(
    source: Source, platform: str, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> ModelSpec:
    """Builds the spec. Raises ModelNotLoadable with the path of the key that does not fit the model."""
    said = source.settings
    platform = said.platform or platform
    spec = ModelSpec(source.name, source.version, platform, inputs, outputs, said.max_batch_size)
    try:
        spec = spec._replace(signatures=_signatures(source, inputs, outputs), v1_dialect=said.v1_dialect)
        if said.explainer is not None:
            from handler.settings import explainer  # noqa: PLC0415 - 2 ms of cold start for models without one

            spec = spec._replace(explainer=explainer.build(said.explainer, source.folder, spec))
    except Wrong as wrong:
        raise ModelNotLoadable(f"{model_settings.FILE} of model {source.name!r}: {wrong}") from None
    return spec


def _signatures(
    source: Source, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> Signatures:
    if source.settings.signatures is not None:
        return signatures.bind(source.settings.signatures, inputs, outputs)
    return NONE if inputs is None else plain(inputs, outputs or ())
