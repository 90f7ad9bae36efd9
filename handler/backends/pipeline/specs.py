"""Datatypes and shapes of a pipeline's tensors, by the models at both ends of each, and whether these fit together."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core.dtype import BF16, DataType
from core.records import NamedTuple
from core.tensor import TensorSpec
from handler.backends.pipeline.functions import FunctionModel
from handler.backends.pipeline.steps import ModelCall, PipelineStep, Switch
from handler.settings.checked import Wrong
from handler.settings.pipeline import SaidStep

WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
FLAGS: Final = {"true": True, "false": False}


class BoundStep(NamedTuple):
    """A step with what its publisher wrote of it."""

    said: SaidStep
    calls: tuple[ModelCall, ...]
    step: PipelineStep


def taken(each: BoundStep) -> Iterator[tuple[str, str, TensorSpec | None]]:
    """Yields the path of each place where a step takes a tensor, the tensor, and the expected spec."""
    if each.said.switch is not None:
        yield f"{each.said.path}.switch.tensor", each.said.switch, None
    for call, said in zip(each.calls, each.said.calls, strict=True):
        for port in call.inputs:
            yield f"{said.path}.inputs.{port.name}", port.tensor, port.spec


def consumed(
    names: Sequence[str], bound: Sequence[BoundStep], stated: Mapping[str, TensorSpec]
) -> dict[str, TensorSpec | None]:
    """Returns the specs of the pipeline's inputs, by the steps that take them and the settings."""
    for name in stated:
        if name not in names:
            raise Wrong("inputs of the settings", name, f"an input of the pipeline: {', '.join(names)}")
    specs: dict[str, TensorSpec | None] = {name: stated.get(name) for name in names}
    for each in bound:
        for path, name, expected in taken(each):
            if name in specs and expected is not None:
                _check_stated(stated.get(name), expected, path)
                specs[name] = _both(specs[name], expected, name, path)
    return {name: _within(spec, stated.get(name)) for name, spec in specs.items()}


def _check_stated(stated: TensorSpec | None, expected: TensorSpec, path: str) -> None:
    """Raises Wrong if the model at the path does not accept what the settings state."""
    if stated is not None and not _fits(stated, expected):
        raise Wrong("inputs of the settings", f"{stated.name}: {_text(stated)}", f"what fits {path}: {_text(expected)}")


def _fits(given: TensorSpec, expected: TensorSpec) -> bool:
    """Decides whether a model that expects one spec accepts tensors of the other."""
    accepts = given.datatype is expected.datatype or given.datatype.name in expected.datatype.accepts
    return accepts and _agree(given.shape, expected.shape)


def _both(known: TensorSpec | None, expected: TensorSpec, name: str, path: str) -> TensorSpec:
    """Returns what fits two places. Raises Wrong if nothing does."""
    if known is None:
        return expected._replace(name=name)
    datatype = _narrower(known.datatype, expected.datatype)
    shape = _common(known.shape, expected.shape)
    if datatype is None or (shape is None and known.shape is not None):
        raise Wrong(path, _text(known), f"what fits the model there: {_text(expected)}")
    return known._replace(datatype=datatype, shape=shape)


def _within(spec: TensorSpec | None, stated: TensorSpec | None) -> TensorSpec | None:
    return spec if stated is None or spec is None else spec._replace(format=stated.format)


def _narrower(one: DataType, other: DataType) -> DataType | None:
    """Returns the datatype that both accept."""
    if one is other or one.name in other.accepts:
        return one
    return other if other.name in one.accepts else None


