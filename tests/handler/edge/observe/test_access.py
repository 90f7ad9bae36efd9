"""handler.edge.observe: the lines and counts of requests over every protocol."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import re
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from grpc import aio

from core import errors
from core.errors import Fault
from handler.aws import Function
from handler.edge.observe import access
from handler.edge.observe.access import MOST_ENTRIES
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.calling import http
from tests.handler.edge.beside import served
from tests.handler.edge.calls.connect.client import call
from tests.handler.edge.client import BODY, INFER, ROOT, ask, make
from tests.support.connect_client import envelope
from tests.support.remote import question, raw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAULTS = {
    error.fault: error
    for error in (
        errors.InvalidInput, errors.TooLarge, errors.ModelNotFound, errors.ModelNotLoadable, errors.ServerBusy,
        errors.TimedOut, errors.NotSupported, errors.Unauthenticated, errors.NotPermitted, errors.ModelFailed,
    )
}  # fmt: skip
X = np.array([1, 2.5], np.float32)
MESSAGE = question("half_plus_three", raw("x", "FP32", X)).SerializeToString()
GRPS = json.dumps({"model": "half_plus_three", "ndarray": [1, 2.5]}).encode()
TEXT = 'what a "model"\nsays \u202e'
"""A text that would break a line."""


def over_grpc(app: Any) -> None:
    async def main(channel: aio.Channel, _: object) -> None:
        method: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(aio.AioRpcError) as refused:
            await method(MESSAGE, metadata=(("x-request-id", "mine"),))
        assert ("x-request-id", "mine") in list(refused.value.trailing_metadata() or ())

    served(app, main)


ASK: dict[str, Callable[[Any], Any]] = {
    "v2": lambda app: ask(app, "POST", INFER, BODY),
    "v1": lambda app: ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"instances": [1]}'),
    "grps": lambda app: ask(
        app, "POST", "/grps/v1/infer/predict", GRPS, headers=[(b"content-type", b"application/json")]
    ),
    "connect": lambda app: call(app, "ModelInfer", "application/proto", MESSAGE),
    "grpc-web": lambda app: call(app, "ModelInfer", "application/grpc-web+proto", envelope(MESSAGE)),
    "grpc": over_grpc,
}


def lines(app: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the requests so far."""
    app.observer.lines.flush()
    return [line for line in capsys.readouterr().err.splitlines() if "dragoman.access" in line]


