"""handler.lifecycle.registry and repository on a directory: what is loaded when, how often, and what is said of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from errno import EIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import (
    Fault,
    ModelFailed,
    ModelNotFound,
    ModelNotLoadable,
    ModelUnavailable,
    UnknownLabel,
    VersionNotFound,
)
from core.operations import IndexEntry, ModelRef, State, StatusResult
from handler import backends
from handler.lifecycle import versions as slots
from handler.lifecycle.registry import Pending, Registry
from handler.lifecycle.repository import Repository
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Forbidden
from handler.stores.directory import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS = Path(__file__).parents[2] / "models"
ONNX = MODELS / "half_plus_three" / "123" / "model.onnx"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Model `m`, version 1."""
    add(tmp_path, "m", "1")
    return tmp_path


def add(repository: Path, model: str, version: str) -> Path:
    """A version of a model that works."""
    folder = repository / model / version
    folder.mkdir(parents=True)
    shutil.copy(ONNX, folder / "model.onnx")
    return folder


def registry(repository: Path, **settings: str) -> Registry:
    """Loads on the spot, as on Lambda."""
    environ = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    return Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository), **environ}))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions loaded so far, in order."""
    seen: list[str] = []
    choose = backends.choose

    def counted(name: str, *rest: Any) -> Any:
        seen.append(name)
        return choose(name, *rest)

    monkeypatch.setattr(backends, "choose", counted)
    return seen


def record(models: Registry, ref: ModelRef, durations: tuple[int, ...], size: int, *, success: bool) -> None:
    """Count an inference of a model that is loaded, as its job does."""
    with (held := models.use(ref)):
        held.slot.record(durations, size, success=success)


def states(models: Registry) -> list[tuple[str, str, str, str]]:
    """The index as plain text."""
    return [(e.name, e.version, str(e.state), e.reason) for e in models.index()]


def test_nothing_is_loaded_before_it_is_asked_for(repository: Path, loads: list[str]) -> None:
    """Readiness and index look, and never load."""
    models = registry(repository)
    assert states(models) == [("m", "1", "UNAVAILABLE", "not loaded yet")]
    assert not models.readiness(ModelRef("m")).ready
    assert models.readiness(ModelRef("m")).reason == "not loaded yet"
    assert loads == []
    models.get(ModelRef("m"))
    models.get(ModelRef("m", "1"))
    assert loads == ["m"]
    assert models.readiness(ModelRef("m")).ready
    assert states(models) == [("m", "1", "READY", "")]
    assert models.load_seconds("m", "1")
    assert models.load_seconds("m", "2") is None
    assert models.load_seconds("q", "1") is None


def test_many_first_requests_load_once(repository: Path, loads: list[str]) -> None:
    """Whether they load on the spot or wait for one flight."""
    models = registry(repository)
    with ThreadPoolExecutor(16) as crowd:
        got = list(crowd.map(lambda _: models.get(ModelRef("m")), range(64)))
    assert len(set(map(id, got))) == 1
    assert loads == ["m"]


def test_with_an_executor_getting_a_model_never_blocks(repository: Path, loads: list[str]) -> None:
    """Everybody who asks meanwhile is handed the same future."""
    with ThreadPoolExecutor(1) as executor:
        gate = threading.Event()
        executor.submit(gate.wait)
        models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}), executor)
        futures = set()
        for _ in range(64):
            with pytest.raises(Pending) as pending:
                models.get(ModelRef("m"))
            futures.add(pending.value.future)
        assert len(futures) == 1
        gate.set()
        futures.pop().result(10)
        assert models.get(ModelRef("m")).spec.version == "1"
    assert loads == ["m"]


def test_one_model_that_loads_slowly_keeps_no_other_waiting(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked of it meanwhile, in whatever words: it occupies one thread."""
    add(repository, "q", "1")
    with ThreadPoolExecutor(2) as executor:
        models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}), executor)
        gate, begun, load = threading.Event(), threading.Event(), models._load

        def slow(slot: slots.Slot, phases: Any) -> slots.Loaded:
            if slot.name == "m":
                begun.set()
                assert gate.wait(60)
            return load(slot, phases)

        monkeypatch.setattr(models, "_load", slow)

        def asked(call: Callable[..., Any], *given: Any) -> Any:
            with pytest.raises(Pending) as pending:
                call(*given)
            return pending.value.future

        waiting = [asked(models.use, ModelRef("m")), asked(models.use, ModelRef("m", dashed=True))]
        assert begun.wait(10)
        for selector in ("m-1", "m-01"):
            asked(models.use, ModelRef(selector, dashed=True)).result(10)  # which model that is
            waiting.append(asked(models.use, ModelRef(selector, dashed=True)))
        waiting += [asked(models.use, ModelRef("m", "1")), asked(models.load, "m"), asked(models.unload, "m")]
        asked(models.use, ModelRef("q")).result(10)
        assert models.get(ModelRef("q")).spec.name == "q"
        assert not any(future.done() for future in waiting)
        gate.set()
        for future in waiting:
            future.result(10)
        assert states(models) == [("m", "1", "UNAVAILABLE", "unloaded"), ("q", "1", "READY", "")]


