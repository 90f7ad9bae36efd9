"""handler.backends.pipeline: steps over other models, in process."""

import gc
import itertools
import random
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, TimedOut
from handler.backends import SeveralAnswers
from handler.backends.pipeline import abreast, steps
from handler.backends.runs import CURRENT, Run
from handler.settings.checked import Wrong
from handler.settings.model import ModelSettings
from tests.support.pipelines import Fake, FakeParts, arithmetic, asked, given, parts, pipeline, tensor

ADD = arithmetic("add", 2, 1)
ONE = arithmetic("one", 1, 1)
TWO = arithmetic("two", 1, 2)
TEXT = Fake("text", [tensor("t", "BYTES")], [tensor("u", "BYTES")], lambda t: [t])
FLAG = Fake("flag", [tensor("t", "BYTES")], [tensor("f", "BOOL", 1)], lambda t: [np.array([t[0] == b"yes"])])
FIXED = Fake("fixed", [tensor("i0", "INT64", 3)], [tensor("o0", "INT64", 3)], lambda x: [x])
MATRIX = Fake("matrix", [tensor("i0", "INT64", -1, 2)], [tensor("o0", "FP32", -1, 2)], lambda x: [x])
DOUBLE = Fake("double", [tensor("i0", "FP64")], [tensor("o0", "FP64")], lambda x: [x * 2])
SINGLE = Fake("single", [tensor("i0", "FP32")], [tensor("o0", "FP32")], lambda x: [x + 1])
OPEN = Fake("open", None, None, lambda *x: [sum(x)])
ALL = parts(ADD, ONE, TWO, TEXT, FLAG, FIXED, MATRIX, DOUBLE, SINGLE, OPEN)


def step(model: str, inputs: Any = None, outputs: Any = None, **more: Any) -> dict[str, Any]:
    """A step with maps where they are given."""
    maps = {"inputs": inputs, "outputs": outputs}
    return {"model": model} | {key: value for key, value in maps.items() if value is not None} | more


A = step("one", {"i0": "x"}, {"o0": "y"}, name="a")
B = step("one", {"i0": "y"}, {"o0": "z"}, name="b")
SWITCH = {"tensor": "k", "cases": {"1": {"model": "one"}}}
BRANCHES = {"inputs": {"i0": "x"}, "outputs": {"o0": "y"}}