@pytest.mark.parametrize("protocol", ASK)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_refusal_is_one_line_with_its_reason_and_counts_once(
    protocol: str, fault: Fault, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every kind of failure, over every protocol, without an access log, too."""

    def fail(*_: Any) -> Any:
        raise FAULTS[fault](TEXT)

    monkeypatch.setattr(Registry, "use", fail)
    with closing(make()) as app:
        ASK[protocol](app)
        (line,) = lines(app, capsys)
        assert " WARNING dragoman.access: " in line
        assert re.search(rf' {protocol} model=.* reason={fault.name} error="what a \\"model\\" says \\\\u202e"$', line)
        assert app.observer.counts.refusals == {(protocol, fault.name): 1}
        assert sum(sum(tally.times.steps) for tally in app.observer.counts.tallies.values()) == 1


def test_every_fault_is_in_the_table() -> None:
    assert FAULTS.keys() == set(Fault)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_refusal_on_lambda_is_one_line(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its id is the invocation's, in the answer, too."""

    def fail(*_: Any) -> Any:
        raise FAULTS[fault](TEXT)

    monkeypatch.setattr(Registry, "use", fail)
    with closing(function()) as made:
        answer = made(http("POST", INFER, BODY.decode()), Context())
        (line,) = lines(made.app, capsys)
        assert f" id=invocation-1 reason={fault.name} error=" in line
        assert answer["headers"]["x-request-id"] == "invocation-1"


class Context:
    aws_request_id = "invocation-1"


def function(**settings: str) -> Function:
    environ = {"AWS_LAMBDA_FUNCTION_NAME": "f", "DRAGOMAN_REPOSITORY": str(ROOT / "models"), **settings}
    return Function(Settings.from_env(environ))


@pytest.mark.parametrize(("what", "sent", "reason"), [
    ("no request", http("GET", "/v2") | {"isBase64Encoded": True, "body": "%"}, "INVALID_ARGUMENT"),
    ("too large", http("GET", "/v2"), "RESOURCE_EXHAUSTED"),
    ("a mistake of ours", http("GET", "/v2"), "INTERNAL"),
])  # fmt: skip
def test_what_a_function_answers_instead_is_one_line(
    what: str,
    sent: Any,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An event that does not become a request, and an answer that the runtime would not carry. Mangum has no line."""
    with closing(function(DRAGOMAN_ACCESS_LOG="true")) as made:
        if what == "too large":
            monkeypatch.setattr("handler.edge.function.answers.LARGEST_RESPONSE", 5)
        elif what == "a mistake of ours":
            monkeypatch.setattr(made, "_mangum", None)
        answer = made(sent, None)
        (line,) = lines(made.app, capsys)
        assert f" {answer['statusCode']} " in line
        assert f" reason={reason} error=" in line
        assert f" id={answer['headers']['x-request-id']} " in line
    assert not [each for each in caplog.records if each.name.startswith("mangum")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_answered_request_is_one_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Protocol, path, model, version, status, times, bytes and id."""
    with closing(make(ACCESS_LOG="true", LOG_FORMAT=form)) as app:
        ask(app, "POST", INFER, BODY)
        status, headers, body = ask(app, "POST", INFER, BODY, headers=[(b"x-request-id", b"mine")])
        *_, line = lines(app, capsys)
        assert (status, headers["x-request-id"]) == (200, "mine")
        if form == "json":
            found = json.loads(line)
            assert {"queue_ms", "fetch_ms", "load_ms", "decode_ms", "infer_ms", "encode_ms", "ms"} <= found.keys()
            known = {"level": "INFO", "logger": "dragoman.access", "protocol": "v2", "model": "half_plus_three"}
            known |= {"version": "123", "status": 200, "request_id": "mine", "bytes_in": len(BODY)}
            assert found | known | {"bytes_out": len(body)} == found
        else:
            pattern = r"\S+ \S+ INFO dragoman.access: POST {path} 200 {ms} ms v2 model=half_plus_three version=123 "
            pattern += r"queue={ms} decode={ms} infer={ms} encode={ms} in={size} out={sent} id=mine"
            numbers = {"path": INFER, "ms": r"\d+\.\d{3}", "size": len(BODY), "sent": len(body)}
            assert re.fullmatch(pattern.replace("{", "%(").replace("}", ")s") % numbers, line)


@pytest.mark.parametrize(("path", "shown"), [
    ("/v2/models/a b/infer", '"/v2/models/a b/infer"'),
    ('/v2/models/a" status=200', '"/v2/models/a\\" status=200"'),
    ("/v2/models/a\r\n2026 INFO forged", r'"/v2/models/a\\r\\n2026 INFO forged"'),
    ("/v2/models/\u202e\x1b[2J", r'"/v2/models/\\u202e\\x1b[2J"'),
    ("/v2/models/" + "x" * 10_000, "/v2/models/" + "x" * 245),
])  # fmt: skip
def test_a_hostile_path_stays_one_bounded_field(path: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Blanks, quotes, line ends, terminals' controls, lengths."""
    with closing(make()) as app:
        ask(app, "GET", path)
        (line,) = lines(app, capsys)
        assert f"GET {shown} 40" in line
        assert len(line) < 1000


@pytest.mark.parametrize(("sent", "echoed"), [
    (b"my-id_1", True), (b"x" * 128, True), (b"x" * 129, False), (b"a b", False), (b"a\x00", False), (b"\xff", False),
    (b"", False),
])  # fmt: skip
def test_an_id_is_echoed_if_it_is_short_and_visible(sent: bytes, *, echoed: bool) -> None:
    """Else the request gets one of its own, and no other request has it."""
    with closing(make()) as app:
        ids = [ask(app, "GET", "/v2", headers=[(b"x-request-id", sent)])[1]["x-request-id"] for _ in range(2)]
        assert (ids == [sent.decode("latin-1")] * 2) is echoed
        assert echoed or len({*ids}) == 2


@pytest.mark.parametrize(("settings", "written"), [
    ({"ACCESS_LOG": "true", "LOG_LEVEL": "DEBUG"}, ["DEBUG", "INFO", "WARNING"]),
    ({"ACCESS_LOG": "true"}, ["INFO", "WARNING"]),
    ({}, ["WARNING"]),
    ({"ACCESS_LOG": "true", "LOG_LEVEL": "WARNING"}, ["WARNING"]),
    ({"ACCESS_LOG": "true", "LOG_LEVEL": "ERROR"}, []),
])  # fmt: skip
def test_levels(settings: dict[str, str], written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Health is for DEBUG, answers are for INFO, and refusals for WARNING."""
    with closing(make(**settings)) as app:
        for path in ("/v2/health/live", "/v2", "/v2/nothing"):
            ask(app, "GET", path)
        assert [line.split()[2] for line in lines(app, capsys)] == written


def test_a_flood_of_refusals_stays_short(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten lines, and later one that says how many there were; with an access log each has its own."""
    with closing(make()) as app:
        for _ in range(50):
            ask(app, "GET", "/v2/nothing")
        assert len(lines(app, capsys)) == 10
        monkeypatch.setattr("handler.edge.log_lines.SECONDS", 0.0)
        ask(app, "GET", "/v2/nothing")
        assert "40 further requests were refused" in lines(app, capsys)[0]
    with closing(make(ACCESS_LOG="true")) as app:
        for _ in range(50):
            ask(app, "GET", "/v2/nothing")
        assert len(lines(app, capsys)) == 50


class FullDisk:
    """A stream to a file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", len(text))

    def flush(self) -> None: ...


def test_a_log_that_cannot_be_written_breaks_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request that found many lines to write kept its body for good, and lost its connection."""
    monkeypatch.setattr("sys.stderr", FullDisk())
    app = make(ACCESS_LOG="true")
    assert {ask(app, "GET", "/v2")[0] for _ in range(MOST_ENTRIES + 1)} == {200}
    assert not app._ongoing._records
    app.close()


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize(("redirected", "settings"), [
    (redirect_stderr, {"ACCESS_LOG": "true"}),
    (redirect_stdout, {"METRICS": "emf"}),
])  # fmt: skip
def test_a_model_that_takes_a_stream_for_its_own_output_takes_no_line(
    redirected: Any, settings: dict[str, str], *, closes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code that wants a library to be quiet redirects it for the whole process, also while others are answered."""
    with closing(make(**settings)) as app:
        with redirected(io.StringIO()) as own:
            if closes:
                own.close()
            assert ask(app, "GET", "/v2")[0] == 200
            if redirected is redirect_stderr:
                app.observer.lines.flush()
        out, err = capsys.readouterr()
        found = [line for line in err.splitlines() if "dragoman.access" in line], out.splitlines()
        assert [*map(len, found)] == ([1, 0] if redirected is redirect_stderr else [0, 1])
        assert closes or not own.getvalue()


def test_a_log_that_a_model_has_closed_breaks_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are lost."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with closing(make(ACCESS_LOG="true")) as app:
        stream.close()
        assert {ask(app, "GET", "/v2")[0] for _ in range(MOST_ENTRIES + 1)} == {200}


@pytest.mark.parametrize("stream", ["full", "closed", "none"])
def test_metrics_in_the_log_that_cannot_be_written_break_no_request(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go to stdout, a line for each request."""
    closed = io.StringIO()
    monkeypatch.setattr("sys.stdout", {"full": FullDisk(), "closed": closed, "none": None}[stream])
    with closing(make(METRICS="emf")) as app:
        closed.close()  # as a model's code can do
        assert ask(app, "GET", "/v2")[0] == 200
        assert not app._ongoing._records


def test_the_gates_refusal_is_the_requests_own_line(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It names the caller and its address, and no second line does."""
    with closing(make(AUTH="keys", KEYS="a sha256:" + "0" * 64 + " infer")) as app:
        ask(app, "GET", "/v2", headers=[(b"x-api-key", b"dgm_wrong_secret")])
        (line,) = lines(app, capsys)
        assert 'reason=UNAUTHENTICATED caller="an unknown caller" peer="127.0.0.1" error="the key is not valid"' in line
        assert "secret" not in line
        assert not [each for each in caplog.messages if "refused" in each]


BROKEN = """
import numpy as np

metadata = {"inputs": [], "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    yield {"y": np.array([1])}
    raise ValueError("no more")
"""


@pytest.mark.parametrize(("path", "protocol"), [
    ("/v2/models/broken/generate_stream", "v2"), ("/grps/v1/infer/predict?streaming=true&model=broken", "grps"),
])  # fmt: skip
def test_a_stream_that_breaks_off_is_a_refusal(
    path: str, protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its status was sent before; the line has the reason that the stream's last part has."""
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.py").write_text(BROKEN, "utf-8")
    path, _, query = path.partition("?")
    with closing(make(tmp_path, ALLOW_CODE="true")) as app:
        headers = [(b"content-type", b"application/json")]
        body = b"{}" if protocol == "v2" else b'{"gtensors": {"tensors": []}}'
        ask(app, "POST", path, body, headers=headers, query_string=query.encode())
        (line,) = lines(app, capsys)
        assert f"WARNING dragoman.access: POST {path} 200 " in line
        assert " reason=INTERNAL error=" in line
        assert app.observer.counts.refusals == {(protocol, "INTERNAL"): 1}
        assert app.observer.counts.failures == {("broken", "1", "INTERNAL"): 1}


def test_a_call_that_the_doorkeeper_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As over HTTP, and its trailers have its id."""
    with closing(make(AUTH="keys", KEYS="a sha256:" + "0" * 64 + " infer")) as app:
        over_grpc(app)
        (line,) = lines(app, capsys)
        assert " UNAUTHENTICATED " in line
        assert ' id=mine reason=UNAUTHENTICATED caller="an unknown caller" peer="127.0.0.1" ' in line
        assert app.observer.counts.refusals == {("grpc", "UNAUTHENTICATED"): 1}
        assert not [each for each in caplog.messages if "refused" in each]


def test_a_call_over_grpc_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With the code, the model, and the bytes of the messages both ways; a stream is one line, too."""

    async def main(channel: aio.Channel, _: object) -> tuple[int, int]:
        one: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = await one(MESSAGE)
        many: Any = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        answers = [each async for each in many(iter([MESSAGE, MESSAGE]))]
        return len(answer), sum(map(len, answers))

    with closing(make(ACCESS_LOG="true")) as app:
        sizes = served(app, main)
        found = lines(app, capsys)
        for line, received, sent in zip(found, (len(MESSAGE), 2 * len(MESSAGE)), sizes, strict=True):
            assert " OK " in line
            assert " grpc model=half_plus_three version=123 " in line
            assert f" in={received} out={sent} id=" in line


def test_a_client_that_leaves_is_499(capsys: pytest.CaptureFixture[str]) -> None:
    """It does not count as a refusal."""
    with closing(make(ACCESS_LOG="true")) as app:

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            raise AssertionError

        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "client": None}
        asyncio.run(app(scope, receive, send))
        (line,) = lines(app, capsys)
        assert f"INFO dragoman.access: POST {INFER} 499 " in line
        assert not app.observer.counts.refusals
        assert [*app.observer.counts.failures.values()] == [1]


def test_lines_of_a_later_event_loop_do_not_wait_for_an_earlier_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A test's client starts an application in many loops. The timer of one that has ended never comes."""
    lines, found = access.Lines(access.TextLines(), sys.stderr), list[str]()

    async def main(text: str, most: int) -> None:
        lines.add(text)
        for _ in range(most):
            found.extend(capsys.readouterr().err.splitlines())
            if len(found) >= 2:
                return
            await asyncio.sleep(access.PAUSE_SECONDS / 5)

    asyncio.run(main("first", 0))
    asyncio.run(main("second", 1000))
    assert [line.rsplit(maxsplit=1)[-1] for line in found] == ["first", "second"]


def test_made_up_paths_leave_room_for_the_beginnings_of_later_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many are kept that warm requests find theirs, and no more."""
    monkeypatch.setattr(access, "REMEMBERED", 2)
    lines = access.TextLines()
    for path in ("/1", "/2", "/3"):
        what = ("INFO", "GET", path, "404", "v2", "", "")
        assert lines._parts(what) == lines._parts(what)
        assert len(lines._known) <= 2
        assert what in lines._known