def test_what_is_refused_leaves_nothing_behind(repository: Path) -> None:
    """Names that are no model's, of which a client can think of any number."""
    with ThreadPoolExecutor(1) as executor:
        models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}), executor)

        def kept() -> int:
            parts: Any = (models, models._rollout, models._catalog, models._flights)
            return sum(len(each) for part in parts for each in vars(part).values() if isinstance(each, dict | set))

        before = kept()
        for number in range(8):
            for call in (
                models.load,
                lambda name: models.use(ModelRef(name)),
                lambda name: models.use(ModelRef(name, dashed=True)),
            ):
                with pytest.raises(Pending) as pending:
                    call(f"q{number}")
                assert isinstance(pending.value.future.exception(10), ModelNotFound)
            with pytest.raises(ModelNotFound):
                models.unload(f"q{number}")
        assert kept() == before


def test_versions_compare_as_numbers_and_may_have_leading_zeros(repository: Path) -> None:
    """10 is newer than 9 and 00000007 is 7."""
    for version in ("9", "10", "00000007", "draft", "v11"):
        add(repository, "m", version)
    (repository / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    models = registry(repository)
    assert models.get(ModelRef("m")).spec.version == "10"
    assert models.get(ModelRef("m", "7")).spec.version == "7"
    assert models.describe(ModelRef("m")).versions == ("1", "7", "9", "10")
    assert [s.version for s in models.statistics(ModelRef("m"))] == ["1", "7", "9", "10"]
    assert [s.version for s in models.statistics(ModelRef("m", "9"))] == ["9"]
    assert len(models.statistics(None)) == 4
    for odd in ("07", "11", "v10", "-1", "1.0", "", "\u0661", "9" * 30):
        with pytest.raises(VersionNotFound, match="has no version"):
            models.get(ModelRef("m", odd))


def test_a_folder_without_a_models_file_is_no_version_yet(repository: Path) -> None:
    """It is being uploaded: what was there goes on, and is the newest; with its marker file it is there."""
    (repository / "m" / "2").mkdir()
    (repository / "m" / "2" / "weights.bin").touch()
    (repository / "m" / "2" / "model-settings.json").write_text("{")
    models = registry(repository)
    assert models.get(ModelRef("m")).spec.version == "1"
    with pytest.raises(VersionNotFound, match="has no version 2; it serves 1"):
        models.get(ModelRef("m", "2"))
    (repository / "m" / "2" / "model-settings.json").unlink()
    shutil.copy(ONNX, repository / "m" / "2")
    assert models.get(ModelRef("m", "2")).spec.version == "2"


@pytest.mark.parametrize("where", ["model-settings.json", "2/model-settings.json"])
def test_a_third_partys_version_needs_no_marker(repository: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Where the settings name a runtime that is installed; another name is a runtime that nobody has."""
    monkeypatch.setattr("handler.plugins.find", lambda name, *_: object() if name == "theirs" else None)
    (repository / "m" / "2").mkdir()
    (repository / "m" / "2" / "model.theirs").touch()
    found = Repository(DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)})))
    for implementation, folders in (("theirs", ["1", "2"]), ("others", ["1"])):
        say(repository, **EVERY)
        (repository / "m" / where).write_text(json.dumps({"implementation": implementation, **EVERY}))
        assert [version.folder for version in found.look("m", None).versions] == folders


def test_a_version_that_the_policy_leaves_out_is_not_found(repository: Path) -> None:
    """With those that are served."""
    add(repository, "m", "2")
    models = registry(repository)
    with pytest.raises(VersionNotFound, match="has no version 1; it serves 2"):
        models.get(ModelRef("m", "1"))
    with pytest.raises(VersionNotFound):
        models.readiness(ModelRef("m", "1"))


def test_a_version_published_since_is_found_when_it_is_asked_for(repository: Path) -> None:
    """The newest stays what it was until somebody loads or asks."""
    models = registry(repository)
    assert models.get(ModelRef("m")).spec.version == "1"
    add(repository, "m", "2")
    assert models.get(ModelRef("m")).spec.version == "1"
    assert models.get(ModelRef("m", "2")).spec.version == "2"
    assert models.get(ModelRef("m")).spec.version == "2"


@pytest.mark.parametrize("name", ["q", "..", ".", "", ".git", "a/b", "a\\b", "a\0", "x" * 300, "a\nb"])
def test_an_unknown_or_hostile_name_is_not_found(repository: Path, name: str) -> None:
    """And nothing is looked up for the latter."""
    models = registry(repository)
    for call in (models.get, models.readiness, models.describe, models.statistics):
        with pytest.raises(ModelNotFound, match="there is no model"):
            call(ModelRef(name))
    with pytest.raises(ModelNotFound):
        models.load(name)


def test_a_failure_is_remembered_for_a_while_and_then_tried_again(
    repository: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in readiness and index; mending the model mends the answer."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    file = repository / "m" / "1" / "model.onnx"
    file.write_bytes(b"")
    models = registry(repository)
    for _ in range(3):
        with pytest.raises(ModelNotLoadable, match="the file is empty") as refusal:
            models.get(ModelRef("m"))
        assert refusal.value.retry_after == slots.FIRST_PAUSE
    assert loads == ["m"]
    assert "the file is empty" in models.readiness(ModelRef("m")).reason
    assert "the file is empty" in states(models)[0][3]
    clock[0] += 1.01
    with pytest.raises(ModelNotLoadable) as refusal:
        models.get(ModelRef("m"))
    assert refusal.value.retry_after == 2 * slots.FIRST_PAUSE
    shutil.copy(ONNX, file)
    with pytest.raises(ModelNotLoadable):
        models.get(ModelRef("m"))
    clock[0] += 2.01
    assert models.get(ModelRef("m")).spec.version == "1"
    assert states(models) == [("m", "1", "READY", "")]


def test_loading_by_call_does_not_wait_and_a_failure_leaves_the_old_model_serving(repository: Path) -> None:
    """The index says what went wrong."""
    models = registry(repository)
    serving = models.get(ModelRef("m"))
    (repository / "m" / "1" / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelNotLoadable):
        models.load("m")
    assert models.get(ModelRef("m")) is serving
    assert states(models)[0][2] == "READY"
    assert "cannot be loaded" in states(models)[0][3]
    shutil.copy(ONNX, repository / "m" / "1" / "model.onnx")
    models.load("m")
    assert models.get(ModelRef("m")) is not serving


def test_an_unloaded_model_says_so_and_is_loaded_when_it_is_needed(repository: Path, loads: list[str]) -> None:
    """A request never hears that a model is not ready."""
    models = registry(repository)
    models.get(ModelRef("m"))
    models.unload("m")
    assert states(models) == [("m", "1", "UNAVAILABLE", "unloaded")]
    models.get(ModelRef("m"))
    assert loads == ["m", "m"]


def test_a_model_deleted_while_it_serves_goes_on_until_it_is_unloaded(repository: Path) -> None:
    """What is in memory needs no repository."""
    models = registry(repository)
    models.get(ModelRef("m"))
    shutil.rmtree(repository / "m")
    assert models.get(ModelRef("m")).spec.version == "1"
    assert states(models) == [("m", "1", "READY", "")]
    with pytest.raises(ModelNotFound):
        models.load("m")
    models.unload("m")
    with pytest.raises(ModelNotFound):
        models.load("m")
    with pytest.raises(ModelNotFound):
        models.get(ModelRef("m"))


def test_the_newest_version_being_broken_is_no_reason_to_answer_with_an_old_one(repository: Path) -> None:
    """The old one stays reachable by its number where the policy serves it."""
    add(repository, "m", "2").joinpath("model.onnx").write_bytes(b"\x08\x08")
    (repository / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    models = registry(repository)
    with pytest.raises(ModelNotLoadable, match="'m' version 2 cannot be loaded"):
        models.get(ModelRef("m"))
    assert models.get(ModelRef("m", "1")).spec.version == "1"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.onnx": b""}, "has no version: expected a folder such as m/1"),
        ({"1/weights.bin": b""}, "has no version: m/1 has no model.onnx or model.py; its files: weights.bin"),
        ({"1/model.onnx": b"", "model-settings.json": b"{"}, "expected JSON"),
        ({"1/model.onnx": b"", "1/model-settings.json": b"[]"}, "expected an object"),
        (
            {"1/model.onnx": b"", "model-settings.json": b'{"version_policy": {"specific": {"versions": [7]}}}'},
            "none of which",
        ),
    ],
)
def test_a_model_that_makes_no_sense_is_there_and_says_why(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    """In its answer, its readiness and the index."""
    for path, content in files.items():
        file = tmp_path / "m" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    models = registry(tmp_path)
    with pytest.raises(ModelNotLoadable, match=message):
        models.get(ModelRef("m"))
    readiness = models.readiness(ModelRef("m"))
    assert not readiness.ready
    assert message in readiness.reason
    assert message in states(models)[0][3]


def test_an_unforeseen_error_while_loading_is_told_without_its_text(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the rest."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(backends, "choose", broken)
    with pytest.raises(ModelFailed, match="^model 'm' version 1 cannot be loaded: RuntimeError$"):
        registry(repository).get(ModelRef("m"))


def test_the_server_is_ready_when_the_repository_answers_and_what_is_preloaded_is_loaded(tmp_path: Path) -> None:
    """And says what is missing."""
    empty = registry(tmp_path)
    assert empty.ready().ready
    assert empty.names() == []
    gone = registry(tmp_path / "gone")
    assert "no directory" in gone.ready().reason
    with pytest.raises(ModelUnavailable):
        gone.names()
    add(tmp_path, "a", "1")
    add(tmp_path, "b", "1").joinpath("model.onnx").write_bytes(b"")
    for wanted in ("a,b", "*"):
        models = registry(tmp_path, PRELOAD=wanted)
        models.preload()
        assert models.readiness(ModelRef("a")).ready
        told = models.ready()
        assert (told.ready, told.state) == (False, State.LOADING)
        assert "b: model 'b' version 1 cannot be loaded" in told.reason
    ready = registry(tmp_path, PRELOAD="a")
    ready.preload()
    assert ready.ready().ready


def test_a_model_unloaded_by_call_is_not_loaded_for_readiness_s_sake(repository: Path, loads: list[str]) -> None:
    """Nor if another has to be loaded, or it has a new version: until a request brings it back."""
    models = registry(repository, PRELOAD="m,later")
    models.preload()
    models.unload("m")
    assert not models.ready().ready  # the other is not there
    add(repository, "m", "2")
    assert ("m", "2", "UNAVAILABLE", "not loaded yet") in states(models)
    add(repository, "later", "1")
    assert models.ready().ready
    assert not models.readiness(ModelRef("m")).ready
    assert loads == ["m", "later"]
    models.get(ModelRef("m"))
    (slot,) = (slot for slot in models.known() if slot.name == "m")
    assert slot.evict()
    assert models.ready().ready
    assert loads == ["m", "later", "m", "m"]


def test_preloading_survives_a_repository_that_does_not_answer(tmp_path: Path) -> None:
    """The next question for readiness tries again: nothing else may come before the server is ready."""
    models = registry(tmp_path / "later", PRELOAD="*")
    models.preload()
    assert not models.ready().ready
    add(tmp_path / "later", "m", "1")
    assert models.ready().ready


def test_numbers_are_kept_by_version(repository: Path) -> None:
    """Failures count apart."""
    models = registry(repository)
    models.get(ModelRef("m"))
    record(models, ModelRef("m", "1"), (1, 2, 3, 4), 9, success=True)
    record(models, ModelRef("m"), (5, 6), 9, success=False)
    stats = models.statistics(ModelRef("m"))[0]
    assert (stats.success.count, stats.success.ns, stats.fail.count, stats.fail.ns) == (1, 10, 1, 11)
    assert [c.ns for c in (stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output)] == [1, 2, 3, 4]


def test_a_model_is_quick_after_a_run_of_short_requests_of_that_size(repository: Path) -> None:
    """A longer body is not proven; answers that take longer take the word away, a very slow one for good."""
    models, ref = registry(repository), ModelRef("m")
    assert not models.is_quick(ref, 0)
    models.get(ref)
    for _ in range(slots.QUICK_RUNS):  # refusals prove nothing
        record(models, ref, (0, 1000), 100, success=False)
    assert not models.is_quick(ref, 100)

    def run(times: int, ns: int = 1000, size: int = 100) -> bool:
        for _ in range(times):
            record(models, ref, (10**9, 0, ns, 0), size, success=True)
        return models.is_quick(ref, 100)

    assert not run(slots.QUICK_RUNS - 1)
    assert run(1)
    assert not models.is_quick(ref, 101)
    assert not run(1, ns=slots.QUICK_NS)
    assert run(slots.MOST_QUICK_RUNS * 2)
    assert run(1, ns=slots.QUICK_NS)
    assert not run(2, ns=slots.QUICK_NS)
    assert run(slots.QUICK_RUNS)
    assert not run(1, ns=slots.SLOW_NS + 1)
    assert not run(slots.QUICK_RUNS)


def test_a_python_model_is_never_quick(repository: Path) -> None:
    """Its code may do anything at any time."""
    folder = repository / "p" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("def predict(inputs, parameters): return {}")
    models, ref = registry(repository, ALLOW_CODE="true"), ModelRef("p")
    models.get(ref)
    for _ in range(slots.QUICK_RUNS):
        record(models, ref, (0, 0, 1, 0), 1, success=True)
    assert not models.is_quick(ref, 1)


class Unlisted(DirectoryStore):
    """A stand-in for a bucket that may be read and not listed; a real one is in stores/s3/test_store."""

    def files(self, model: str, _: Any = None) -> list[File]:
        """Denied."""
        raise Forbidden


@pytest.fixture
def unlisted(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Registry]:
    """A registry of a store that may not be listed."""
    monkeypatch.setattr("handler.stores.directory.DirectoryStore", Unlisted)
    return lambda: registry(repository)


def test_without_permission_to_list_a_version_must_be_named(repository: Path, unlisted: Callable[[], Registry]) -> None:
    """By the request or by the settings."""
    with pytest.raises(ModelUnavailable, match="'m' is missing or forbidden.*s3:ListBucket"):
        unlisted().get(ModelRef("m"))
    (repository / "m" / "model-settings.json").write_text('{"version_policy": {"specific": {"versions": [1]}}}')
    assert unlisted().get(ModelRef("m")).spec.version == "1"
    assert unlisted().get(ModelRef("m", "1")).spec.version == "1"


def test_versions_that_clients_make_up_leave_nothing_behind(repository: Path, unlisted: Callable[[], Registry]) -> None:
    """Where nobody can know which there are: neither before the model serves nor afterwards, in whatever words."""
    models = unlisted()
    for served in (False, True):
        if served:
            models.get(ModelRef("m", "1"))
        known = len(models.known()), len(models._lookup.ready)
        for number in range(1000, 1010):
            for ref in (ModelRef("m", str(number)), ModelRef(f"m-{number}", dashed=True)):
                with pytest.raises(ModelUnavailable, match="has gone from the repository"):
                    models.get(ref)
        assert len(models.known()) <= known[0] + 1
        assert len(models._lookup.ready) == known[1]


def test_a_file_that_goes_while_its_folder_is_read_is_not_there(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push replaces what is served at such moments; another fault of the disk is told in the protocol."""
    listed = os.scandir

    def scanned(folder: Path) -> Iterator[os.DirEntry[str]]:
        for entry in listed(folder):
            if entry.name == "gone.bin":
                Path(entry.path).unlink()
            yield entry

    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}))
    there = store.files("m")
    (repository / "m" / "1" / "gone.bin").write_bytes(b"1")
    monkeypatch.setattr(os, "scandir", scanned)
    assert store.files("m") == there

    def broken(_: object) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(ModelUnavailable, match="the repository cannot be listed: Input/output error"):
        store.files("m")


