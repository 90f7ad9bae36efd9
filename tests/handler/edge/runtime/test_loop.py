"""handler.edge.runtime: events, deadlines, several at once, SnapStart, failures; tests/e2e has awslambdaric."""

import base64
import json
import os
import shutil
import socket
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.operations import ModelRef
from handler.edge.runtime.api import EventContext, RuntimeApi, RuntimeApiError
from handler.edge.runtime.loop import Poller
from tests.e2e.expected import ANSWERS, EVENTS, gist
from tests.handler.calling import http
from tests.handler.edge.runtime.conftest import Start, function_url
from tests.handler.edge.runtime.test_stream import INFER, connect, generate
from tests.protocols.test_waiting import until
from tests.support.connect_client import STREAM, WEB, judged
from tests.support.runtime_api import RuntimeStandIn, Taken, runtime_api
from tests.support.zoo.python import LOADS_LATE

ROOT = Path(__file__).parents[4]


def infer(tag: str, n: int = 2) -> str:
    """Returns a request whose model waits for the gate."""
    tensor = {"name": "n", "shape": [1], "datatype": "INT64", "data": [n]}
    return json.dumps({"inputs": [tensor], "parameters": {"tag": tag}})


def result(taken: Taken) -> Any:
    """Returns an answer in the form of a buffered one."""
    taken.wait()
    if taken.mode != "streaming":
        return taken.document
    body = taken.body
    return taken.head | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}


@pytest.mark.parametrize("streams", ["true", "false"])
def test_every_sample_event_is_answered(start: Start, streams: str) -> None:
    """Each has the answer that it has with Lambda's runtime; REST APIs and Function URLs get it as a stream."""
    running = start(DRAGOMAN_RESPONSE_STREAMING=streams, DRAGOMAN_PRELOAD="", DRAGOMAN_REPOSITORY=str(ROOT / "models"))
    for path in (path for path in EVENTS if not path.stem.startswith("s3")):
        taken = running.api.send(json.loads(path.read_text(encoding="utf-8")))
        assert gist(result(taken)) == ANSWERS[path.stem], path.stem
        is_stream = streams == "true" and path.stem.startswith(("rest", "function-url"))
        assert (taken.mode == "streaming") is is_stream, path.stem


def test_several_events_run_side_by_side_each_with_its_own_deadline(start: Start) -> None:
    """Five are in the model at the same time. Two are late: one is refused, one's stream ends with trailers."""
    running = start(AWS_LAMBDA_MAX_CONCURRENCY="5", DRAGOMAN_THREADS="8")  # a model has its share of them
    late = running.api.send(http("POST", INFER, infer("late")), 5)
    stream = running.api.send(generate(3, tag="stream"), 5)
    kept = [running.api.send(http("POST", INFER, infer(tag))) for tag in "abc"]
    until(lambda: all(running.noted(f"waits.{tag}") for tag in ("late", "stream", "a", "b", "c")))
    assert (late.document["statusCode"], "function's timeout" in late.document["body"]) == (504, True)
    assert (stream.error["errorType"], b'"y":0' in stream.body) == ("TimedOut", True)
    assert not any(taken.done.is_set() for taken in kept)
    running.go()
    assert [json.loads(taken.document["body"])["outputs"][0]["data"] for taken in kept] == [[1]] * 3


@pytest.mark.parametrize(("kind", "streams"), [(STREAM, "true"), (WEB, "false")], ids=["connect", "grpc-web"])
def test_a_stream_of_a_remote_call_ends_with_its_deadline(start: Start, kind: str, streams: str) -> None:
    """Another attempt would take as long, so that the error is not one to try again."""
    answer = result(start(DRAGOMAN_RESPONSE_STREAMING=streams).api.send(connect(kind)(), 5))
    outcome = judged(answer["statusCode"], answer["headers"], base64.b64decode(answer["body"]))
    assert (outcome.code, "function's timeout" in outcome.text, len(outcome.messages)) == ("deadline_exceeded", True, 1)


class Body(bytearray):
    """An event whose end can be seen."""


def test_an_event_is_let_go_of_before_the_next_one() -> None:
    """The next event can come hours later, and each poller would hold up to 6 MB."""
    seen: list[weakref.ref[Body]] = []

    class Api:
        """Has one event."""

        def next(self) -> tuple[Body, EventContext]:
            if seen:
                assert seen[0]() is None
                raise RuntimeApiError
            body = Body(b"{}")
            seen.append(weakref.ref(body))
            return body, EventContext({"Lambda-Runtime-Aws-Request-Id": "1", "Lambda-Runtime-Deadline-Ms": "1"})

        def answer(self, *_: object) -> None:
            assert seen[0]() is not None

    class Answers:
        """A function without an application, as one with wrong settings."""

        app = None

        def __call__(self, _event: Any, _context: Any) -> Any:
            return {}

    with pytest.raises(RuntimeApiError):
        Poller(Api(), Answers(), alone=False).run()  # type: ignore[arg-type] # as far as a poller uses it


