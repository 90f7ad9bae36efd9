"""A pipeline as its publisher wrote it: pipeline.json, or the key "pipeline" of model-settings.json.

    {"steps": [step, ...], "inputs": [tensor, ...], "outputs": [tensor, ...], "rows": number}
    step:   {"name": text} and a call; or "switch", or "split", with calls for branches; or a function of this server
            (handler.settings.functions), with "inputs" and "outputs"
    call:   {"model": name, "version": number, "inputs": {input of the model: tensor}, "outputs": {its output: tensor}}
    switch: {"tensor": tensor, "cases": {value: call, ...}, "default": call}
    split:  [{"weight": number} and a call, ...]

A tensor is a name that the pipeline's author chooses. What a step with branches says beside them holds for each branch
that does not say it itself. Which tensors fit together is checked when the pipeline is loaded: see
handler.backends.pipeline.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from core.records import NamedTuple
from handler.settings.checked import Wrong, an_object, members_of, number, texts
from handler.settings.functions import FUNCTIONS, SaidFunction

FILE: Final = "pipeline.json"
MOST_BYTES: Final = 1024 * 1024
MOST_STEPS: Final = 64
MOST_BRANCHES: Final = 16
LONGEST_NAME: Final = 64
LARGEST_WEIGHT: Final = 1_000_000
CALL: Final = ("model", "version", "inputs", "outputs")


class SaidCall(NamedTuple):
    """A use of another model. `version` None: the one that serves. `inputs`, `outputs` None: tensors of their names.

    `path`: of its keys, for messages. `function`: a function of this server in the place of a model; `model` is its
    name then.
    """

    path: str
    model: str
    version: int | None = None
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    function: SaidFunction | None = None


class SaidStep(NamedTuple):
    """A step. One of `calls` answers: by the value of the tensor `switch`, by `weights`, or the only one there is.

    `cases`: the values of the calls of a switch; one fewer than calls if the last is the default.
    """

    path: str
    name: str
    calls: tuple[SaidCall, ...]
    switch: str | None = None
    cases: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()


class SaidPipeline(NamedTuple):
    """`inputs`, `outputs` None: the tensors that no step makes, and those that no step takes. `path`: of its keys.

    `rows`: the most of a request that its steps have at a time; None: all.
    """

    steps: tuple[SaidStep, ...]
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    path: str = ""
    rows: int | None = None

    @property
    def functions(self) -> tuple[SaidCall, ...]:
        """The calls of this server's functions."""
        return tuple(call for step in self.steps for call in step.calls if call.function is not None)


def read(text: bytes) -> SaidPipeline:
    """Parses the file. Raises Wrong."""
    if len(text) > MOST_BYTES:
        raise Wrong("the file", f"{len(text)} bytes", f"at most {MOST_BYTES}")
    return parse(members_of(text), "")


def parse(value: Any, path: str) -> SaidPipeline:
    """Parses a pipeline at the path of its key. Raises Wrong."""
    members = an_object(value, path or "the file", "steps", "inputs", "outputs", "rows")
    prefix = f"{path}." if path else ""
    steps = members.get("steps")
    if not isinstance(steps, list) or not steps:
        raise Wrong(f"{prefix}steps", steps, "an array of at least one step")
    if len(steps) > MOST_STEPS:
        raise Wrong(f"{prefix}steps", f"{len(steps)} steps", f"at most {MOST_STEPS}")
    said = tuple(_step(step, f"{prefix}steps[{index}]") for index, step in enumerate(steps))
    for index, step in enumerate(said):
        if step.name in (other.name for other in said[:index]):
            raise Wrong(f"{step.path}.name", step.name, "a name of its own: another step has this one")
    rows = None if members.get("rows") is None else number(members["rows"], f"{prefix}rows", 1)
    return SaidPipeline(said, _ends(members, "inputs", prefix), _ends(members, "outputs", prefix), prefix, rows)


def _ends(members: Mapping[str, Any], key: str, prefix: str) -> tuple[str, ...] | None:
    if members.get(key) is None:
        return None
    names, path = texts(members[key], f"{prefix}{key}"), f"{prefix}{key}"
    if not names or len(set(names)) < len(names):
        raise Wrong(path, list(names), "names of tensors, each once")
    return names


