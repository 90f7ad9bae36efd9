"""handler.deadlines, attempts, phases, waiting: how long a request waits for its model, and what it is told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from handler.deadlines import GATEWAY_SECONDS, LEAST_SECONDS, SLICE_SECONDS, Patience, before, of_invocation
from handler.edge.timing import Timing
from handler.edge.waiting import landed, until
from handler.lifecycle.phases import Phases

from core.errors import Fault, ModelNotLoadable, ModelUnavailable, StillLoading
from core.operations import ModelRef, State
from handler.aws import Function
from handler.edge.app import App
from handler.lifecycle.attempts import FOLDER, MOST, attempt
from handler.lifecycle.single_flight import Flight, Flights
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from handler.stores.s3.answers import Broken
from handler.stores.s3.http import BucketReader
from tests import s3_stand_in
from tests.handler import slow_store
from tests.handler.test_app import ask
from tests.handler.test_aws import http, infer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ONNX = ROOT / "models" / "half_plus_three" / "123" / "model.onnx"
SIZE = 300
NOW = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """One that stands still."""
    stands = SimpleNamespace(time=lambda: NOW, monotonic=lambda: 50.0)
    monkeypatch.setattr("handler.deadlines.time", stands)
    return stands


def context(seconds: float) -> Any:
    """What Lambda's is asked for."""
    return SimpleNamespace(get_remaining_time_in_millis=lambda: int(seconds * 1e3), aws_request_id="r")


def rest(ago: float) -> dict[str, Any]:
    """An event of a REST API that took its request so many seconds ago."""
    return {"requestContext": {"requestTimeEpoch": (NOW - ago) * 1e3}}


def test_the_margin_is_a_second_or_a_quarter() -> None:
    """Whichever is less."""
    assert before(29) == 28
    assert before(2) == 1.5


@pytest.mark.parametrize(
    ("event", "seconds", "limit", "expected"),
    [
        ({}, 3.0, None, 2.25),
        ({}, 900.0, None, 899.0),
        ({}, 900.0, 5.0, 5.0),
        ([], None, 5.0, 5.0),
        (rest(0), 900.0, None, GATEWAY_SECONDS - 1),
        (rest(9), 900.0, None, GATEWAY_SECONDS - 10),
        (rest(9), 15.0, None, 14.0),
        (rest(9), 900.0, 100.0, 91.0),
        (rest(40), 900.0, None, LEAST_SECONDS),
        (rest(10**6), 900.0, None, GATEWAY_SECONDS - 1),
        (rest(-100), 900.0, None, GATEWAY_SECONDS - 1),
        ({"requestContext": {"timeEpoch": NOW * 1e3, "domainName": "x.execute-api.e"}}, 60.0, None, 28.0),
        ({"requestContext": {"timeEpoch": 1, "domainName": "x.lambda-url.eu-west-1.on.aws"}}, 60.0, None, 59.0),
        ({"requestContext": {"elb": {}}}, 60.0, None, 59.0),
        ({"requestContext": {"requestTimeEpoch": "now"}}, 60.0, None, 59.0),
        ({"requestContext": 5}, 60.0, None, 59.0),
    ],
)
def test_a_function_waits_no_longer_than_its_timeout_and_its_gateway(
    event: Any, seconds: float | None, limit: float | None, expected: float, clock: Any
) -> None:
    """A cold start is part of the gateway's time; clocks that cannot be right are not believed."""
    found = of_invocation(event, None if seconds is None else context(seconds), limit)
    assert found is not None
    assert found.left == pytest.approx(expected)


