"""handler.lifecycle.pipelines: the models of a pipeline's steps are loaded, kept and released with it."""

import gc
import json
import logging
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.deadline import NEVER, within
from core.dtype import DATATYPES
from core.engine import infer
from core.errors import ModelNotFound, ModelNotLoadable, StillLoading
from core.operations import Infer, ModelRef
from core.tensor import Tensor
from handler import backends
from handler.backends import Source
from handler.lifecycle.pipelines import parts as held_parts
from handler.lifecycle.registry import Registry
from handler.lifecycle.room import memory
from handler.lifecycle.single_flight import Background, Pending, settled
from handler.settings import Settings
from tests.handler.lifecycle.samples import PATIENT, Clock, add, listed, registry

P = ModelRef("p")
MB = 1_000_000
STEP: dict[str, Any] = {"name": "first", "model": "m", "inputs": {"x": "x"}, "outputs": {"y": "h"}}
NEXT: dict[str, Any] = {"name": "second", "model": "n", "inputs": {"x": "h"}, "outputs": {"y": "y"}}
CHAIN = {"steps": [STEP, NEXT]}


def publish(root: Path, said: Any, name: str = "p", version: str = "1") -> None:
    """Writes a version of a pipeline."""
    file = root / name / version / "pipeline.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(said))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the models m and n, which halve and add three, and p, which calls them one after the other."""
    add(tmp_path, "m", "1")
    add(tmp_path, "n", "1")
    publish(tmp_path, CHAIN)
    return tmp_path


def ask(models: Registry, *values: float, ref: ModelRef = P) -> list[float]:
    """Asks for an inference. Waits for loads in other threads."""
    while True:
        try:
            with models.use(ref, Background()) as model:
                tensor = Tensor("x", DATATYPES["FP32"], np.array(values, np.float32))
                return infer(Infer(ref, (tensor,)), model).outputs[0].array.tolist()
        except Pending as pending:
            pending.future.result(60)


def ready(models: Registry) -> list[str]:
    return [f"{name}/{version}" for name, version, state, _ in listed(models) if state == "READY"]


@pytest.fixture(params=[False, True], ids=["here", "threads"])
def models(root: Path, request: pytest.FixtureRequest) -> Iterator[Registry]:
    """As on Lambda, and as on a server."""
    executor = ThreadPoolExecutor(4) if request.param else None
    made = registry(root, executor, MEMORY_LIMIT="100GB")
    yield made
    made.close()
    if executor is not None:
        executor.shutdown()


def test_the_steps_models_are_loaded_with_a_pipeline_and_leave_with_it(models: Registry) -> None:
    """Each is unloaded with it, but for one that a client has asked for itself."""
    assert ask(models, 2.0) == [5.0]
    assert ready(models) == ["m/1", "n/1", "p/1"]
    assert ask(models, 2.0, ref=ModelRef("n")) == [4.0]
    unload(models, "p")
    assert ready(models) == ["n/1"]
    assert ask(models, 2.0) == [5.0]
    assert ready(models) == ["m/1", "n/1", "p/1"]


def unload(models: Registry, name: str) -> None:
    try:
        models.unload(name, PATIENT)
    except Pending as pending:
        pending.future.result(60)


def test_a_step_stays_in_memory_while_its_pipeline_does(models: Registry) -> None:
    """It counts as in use; after the pipeline it does not."""
    ask(models, 2.0)
    found = {version.name: version for version in models.known()}
    assert not found["m"].evict()
    assert found["p"].evict()
    gc.collect()
    assert found["m"].evict()
    assert found["n"].evict()
    assert ask(models, 2.0) == [5.0]


def test_a_step_that_is_unloaded_by_name_serves_its_pipeline_on(models: Registry) -> None:
    """The pipeline has its own hold of it, and moves to what the next load brings."""
    ask(models, 2.0)
    unload(models, "m")
    assert ask(models, 2.0) == [5.0]
    assert ask(models, 2.0, ref=ModelRef("m")) == [4.0]
    assert ask(models, 2.0) == [5.0]
    m, p = ({version.name: version for version in models.known()}[name] for name in "mp")
    assert m.loaded is not None
    assert p.loaded is not None
    held = p.loaded.model._plan.parts.held  # type: ignore[attr-defined]
    assert held["m", None] is m.loaded