BAD = [
    # the file
    ([], "pipeline is []; expected an object"),
    ({"steps": [A], "stepz": 1}, "pipeline.stepz is 1; expected no such key"),
    ({}, "pipeline.steps is null; expected an array of at least one step"),
    ({"steps": []}, "pipeline.steps is []; expected an array of at least one step"),
    ({"steps": [A] * 65}, "pipeline.steps is '65 steps'; expected at most 64"),
    ({"steps": [A, A]}, "pipeline.steps[1].name is 'a'; expected a name of its own"),
    ({"steps": [{}]}, "pipeline.steps[0] is []; expected one of model, switch, split, tokenizer, pooling and no"),
    ({"steps": [A | {"split": []}]}, "pipeline.steps[0] is ['inputs', 'model', 'name', 'outputs', 'split']; expected"),
    ({"steps": [A | {"model": 5}]}, "pipeline.steps[0].model is 5; expected the name of a model"),
    ({"steps": [A | {"name": ""}]}, "pipeline.steps[0].name is ''; expected text of at most 64"),
    ({"steps": [A | {"name": "x" * 65}]}, "expected text of at most 64"),
    ({"steps": [A | {"version": -1}]}, "pipeline.steps[0].version is -1; expected a whole number from 0 up"),
    ({"steps": [A | {"version": "1"}]}, "pipeline.steps[0].version is '1'; expected a whole number"),
    ({"steps": [A | {"inputs": []}]}, "pipeline.steps[0].inputs is []; expected an object"),
    ({"steps": [A | {"inputs": {"i0": 1}}]}, "pipeline.steps[0].inputs.i0 is 1; expected the name of a tensor"),
    ({"steps": [A | {"outputs": {}}]}, "pipeline.steps[0].outputs is []; expected at least one tensor, each once"),
    ({"steps": [step("two", {"i0": "x"}, {"o0": "y", "o1": "y"})]}, "steps[0].outputs is ['y', 'y']; expected at leas"),
    ({"steps": [A], "inputs": [1]}, "pipeline.inputs is [1]; expected an array of text"),
    ({"steps": [A], "outputs": ["y", "y"]}, "pipeline.outputs is ['y', 'y']; expected names of tensors, each once"),
    # switch and split
    ({"steps": [{"switch": {"cases": {}}}]}, "pipeline.steps[0].switch.tensor is null; expected the name of a tensor"),
    ({"steps": [{"switch": {"tensor": "k", "cases": {}}}]}, "steps[0].switch.cases is {}; expected an object with 1 t"),
    ({"steps": [{"switch": SWITCH | {"else": 1}}]}, "pipeline.steps[0].switch.else is 1; expected no such key"),
    ({"steps": [{"switch": {"tensor": "k", "cases": {"1": 2}}}]}, "steps[0].switch.cases.1 is 2; expected an object"),
    ({"steps": [{"switch": SWITCH} | BRANCHES]}, "'k, which nothing declares'; expected a tensor that a model or"),
    ({"steps": [step("matrix", {"i0": "m"}, {"o0": "k"}), {"name": "s", "switch": SWITCH} | BRANCHES]},
     "steps[1].switch.tensor is 'k, FP32'; expected a tensor of text, whole numbers or BOOL"),
    ({"steps": [step("fixed", {"i0": "m"}, {"o0": "k"}), {"name": "s", "switch": SWITCH} | BRANCHES]},
     "steps[1].switch.tensor is 'k: INT64 [3]'; expected a tensor of one element"),
    ({"steps": [step("flag", {"t": "m"}, {"f": "k"}), {"name": "s", "switch": SWITCH} | BRANCHES]},
     "steps[1].switch.cases is '1'; expected true or false"),
    ({"steps": [step("two", {"i0": "m"}, {"o0": "k", "o1": "n"}),
                {"name": "s", "switch": {"tensor": "k", "cases": {"one": {"model": "one"}}}} | BRANCHES]},
     "steps[1].switch.cases is 'one'; expected a whole number that fits INT64"),
    ({"steps": [step("one", {"i0": "m"}, {"o0": "k"}),
                {"name": "s", "switch": {"tensor": "k", "cases": {"1": {"model": "one"}, "01": {"model": "one"}}}}
                | BRANCHES]}, "steps[1].switch.cases is ['1', '01']; expected each value once"),
    ({"steps": [{"split": []}]}, "pipeline.steps[0].split is []; expected an array of 1 to 16 branches"),
    ({"steps": [{"split": [{"model": "one"}] * 17}]}, "expected an array of 1 to 16 branches"),
    ({"steps": [{"split": [{"model": "one"}]}]}, "pipeline.steps[0].split[0].weight is null; expected a number from 0"),
    ({"steps": [{"split": [{"model": "one", "weight": float("nan")}]}]}, "split[0].weight is NaN; expected a number f"),
    ({"steps": [{"split": [{"model": "one", "weight": True}]}]}, "split[0].weight is true; expected a number from 0"),
    ({"steps": [{"split": [{"model": "one", "weight": 0}]}]}, "pipeline.steps[0].split is [0.0]; expected a weight ab"),
    ({"steps": [{"split": [{"model": "one", "weight": 1, "outputs": {"o0": "y"}},
                           {"model": "two", "weight": 1}]} | BRANCHES | {"outputs": {"o0": "z"}}]},
     "pipeline.steps[0].split[1].outputs is ['z']; expected the tensors of the step's other branches: ['y']"),
    ({"steps": [{"split": [{"model": "one", "weight": 1}, {"model": "single", "weight": 1, "inputs": {"i0": "f"}}]}
                | BRANCHES]}, "split[1].outputs is 'y: FP32'; expected INT64, as in the step's other branches"),
    # names
    ({"steps": [step("one", {"i0": "x", "i9": "x"}, {"o0": "y"})]}, "steps[0].inputs.i9 is 'x'; expected no such key;"),
    ({"steps": [step("one", {"i0": "x"}, {"o9": "y"})]}, "steps[0].outputs.o9 is 'y'; expected no such key; model 'on"),
    ({"steps": [step("add", {"i0": "x"}, {"o0": "y"})]}, "steps[0].inputs is ['i0']; expected a tensor for 'i1' of mo"),
    ({"steps": [step("open", {"a": "x"})]}, "steps[0].outputs is null; expected an object: model 'open' does not decl"),
    ({"steps": [A, B | {"outputs": {"o0": "y"}}]}, "steps[1].outputs.o0 is 'y'; expected a tensor that no other step"),
    ({"steps": [A], "inputs": ["x", "w"]}, "pipeline.inputs[1] is 'w'; expected a tensor that a step takes"),
    ({"steps": [A, B], "inputs": ["x", "y"]}, "pipeline.inputs[1] is 'y'; expected a tensor that no step makes"),
    ({"steps": [A | {"inputs": {"i0": "xx"}}, B | {"inputs": {"i0": "x"}}], "inputs": ["x"]},
     "pipeline.steps[0].inputs.i0 is 'xx'; expected an input of the pipeline (x), or what a step makes"),
    ({"steps": [A], "outputs": ["z"]}, "pipeline.outputs[0] is 'z'; expected a tensor that a step makes: y"),
    ({"steps": [A], "outputs": ["x"]}, "pipeline.outputs[0] is 'x'; expected a tensor that a step makes: y"),
    ({"steps": [A, B], "outputs": ["y"]}, "pipeline.steps[1] is 'b'; expected a step whose outputs another step takes"),
    # cycles
    ({"steps": [A | {"inputs": {"i0": "y"}}]}, "pipeline.steps is ['a', 'a']; expected no cycle"),
    ({"steps": [A | {"inputs": {"i0": "z"}}, B]}, "pipeline.steps is ['a', 'b', 'a']; expected no cycle"),
    ({"steps": [step("one", {"i0": "z"}, {"o0": "w"}, name="c"), A | {"inputs": {"i0": "z"}}, B]},
     "pipeline.steps is ['b', 'a', 'b']; expected no cycle"),
    # datatypes and shapes
    ({"steps": [A, step("text", {"t": "y"}, {"u": "z"})]},
     "steps[1].inputs.t is 'y: INT64 [-1]'; expected what fits the model there: BYTES [-1]"),
    ({"steps": [A, step("matrix", {"i0": "y"}, {"o0": "z"})]},
     "steps[1].inputs.i0 is 'y: INT64 [-1]'; expected what fits the model there: INT64 [-1, 2]"),
    ({"steps": [A, step("text", {"t": "x"}, {"u": "z"})]},
     "steps[1].inputs.t is 'INT64 [-1]'; expected what fits the model there: BYTES [-1]"),
    ({"steps": [A, step("matrix", {"i0": "x"}, {"o0": "z"})]},
     "steps[1].inputs.i0 is 'INT64 [-1]'; expected what fits the model there: INT64 [-1, 2]"),
    ({"steps": [step("open", {"a": "x"}, {"b": "y"})]}, "input 'x' is null; expected a datatype and shape: no model d"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "message"), BAD, ids=[message[:70] for _, message in BAD])