def test_without_any_limit_a_function_waits_for_as_long_as_it_takes() -> None:
    """A direct invocation in a test, whose context is no context."""
    assert of_invocation({}, None, None) is None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """300 MB of files, of which each invocation gets 120."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    return slow_store.install(monkeypatch, SIZE, 120)


@pytest.fixture
def function(slow: list[Any]) -> Iterator[Function]:
    """One instance of which nothing is loaded."""
    made = Function()
    yield made
    made.close()


def test_a_load_longer_than_the_timeout_ends_over_several_invocations(function: Function, slow: list[Any]) -> None:
    """Each is answered before its end with how far the load is, and the next goes on at once."""
    told = []
    for _ in range(2):
        answer = function(infer(), context(3))
        assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
        assert "fetch;dur=" in answer["headers"]["server-timing"]
        told.append(json.loads(answer["body"])["error"])
    assert told == [f"model 'half_plus_three' is {done} of 300 MB loaded: try again" for done in (120, 240)]
    assert [progress.deadline is None for progress in slow] == [False, False]
    slot = function.app.registry.known()[0]  # type: ignore[union-attr]
    assert (slot.state, slot.reason) == (State.LOADING, told[-1])
    assert function(infer(), context(3))["statusCode"] == 200
    assert function(infer(), context(3))["statusCode"] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/half_plus_three/infer", infer()["body"]),
        ("/v1/models/half_plus_three:predict", '{"instances": [1.0]}'),
    ],
)
def test_the_protocol_says_it_in_its_own_shape(function: Function, path: str, body: str) -> None:
    """503 with Retry-After."""
    answer = function(http("POST", path, body), context(3))
    assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
    assert json.loads(answer["body"]) == {"error": "model 'half_plus_three' is 120 of 300 MB loaded: try again"}


def test_an_event_about_an_object_moves_a_load_on_as_well(function: Function) -> None:
    """It is one of the invocations that it takes."""
    app = function.app
    assert app is not None
    app.registry.patience = Patience.of(3)
    with pytest.raises(StillLoading, match="120 of 300 MB"):
        app.registry.load("half_plus_three")
    assert function(infer(), context(3))["statusCode"] == 503
    assert function(infer(), context(3))["statusCode"] == 200


def overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Function:
    """One whose model is loaded, of which there is a newer version."""
    old = tmp_path / "half_plus_three" / "123"
    shutil.copytree(ROOT / "models" / "half_plus_three" / "123", old)
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path))
    function = Function()
    while function(infer(), context(3))["statusCode"] != 200:
        pass
    shutil.copytree(old, old.with_name("124"))
    return function


def test_a_new_load_that_runs_out_of_time_leaves_the_old_model_serving(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its state is what it was, and the index says how far the new one is."""
    function = overtaken(tmp_path, monkeypatch)
    app = function.app
    assert app is not None
    slow[-1].done = 0
    app.registry.patience = Patience.of(3)
    with pytest.raises(StillLoading):
        app.registry.load("half_plus_three")
    told = {entry.version: (entry.state, entry.reason) for entry in app.registry.index()}
    far = "model 'half_plus_three' is 120 of 300 MB loaded: try again"
    assert told == {"123": (State.READY, ""), "124": (State.LOADING, far)}
    assert function(infer(), context(3))["statusCode"] == 200
    with pytest.raises(StillLoading, match="240 of 300 MB"):
        app.registry.load("half_plus_three")
    app.registry.load("half_plus_three")
    assert app.registry.get(ModelRef("half_plus_three")).spec.version == "124"
    function.close()


def renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Function:
    """As `overtaken`, and due to be looked at again."""
    function = overtaken(tmp_path, monkeypatch)
    assert function.app is not None
    function.app.registry._catalog.put_off("half_plus_three", float("-inf"))
    return function


@pytest.mark.parametrize("settings", ["{}", '{"canary": {"124": 1}}'])
def test_a_new_version_is_fetched_in_slices_of_requests_that_the_old_one_answers(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str
) -> None:
    """None of them fails or waits for long, and each next one goes on at once, until the new one takes over."""
    function = renewed(tmp_path, monkeypatch)
    (tmp_path / "half_plus_three" / "model-settings.json").write_text(settings)
    slow[-1].done = 0
    del slow[:-1]
    versions = []
    for _ in range(4):
        answer = function(infer(), context(9))
        assert answer["statusCode"] == 200
        versions.append(answer["headers"]["model-version"])
        assert slow[-1].left <= SLICE_SECONDS
    assert versions == ["123", "123", "124", "124"]
    assert len(slow) == 1 + 3
    function.close()


