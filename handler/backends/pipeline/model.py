"""A pipeline as a model: its steps' models answer for it."""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.errors import ModelNotLoadable
from core.operations import EnsembleStep, ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends import PIPELINE, PipelineParts, Source, model_spec
from handler.backends.pipeline import abreast
from handler.backends.pipeline.functions import FunctionModel, functions, prepare
from handler.backends.pipeline.plan import PipelinePlan, bind
from handler.backends.pipeline.steps import Tensors, Took
from handler.settings import Settings
from handler.settings.checked import Wrong
from handler.settings.pipeline import SaidPipeline, read

log = logging.getLogger(__name__)
ENSEMBLE: Final = "ensemble"
"""Triton's name for models whose configuration has their steps."""
PLATFORM: Final = "pipeline"
"""The platform of pipelines with branches and functions, which Triton's steps cannot express."""


def said_of(source: Source) -> SaidPipeline:
    """Returns the pipeline of a version: of its file, else of its settings. Raises ModelNotLoadable."""
    path = source.folder / PIPELINE
    if source.settings.pipeline is not None:
        return source.settings.pipeline
    try:
        return read(path.read_bytes())
    except Wrong as wrong:
        raise ModelNotLoadable(f"{PIPELINE} of model {source.name!r}: {wrong}") from None


def place_of(said: SaidPipeline, source: Source) -> str:
    """Returns where a pipeline stands, for errors."""
    where = "settings" if said.path else PIPELINE
    return f"{where} of model {source.name!r} version {source.version}"


def prepared(source: Source) -> int:
    """Imports the libraries of a pipeline's own steps. Returns the bytes of the tokenizers that they will load.

    Raises ModelNotLoadable without one of them.
    """
    return prepare(said_of(source), source)


def load(source: Source, settings: Settings) -> "PipelineModel":
    """Binds the pipeline to its steps' models, which `source` holds in memory.

    Raises ModelNotLoadable with the place of what does not fit.
    """
    if source.parts is None:
        raise ModelNotLoadable(f"pipeline {source.name!r} can be loaded by a server only, with the models of its steps")
    said = said_of(source)
    try:
        plan = _bind(said, source.parts, source, functions(said, source))
    except Wrong as wrong:
        raise ModelNotLoadable(f"{place_of(said, source)}: {wrong}") from None
    steps = ensemble_steps(said, plan)
    spec = model_spec(source, ENSEMBLE if steps else PLATFORM, plan.inputs, plan.outputs)._replace(steps=steps)
    free = None if settings.platform == "lambda" else abreast.slots(settings.threads)
    return PipelineModel(spec, plan, said, source, free)


def ensemble_steps(said: SaidPipeline, plan: PipelinePlan) -> tuple[EnsembleStep, ...]:
    """Returns the steps as Triton's configuration has them; none if any of them is not the call of one model."""
    if said.functions or any(len(step.calls) > 1 for step in plan.steps):
        return ()
    versions = {step.name: step.calls[0].version or -1 for step in said.steps}
    return tuple(
        EnsembleStep(
            step.calls[0].part.model.spec.name,
            versions[step.name],
            *({port.name: port.tensor for port in ports} for ports in (step.calls[0].inputs, step.calls[0].outputs)),
        )
        for step in plan.steps
    )


def _bind(said: SaidPipeline, parts: PipelineParts, source: Source, own: Mapping[str, FunctionModel]) -> PipelinePlan:
    plan = bind(said, parts, source.settings.inputs, source.settings.outputs, own)
    labels = source.settings.labels
    outputs = (spec._replace(labels=labels.get(spec.name, spec.labels)) for spec in plan.outputs)
    return plan._replace(outputs=tuple(outputs))


class PipelineModel:
    explain = None
    stream = None
    http = None

    def __init__(
        self,
        spec: ModelSpec,
        plan: PipelinePlan,
        said: SaidPipeline,
        source: Source,
        free: threading.BoundedSemaphore | None,
    ) -> None:
        """`free`: bounds the threads for parallel steps; None: all steps in the request's own thread."""
        self.spec = spec
        self._plan = plan
        self._said = said
        self._source = source._replace(parts=None)  # the plan has them, and lets them go when it moves on
        self._free = free
        self._outputs = [output.name for output in plan.outputs]
        self._latest = threading.local()

    @property
    def steady(self) -> bool:
        return all(step.steady for step in self._plan.steps)

    def steps(self) -> Sequence[Took]:
        """Returns how long each step of this thread's latest inference took. Asked again, it returns none."""
        took: Sequence[Took] = self._latest.__dict__.pop("took", ())
        return took

    def predict(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Tensor]:
        plan = self._plan
        newer = plan.parts.renewed()
        if newer is not None:
            plan = self._moved(plan, newer)
        outputs = outputs or self._outputs
        steps = plan.steps if len(outputs) == len(self._outputs) else plan.needed(outputs)

        def once(inputs: Mapping[str, Tensor]) -> tuple[list[Tensor], Sequence[Took]]:
            tensors: Tensors = dict(inputs)
            if self._free is not None and plan.is_wide and abreast.is_worthwhile(steps):
                took = abreast.run(steps, tensors, parameters, self._free)
            else:
                took = [step.run(tensors, parameters) for step in steps]
            return [tensors[name] for name in outputs], took

        rows = self._said.rows
        made, self._latest.took = once(inputs) if rows is None else _sliced(once, inputs, rows)
        return made

    def _moved(self, plan: PipelinePlan, parts: PipelineParts) -> PipelinePlan:
        """Moves to the versions that serve now, unless they do not fit. Returns the plan to go on with."""
        name = self.spec.name
        try:
            newer = _bind(self._said, parts, self._source, plan.functions)
        except Wrong as wrong:
            log.warning("pipeline %s keeps its present models: %s", name, wrong)
            return plan
        if (_ends(newer.inputs), _ends(newer.outputs)) != (_ends(plan.inputs), _ends(plan.outputs)):
            log.warning("pipeline %s keeps its present models: newer ones change its inputs or outputs", name)
            return plan
        self._plan = newer
        return newer


def _sliced(once: Any, inputs: Mapping[str, Tensor], rows: int) -> Any:
    from handler.backends.pipeline import slices  # noqa: PLC0415 - for pipelines that limit their rows

    return slices.run(once, inputs, rows)


def _ends(specs: Sequence[TensorSpec]) -> list[tuple[Any, ...]]:
    return [(spec.name, spec.datatype, spec.shape) for spec in specs]