def test_a_pipeline_that_cannot_work_is_refused_with_the_place(said: Any, message: str) -> None:
    """What is wrong, where, and what was expected, before any request."""
    with pytest.raises((ModelNotLoadable, Wrong)) as refused:
        pipeline(said, ALL)
    assert message in str(refused.value)


STATED = [
    ({"inputs": (tensor("w"),)}, "inputs of the settings is 'w'; expected an input of the pipeline: x"),
    (
        {"inputs": (tensor("x", "FP32"),)},
        "inputs of the settings is 'x: FP32 [-1]'; expected what fits pipeline.steps[0].inputs.i0: INT64 [-1]",
    ),
    (
        {"inputs": (tensor("x", "INT64", 2, 2),)},
        "inputs of the settings is 'x: INT64 [2, 2]'; expected what fits pipeline.steps[0].inputs.i0: INT64 [-1]",
    ),
    ({"outputs": (tensor("x"),)}, "outputs of the settings is 'x'; expected a tensor that a step makes: y"),
    (
        {"outputs": (tensor("y", "FP32"),)},
        "outputs of the settings is 'y: FP32 [-1]'; expected what its step makes: INT64",
    ),
    ({"outputs": (tensor("y", "INT64", 2, 2),)}, "expected what its step makes: INT64 [-1]"),
]