def test_a_store_that_nobody_knows_is_a_wrong_setting() -> None:
    """With those that are known."""
    with pytest.raises(InvalidSettings, match="expected a directory or one of file://, s3://"):
        Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": "gopher://x"}))


def test_links_are_followed_and_loops_are_not(repository: Path) -> None:
    """Kubernetes mounts volumes through links."""
    (repository / "linked").symlink_to(repository / "m")
    (repository / "m" / "loop").symlink_to(repository / "m")
    (repository / ".hidden").mkdir()
    models = registry(repository)
    assert list(models.names()) == ["linked", "m"]
    assert models.get(ModelRef("linked")).spec.name == "linked"


def test_a_version_that_goes_while_it_is_being_loaded_is_an_error(repository: Path) -> None:
    """Between listing and loading."""
    models = registry(repository)
    models.index()
    shutil.rmtree(repository / "m" / "1")
    with pytest.raises(ModelUnavailable, match="version 1 of model 'm' has gone"):
        models.get(ModelRef("m"))


def test_file_uris_are_directories(repository: Path) -> None:
    """Percent-encoded as URIs are."""
    spaced = repository / "a b"
    add(spaced, "m", "1")
    models = Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": f"file://{repository}/a%20b"}))
    assert list(models.names()) == ["m"]


STABLE = ModelRef("m", None, "stable")
EVERY = {"version_policy": {"all": {}}}