def test_a_load_that_takes_longer_than_the_event_has_goes_on(start: Start, tmp_path: Path) -> None:
    """Its client is told to come again, and the load is not begun again."""
    running = start()
    late = tmp_path / "models" / "late" / "1"
    late.mkdir(parents=True)
    (late / "model.py").write_text(LOADS_LATE)
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "INT32", "data": [5]}]})
    document = running.api.send(http("POST", "/v2/models/late/infer", body), 2).document
    assert (document["statusCode"], document["headers"]["retry-after"]) == (503, "1")
    (late / "gate").touch()
    document = running.api.send(http("POST", "/v2/models/late/infer", body)).document
    assert json.loads(document["body"])["outputs"][0]["data"] == [5]
    assert (late / "loads").read_text() == "x"


def test_events_without_http_wait_for_their_loads(start: Start) -> None:
    """A warm-up ping answers when what is preloaded is in memory; other events fail, with the reason."""
    running = start()
    assert running.api.send({}).document == {"warm": True, "ready": True, "reason": "", "models": {"steps": "READY"}}
    failed = running.api.send({"Records": [{"eventSource": "aws:sqs"}]})
    assert failed.document["errorType"] == failed.headers["lambda-runtime-function-error-type"] == "UnsupportedEvent"
    assert (failed.kind, failed.document["requestId"]) == ("error", failed.id)
    for text in (b"{", b"", b"\xff", b"[" * 100_000, b"9" * 5000):
        assert running.api.send(text).document["errorType"] == "Runtime.UnmarshalError"


def test_a_refused_event_is_one_line_of_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may invoke the function could fill the log with tracebacks, which hide those of real failures."""
    running = start()
    for event in ([], {"a": 1}, {"Records": [{"eventSource": "aws:sqs"}]}):
        refused = running.api.send(event)
        said = f"request {refused.id} failed: {refused.document['errorMessage']}"
        lines = [record for record in caplog.records if refused.id in record.getMessage()]
        assert [(line.levelname, line.getMessage(), line.exc_info) for line in lines] == [("WARNING", said, None)]


def test_a_connection_that_lambda_has_closed_is_made_again(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """An answer is not lost by that, and one that is not taken does not end the process."""
    running = start()
    assert running.api.send(http("GET", "/v2/health/live"), cut="late").document["statusCode"] == 200
    for send in (http("GET", "/v2/health/live"), function_url("/v2/health/live", method="GET")):
        running.api.send(send, status=413).wait()
    assert running.api.send(http("GET", "/v2/health/live")).document["statusCode"] == 200
    assert caplog.text.count("status 413") == 2


def test_a_stream_begins_on_a_new_connection_if_the_old_one_is_closed() -> None:
    """Its pieces could not be sent again."""
    with runtime_api() as api:
        taken = api.send({}, cut="early")
        caller = RuntimeApi(api.address)
        _, context = caller.next()
        until(lambda: caller._connection.sock.recv(1, socket.MSG_PEEK) == b"")
        caller.begin_stream(context).sendall(b"2\r\nok\r\n0\r\n\r\n")
        caller.end_stream()
        caller.close()
        assert b"".join(taken.wait().pieces) == b"ok"


TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled="


def test_xray_reaches_the_function(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a variable, as with Lambda's own runtime, and without one once an event has none."""
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    running = start()
    more = {"Lambda_Runtime_Trace_Id": TRACE + "1", "Lambda_Runtime_Invocation_Id": "7"}
    taken = running.api.send(http("GET", "/v2/health/live"), **more).wait()
    assert (os.environ["_X_AMZN_TRACE_ID"], taken.headers["lambda-runtime-invocation-id"]) == (TRACE + "1", "7")
    running.api.send(http("GET", "/v2/health/live")).wait()
    assert "_X_AMZN_TRACE_ID" not in os.environ