def test_a_store_that_stalls_is_no_loaded_models_business(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A due look ends after its slice, the next one is put off; who asks for another model hears of it in time."""
    with s3_stand_in.running() as store:
        store.put("p/m/1/model.onnx", ONNX.read_bytes())
        for name, value in {**store.variables(store.url), "AWS_LAMBDA_FUNCTION_NAME": "f"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DRAGOMAN_REPOSITORY", "s3://bucket/p")
        monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path))
        function = Function()
        assert function.app is not None
        models = function.app.registry
        assert function(infer("/v2/models/m/infer"), context(60))["statusCode"] == 200
        asked: list[float] = []

        def stalls(_: BucketReader, __: Any, seconds: float) -> bytes:
            asked.append(seconds)
            time.sleep(min(seconds, 2 * SLICE_SECONDS))
            raise Broken("TimeoutError")

        monkeypatch.setattr(BucketReader, "list", stalls)
        models._catalog.put_off("m", float("-inf"))
        for _ in range(2):
            assert function(infer("/v2/models/m/infer"), context(2))["statusCode"] == 200
        (serving,) = models.status(ModelRef("m")).versions
        late = "the repository has not answered in time: try again"
        assert (serving.state, serving.reason) == (State.READY, late)
        assert len(asked) == 1
        assert asked[0] <= SLICE_SECONDS
        asked.clear()
        answer = function(infer("/v2/models/n/infer"), context(2))
        assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "1")
        assert json.loads(answer["body"]) == {"error": late}
        assert max(asked) <= before(2)
        assert function(http("GET", "/v2/health/ready"), context(2))["statusCode"] == 503
        assert max(asked) <= before(2)
        function.close()


def test_a_new_version_is_not_loaded_where_that_would_fail_the_request(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As long as the old one took, if it is known; the index says so, and a call loads it."""
    function = renewed(tmp_path, monkeypatch)
    assert function.app is not None
    models = function.app.registry
    (serving,) = models.known()
    assert serving.phases is not None
    monkeypatch.setattr(Phases, "load_ns", 5 * 10**9)
    for _ in range(2):
        answer = function(infer(), context(5))
        assert (answer["statusCode"], answer["headers"]["model-version"]) == (200, "123")
    told = {entry.version: (entry.state, entry.reason) for entry in models.index()}
    assert told["123"] == (State.READY, "")
    assert told["124"][0] == State.UNAVAILABLE
    assert "takes more time than the request has left" in told["124"][1]
    named = infer("/v2/models/half_plus_three/versions/124/infer")
    assert function(named, context(5))["headers"]["model-version"] == "124"  # and no failure that others would be told
    models.unload("half_plus_three")
    models.load("half_plus_three")
    assert function(infer(), context(5))["headers"]["model-version"] == "124"
    function.close()


def test_what_an_event_has_loaded_no_request_has_waited_for(function: Function) -> None:
    """Its Server-Timing says nothing of it."""
    app = function.app
    assert app is not None
    app.registry.load("half_plus_three")
    assert app.registry.flown is not None
    answer = function(infer(), context(3))
    assert "infer;dur=" in answer["headers"]["server-timing"]
    assert "fetch;dur=" not in answer["headers"]["server-timing"]


def test_a_load_that_is_begun_again_is_timed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is on as well: one that found too little room at its end is tried again."""
    now = iter([10, 30, 50, 60, 70])
    monkeypatch.setattr("handler.lifecycle.phases.time", SimpleNamespace(perf_counter_ns=lambda: next(now)))
    phases = Phases("m")
    phases.run(lambda: None)
    assert phases.load_ns == 20
    assert phases.run(lambda: phases.load_ns) == 10
    assert phases.load_ns == 20


def test_what_the_init_phase_cannot_end_is_left_to_the_first_request(
    slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where the init phase stopped; models whose turn never came are not begun."""
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "half_plus_three,iris")
    function = Function()
    assert [progress.deadline is None for progress in slow] == [False, False]
    app = function.app
    assert app is not None
    assert (app.registry.patience, app.registry.flown) == (None, None)
    function.close()
    slow.clear()
    late = Function(began=time.monotonic() - 60)
    assert slow == []
    assert late(http("GET", "/v2/health/live"), context(3))["statusCode"] == 200
    late.close()