def _step(value: Any, path: str) -> SaidStep:
    members = an_object(value, path, "name", "switch", "split", *CALL, *FUNCTIONS)
    kinds = [kind for kind in KINDS if kind in members]
    if len(kinds) != 1:
        raise Wrong(path, sorted(members), f"one of {', '.join(KINDS[:-1])} and {KINDS[-1]}")
    step = READERS.get(kinds[0], _function)(members, path)
    return step._replace(name=_name(members.get("name", step.calls[0].model), f"{path}.name"))


def _plain(members: Mapping[str, Any], path: str) -> SaidStep:
    return SaidStep(path, "", (_call(members, path, {}, path),))


def _function(members: Mapping[str, Any], path: str) -> SaidStep:
    kind = next(kind for kind in FUNCTIONS if kind in members)
    function = FUNCTIONS[kind](members[kind], f"{path}.{kind}")
    named = {key: value for key, value in members.items() if key != kind} | {"model": kind}
    if "version" in members:
        raise Wrong(f"{path}.version", members["version"], f"no such key: a {kind} has no versions")
    return SaidStep(path, "", (_call(named, path, {}, path)._replace(function=function),))


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise Wrong(path, value, f"text of at most {LONGEST_NAME} characters")
    return value


def _switch(members: Mapping[str, Any], path: str) -> SaidStep:
    switch = an_object(members["switch"], f"{path}.switch", "tensor", "cases", "default")
    tensor, cases = switch.get("tensor"), switch.get("cases")
    if not isinstance(tensor, str):
        raise Wrong(f"{path}.switch.tensor", tensor, "the name of a tensor")
    if not isinstance(cases, dict) or not 0 < len(cases) <= MOST_BRANCHES:
        raise Wrong(f"{path}.switch.cases", cases, f"an object with 1 to {MOST_BRANCHES} values")
    calls = [_branch(call, f"{path}.switch.cases.{case}", members, path) for case, call in cases.items()]
    if switch.get("default") is not None:
        calls.append(_branch(switch["default"], f"{path}.switch.default", members, path))
    return SaidStep(path, "", tuple(calls), tensor, tuple(cases))


def _split(members: Mapping[str, Any], path: str) -> SaidStep:
    split, step = members["split"], path
    path = f"{step}.split"
    if not isinstance(split, list) or not 0 < len(split) <= MOST_BRANCHES:
        raise Wrong(path, split, f"an array of 1 to {MOST_BRANCHES} branches")
    calls = tuple(_branch(call, f"{path}[{index}]", members, step, "weight") for index, call in enumerate(split))
    weights = tuple(_weight(call.get("weight"), f"{path}[{index}].weight") for index, call in enumerate(split))
    if not sum(weights):
        raise Wrong(path, list(weights), "a weight above 0")
    return SaidStep(step, "", calls, weights=weights)


def _weight(value: Any, path: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= LARGEST_WEIGHT:
        raise Wrong(path, value, f"a number from 0 to {LARGEST_WEIGHT}")
    return float(value)


def _branch(value: Any, path: str, step: Mapping[str, Any], above: str, *more: str) -> SaidCall:
    return _call(an_object(value, path, *CALL, *more), path, step, above)


def _call(members: Mapping[str, Any], path: str, step: Mapping[str, Any], above: str) -> SaidCall:
    """`step`: the members of the step that the call is a branch of, at the path `above`."""
    model, version = members.get("model"), members.get("version", step.get("version"))
    if not isinstance(model, str) or not model:
        raise Wrong(f"{path}.model", model, "the name of a model")
    version = None if version is None else number(version, f"{path}.version", 0)
    inputs, outputs = (
        _map(members.get(key, step.get(key)), f"{path if key in members else above}.{key}")
        for key in ("inputs", "outputs")
    )
    if outputs is not None and (not outputs or len(set(outputs.values())) < len(outputs)):
        raise Wrong(f"{path}.outputs", list(outputs.values()), "at least one tensor, each once")
    return SaidCall(path, model, version, inputs, outputs)


def _map(value: Any, path: str) -> dict[str, str] | None:
    if value is None:
        return None
    members = an_object(value, path)
    for name, tensor in members.items():
        if not isinstance(tensor, str) or not tensor:
            raise Wrong(f"{path}.{name}", tensor, "the name of a tensor")
    return members


READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], SaidStep]]] = {
    "model": _plain,
    "switch": _switch,
    "split": _split,
}
KINDS: Final = (*READERS, *FUNCTIONS)
"""The keys of which a step has one."""