def test_statistics_count_the_steps(models: Registry) -> None:
    """An inference of the pipeline is one of each model that it calls."""
    for _ in range(3):
        ask(models, 2.0)
    counts = {each.name: each.inference_count for each in models.statistics(None, PATIENT)}
    assert counts == {"m": 3, "n": 3, "p": 0}  # the pipeline's own are counted by its request's clock


OF_P = "pipeline.json of model 'p' version 1: "
REFUSED = [
    ([STEP | {"model": "nobody"}, NEXT], OF_P + "steps[0].model is 'nobody'; expected a model of this repository: mo"),
    ([STEP | {"version": 7}, NEXT], OF_P + "steps[0].model is 'm' version 7; expected a model of this repo"),
    ([STEP | {"model": "../m"}, NEXT], OF_P + "steps[0].model is '../m'; expected a model of this"),
    ([STEP, NEXT | {"model": "p"}], OF_P + "steps[1].model is 'p', a pipeline; expected a model that is not"),
    ([STEP, NEXT | {"model": "q"}], OF_P + "steps[1].model is 'q', a pipeline; expected a model that is not"),
    ([STEP, NEXT | {"model": "broken"}], "step 'second' of model 'p': model 'broken' version 1 cannot be loaded: mod"),
    ([STEP, NEXT | {"model": "empty"}], "step 'second' of model 'p': model 'empty' has no version"),
    ([STEP, NEXT | {"inputs": {"z": "h"}}], "steps[1].inputs.z is 'h'; expected no such key; model 'n' has x"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "message"), REFUSED)
def test_a_pipeline_whose_models_cannot_be_had_says_which(
    root: Path, models: Registry, steps: Any, message: str
) -> None:
    """By the step and the place in the file. No model stays in use, and the index has the reason."""
    add(root, "broken", "1", b"no model")
    (root / "empty").mkdir()
    (root / "empty" / "notes.txt").write_text("")
    (root / "q").mkdir()
    (root / "q" / "model-settings.json").write_text(json.dumps({"pipeline": CHAIN}))
    publish(root, {"steps": steps})
    with pytest.raises(ModelNotLoadable) as refused:
        ask(models, 1.0)
    assert message in refused.value.message
    assert [reason for name, _, _, reason in listed(models) if name == "p"] == [refused.value.message]
    assert all(not version.loaded.in_use() for version in models.known() if version.loaded is not None)


def test_a_step_names_a_version_that_its_models_policy_serves(root: Path, models: Registry) -> None:
    """The newest one alone is served by default: a version that is there may still not be served."""
    shutil.copytree(root / "m" / "1", root / "m" / "2")
    (root / "p/1/pipeline.json").write_text(json.dumps({"steps": [STEP | {"version": 1}, NEXT]}))
    with pytest.raises(ModelNotLoadable, match="it serves 2; its version_policy has to name the version$"):
        ask(models, 1.0)