def say(repository: Path, **settings: Any) -> None:
    """The settings of model `m`."""
    (repository / "m" / "model-settings.json").write_text(json.dumps(settings))


def test_a_label_stands_for_a_version(repository: Path, loads: list[str]) -> None:
    """Loaded once under either name."""
    add(repository, "m", "2")
    say(repository, **EVERY, version_labels={"stable": 1, "next": 2})
    models = registry(repository)
    assert not models.readiness(STABLE).ready
    model = models.get(STABLE)
    assert model.spec.version == "1"
    assert models.get(ModelRef("m", "1")) is model
    assert models.get(STABLE) is model
    assert models.readiness(STABLE).ready
    assert models.describe(STABLE).versions == ("1", "2")
    assert models.get(ModelRef("m", None, "next")) is models.get(ModelRef("m"))
    assert loads == ["m", "m"]


def test_a_loaded_version_answers_under_its_labels_without_asking_the_repository(repository: Path) -> None:
    """And is known to be quick by them, too."""
    say(repository, version_labels={"stable": 1})
    models = registry(repository)
    model = models.get(ModelRef("m"))
    for _ in range(slots.QUICK_RUNS):
        record(models, ModelRef("m", "1"), (0, 0, 1, 0), 1, success=True)
    assert models.is_quick(STABLE, 1)
    shutil.rmtree(repository / "m")
    assert models.get(STABLE) is model