@pytest.mark.parametrize("kind", ["provisioned-concurrency", "snap-start"])
def test_what_starts_before_any_request_has_no_deadline(
    kind: str, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that is named is loaded."""
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", kind)
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "half_plus_three,iris")
    monkeypatch.setattr("handler.edge.snapshots.HOOKS", "no_such_module")
    function = Function(began=time.monotonic() - 60)
    assert [progress.deadline for progress in slow] == [None, None]
    assert function(infer(), context(3))["statusCode"] == 200
    function.close()


# -- what cannot be interrupted ---------------------------------------------------------------------------------------


NEVER_LEFT: list[Any] = []


def cut_off(cache: Path, patience: Patience) -> None:
    """A load in whose middle the process ends: nothing after it is run."""
    NEVER_LEFT.append(attempt(cache, "m", 1, 0, patience))
    NEVER_LEFT[-1].__enter__()


def test_a_load_that_was_cut_off_too_often_is_refused_with_its_cure(tmp_path: Path, clock: Any) -> None:
    """And tried again once it has more time."""
    for _ in range(MOST):
        cut_off(tmp_path, Patience.of(20))
    with (
        pytest.raises(
            ModelNotLoadable, match=r"cut off 3 times, with 20.0 s .* raise the function's timeout or memory"
        ),
        attempt(tmp_path, "m", 1, 0, Patience.of(20)),
    ):
        pytest.fail("not tried")
    with attempt(tmp_path, "m", 2, 0, Patience.of(20)), attempt(tmp_path, "n", 1, 0, Patience.of(20)):
        pass
    cut_off(tmp_path, Patience.of(30))
    with attempt(tmp_path, "m", 1, 0, Patience.of(30)):
        pass
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_load_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    """It was not cut off."""
    with pytest.raises(ZeroDivisionError), attempt(tmp_path, "m", 1, 0, Patience.of(20)):
        raise ZeroDivisionError
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_load_that_would_hardly_end_is_left_to_a_request_with_more_time(tmp_path: Path, clock: Any) -> None:
    """By its size, by how long an earlier one had; but only once, for nobody may have more."""
    short = Patience.of(2)
    for _ in range(2):
        with pytest.raises(StillLoading, match="fetched, and not loaded"), attempt(tmp_path, "m", 1, 10**9, short):
            pytest.fail("not tried")
        with attempt(tmp_path, "m", 1, 10**9, short):
            pass
    with attempt(tmp_path, "m", 1, 10**6, short):
        pass
    cut_off(tmp_path, Patience.of(20))
    with pytest.raises(StillLoading), attempt(tmp_path, "m", 1, 10**6, short):
        pytest.fail("not tried")


def test_what_would_keep_a_loaded_model_from_answering_is_never_begun(tmp_path: Path, clock: Any) -> None:
    """By how long that one took to load, by the size of the new one; it is no attempt that anything remembers."""
    for _ in range(3):
        for beside, size in ((2.5, 0), (0.1, 10**9)):
            short = Patience(50.0 + 2, beside=beside)
            with pytest.raises(ModelUnavailable, match="more time than"), attempt(tmp_path, "m", 1, size, short):
                pytest.fail("not tried")
    assert not (tmp_path / FOLDER).exists()
    with attempt(tmp_path, "m", 1, 0, Patience(50.0 + 2, beside=1.5)):
        pass


def test_the_init_phase_does_not_repeat_what_was_cut_off(tmp_path: Path) -> None:
    """A request has more time than it."""
    cut_off(tmp_path, Patience.of(9, init=True))
    with pytest.raises(StillLoading), attempt(tmp_path, "m", 1, 0, Patience.of(9, init=True)):
        pytest.fail("not tried")
    with attempt(tmp_path, "m", 1, 0, Patience.of(28)):
        pass


def test_processes_that_load_at_the_same_time_were_not_cut_off(tmp_path: Path) -> None:
    """They may share the folder; this test's parent stands for another that is at it."""
    for _ in range(MOST):
        cut_off(tmp_path, Patience.of(20))
    (trace,) = (tmp_path / FOLDER).iterdir()
    *numbers, _ = trace.read_text().split()
    trace.write_text(" ".join([*numbers, str(os.getppid())]))
    with attempt(tmp_path, "m", 1, 0, Patience.of(20)):
        assert trace.read_text().split()[1] == "1"


def test_without_a_deadline_or_a_folder_no_trace_is_left(tmp_path: Path) -> None:
    """Nobody would cut it off; nothing could be written."""
    with attempt(tmp_path, "m", 1, 0, None):
        assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    with attempt(file, "m", 1, 0, Patience.of(9)):
        pass
    (tmp_path / FOLDER).mkdir()
    with attempt(tmp_path, "m", 1, 0, Patience.of(9)):
        (trace,) = (tmp_path / FOLDER).iterdir()
        trace.write_text("what?")
    cut_off(tmp_path, Patience.of(9))
    trace.write_text("what?")
    with attempt(tmp_path, "m", 1, 0, Patience.of(9)):
        pass


# -- servers ----------------------------------------------------------------------------------------------------------


def test_a_flight_says_how_far_it_is() -> None:
    """Looking, fetching, loading; fault and pause are those that clients try again after."""
    flight = Flight("m")
    assert flight.unfinished().message == "model 'm' is being looked up: try again"
    phases = Phases("m")
    flight.slot = SimpleNamespace(phases=phases)  # type: ignore[assignment] # all that is asked of it
    phases.progress.total = 300 * 10**6
    phases.progress.add(120 * 10**6)
    assert flight.unfinished().message == "model 'm' is 120 of 300 MB loaded: try again"
    assert flight.load_ns == 0
    said = phases.run(flight.unfinished)
    assert said.message == "model 'm' has been loading in its runtime for 0 s: try again"
    assert (said.fault, said.retry_after) == (Fault.UNAVAILABLE, 1)
    assert flight.load_ns == phases.load_ns > 0


def test_of_one_model_one_flight_is_under_way_and_the_others_come_in_turn() -> None:
    """One that fails is its own askers' business; the same one is joined."""
    done: list[str] = []
    gate = threading.Event()

    def work(name: str) -> Any:
        def run(_: Flight) -> str:
            assert gate.wait(60)
            done.append(name)
            if name == "b":
                raise ValueError(name)
            return name

        return run

    with ThreadPoolExecutor(4) as executor:
        flights = Flights(executor)
        joined = [flights.join(key, "m", work(key)) for key in "abcab"]
        assert joined[3:] == joined[:2]
        assert not flights.at_once("m", gate.set)
        assert flights.join("d", "n", lambda _: "another model's").future.result(10) == "another model's"
        assert done == []
        gate.set()
        assert [joined[0].future.result(10), joined[2].future.result(10)] == ["a", "c"]
        assert isinstance(joined[1].future.exception(10), ValueError)
        assert done == ["a", "b", "c"]
        assert flights.join("a", "m", work("a")) is not joined[0]


def test_what_is_done_at_once_has_its_turn_as_well() -> None:
    """What comes meanwhile waits, and is done after it even if it fails."""
    with ThreadPoolExecutor(1) as executor:
        flights = Flights(executor)
        joined: list[Flight] = []

        def work() -> None:
            joined.append(flights.join("a", "m", lambda _: "later"))
            assert executor.submit(joined[0].future.done).result(10) is False
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            flights.at_once("m", work)
        assert joined[0].future.result(10) == "later"
        assert flights.at_once("m", int)


def test_who_waits_for_its_turn_when_the_server_ends_does_not_wait_for_ever() -> None:
    """Behind a flight that is under way, and behind one that never began."""
    executor = ThreadPoolExecutor(1)
    flights = Flights(executor)
    gate = threading.Event()
    first, second = (flights.join(key, "m", lambda _: gate.wait(60)) for key in "ab")
    third, fourth = (flights.join(key, "n", lambda _: None) for key in "cd")
    executor.shutdown(wait=False, cancel_futures=True)
    assert third.future.cancelled()
    assert fourth.future.cancelled()
    gate.set()
    assert first.future.result(10)
    with pytest.raises(CancelledError):
        second.future.result(10)
    with pytest.raises(RuntimeError):
        flights.join("e", "o", int)


def test_a_flight_that_is_cancelled_as_it_is_submitted_ends() -> None:
    """The server may end at that moment."""

    class Ending(ThreadPoolExecutor):
        def submit(self, *_: Any) -> Any:
            future: Future[None] = Future()
            future.cancel()
            return future

    with Ending(1) as executor:
        flight = Flights(executor).join("a", "m", int)
    assert flight.future.cancelled()


def test_who_waits_for_its_turn_is_told_how_far_the_one_ahead_is() -> None:
    """And has waited for its load; once its own turn has come, it is told of that."""
    phases, gate, own = Phases("m"), threading.Event(), threading.Event()
    phases.progress.total = 300 * 10**6
    phases.progress.add(120 * 10**6)

    def loads(flight: Flight) -> None:
        flight.slot = SimpleNamespace(phases=phases)  # type: ignore[assignment] # all that is asked of it
        own.set()
        assert gate.wait(60)
        phases.run(lambda: None)

    with ThreadPoolExecutor(1) as executor:
        flights = Flights(executor)
        flights.join("a", "m", loads)
        behind = [flights.join(key, "m", lambda flight: flight.unfinished().message) for key in "bc"]
        assert own.wait(10)
        assert [flight.unfinished().message for flight in behind] == [
            "model 'm' is 120 of 300 MB loaded: try again"
        ] * 2
        gate.set()
        assert [flight.future.result(10) for flight in behind] == ["model 'm' is being looked up: try again"] * 2
        assert behind[0].load_ns == phases.load_ns > 0
        assert behind[1].load_ns == 0


def test_a_request_waits_as_long_as_the_least_patient_lets_it() -> None:
    """The server's setting, and the client's deadline less the time to say so."""

    async def left(limit: float | None, seconds: float | None, expected: float) -> None:
        begun = asyncio.get_running_loop().time()
        found = until(limit, seconds)
        assert found is not None
        assert begun <= found - expected <= asyncio.get_running_loop().time()

    async def check() -> None:
        assert until(None, None) is None
        await left(10, None, 10)
        await left(10, 4, 3)
        await left(2, 40, 2)

    asyncio.run(check())


def test_a_time_out_of_the_load_itself_is_not_taken_for_the_requests() -> None:
    """Who is still patient hears of it as of any failure."""

    async def wait() -> Any:
        flight = Flight("m")
        flight.future = asyncio.get_running_loop().run_in_executor(None, fail)  # type: ignore[assignment]
        return await landed(flight, Timing(), None)

    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(wait())


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What a fetch waits for at 120 of 300 MB."""
    opened = threading.Event()
    fetch = DirectoryStore.fetch

    def slow(self: Any, model: str, version: str, files: Any, progress: Any) -> Any:
        progress.total = 300 * 10**6
        progress.add(120 * 10**6)
        assert opened.wait(60)
        return fetch(self, model, version, files, progress)

    monkeypatch.setattr(DirectoryStore, "fetch", slow)
    return opened


def test_on_a_server_a_request_gives_up_and_its_load_goes_on(gate: threading.Event, tmp_path: Path) -> None:
    """The next one finds it loaded, once."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path), "DRAGOMAN_PATIENCE": "0.3"}))
    path, body = "/v2/models/half_plus_three/infer", infer()["body"].encode()
    status, headers, told = ask(app, "POST", path, body)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(told) == {"error": "model 'half_plus_three' is 120 of 300 MB loaded: try again"}
    assert "start;desc=cold" in headers["server-timing"]
    gate.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "settings", app.settings._replace(patience=None))
        assert ask(app, "POST", path, body)[0] == 200
    assert app.registry.readiness(ModelRef("half_plus_three")).ready
    app.close()


def test_patience_is_seconds_above_zero() -> None:
    """A fraction is as good."""
    assert Settings.from_env({"DRAGOMAN_PATIENCE": "2.5"}).patience == 2.5
    assert Settings.from_env({}).patience is None
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(Exception, match="DRAGOMAN_PATIENCE is .* expected seconds above 0"):
            Settings.from_env({"DRAGOMAN_PATIENCE": wrong})