@pytest.mark.parametrize(("settings", "message"), STATED)
def test_settings_that_contradict_the_steps_are_refused(settings: dict[str, Any], message: str) -> None:
    """They may narrow a shape or a datatype, and change nothing else."""
    with pytest.raises(ModelNotLoadable) as refused:
        pipeline({"steps": [A]}, ALL, ModelSettings(**settings))
    assert message in str(refused.value)


def test_settings_may_narrow_an_input_and_not_widen_it() -> None:
    """A model of FP64 accepts FP32; one of FP32 refuses FP64, which clients would send by the settings."""
    narrow = ModelSettings(inputs=(tensor("x", "FP32"),))
    said = {"steps": [step("double", {"i0": "x"}, {"o0": "y"})]}
    assert pipeline(said, ALL, narrow).spec.inputs == (tensor("x", "FP32"),)
    wide = ModelSettings(inputs=(tensor("x", "FP64"),))
    with pytest.raises(ModelNotLoadable, match=r"'x: FP64 \[-1\]'; expected what fits pipeline.steps\[0\].inputs.i0"):
        pipeline({"steps": [step("single", {"i0": "x"}, {"o0": "y"})]}, ALL, wide)


def test_the_ends_come_from_the_models_there_and_from_the_settings() -> None:
    """An input fits every model that takes it; an output is what any branch may make; settings say more of a shape."""
    said = {"steps": [A, step("fixed", {"i0": "x"}, {"o0": "w"}), step("open", {"a": "v"}, {"b": "u"})]}
    settings = ModelSettings(inputs=(tensor("v", "FP32", None),), outputs=(tensor("u"), tensor("y", "INT64", 3)))
    spec = pipeline(said, ALL, settings).spec
    assert spec.inputs == (tensor("x", "INT64", 3), tensor("v", "FP32", None))
    assert spec.outputs == (tensor("y", "INT64", 3), tensor("w", "INT64", 3), tensor("u"))
    labelled = ModelSettings(outputs=(tensor("w", "INT64", None),))
    assert pipeline({"steps": [step("fixed", {"i0": "x"}, {"o0": "w"})]}, ALL, labelled).spec.outputs == (
        tensor("w", "INT64", 3),
    )
    split = {"split": [{"model": "one", "weight": 1}, {"model": "fixed", "weight": 1}]} | BRANCHES
    assert pipeline({"steps": [split]}, ALL).spec.outputs == (tensor("y"),)
    widened = {"steps": [step("single", {"i0": "x"}, {"o0": "y"}), step("double", {"i0": "x"}, {"o0": "z"})]}
    assert pipeline(widened, ALL).spec.inputs == (tensor("x", "FP32"),)