def test_a_label_may_point_at_a_version_that_is_published_later(repository: Path) -> None:
    """The model is served all the same; nobody else's label is touched."""
    say(repository, **EVERY, version_labels={"stable": 1, "next": 2})
    models, ahead = registry(repository), ModelRef("m", None, "next")
    for call in (models.get, models.readiness):
        with pytest.raises(VersionNotFound, match="has no version 2; it serves 1") as refusal:
            call(ahead)
        assert refusal.value.version == "2"
    assert models.get(STABLE).spec.version == "1"
    add(repository, "m", "2")
    assert models.get(ahead).spec.version == "2"


def test_a_label_of_a_version_that_the_policy_leaves_out_is_not_found(repository: Path) -> None:
    """Labels serve nothing that is not served."""
    add(repository, "m", "2")
    say(repository, version_labels={"stable": 1})
    with pytest.raises(VersionNotFound, match="has no version 1; it serves 2"):
        registry(repository).get(STABLE)


@pytest.mark.parametrize("label", ["other", "1", "", "Stable", "x" * 1000])
def test_a_label_that_the_settings_do_not_have_is_unknown(repository: Path, label: str) -> None:
    """It is never a version's number; of a long one the message has a part."""
    say(repository, version_labels={"stable": 1})
    models, ref = registry(repository), ModelRef("m", None, label)
    text = f"Unrecognized servable version label: {label[:256]}"
    for call in (models.get, models.status, models.describe):
        with pytest.raises(UnknownLabel) as refusal:
            call(ref)
        assert refusal.value.message == text
    assert models.readiness(ref) == (False, State.UNAVAILABLE, text)


