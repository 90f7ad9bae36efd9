"""The steps of a pipeline that this server does itself, as models: each is bound, checked and timed as a model is."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from core.errors import ModelNotLoadable, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends import Source
from handler.settings.functions import PoolingSettings, SaidFunction, TokenizerSettings
from handler.settings.pipeline import SaidPipeline

VERSION: Final = ""


class TensorFunction(Protocol):
    """A function of tensors. `steady`: see core.ports.Model."""

    steady: bool

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def outlined(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of its outputs that follow from the shapes of its inputs, of which None is unknown.

        A missing name has the shape in `outputs`.
        """
        ...

    def run(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Returns its outputs by name. The inputs have the datatypes and ranks of `inputs`. Raises ServingError."""
        ...


class FunctionModel:
    """Implements core.ports.Model, and handler.backends.PipelinePart. No statistics count its inferences."""

    explain = None
    steps = None
    stream = None
    http = None

    def __init__(self, kind: str, function: TensorFunction) -> None:
        self.spec = ModelSpec(kind, VERSION, kind, function.inputs, function.outputs)
        self.function = function
        self.steady = function.steady

    @property
    def model(self) -> "FunctionModel":
        return self

    def record(self, durations: Sequence[int], size: int, *, success: bool) -> None:
        """Counts nothing: the pipeline's own statistics have its time."""

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        made = self.function.run(inputs)
        return [made[name] for name in outputs]


def prepare(said: SaidPipeline, source: Source) -> int:
    """Imports what the functions of a pipeline need. Returns the bytes of the files that they will hold in memory.

    Raises ModelNotLoadable without the tokenizers package.
    """
    found = [call.function for call in said.functions if isinstance(call.function, TokenizerSettings)]
    if not found:
        return 0
    try:
        import tokenizers  # noqa: F401, PLC0415 - 50 ms of cold start for servers without texts
    except ImportError:
        step = next(step.name for step in said.steps if step.calls[0].function is found[0])
        raise ModelNotLoadable(
            f"step {shown(step)} of model {shown(source.name)} needs the package tokenizers: "
            "pip install 'dragoman[text]'"
        ) from None
    files = (source.folder / each.file for each in found)
    return sum(file.stat().st_size for file in files if file.is_file())


def functions(said: SaidPipeline, source: Source) -> dict[str, FunctionModel]:
    """Returns the functions that a pipeline calls, by the paths of their calls.

    Raises Wrong for a file that does not fit, ModelNotLoadable without the tokenizers package.
    """
    prepare(said, source)
    return {
        call.path: FunctionModel(call.model, _function(call.function, source, f"{call.path}.{call.model}"))
        for call in said.functions
        if call.function is not None
    }


def _function(said: SaidFunction, source: Source, path: str) -> TensorFunction:
    from handler.backends.pipeline.vectors import Normalized, Pooled  # noqa: PLC0415 - for pipelines with such steps

    if isinstance(said, TokenizerSettings):
        from handler.backends.pipeline.tokenizer import SplitTexts, opened  # noqa: PLC0415 - the same

        return SplitTexts(said, opened(said, source.folder, path), path)
    return Pooled(said.how) if isinstance(said, PoolingSettings) else Normalized()