def test_tensors_go_where_their_names_say() -> None:
    """Without maps, tensors have the models' own names. An FP64 takes an FP32. Not all outputs need be asked for."""
    said = {"steps": [step("single"), step("double", {"i0": "o0"}, {"o0": "twice"})], "outputs": ["twice", "o0"]}
    model = pipeline(said, ALL)
    x = given("i0", 1, 2, datatype="FP32")
    assert asked(model, x) == {"twice": [4.0, 6.0], "o0": [2.0, 3.0]}
    before = len(DOUBLE.counted)
    assert asked(model, x, outputs=["o0"]) == {"o0": [2.0, 3.0]}
    assert len(DOUBLE.counted) == before


@pytest.mark.parametrize(("cases", "tensor_of", "value", "expected"), [
    ({"de": "one", "en": "two"}, "BYTES", b"de", 5),
    ({"de": "one", "en": "two"}, "BYTES", b"en", 105),
    ({"-1": "one", "7": "two"}, "INT64", 7, 105),
    ({"true": "one", "false": "two"}, "BOOL", True, 5),
    ({"0": "one", "255": "two"}, "UINT8", 255, 105),
])  # fmt: skip
def test_a_switch_calls_the_model_of_a_value(cases: dict[str, str], tensor_of: str, value: Any, expected: int) -> None:
    """The case of the tensor's value answers; another value is refused with those that there are, or has a default."""
    one = Fake("one", [tensor("i0")], [tensor("o0")], lambda x: [x])
    two = Fake("two", [tensor("i0")], [tensor("o0")], lambda x: [x + 100])
    same = Fake("same", [tensor("k", tensor_of)], [tensor("k", tensor_of)], lambda k: [k])
    other = Fake("other", [tensor("i0")], [tensor("o0")], lambda x: [x * 0])
    switch: dict[str, Any] = {"tensor": "key", "cases": {case: {"model": model} for case, model in cases.items()}}
    first = step("same", {"k": "k"}, {"k": "key"})
    said = {"steps": [first, {"name": "s", "switch": switch} | BRANCHES]}
    held = parts(one, two, same, other)
    ask = (given("k", value, datatype=tensor_of), given("x", 5))
    assert asked(pipeline(said, held), *ask) == {"y": [expected]}
    wrong: Any = {"BYTES": b"fr", "INT64": 2**40, "BOOL": None, "UINT8": 3}[tensor_of]
    if wrong is not None:
        ask = (given("k", wrong, datatype=tensor_of), given("x", 5))
        with pytest.raises(InvalidInput, match=r"step 's': tensor 'key' is .*; expected one of "):
            asked(pipeline(said, held), *ask)
        switch["default"] = {"model": "other"}
        assert asked(pipeline(said, held), *ask) == {"y": [0]}
    with pytest.raises(InvalidInput, match="step 's': tensor 'key' has 2 elements; a switch needs 1"):
        asked(pipeline(said, held), given("k", value, value, datatype=tensor_of), given("x", 5))


def test_a_split_gives_each_branch_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """By weights that need not add up to 1; a weight of 0 gets nothing. Timing says which model answered."""
    monkeypatch.setattr(steps, "draw", random.Random(7).random)  # noqa: S311 - shares, reproducible
    zero = Fake("zero", [tensor("i0")], [tensor("o0")], lambda x: [x * 0])
    branches = [{"model": "zero", "weight": 0}, {"model": "one", "weight": 9}, {"model": "two", "weight": 1,
                "outputs": {"o1": "y"}}, {"model": "zero", "weight": 0}]  # fmt: skip
    model = pipeline({"steps": [{"name": "s", "split": branches} | BRANCHES]}, parts(zero, ONE, TWO))
    answers, named = [], []
    for _ in range(2000):
        answers.append(asked(model, given("x", 5))["y"][0])
        named += [label for label, _ in model.steps()]
    assert set(answers) == {5, 6}
    assert 160 < answers.count(6) < 240
    assert [named.count(b"step-s;desc=one"), named.count(b"step-s;desc=two")] == [answers.count(5), answers.count(6)]
    monkeypatch.setattr(steps, "draw", lambda: 1.0)  # the rounding of a draw just below 1
    assert asked(model, given("x", 5))["y"] == [6]


