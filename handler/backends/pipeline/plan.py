"""Binds a pipeline to the models that it calls, and checks that everything fits together before the first request.

Checked are names, datatypes, shapes, cycles, and that nothing is left over. An error names the place by the path of its
key. Sizes that the models leave open are checked by each request.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from core.records import NamedTuple
from core.tensor import TensorSpec
from handler.backends import PipelinePart, PipelineParts
from handler.backends.pipeline import specs
from handler.backends.pipeline.functions import FunctionModel
from handler.backends.pipeline.specs import BoundStep
from handler.backends.pipeline.steps import ModelCall, PipelineStep, Split, Switch, TensorPort
from handler.settings.checked import Wrong
from handler.settings.pipeline import SaidCall, SaidPipeline, SaidStep


class PipelinePlan(NamedTuple):
    """`steps`: in an order in which each finds its inputs. `parts`: keep the models in memory."""

    steps: tuple[PipelineStep, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parts: PipelineParts
    is_wide: bool
    """Whether any two steps do not depend on each other."""
    functions: Mapping[str, FunctionModel]
    """Those of this server, by the paths of their calls. They stay when a pipeline moves to newer models."""

    def needed(self, outputs: Sequence[str]) -> tuple[PipelineStep, ...]:
        """Returns the steps that make these tensors."""
        wanted, steps = set(outputs), []
        for step in reversed(self.steps):
            if step.makes & wanted:
                wanted |= step.takes
                steps.append(step)
        return tuple(reversed(steps))


def bind(
    said: SaidPipeline,
    parts: PipelineParts,
    inputs: Sequence[TensorSpec] | None = None,
    outputs: Sequence[TensorSpec] | None = None,
    functions: Mapping[str, FunctionModel] = MappingProxyType({}),
) -> PipelinePlan:
    """Returns the plan. `inputs`, `outputs`: those of the settings. Raises Wrong.

    `functions`: those of this server, by the paths of their calls.
    """
    bound = [_bound(step, parts, functions) for step in said.steps]
    makers = _makers(bound)
    names = _inputs(said, bound, makers)
    order = _ordered(said, bound, makers)
    inputs_of = specs.consumed(names, bound, {spec.name: spec for spec in inputs or ()})
    made = _made(bound, order, makers, inputs_of)
    for each in bound:
        specs.check_taken(each, inputs_of | made)
    ends = _outputs(said, bound, makers)
    steps = tuple(bound[index].step for index in order)
    plan = PipelinePlan(
        steps, tuple(map(specs.described(inputs_of, "input"), names)), (), parts, _is_wide(bound, makers), functions
    )
    made |= specs.refined(made, outputs)
    plan = plan._replace(outputs=tuple(map(specs.described(made, "output"), ends)))
    left = next((each for each in bound if each.step not in plan.needed(ends)), None)
    if left is not None:
        raise Wrong(left.said.path, left.said.name, "a step whose outputs another step takes, or the pipeline returns")
    return plan


# -- steps --------------------------------------------------------------------------------------------------------


def _bound(said: SaidStep, parts: PipelineParts, functions: Mapping[str, FunctionModel]) -> BoundStep:
    calls = tuple(
        _call(call, parts.held[call.model, call.version] if call.function is None else functions[call.path])
        for call in said.calls
    )
    made = {port.tensor for port in calls[0].outputs}
    for call, branch in zip(calls, said.calls, strict=True):
        if {port.tensor for port in call.outputs} != made:
            names = sorted(port.tensor for port in call.outputs)
            raise Wrong(f"{branch.path}.outputs", names, f"the tensors of the step's other branches: {sorted(made)}")
    return BoundStep(said, calls, PipelineStep(said.name, calls, _choice(said, calls)))


def _call(said: SaidCall, part: PipelinePart) -> ModelCall:
    spec = part.model.spec
    what = f"model {said.model!r}" if said.function is None else f"the {said.model} step"
    return ModelCall(
        part,
        _ports(f"{said.path}.inputs", said.inputs, spec.inputs, what),
        _ports(f"{said.path}.outputs", said.outputs, spec.outputs, what, every=False),
    )


def _ports(
    path: str, said: Mapping[str, str] | None, specs: Sequence[TensorSpec] | None, model: str, *, every: bool = True
) -> tuple[TensorPort, ...]:
    """`every`: each tensor of the model needs a name in the pipeline, unless it is optional."""
    if specs is None:
        if said is None:
            raise Wrong(path, None, f"an object: {model} does not declare its own")
        return tuple(TensorPort(name, tensor, None) for name, tensor in said.items())
    known = {spec.name: spec for spec in specs}
    if said is None:
        said = {spec.name: spec.name for spec in specs if not spec.optional}
    for name, tensor in said.items():
        if name not in known:
            raise Wrong(f"{path}.{name}", tensor, f"no such key; {model} has {', '.join(known)}")
    absent = next((spec.name for spec in specs if spec.name not in said and not spec.optional), None)
    if every and absent is not None:
        raise Wrong(path, list(said), f"a tensor for {absent!r} of {model}, too")
    return tuple(TensorPort(name, tensor, known[name]) for name, tensor in said.items())


def _choice(said: SaidStep, calls: Sequence[ModelCall]) -> Switch | Split | None:
    if said.weights:
        return Split(said.weights)
    if said.switch is None:
        return None
    default = len(said.cases) if len(calls) > len(said.cases) else None
    return Switch(said.switch, {case: index for index, case in enumerate(said.cases)}, default)


def _is_wide(bound: Sequence[BoundStep], makers: Mapping[str, int]) -> bool:
    """Decides whether any two steps can run in parallel: whether the longest chain leaves any out."""
    lengths: dict[int, int] = {}

    def length(index: int) -> int:
        if index not in lengths:
            above = {makers[name] for name in bound[index].step.takes if name in makers}
            lengths[index] = 1 + max(map(length, above), default=0)
        return lengths[index]

    return max(map(length, range(len(bound)))) < len(bound)


# -- tensors ------------------------------------------------------------------------------------------------------


def _makers(bound: Sequence[BoundStep]) -> dict[str, int]:
    """Returns which step makes each tensor."""
    makers: dict[str, int] = {}
    for index, each in enumerate(bound):
        for port in each.calls[0].outputs:
            if port.tensor in makers:
                other = bound[makers[port.tensor]].said.name
                path = f"{each.said.calls[0].path}.outputs.{port.name}"
                raise Wrong(path, port.tensor, f"a tensor that no other step makes; step {other!r} does")
            makers[port.tensor] = index
    return makers


def _made(
    bound: Sequence[BoundStep], order: Sequence[int], makers: Mapping[str, int], inputs: Mapping[str, TensorSpec | None]
) -> dict[str, TensorSpec | None]:
    """Returns the specs of the tensors that steps make, as far as they are known, in the order of `makers`."""
    known = dict(inputs)
    for index in order:
        each = bound[index]
        known |= specs.outlined(
            each, {port.tensor: specs.made(port.tensor, each) for port in each.calls[0].outputs}, known
        )
    return {name: known[name] for name in makers}


def _inputs(said: SaidPipeline, bound: Sequence[BoundStep], makers: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the names of the pipeline's inputs: those that it states, else what no step makes."""
    free = dict.fromkeys(name for each in bound for _, name, _ in specs.taken(each) if name not in makers)
    if said.inputs is None:
        return tuple(free)
    for index, name in enumerate(said.inputs):
        if name not in free:
            expected = "a tensor that no step makes" if name in makers else "a tensor that a step takes"
            raise Wrong(f"{said.path}inputs[{index}]", name, expected)
    for each in bound:
        for path, name, _ in specs.taken(each):
            if name not in makers and name not in said.inputs:
                raise Wrong(path, name, f"an input of the pipeline ({', '.join(said.inputs)}), or what a step makes")
    return said.inputs