def test_a_step_that_goes_during_the_load_is_no_unknown_model(
    root: Path, models: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has named the pipeline, which is there."""
    obtain = models._rollout.obtain

    def late(ref: ModelRef, *rest: Any, **named: Any) -> None:
        if ref.name == "n" and (root / "n").exists():
            shutil.rmtree(root / "n")
            with pytest.raises(ModelNotFound):
                models._catalog.look_afresh("n", NEVER)
        obtain(ref, *rest, **named)

    monkeypatch.setattr(models._rollout, "obtain", late)
    with pytest.raises(ModelNotLoadable, match=r"steps\[1\]\.model is 'n'; expected a model of this repository"):
        ask(models, 2.0)


def test_a_wrong_file_is_refused_with_its_place(root: Path) -> None:
    """As other settings are."""
    (root / "p/1/pipeline.json").write_text('{"steps": 1}')
    with pytest.raises(ModelNotLoadable, match=r"pipeline.json of model 'p': steps is 1; expected an array"):
        ask(registry(root), 1.0)
    (root / "q").mkdir()
    (root / "q" / "model-settings.json").write_text('{"pipeline": {"steps": [{"model": 1}]}}')
    with pytest.raises(ModelNotLoadable, match=r"model-settings.json of model 'q': pipeline.steps\[0\].model is 1"):
        ask(registry(root), 1.0, ref=ModelRef("q"))
    (root / "p/1/pipeline.json").write_text(" " * 2_000_000)
    with pytest.raises(ModelNotLoadable, match="the file is '2000000 bytes'; expected at most 1048576"):
        ask(registry(root), 1.0)


@pytest.mark.parametrize(("files", "version"), [
    ({"model-settings.json": {"pipeline": CHAIN}}, "1"),
    ({"model-settings.json": {"pipeline": CHAIN}, "4/README": 0, "3/README": 0}, "4"),
    ({"2/model-settings.json": {"pipeline": CHAIN}}, "2"),
])  # fmt: skip
def test_a_pipeline_may_stand_in_the_settings(root: Path, files: dict[str, Any], version: str) -> None:
    """Its versions need no files: each numbered folder is one, else there is version 1."""
    for path, content in files.items():
        file = root / "q" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    models = registry(root)
    with models.use(ModelRef("q"), PATIENT) as model:
        assert (model.spec.version, model.spec.platform) == (version, "ensemble")
    assert ask(models, 2.0, ref=ModelRef("q")) == [5.0]


def test_a_pipeline_in_the_settings_is_found_where_listing_is_denied(root: Path, unlisted: Any) -> None:
    """Its models' versions have to be named, as a request would have to."""
    (root / "q").mkdir()
    said = {"steps": [STEP | {"version": 1}, NEXT | {"version": 1}]}
    (root / "q" / "model-settings.json").write_text(json.dumps({"pipeline": said}))
    assert ask(unlisted(), 2.0, ref=ModelRef("q")) == [5.0]


@pytest.mark.parametrize("file", ["1/model.onnx", "1/pipeline.json"])
def test_a_pipeline_in_the_settings_stands_alone(root: Path, file: str) -> None:
    """A version with a model of its own beside it is refused."""
    (root / "q" / "1").mkdir(parents=True)
    (root / "q" / file).write_text("{}")
    (root / "q" / "model-settings.json").write_text(json.dumps({"pipeline": CHAIN}))
    with pytest.raises(ModelNotLoadable, match="and a pipeline in its settings: remove one of them"):
        ask(registry(root), 1.0, ref=ModelRef("q"))


def test_a_pipeline_without_files_is_not_signed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where signatures are wanted, one in the settings is refused like any other that nobody has signed."""
    (root / "q").mkdir()
    (root / "q" / "model-settings.json").write_text(json.dumps({"pipeline": CHAIN}))
    cache = tmp_path_factory.mktemp("cache")
    models = registry(root, VERIFY="digest", CACHE=str(cache))
    with pytest.raises(ModelNotLoadable, match="model 'q' version 1 is not verified"):
        ask(models, 1.0, ref=ModelRef("q"))


# -- versions -----------------------------------------------------------------------------------------------------


def test_a_step_without_a_version_follows_its_model(root: Path) -> None:
    """After the next look at the repository, which the pipeline's own requests cause; a fixed version stays."""
    publish(root, {"steps": [STEP | {"version": 1}, NEXT]}, "fixed")
    (root / "m" / "model-settings.json").write_text(json.dumps({"version_policy": {"all": {}}}))
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", clock)
        models = registry(root)
        ask(models, 2.0)
        ask(models, 2.0, ref=ModelRef("fixed"))
        add(root, "m", "2")
        clock.now += 61
        ask(models, 2.0)
        ask(models, 2.0)
        p, fixed = ({v.name: v for v in models.known()}[name].loaded for name in ("p", "fixed"))
        assert p is not None
        assert fixed is not None
        assert p.model._plan.parts.held["m", None].model.spec.version == "2"  # type: ignore[attr-defined]
        ask(models, 2.0, ref=ModelRef("fixed"))
        assert fixed.model._plan.parts.held["m", 1].model.spec.version == "1"  # type: ignore[attr-defined]
        add(root, "m", "3")
        clock.now += 61
        ask(models, 2.0)
        ask(models, 2.0)
        assert p.model._plan.parts.held["m", None].model.spec.version == "3"  # type: ignore[attr-defined]


def test_the_pipelines_of_a_model_are_found_while_one_is_loaded(root: Path) -> None:
    """One part asks for room while another one is added to those that are held."""
    models = registry(root)
    ask(models, 2.0)
    steps = models._steps
    (parts,) = steps._all()

    class Other(str):
        """A name whose comparison is interrupted by a thread that has loaded another part."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            parts.held.setdefault(("late", None), parts.held["m", None].again())
            return str.__eq__(self, other)

    assert (steps.owners(Other("x")), steps.owners("late")) == (set(), {"p"})


def test_no_change_is_missed_while_parts_are_renewed(root: Path) -> None:
    """What the catalog publishes meanwhile is found by the next request."""
    models = registry(root)
    ask(models, 2.0)
    m, p = ({version.name: version for version in models.known()}[name] for name in "mp")
    catalog = models._catalog

    class Moving:
        """Publishes anew whenever it is asked."""

        @property
        def ready(self) -> Any:
            return dict(catalog.ready)

    held = held_parts.hold(m)
    assert held is not None
    parts = held_parts.HeldParts(p, Moving(), {("m", None): m}, {("m", None): held}, lambda _: None)  # type: ignore[arg-type]
    assert parts.renewed() is None
    unload(models, "m")
    ask(models, 2.0, ref=ModelRef("m"))
    newer = parts.renewed()
    assert newer is not None
    m.unload()
    ask(models, 2.0, ref=ModelRef("m"))
    newest = newer.renewed()
    assert newest is not None
    assert newest.held["m", None] is m.loaded


def test_versions_and_canaries_of_a_pipeline_are_like_any_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary gets its share, and each version its own steps."""
    publish(root, {"steps": [STEP | {"outputs": {"y": "y"}}]}, version="2")
    (root / "p" / "model-settings.json").write_text(json.dumps({"canary": {"2": 0.25}}))
    models = registry(root)
    draws = iter([0.1, 0.9] * 2)
    monkeypatch.setattr("handler.lifecycle.models.draw", lambda: next(draws))
    assert [ask(models, 2.0) for _ in range(4)] == [[4.0], [5.0]] * 2


def test_a_pipeline_gets_the_version_of_its_models_that_is_no_canary(root: Path) -> None:
    """A canary of a model is for those who ask the model."""
    add(root, "m", "2")
    (root / "m" / "model-settings.json").write_text(json.dumps({"canary": {"2": 1.0}}))
    models = registry(root)
    ask(models, 2.0)
    assert ready(models) == ["m/1", "n/1", "p/1"]


# -- memory, and many at a time -----------------------------------------------------------------------------------


@pytest.fixture
def tight(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes registries that hold two models of 60 MB, and no third."""
    choose = backends.choose

    def chosen(name: str, *rest: Any) -> Any:
        loader = choose(name, *rest)

        def load(source: Source, settings: Settings) -> Any:
            model: Any = loader(source, settings)
            if source.parts is None:
                model.block = np.ones(60 * MB, np.uint8)
            return model

        return load

    monkeypatch.setattr(backends, "choose", chosen)
    warm = registry(root)
    ask(warm, 1.0, ref=ModelRef("m"))
    unload(warm, "m")
    gc.collect()
    memory.trim()
    limit = (memory.resident() or 0) + 150 * MB  # the rest of the process may grow or shrink by 30
    with ThreadPoolExecutor(4) as executor:
        made: list[Registry] = []

        def make(**settings: str) -> Registry:
            made.append(registry(root, executor, MEMORY_LIMIT=str(limit), **settings))
            return made[-1]

        yield make
        for each in made:
            each.close()


def test_pipelines_that_do_not_fit_together_take_turns(root: Path, tight: Any) -> None:
    """Each evicts the other with its steps, however many ask at the same time, and all are answered."""
    for name in ("m2", "n2"):
        add(root, name, "1")
    publish(root, {"steps": [STEP | {"model": "m2"}, NEXT | {"model": "n2"}]}, "p2")
    models = tight()
    refs = [P, ModelRef("p2")] * 4
    with ThreadPoolExecutor(8) as clients:
        assert list(clients.map(lambda ref: ask(models, 2.0, ref=ref), refs)) == [[5.0]] * 8
    assert len(ready(models)) <= 3


def test_what_can_never_fit_is_said_at_once(root: Path, tight: Any) -> None:
    """A third step that finds no room beside the first two is refused with their names."""
    for name in ("m2", "n2"):
        add(root, name, "1")
    more = [NEXT | {"name": name, "model": name, "outputs": {"y": name}} for name in ("m2", "n2")]
    publish(root, {"steps": [STEP, NEXT, *more]})
    models = tight()
    with pytest.raises(ModelNotLoadable, match=r"step '\w+' of model 'p': model '\w+' version 1 needs 6\d MB; at most"):
        ask(models, 2.0)


def test_the_steps_of_a_preloaded_pipeline_stay(root: Path, tight: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A model that has no room beside them is refused, and waits for nothing. The log names them; clients may not."""
    add(root, "m2", "1")
    models = tight(PRELOAD="p")
    assert ask(models, 2.0) == [5.0]
    with pytest.raises(ModelNotLoadable, match=r"and \d other versions? that must stay \(DRAGOMAN_MEM"):
        ask(models, 2.0, ref=ModelRef("m2"))
    assert re.search("m2 has no room beside what has to stay: .*n version 1", caplog.text)
    assert ask(models, 2.0) == [5.0]


def test_pipelines_and_their_models_are_loaded_at_the_same_time_without_a_deadlock(root: Path) -> None:
    """More pipelines than there are threads that load, all over models that are asked for as well."""
    names = [f"p{index}" for index in range(8)]
    for name in names:
        publish(root, CHAIN, name)
    with ThreadPoolExecutor(2) as executor, ThreadPoolExecutor(20) as clients:
        models = registry(root, executor, MEMORY_LIMIT="100GB")
        refs = [ModelRef(name) for name in (*names, "m", "n") * 2]
        answers = list(clients.map(lambda ref: ask(models, 2.0, ref=ref), refs))
        models.close()
    assert answers == [[5.0]] * 8 + [[4.0]] * 2 + [[5.0]] * 8 + [[4.0]] * 2


def test_a_pipeline_whose_step_does_not_load_does_not_keep_others_from_loading(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the turn of pipelines for a while, where memory is limited, and is loaded at last."""
    for name in ("m2", "n2"):
        add(root, name, "1")
    publish(root, {"steps": [STEP | {"model": "m2"}, NEXT | {"model": "n2"}]}, "p2")
    gate, began, choose = threading.Event(), threading.Event(), backends.choose

    def chosen(name: str, *rest: Any) -> Any:
        def load(source: Source, settings: Settings) -> Any:
            if name == "m":
                began.set()
                assert gate.wait(60)
            return choose(name, *rest)(source, settings)

        return load

    monkeypatch.setattr(backends, "choose", chosen)
    monkeypatch.setattr("handler.lifecycle.pipelines.assembly.ROOM_SECONDS", 0.02)
    monkeypatch.setattr("handler.lifecycle.loading.LONG_SECONDS", 0.02)
    with ThreadPoolExecutor(2) as executor, ThreadPoolExecutor(1) as clients:
        models = registry(root, executor, MEMORY_LIMIT="100GB")
        answer = clients.submit(ask, models, 2.0)
        assert began.wait(60)
        with settled(lambda: models.use(ModelRef("p2"), PATIENT), within(50)) as other:
            assert other.spec.name == "p2"
        gate.set()
        assert answer.result(60) == [5.0]
        models.close()


def test_a_load_that_runs_out_of_time_goes_on_with_the_next_request(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that were loaded stay, and the pipeline needs the others only."""
    models = registry(root)
    obtain = models._rollout.obtain
    late = True

    def slow(ref: ModelRef, *rest: Any, **named: Any) -> None:
        if ref.name == "n" and late:
            raise StillLoading("model 'n' is 1 of 2 MB loaded: try again", retry_after=1)
        obtain(ref, *rest, **named)

    monkeypatch.setattr(models._rollout, "obtain", slow)
    with pytest.raises(StillLoading, match="^step 'second' of model 'p': model 'n' is 1 of 2 MB loaded: try again"):
        ask(models, 2.0)
    late = False
    assert ask(models, 2.0) == [5.0]


def test_steps_that_no_longer_fit_are_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The pipeline goes on with the models that it has."""
    models = registry(root)
    ask(models, 2.0)
    add(root, "n", "2", (Path(__file__).parents[3] / "models/iris/1/model.onnx").read_bytes())
    models.load("n", PATIENT)
    with caplog.at_level(logging.WARNING):
        assert ask(models, 2.0) == [5.0]
    assert "pipeline p keeps its present models: steps[1].outputs.y" in caplog.text
    assert held_parts.hold(next(version for version in models.known() if version.name == "n")) is not None