def refuse(error: Exception) -> Fake:
    """A model that fails."""

    def function(*_: Any) -> Any:
        raise error

    return Fake("bad", [tensor("i0")], [tensor("o0")], function)


@pytest.mark.parametrize("kind", [InvalidInput, ModelFailed])
def test_an_error_names_its_step_and_keeps_its_kind(kind: type[Exception]) -> None:
    """The model's own failure is counted for it."""
    bad = refuse(kind("no"))
    model = pipeline({"steps": [A, step("bad", {"i0": "y"}, {"o0": "z"}, name="second")]}, parts(ONE, bad))
    for _ in range(2):  # the same error again has not grown
        with pytest.raises(kind, match="^step 'second': no$"):
            asked(model, given("x", 1))
    assert bad.counted == [False, False]
    assert model.steps() == ()


def test_a_model_with_several_answers_is_refused_without_the_advice_to_request_a_stream() -> None:
    """A pipeline has one answer, and would refuse the stream, too."""
    bad = refuse(SeveralAnswers("model 'bad' returns more than one answer: request a stream"))
    model = pipeline({"steps": [step("bad", {"i0": "x"}, {"o0": "y"})]}, parts(bad))
    expected = "^step 'bad': model 'bad' returns more than one answer; a pipeline takes exactly one$"
    with pytest.raises(SeveralAnswers, match=expected):
        asked(model, given("x", 1))


def test_a_shape_that_only_a_request_shows_is_refused_at_its_step() -> None:
    """Sizes that models leave open are checked where the tensor is taken."""
    model = pipeline({"steps": [A, step("fixed", {"i0": "y"}, {"o0": "z"})]}, ALL)
    with pytest.raises(InvalidInput, match=r"step 'fixed': input 'i0' has shape \[2\]; the model expects \[3\]"):
        asked(model, given("x", 1, 2))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Any], FakeParts]:
    """Any DAG of up to ten steps with up to three inputs and outputs each, in any order."""
    said: list[dict[str, Any]] = []
    models: list[Fake] = []
    tensors = ["x0", "x1"]
    for index in range(draw(st.integers(1, 10))):
        takes, makes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        inputs = {f"i{k}": draw(st.sampled_from(tensors)) for k in range(takes)}
        outputs = {f"o{k}": f"t{index}{k}" for k in range(makes)}
        models.append(arithmetic(f"m{index}", takes, makes))
        said.append(step(f"m{index}", inputs, outputs))
        tensors += outputs.values()
    return {"steps": draw(st.permutations(said))}, parts(*models)


@hypothesis_settings(max_examples=150, deadline=None)
@drawn(graphs(), st.sampled_from([1, 10 * abreast.WORTHWHILE_NS]))
def test_any_graph_gives_what_its_steps_give_by_hand(graph: tuple[dict[str, Any], FakeParts], usual_ns: int) -> None:
    """In order and side by side; the first time and again."""
    said, held = graph
    tensors = {"x0": np.array([1, -2]), "x1": np.array([10, 20])}
    todo = list(said["steps"])
    while todo:
        for each in list(todo):
            if all(name in tensors for name in each["inputs"].values()):
                made = held.held[each["model"], None].function(*(tensors[name] for name in each["inputs"].values()))
                tensors |= zip(each["outputs"].values(), made, strict=True)
                todo.remove(each)
    model = pipeline(said, held)
    for _ in range(2):
        inputs = [given(spec.name, *tensors[spec.name].tolist()) for spec in model.spec.inputs or ()]
        answers = asked(model, *inputs)
        assert answers == {name: tensors[name].tolist() for name in answers}
        assert len(model.steps()) == len(said["steps"])
        for each in model._plan.steps:
            each.ns = usual_ns
    taken = {name for each in said["steps"] for name in each["inputs"].values()}
    assert answers.keys() == tensors.keys() - taken - {"x0", "x1"}


