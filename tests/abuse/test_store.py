"""Anonymous clients can cause only a number of requests to the store that does not grow with theirs.

The store is a stand-in that counts. One look at it is valid for a whole test, so that nothing depends on time.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from core.operations import ModelRef
from handler.edge.app import App
from handler.edge.dispatch import threads
from handler.lifecycle import catalog, index
from handler.lifecycle.inventory import bounds, looks
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.samples import PATIENT, add, registry
from tests.support.asgi import Local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from handler.lifecycle.registry import Registry
    from tests.support.s3_stand_in import StandIn
    from tests.support.wire import Answer

pytestmark = pytest.mark.usefixtures("no_aws", "_long_looks")
ONNX: Final = (Path(__file__).parents[2] / "models" / "half_plus_three" / "123" / "model.onnx").read_bytes()
X: Final = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}).encode()
BY_NAME: Final = {
    "V2 infer": ("POST", "/v2/models/{}/infer", X),
    "V2 infer of a version": ("POST", "/v2/models/{}/versions/7/infer", X),
    "V2 metadata": ("GET", "/v2/models/{}", b""),
    "V2 ready": ("GET", "/v2/models/{}/ready", b""),
    "V2 config": ("GET", "/v2/models/{}/config", b""),
    "V2 statistics": ("GET", "/v2/models/{}/stats", b""),
    "V2 unload": ("POST", "/v2/repository/models/{}/unload", b""),
    "V1 status": ("GET", "/v1/models/{}", b""),
    "V1 metadata": ("GET", "/v1/models/{}/metadata", b""),
    "V1 predict": ("POST", "/v1/models/{}:predict", b'{"instances": [1]}'),
    "V1 explain": ("POST", "/v1/models/{}/labels/a:explain", b'{"instances": [1]}'),
    "GRPS predict": ("POST", "/grps/v1/infer/predict", b'{"model": "{}", "str_data": "x"}'),
    "GRPS predict of a version": ("POST", "/grps/v1/infer/predict", b'{"model": "{}-3", "str_data": "x"}'),
    "GRPS metadata": ("POST", "/grps/v1/metadata/model", b'{"str_data": "{}"}'),
    "Connect infer": ("POST", "/inference.GRPCInferenceService/ModelInfer", b'{"modelName": "{}"}'),
    "Connect metadata": ("POST", "/inference.GRPCInferenceService/ModelMetadata", b'{"name": "{}"}'),
    "Connect ready": ("POST", "/inference.GRPCInferenceService/ModelReady", b'{"name": "{}"}'),
}
"""Every way to name a model."""
OF_ALL: Final = (
    ("GET", "/v2/models", b""),
    ("GET", "/v2/health/ready", b""),
    ("GET", "/v2", b""),
    ("POST", "/v2/repository/index", b""),
    ("GET", "/", b""),
    ("GET", "/v1/models", b""),
    ("GET", "/grps/v1/metadata/server", b""),
    ("GET", "/grps/v1/health/ready", b""),
    ("POST", "/inference.GRPCInferenceService/ServerReady", b"{}"),
    ("POST", "/inference.GRPCInferenceService/RepositoryIndex", b"{}"),
)
"""Every question about all models."""


@pytest.fixture
def _long_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a look, and a remembered name, valid for a whole test. No allowance fills up meanwhile."""
    for module in (looks, catalog, index):
        monkeypatch.setattr(module, "PAUSE", 3600.0)
    monkeypatch.setattr(bounds, "RATE", 0.0)
    monkeypatch.setattr(bounds.Allowance.__init__, "__defaults__", (0.0, bounds.BURST))