def test_a_label_moves_when_the_settings_are_looked_at_again(repository: Path) -> None:
    """By a call, for instance; the version it stood for stays loaded."""
    add(repository, "m", "2")
    say(repository, **EVERY, version_labels={"stable": 1})
    models = registry(repository)
    first = models.get(STABLE)
    say(repository, **EVERY, version_labels={"stable": 2})
    assert models.get(STABLE) is first
    models.load("m")
    assert models.get(STABLE).spec.version == "2"
    say(repository, **EVERY)
    models.load("m")
    with pytest.raises(UnknownLabel):
        models.get(STABLE)


def test_version_zero_is_the_newest_for_who_means_that(repository: Path) -> None:
    """Unless there is one; for everybody else it is a number like any other."""
    meant = ModelRef("m", "0", zero_is_newest=True)
    add(repository, "m", "2")
    say(repository, **EVERY)
    models = registry(repository)
    assert models.get(meant).spec.version == "2"
    assert models.get(meant) is models.get(ModelRef("m"))
    with pytest.raises(VersionNotFound, match="has no version 0; it serves 1, 2"):
        models.get(ModelRef("m", "0"))
    add(repository, "m", "0")
    models = registry(repository)
    for ref in (meant, ModelRef("m", "0")):
        assert models.get(ref).spec.version == "0"