def _ordered(said: SaidPipeline, bound: Sequence[BoundStep], makers: Mapping[str, int]) -> list[int]:
    """Returns the steps' indices in an order in which each finds its inputs, close to the written order."""
    above = [{makers[name] for name in each.step.takes if name in makers} for each in bound]
    left, order = list(range(len(bound))), []
    while left:
        ready = next((index for index in left if above[index].isdisjoint(left)), None)
        if ready is None:
            raise Wrong(f"{said.path}steps", _cycle(left, above, bound), "no cycle: a step takes what it makes")
        left.remove(ready)
        order.append(ready)
    return order


def _cycle(left: Sequence[int], above: Sequence[set[int]], bound: Sequence[BoundStep]) -> list[str]:
    """Returns the names of the steps of a cycle. `left`: steps each of which waits for another one of them."""
    seen: list[int] = []
    index = left[0]
    while index not in seen:
        seen.append(index)
        index = min(above[index].intersection(left))
    return [bound[each].said.name for each in [*seen[seen.index(index) :], index]]


def _outputs(said: SaidPipeline, bound: Sequence[BoundStep], makers: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the names of the pipeline's outputs: those that it states, else what no step takes."""
    if said.outputs is None:
        taken = {name for each in bound for name in each.step.takes}
        return tuple(name for name in makers if name not in taken)
    for index, name in enumerate(said.outputs):
        if name not in makers:
            raise Wrong(f"{said.path}outputs[{index}]", name, f"a tensor that a step makes: {', '.join(makers)}")
    return said.outputs