@pytest.fixture
def settings(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Returns the settings of a server of the stand-in's bucket."""
    return stand_in.settings(monkeypatch, DRAGOMAN_CACHE=str(tmp_path / "cache"))


@pytest.fixture
def local(settings: Settings) -> Iterator[Local]:
    """A server with threads. Its models come from the stand-in."""
    running = Local(App(settings))
    yield running
    running.close()


def publish(stand_in: StandIn, name: str, content: bytes = ONNX, version: str = "1") -> None:
    stand_in.put(f"p/{name}/{version}/model.onnx", content)


def burst(local: Local, *requests: tuple[str, str, bytes]) -> list[Answer]:
    """Sends requests at the same time."""
    headers = {"content-type": "application/json", "accept": "text/html"}

    async def together() -> list[Answer]:
        return await asyncio.gather(*(local._call(*each, headers, stays=False) for each in requests))

    return local.run(together())


def infer(local: Local, path: str) -> int:
    return local.call("POST", f"/v2/models/{path}/infer", X).status


def naming(way: tuple[str, str, bytes], name: str) -> tuple[str, str, bytes]:
    method, path, body = way
    return method, path.replace("{}", name), body.replace(b"{}", name.encode(), 1) if b'"{}' in body else body


@pytest.mark.parametrize("way", BY_NAME.values(), ids=BY_NAME)
def test_made_up_names_cost_one_listing_in_all(local: Local, stand_in: StandIn, way: tuple[str, str, bytes]) -> None:
    """One look at the store decides for all unknown names."""
    publish(stand_in, "real")
    answers = burst(local, *(naming(way, f"no-{number}") for number in range(24)))
    answers += [local.call(*naming(way, f"late-{number}"), {"content-type": "application/json"}) for number in range(4)]
    assert stand_in.asked == [""]
    assert not [answer for answer in answers if answer.status == 503]


def test_questions_about_all_models_share_one_listing(local: Local, stand_in: StandIn) -> None:
    """The rule holds whatever their protocol is."""
    for number in range(20):
        publish(stand_in, f"m{number}")
    answers = burst(local, *OF_ALL * 3)
    assert {answer.status for answer in answers} == {200}
    assert stand_in.asked == [""]


@pytest.mark.parametrize("ways", [OF_ALL[3:4], OF_ALL[4:5], OF_ALL[6:7]], ids=["index", "site", "GRPS"])
def test_an_index_of_many_models_is_a_request_for_each_thousand_keys(
    local: Local, stand_in: StandIn, ways: tuple[tuple[str, str, bytes], ...]
) -> None:
    """None of the models is loaded, and none is listed by itself."""
    for number in range(2500):
        publish(stand_in, f"m{number:04}", b"")
    answers = burst(local, *ways * 2)
    assert all(b"m2499" in answer.body for answer in answers)
    assert stand_in.asked == [""] * 3


def test_an_index_skips_a_model_with_very_many_keys(local: Local, stand_in: StandIn) -> None:
    """It is listed by itself the first time, and not again by later looks."""
    for name in ("a", "large", "z"):
        publish(stand_in, name)
    for number in range(12_000):
        stand_in.put(f"p/large/1/part-{number:05}", b"", etag="e")
    body = burst(local, OF_ALL[3])[0].body
    assert [entry["name"] for entry in json.loads(body)] == ["a", "large", "z"]
    first = len(stand_in.asked)
    local.app.registry._forget()
    assert burst(local, OF_ALL[3])[0].body == body
    assert len(stand_in.asked) - first <= 3


def test_settings_that_have_not_changed_are_read_once(local: Local, stand_in: StandIn) -> None:
    """A later look at all models asks for the changed ones only."""
    for number in range(20):
        publish(stand_in, f"m{number}")
        stand_in.put(f"p/m{number}/model-settings.json", b'{"version_policy": {"all": {}}}')
    burst(local, OF_ALL[3])
    assert len(stand_in.gets()) == 20
    stand_in.put("p/m7/model-settings.json", b"{}")
    local.app.registry._forget()
    burst(local, OF_ALL[3])
    assert stand_in.gets()[20:] == ["p/m7/model-settings.json"]


def test_a_cold_model_waits_for_no_unknown_name(local: Local, stand_in: StandIn) -> None:
    """The listing that decides for sixty unknown names includes its files; its own request is the next one."""
    publish(stand_in, "real")
    unknown = [naming(BY_NAME["V2 infer"], f"no-{number}") for number in range(60)]
    answers = burst(local, *unknown, naming(BY_NAME["V2 infer"], "real"))
    assert [answer.status for answer in answers] == [404] * 60 + [200]
    assert stand_in.asked == ["", "p/real/1/model.onnx"]


def test_unknown_names_do_not_wait_for_loads(local: Local, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered while every thread for loads is busy."""
    gate, begun = threading.Event(), threading.Semaphore(0)
    for number in range(4):
        publish(stand_in, f"m{number}")
    load = local.app.registry._rollout._load

    def slow(*which: Any) -> Any:
        begun.release()
        assert gate.wait(60)
        return load(*which)

    monkeypatch.setattr(local.app.registry._rollout, "_load", slow)

    async def work() -> tuple[list[int], list[int]]:
        loading = [
            asyncio.create_task(local._call(*naming(BY_NAME["V2 infer"], f"m{number}"), {}, stays=False))
            for number in range(4)
        ]
        for _ in range(4):
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        local.app.registry._forget()
        unknown = [local._call(*naming(way, "no"), {}, stays=False) for way in list(BY_NAME.values())[:6]]
        early = [answer.status for answer in await asyncio.gather(*unknown)]
        gate.set()
        return early, [answer.status for answer in await asyncio.gather(*loading)]

    assert local.run(work()) == ([404] * 6, [200] * 4)


def test_made_up_versions_of_a_model_cost_few_requests(local: Local, stand_in: StandIn) -> None:
    """They are looked for once, and the version that serves continues to answer."""
    publish(stand_in, "m")
    assert infer(local, "m") == 200
    local.app.registry._forget()
    before = len(stand_in.asked)
    assert {infer(local, f"m/versions/{number}") for number in range(100, 150)} == {404}
    assert len(stand_in.asked) - before <= 1
    assert infer(local, "m") == 200


def test_a_model_that_cannot_be_listed_is_not_listed_for_each_request(local: Local, stand_in: StandIn) -> None:
    """Its refusal is remembered for a while, for all of its versions."""
    for number in range(1100):
        publish(stand_in, f"m{number:04}")
    stand_in.put("p/broken/1/weights.bin", b"")
    local.call("GET", "/v2/models")
    before = len(stand_in.asked)
    statuses = {infer(local, f"broken{version}") for version in ("", *(f"/versions/{each}" for each in range(30)))}
    assert statuses == {422} or len(statuses) == 1
    assert len(stand_in.asked) - before == 1


@pytest.mark.parametrize("path", ["no-{}", "no-{}/versions/1", "m/versions/{}"])
def test_without_permission_to_list_few_unknown_names_and_versions_are_tried(
    local: Local, stand_in: StandIn, path: str
) -> None:
    """Beyond the allowance, a request is refused without asking the store. Known models answer."""
    publish(stand_in, "m")
    stand_in.listable = False
    assert infer(local, "m/versions/1") == 200
    statuses = [infer(local, path.format(number)) for number in range(100, 300)]
    assert set(statuses) <= {404, 503}
    assert len(stand_in.asked) <= 6 * bounds.BURST
    assert infer(local, "m/versions/1") == 200
    assert len(local.app.registry.known()) == 1


def test_a_pushed_model_is_seen_by_the_next_look(local: Local, stand_in: StandIn) -> None:
    """A look is due after its pause and after a load call, and any listing that shows the model admits it."""
    assert infer(local, "m") == 404
    publish(stand_in, "m")
    assert infer(local, "m") == 404
    local.app.registry._forget()  # the pause is over
    assert local.call("GET", "/v2/models").status == 200
    assert infer(local, "m") == 200
    publish(stand_in, "n")
    assert local.call("POST", "/v2/repository/models/n/load").status == 200
    assert infer(local, "n") == 200
    assert b'"n"' in local.call("POST", "/v2/repository/index").body


def test_a_function_asks_for_its_first_model_as_before(settings: Settings, stand_in: StandIn) -> None:
    """It lists the model and fetches it. It looks at all names only after a wrong guess."""
    publish(stand_in, "m")
    function = Local(App(settings, inline=True))
    assert infer(function, "m") == 200
    assert stand_in.asked == ["", "p/m/1/model.onnx"]
    assert {infer(function, f"no-{number}") for number in range(20)} == {404}
    assert stand_in.asked[2:] == ["", ""]
    function.close()


def while_it_hangs(local: Local, stand_in: StandIn, *requests: tuple[str, str, bytes]) -> list[tuple[int, bool]]:
    """Asks while every thread aside waits for the store. Returns each status, and whether the others waited still."""
    asked, opened = threading.Event(), threading.Event()

    def hangs() -> str:
        asked.set()
        opened.wait(60)
        return ""

    def ask(method: str, path: str, body: bytes = b"") -> Any:
        return local._call(method, path, body, {"content-type": "application/json"}, stays=False)

    async def meanwhile() -> list[tuple[int, bool]]:
        waiting = [asyncio.ensure_future(ask("GET", "/v2/models")) for _ in range(2 * threads.ASIDE)]
        await asyncio.to_thread(asked.wait)
        answers = [await asyncio.wait_for(ask(*request), 30) for request in requests]
        alone = not any(each.done() for each in waiting)
        opened.set()
        assert [(await each).status for each in waiting] == [200] * len(waiting)
        return [(each.status, alone) for each in answers]

    stand_in.fate = hangs
    return local.run(meanwhile())


def test_probes_and_metrics_are_answered_while_the_store_hangs(
    local: Local, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests wait for the store. The first probe waits for a moment, and those after it do not."""
    monkeypatch.setattr(threads, "PROBE_SECONDS", 0.2)
    publish(stand_in, "real")
    paths = ("/v2/health/ready", "/metrics", "/grps/v1/health/ready", "/v2/health/live")
    got = while_it_hangs(local, stand_in, *(("GET", path, b"") for path in paths))
    assert got == [(503, True), (200, True), (503, True), (200, True)]
    assert stand_in.asked == [""]


def test_questions_about_a_model_in_memory_do_not_wait_for_a_store_that_hangs(local: Local, stand_in: StandIn) -> None:
    """Over every protocol, whose orchestrators would take the model for dead."""
    publish(stand_in, "real")
    assert infer(local, "real") == 200
    ways = [way for name, way in BY_NAME.items() if name.split()[-1] in ("metadata", "ready", "config", "status")]
    questions = [naming(way, "real") for way in ways]
    assert [each.status for each in burst(local, *questions)] == [200] * 8  # GRPS's name needs a look, once
    local.app.registry._forget()  # the next list asks the store
    got = while_it_hangs(local, stand_in, *questions)
    assert got == [(200, True)] * len(questions)


def test_a_fetched_file_that_has_changed_on_the_disk_is_fetched_again(
    local: Local, settings: Settings, stand_in: StandIn
) -> None:
    """A version would else be lost on this machine for good. One that is broken in the store is not fetched again."""
    publish(stand_in, "m")
    publish(stand_in, "broken", b"no graph")
    assert (infer(local, "m"), infer(local, "broken")) == (200, 503)
    for fetched in settings.cache.rglob("model.onnx"):
        if fetched.stat().st_size == len(ONNX):
            fetched.write_bytes(bytes(len(ONNX)))
    later = Local(App(settings))
    statuses = [later.call("POST", f"/v2/repository/models/{name}/load").status for name in ("m", "broken") * 3]
    assert statuses == [503, 503, 200, 503, 200, 503]
    assert infer(later, "m") == 200
    later.close()
    assert [stand_in.gets().count(f"p/{name}/1/model.onnx") for name in ("m", "broken")] == [2, 1]


@pytest.fixture
def vanishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Registry]:
    """Makes a registry of version 1 of `m`, which version 2 replaces at the given step of a load."""
    add(tmp_path, "m", "1")

    def moved(*_: Any) -> None:
        if (tmp_path / "m" / "1").exists():
            add(tmp_path, "m", "2")
            shutil.rmtree(tmp_path / "m" / "1")

    def before(owner: Any, name: str) -> None:
        work = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: (moved(), work(*given))[1])

    def make(step: str) -> Registry:
        models = registry(tmp_path)
        if step == "fetch":
            before(DirectoryStore, "fetch")
        else:
            before(models._loading, step)
        return models

    return make


@pytest.mark.parametrize("step", ["fetch", "_start", "_loaded"])
@pytest.mark.parametrize("call", ["infer", "load"])
def test_a_version_that_goes_between_listing_and_load_is_replaced_by_the_newer_one(
    vanishing: Callable[[str], Registry], step: str, call: str
) -> None:
    """The request looks again, and is not refused."""
    models = vanishing(step)
    if call == "load":
        models.load("m", PATIENT)
    with models.use(ModelRef("m"), PATIENT) as model:
        assert model.spec.version == "2"