def _common(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Returns the shape within both, None for any rank, or if there is none."""
    if one is None or other is None:
        return other if one is None else one
    if len(one) != len(other) or any(a != b and -1 not in (a, b) for a, b in zip(one, other, strict=True)):
        return None
    return tuple(max(sizes) for sizes in zip(one, other, strict=True))


def made(name: str, each: BoundStep) -> TensorSpec | None:
    """Returns the spec of a tensor that a step makes, in whichever branch. Raises Wrong."""
    found: TensorSpec | None = None
    for index, (call, said) in enumerate(zip(each.calls, each.said.calls, strict=True)):
        spec = next(port.spec for port in call.outputs if port.tensor == name)
        if spec is None:
            return None
        if found is None:
            found = spec._replace(name=name)
        elif spec.datatype is not found.datatype:
            expected = f"{found.datatype.name}, as in the step's other branches"
            raise Wrong(f"{said.path}.outputs", f"{name}: {spec.datatype.name}", expected)
        else:
            labels = found.labels if index and found.labels == spec.labels else ()
            found = found._replace(shape=_either(found.shape, spec.shape), labels=labels)
    return found


def _either(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Returns the shape around both."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))


def outlined(
    each: BoundStep, made: Mapping[str, TensorSpec | None], known: Mapping[str, TensorSpec | None]
) -> Mapping[str, TensorSpec | None]:
    """Returns the specs of a step's outputs. Those of a built-in function have shapes that follow from its inputs."""
    call = each.calls[0]
    model = call.part.model
    if not isinstance(model, FunctionModel):
        return made
    given = {port.name: known[port.tensor] for port in call.inputs}
    shapes = model.function.outlined({name: None if spec is None else spec.shape for name, spec in given.items()})
    sizes = {port.tensor: shapes[port.name] for port in call.outputs if port.name in shapes}
    return {
        name: spec if spec is None or name not in sizes else spec._replace(shape=sizes[name])
        for name, spec in made.items()
    }


def check_taken(each: BoundStep, specs: Mapping[str, TensorSpec | None]) -> None:
    """Raises Wrong where a step takes a tensor that cannot fit."""
    for path, name, expected in taken(each):
        given = specs[name]
        if given is not None and expected is not None and not _fits(given, expected):
            raise Wrong(path, f"{name}: {_text(given)}", f"what fits the model there: {_text(expected)}")
    if each.said.switch is not None:
        _check_switch(each, specs[each.said.switch])


def _check_switch(each: BoundStep, given: TensorSpec | None) -> None:
    """Turns the cases into values of the tensor. Raises Wrong."""
    path, switch = f"{each.said.path}.switch", each.step.choose
    assert isinstance(switch, Switch)  # noqa: S101 - for mypy: the step has one
    if given is None:
        expected = "a tensor that a model or `inputs` in model-settings.json declares"
        raise Wrong(f"{path}.tensor", f"{switch.tensor}, which nothing declares", expected)
    if given.datatype.is_float or given.datatype is BF16:
        what = f"{switch.tensor}, {given.datatype.name}"
        raise Wrong(f"{path}.tensor", what, "a tensor of text, whole numbers or BOOL")
    if given.shape is not None and any(size not in (-1, 1) for size in given.shape):
        raise Wrong(f"{path}.tensor", f"{switch.tensor}: {_text(given)}", "a tensor of one element")
    values = {_value(case, given.datatype, f"{path}.cases"): index for index, case in enumerate(each.said.cases)}
    if len(values) < len(each.said.cases):
        raise Wrong(f"{path}.cases", list(each.said.cases), "each value once")
    each.step.choose = switch._replace(cases=values)


def _value(case: str, datatype: DataType, path: str) -> Any:
    if datatype.is_bytes:
        return case.encode()
    if datatype.name == "BOOL":
        if case not in FLAGS:
            raise Wrong(path, case, "true or false")
        return FLAGS[case]
    bits = 8 * datatype.numpy.itemsize
    low = 0 if datatype.name.startswith("U") else -(2 ** (bits - 1))
    if not WHOLE.fullmatch(case) or not low <= int(case) < low + 2**bits:
        raise Wrong(path, case, f"a whole number that fits {datatype.name}")
    return int(case)


def refined(made: Mapping[str, TensorSpec | None], stated: Sequence[TensorSpec] | None) -> dict[str, TensorSpec | None]:
    """Returns the settings' specs of tensors that steps make. Raises Wrong if they contradict the steps."""
    refined: dict[str, TensorSpec | None] = {}
    for spec in stated or ():
        if spec.name not in made:
            raise Wrong("outputs of the settings", spec.name, f"a tensor that a step makes: {', '.join(made)}")
        known = made[spec.name]
        fits = known is None or (known.datatype is spec.datatype and _agree(known.shape, spec.shape))
        if not fits:
            assert known is not None  # noqa: S101 - for mypy
            raise Wrong(
                "outputs of the settings", f"{spec.name}: {_text(spec)}", f"what its step makes: {_text(known)}"
            )
        shape = known.shape if known is not None and spec.shape is None else spec.shape
        refined[spec.name] = spec if known is None else known._replace(shape=shape)
    return refined


def _agree(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    return one is None or other is None or _common(one, other) is not None


def described(specs: Mapping[str, TensorSpec | None], role: str) -> Any:
    """Returns a function that describes a tensor of the pipeline's ends. None is optional: a step names it."""

    def described(name: str) -> TensorSpec:
        spec = specs[name]
        if spec is None:
            text = f"a datatype and shape: no model declares it. State it under {role}s in model-settings.json"
            raise Wrong(f"{role} {name!r}", None, text)
        return spec._replace(optional=False)

    return described


def _text(spec: TensorSpec) -> str:
    return f"{spec.datatype.name} {'of any rank' if spec.shape is None else list(spec.shape)}"