def entry(version: str, state: State, reason: str = "", **said: Any) -> IndexEntry:
    """A version of model `m`."""
    return IndexEntry("m", version, state, reason, **said)


def test_status_tells_every_version_and_loads_none(repository: Path, loads: list[str]) -> None:
    """Ascending, and whether what would answer is loaded."""
    add(repository, "m", "10")
    say(repository, **EVERY, version_labels={"stable": 1}, v1_dialect="tfs")
    models = registry(repository)
    fresh = [entry(number, State.UNAVAILABLE, slots.NOT_YET, fresh=True) for number in ("1", "10")]
    assert models.status(ModelRef("m")) == StatusResult(tuple(fresh), ready=False, v1_dialect="tfs")
    assert loads == []
    models.get(STABLE)
    ready = entry("1", State.READY)
    assert models.status(ModelRef("m")) == StatusResult((ready, fresh[1]), ready=False, v1_dialect="tfs")
    for ref in (STABLE, ModelRef("m", "1")):
        assert models.status(ref) == StatusResult((ready,), ready=True, v1_dialect="tfs")
    assert models.status(ModelRef("m", "10")).versions == (fresh[1],)
    assert loads == ["m"]
    models.get(ModelRef("m"))
    assert models.status(ModelRef("m")).ready
    models.unload("m")
    assert [e.state for e in models.status(ModelRef("m")).versions] == [State.UNAVAILABLE] * 2
    assert models.status(STABLE).versions == (entry("1", State.UNAVAILABLE, "unloaded"),)


def test_status_tells_what_is_not_there(repository: Path) -> None:
    """No model, or which version; a label stands for one."""
    say(repository, version_labels={"gone": 9})
    models = registry(repository)
    assert models.status(ModelRef("q")) == StatusResult(())
    assert models.status(ModelRef("q", "1")) == StatusResult(())
    assert models.status(ModelRef("m", "7")) == StatusResult((), missing="7")
    assert models.status(ModelRef("m", None, "gone")) == StatusResult((), missing="9")


def test_status_tells_why_a_load_failed(repository: Path) -> None:
    """As a kind and a text, until the files are others."""
    file = repository / "m" / "1" / "model.onnx"
    file.write_bytes(b"")
    models = registry(repository)
    with pytest.raises(ModelNotLoadable):
        models.get(ModelRef("m"))
    (failed,) = models.status(ModelRef("m")).versions
    assert (failed.state, failed.fault, failed.fresh) == (State.UNAVAILABLE, Fault.FAILED_PRECONDITION, False)
    assert "the file is empty" in failed.reason
    shutil.copy(ONNX, file)
    models.load("m")
    assert models.status(ModelRef("m")).versions == (entry("1", State.READY),)


def test_status_tells_of_a_model_that_cannot_be_looked_at(repository: Path) -> None:
    """Its settings are wrong, or the store does not answer: nobody knows its versions."""
    say(repository, version_labels=[])
    models = registry(repository)
    for ref, number in ((ModelRef("m"), "0"), (ModelRef("m", "7"), "7"), (STABLE, "0")):
        (failed,) = models.status(ref).versions
        assert (failed.version, failed.fault) == (number, Fault.FAILED_PRECONDITION)
        assert "version_labels is []; expected an object" in failed.reason
        assert not models.status(ref).ready
    gone = registry(repository / "nowhere").status(ModelRef("m"))
    assert [e.fault for e in gone.versions] == [Fault.UNAVAILABLE]


def test_the_server_tells_its_name_and_its_packages_version(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero where it is run from a tree that was never installed."""
    models = registry(repository, NAME="mine")
    assert models.server() == ("mine", importlib.metadata.version("dragoman"))

    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert models.server() == ("mine", "0")