def test_each_of_several_events_has_its_own_trace(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the request's header, if X-Ray records it: a variable would be the other event's."""
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    running = start(AWS_LAMBDA_MAX_CONCURRENCY="2")
    event = function_url("/own/steps", query="trace=1") | {"headers": {"x-amzn-trace-id": "the gateway's"}}
    bodies = [running.api.send(event, Lambda_Runtime_Trace_Id=TRACE + flag).body.decode() for flag in "10"]
    assert bodies == [TRACE + "1", "the gateway's"]
    assert "_X_AMZN_TRACE_ID" not in os.environ


class Hooks(ModuleType):
    """Stands in for Lambda's module snapshot_restore_py, with one hook of each kind."""

    def __init__(self, calls: list[str], fails: str) -> None:
        super().__init__("snapshot_restore_py")
        self._calls, self._fails = calls, fails

    def _hook(self, name: str) -> None:
        self._calls.append(name)
        if name == self._fails:
            raise RuntimeError(f"{name} failed")

    def get_before_snapshot(self) -> list[Any]:
        return [(self._hook, ("second",), {}), (self._hook, ("first",), {})]

    def get_after_restore(self) -> list[Any]:
        return [(self._hook, ("after",), {})]


@pytest.mark.parametrize(
    ("fails", "calls", "code", "told"),
    [
        ("", ["first", "second", "after"], None, {}),
        ("second", ["first", "second"], 64, {"/init/error": "Runtime.BeforeSnapshotError"}),
        ("after", ["first", "second", "after"], 65, {"/restore/error": "Runtime.AfterRestoreError"}),
    ],
    ids=["restored", "before", "after"],
)
def test_a_snapshot_has_the_models_and_every_hook(
    start: Start, monkeypatch: pytest.MonkeyPatch, fails: str, calls: list[str], code: int | None, told: dict[str, str]
) -> None:
    """Hooks run around the snapshot; a failing one is told to Lambda, and ends the process."""
    called: list[str] = []
    monkeypatch.setitem(sys.modules, "snapshot_restore_py", Hooks(called, fails))
    running = start(AWS_LAMBDA_INITIALIZATION_TYPE="snap-start", wait=False)
    api = running.api
    if fails != "second":
        assert api.snapshot.wait(60)
        assert (called, api.polling) == (["first", "second"], 0)
        api.restored.set()
    if code is None:
        answer = api.send(http("GET", "/v2/models/steps/ready"))
        assert (answer.document["statusCode"], "desc=restored" in answer.document["headers"]["server-timing"]) == (
            200,
            True,
        )
    else:
        assert running.ended() == code
    assert called == calls
    assert {path: kind for path, (kind, _) in api.errors.items()} == told
    assert all(f"{fails} failed" in document["errorMessage"] for _, document in api.errors.values())


def test_lambda_is_told_why_there_is_no_function(start: Start, api: RuntimeStandIn) -> None:
    """A function that cannot be made is an error of the init phase."""

    def make(_: Any) -> Any:
        raise ImportError("no module named numpy")

    assert start(make=make, wait=False).ended() == 1
    assert api.errors["/init/error"][0] == "ImportError"
    assert api.errors["/init/error"][1]["errorMessage"] == "no module named numpy"


def test_wrong_settings_are_told_to_clients(start: Start) -> None:
    """The function starts all the same."""
    running = start(DRAGOMAN_THREADS="many")
    document = running.api.send(http("GET", "/v2/health/live")).document
    assert (document["statusCode"], "DRAGOMAN_THREADS" in document["body"]) == (503, True)


def test_without_a_runtime_api_the_process_ends(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what sets the variable; an address where nobody listens ends it, too."""
    assert start(AWS_LAMBDA_RUNTIME_API="", wait=False).ended() == 2
    assert "AWS Lambda, which sets it" in capsys.readouterr().err


def test_the_process_ends_when_it_gets_no_events(start: Start, api: RuntimeStandIn) -> None:
    """Lambda starts another one."""
    running = start()
    api.waiting.put(None)
    assert running.ended() == 1


def test_hanging_models_cost_the_function_no_others_and_at_last_a_new_process(start: Start, tmp_path: Path) -> None:
    """The end of an event is the only time limit. Threads that go on behind it are replaced, up to a number."""
    root = tmp_path / "models"
    shutil.copytree(root / "steps" / "1", root / "again" / "1")
    shutil.copytree(ROOT / "models" / "iris", root / "iris")
    running = start(DRAGOMAN_PRELOAD="*", DRAGOMAN_THREADS="1")
    dispatcher = running.function.app.dispatcher
    for number, name in enumerate(("steps", "again"), 1):
        path = f"/v2/models/{name}/infer"
        assert running.api.send(http("POST", path, infer(name)), 2).document["statusCode"] == 504
        spec = running.function.app.registry.spec(ModelRef(name))
        until(lambda spec=spec: bool(dispatcher.trouble(spec)))  # type: ignore[misc]
        if number == 1:
            iris = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
            document = running.api.send(http("POST", "/v2/models/iris/infer", json.dumps(iris))).document
            assert document["statusCode"] == 200
            assert running.api.send(http("POST", path, infer(name))).document["statusCode"] == 503
    assert running.api.send(http("GET", "/v2/health/ready")).document["statusCode"] == 503
    assert running.ended() == 1