# -- side by side -------------------------------------------------------------------------------------------------


def slow_pair(function: Any) -> Any:
    """A pipeline of two steps that do not depend on each other, known to take long."""
    left, right = (Fake(name, [tensor("i0")], [tensor("o0")], function) for name in ("left", "right"))
    said = {"steps": [step(name, {"i0": "x"}, {"o0": name}) for name in ("left", "right")]}
    model = pipeline(said, parts(left, right))
    for each in model._plan.steps:
        each.ns = 10 * abreast.WORTHWHILE_NS
    return model


def test_steps_that_do_not_depend_on_each_other_run_side_by_side() -> None:
    """Each waits here until the other one has begun."""
    both = threading.Barrier(2, timeout=30)
    model = slow_pair(lambda x: [x + both.wait() * 0])
    assert asked(model, given("x", 1)) == {"left": [1], "right": [1]}
    assert len(model.steps()) == 2


def test_no_request_waits_for_a_helper() -> None:
    """With all helpers taken, a request does its steps itself."""
    model = slow_pair(lambda x: [x])
    free = model._free
    taken = 0
    while free.acquire(blocking=False):
        taken += 1
    try:
        assert asked(model, given("x", 1)) == {"left": [1], "right": [1]}
    finally:
        free.release(taken)


@pytest.mark.parametrize("started", [0, 1])
def test_a_request_does_its_steps_without_threads_for_helpers(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    """A process that has all the threads it may have loses none of its helpers for later, and no request waits."""
    left = itertools.count()

    class Thread(threading.Thread):
        def start(self) -> None:
            if next(left) >= started:
                raise RuntimeError("can't start new thread")
            super().start()

    chain = [step(f"a{n}", {"i0": "x" if not n else f"a{n - 1}"}, {"o0": f"a{n}"}) for n in range(2)]
    beside = [step(f"b{n}", {"i0": "a0"}, {"o0": f"b{n}"}) for n in range(3)]
    fakes = [Fake(each["model"], [tensor("i0")], [tensor("o0")], lambda x: [x]) for each in (*chain, *beside)]
    model = pipeline({"steps": [*chain, *beside]}, parts(*fakes))
    for each in model._plan.steps:
        each.ns = 10 * abreast.WORTHWHILE_NS
    free, taken = model._free, 0
    before = free._value
    with ThreadPoolExecutor(1) as requests:
        requests.submit(int).result(30)  # has its thread from here on
        monkeypatch.setattr(threading, "Thread", Thread)
        answer = requests.submit(asked, model, given("x", 1)).result(30)
    assert answer == {"a1": [1], "b0": [1], "b1": [1], "b2": [1]}
    while free._value != before and taken < 100:  # a helper that did start gives its place back when it ends
        taken += 1
        threading.Event().wait(0.01)
    assert free._value == before


def test_helpers_are_given_back() -> None:
    """After answers and after failures alike."""
    model = slow_pair(lambda x: [x])
    failing = slow_pair(lambda _: (_ for _ in ()).throw(ModelFailed("no")))
    for _ in range(20):
        assert asked(model, given("x", 1)) == {"left": [1], "right": [1]}
        with pytest.raises(ModelFailed, match="^step '(left|right)': no$"):
            asked(failing, given("x", 1))
    for _ in range(2):
        assert model._free.acquire(timeout=30)
    model._free.release(2)


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_request_whose_steps_fail_is_let_go(*, is_ended: bool) -> None:
    """Its tensors and its models stay no longer than its error, without the cyclic collector."""
    both, run = threading.Barrier(2, timeout=30), Run()
    owner = threading.current_thread()

    def fail(_: Any) -> Any:
        both.wait()
        if is_ended and threading.current_thread() is owner:
            run.end(lambda: TimedOut("too long"))
            run.check()
        raise ModelFailed("no")

    def ask() -> "weakref.ref[Any]":
        asking = given("x", 1)
        with suppress(ModelFailed, TimedOut):
            asked(failing, asking)
        return weakref.ref(asking.array)

    failing = slow_pair(fail)
    gc.disable()
    try:
        seen = ask()
        until = time.monotonic() + 30
        while seen() is not None and time.monotonic() < until:  # the helper drops it when it ends
            time.sleep(0.001)
        assert seen() is None
    finally:
        gc.enable()


def test_a_request_that_is_ended_ends_its_helpers() -> None:
    """The thread that waits for a helper raises why it was ended, and the helper's run is ended, too."""
    begun, ended = threading.Event(), threading.Event()
    owner = threading.current_thread()

    def function(x: Any) -> list[Any]:
        if threading.current_thread() is owner:
            assert begun.wait(30)
            return [x]
        begun.set()
        until = time.monotonic() + 30
        while not CURRENT.run.ended and time.monotonic() < until:
            time.sleep(0.001)
        ended.set()
        return [x]

    model = slow_pair(function)
    CURRENT.run = run = Run()
    try:
        begun_waiting = threading.Timer(0.05, run.end, [lambda: TimedOut("too long")])
        begun_waiting.start()
        with pytest.raises(TimedOut, match="too long"):
            asked(model, given("x", 1))
    finally:
        CURRENT.run = None
    assert ended.wait(30)


def test_a_request_that_was_ended_keeps_its_thread_while_a_helper_goes_on() -> None:
    """So the thread counts as lost, and the model's threads are not more than it may have. A failure keeps nothing."""
    begun, order, owner = threading.Event(), [], threading.current_thread()

    def function(x: Any) -> list[Any]:
        if threading.current_thread() is not owner:
            begun.set()
            while not CURRENT.run.ended:
                time.sleep(0.001)
            time.sleep(0.05)
            order.append("helper")
        assert begun.wait(30)
        return [x]

    model = slow_pair(function)
    CURRENT.run = run = Run()
    try:
        threading.Timer(0.05, run.end, [lambda: TimedOut("too long")]).start()
        with pytest.raises(TimedOut, match="too long"):
            asked(model, given("x", 1))
        order.append("request")
    finally:
        CURRENT.run = None
    assert order == ["helper", "request"]


# -- newer models -------------------------------------------------------------------------------------------------


def test_a_pipeline_moves_to_the_models_that_serve_now() -> None:
    """From one request to the next, unless they would change what its clients see."""
    held = parts(ONE)
    model = pipeline({"steps": [A]}, held)
    assert asked(model, given("x", 5)) == {"y": [5]}
    held.coming = newer = parts(Fake("one", [tensor("i0")], [tensor("o0")], lambda x: [x + 1]))
    assert asked(model, given("x", 5)) == {"y": [6]}
    newer.coming = parts(Fake("one", [tensor("i0", "INT64", 1)], [tensor("o0")], lambda x: [x + 2]))
    assert asked(model, given("x", 5)) == {"y": [6]}
    newer.coming = parts(Fake("one", [tensor("renamed")], [tensor("o0")], lambda x: [x + 3]))
    assert asked(model, given("x", 5)) == {"y": [6]}
    newer.coming = parts(Fake("one", [tensor("i0")], [tensor("o0")], lambda x: [x + 4]))
    assert asked(model, given("x", 5)) == {"y": [9]}


def test_a_pipeline_is_as_steady_as_its_models() -> None:
    """A model whose time is unknown makes the pipeline's time unknown."""
    assert pipeline({"steps": [A]}, ALL).steady
    restless = arithmetic("one", 1, 1)
    restless.steady = False
    assert not pipeline({"steps": [A]}, parts(restless)).steady
