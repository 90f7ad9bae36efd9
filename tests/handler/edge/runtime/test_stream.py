"""handler.edge.runtime: answers in pieces, through a Runtime API of our own making."""

import asyncio
import json
import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.edge.protocols import INTERNAL
from handler.edge.runtime import carrier
from handler.edge.runtime.stream import ResponseStream, head_of
from tests.handler.edge.runtime.conftest import Running, Start, function_url
from tests.protocols.test_waiting import until
from tests.support.connect_client import OIP, STREAM, WEB, envelope, judged
from tests.support.publishing import publish
from tests.support.remote import question, raw
from tests.support.zoo.python import LOADS_LATE

GENERATE = "/v2/models/steps/generate_stream"
INFER = "/v2/models/steps/infer"


def generate(n: int, **more: Any) -> Any:
    return function_url(GENERATE, json.dumps({"n": n, **more}))


def rest(event: dict[str, Any]) -> dict[str, Any]:
    """Returns the same as a REST API's event."""
    path = event["rawPath"]
    more = {"httpMethod": "POST", "path": path, "resource": "/{proxy+}", "queryStringParameters": None}
    context = {"stage": "Prod", "path": f"/Prod{path}", "domainName": "x.execute-api.us-east-1.amazonaws.com"}
    return (
        {k: v for k, v in event.items() if k in ("headers", "body", "isBase64Encoded")}
        | more
        | {"requestContext": context}
    )


def connect(kind: str) -> Callable[[], Any]:
    asked = envelope(question("steps", raw("n", "INT64", np.array([3]))).SerializeToString())
    return lambda: function_url(f"/{OIP}/ModelStreamInfer", asked, kind=kind)


@pytest.mark.parametrize(
    ("event", "type_"),
    [
        (lambda: generate(3), "text/event-stream"),
        (lambda: rest(generate(3)), "text/event-stream"),
        (connect(STREAM), STREAM),
        (connect(WEB), WEB),
        (lambda: function_url("/own/steps", "", "POST", "n=3"), "text/plain"),
    ],
    ids=["sse", "sse through a REST API", "connect", "grpc-web", "a model's own"],
)
def test_a_piece_arrives_before_the_model_makes_the_next_one(start: Start, event: Any, type_: str) -> None:
    """The model's second step waits for a file that exists only once the first piece has arrived."""
    running = start()
    taken = running.api.send(event())
    first = taken.until(2)[1]
    assert taken.headers["content-type"] == "application/vnd.awslambda.http-integration-response"
    assert (taken.head["statusCode"], taken.head["headers"]["content-type"].partition(";")[0]) == (200, type_)
    until(lambda: running.noted("waits.x") or running.noted("waits.http"))
    assert (not taken.done.is_set(), len(taken.pieces)) == (True, 2)
    running.go()
    body = taken.body
    assert (body.startswith(first), taken.error) == (True, None)
    if type_ == "text/event-stream":
        events = [json.loads(each.removeprefix(b"data: ")) for each in body.split(b"\n\n")[:-1]]
        assert [each["y"] for each in events] == [0, 1, 2]
    elif type_ == "text/plain":
        assert body == b"0\n1\n2\n"
    else:
        outcome = judged(200, taken.head["headers"], body)
        assert (outcome.code, len(outcome.messages)) == (None, 3)


def test_an_error_after_the_first_piece_is_in_the_trailers(start: Start) -> None:
    """Its sender learns the type and a text without the model's secrets, and the pieces before it stay."""
    running = start()
    taken = running.url("/own/steps", "", "POST", "n=-3")
    assert taken.until(2)[1] == b"0\n"
    running.go()
    error = taken.error
    assert taken.trailers["lambda-runtime-function-error-type"] == error["errorType"] == "ModelFailed"
    assert (taken.body, error["requestId"], "secret" in str(error)) == (b"0\n", taken.id, False)
    assert running.url("/v2/health/live", method="GET").head["statusCode"] == 200


def test_a_protocol_with_a_place_for_errors_has_them_there(start: Start) -> None:
    """A stream of events ends with one that has the error, and without trailers."""
    running = start()
    taken = running.api.send(generate(-3))
    taken.until(2)
    running.go()
    assert b'"error"' in taken.body.split(b"\n\n")[1]
    assert taken.error is None


@pytest.mark.parametrize("thinks", [True, False], ids=["while the model thinks", "while the model writes"])
def test_the_model_stops_when_nobody_reads_its_answer(start: Start, *, thinks: bool) -> None:
    """The generator is closed; it had a thousand million steps to go."""
    running = start()
    taken = running.api.send(generate(10**9, free=not thinks))
    taken.until(2)
    taken.keep = False
    until(lambda: running.noted("waits.x") if thinks else taken.size > 10_000)
    taken.drop()
    until(lambda: _ended(running) == 1)
    running.go()
    until(lambda: running.noted("closed.x"))
    assert running.url("/v2/health/live", method="GET").head["statusCode"] == 200


def _ended(running: Running) -> int:
    """Returns the number of requests that have ended."""
    app = running.function.app
    assert app is not None
    return sum(sum(each.times.steps) for each in app.observer.counts.tallies.values())


def test_an_answer_of_more_than_six_megabytes_arrives(start: Start) -> None:
    """A buffered one cannot be larger than that."""
    running = start()
    taken = running.url("/own/steps", query="megabytes=8")
    assert (len(taken.body), taken.error) == (8 * 2**20, None)
    event = function_url("/own/steps", query="megabytes=8")
    event["requestContext"]["domainName"] = "x.execute-api.us-east-1.amazonaws.com"
    assert running.api.send(event).document["statusCode"] == 413


def test_a_head_has_each_header_once() -> None:
    """Equal names are joined, cookies are apart, and what concerns one connection stays out."""
    headers = [
        (b"Vary", b"a"),
        (b"vary", b"b"),
        (b"set-cookie", b"c=1"),
        (b"Set-Cookie", b"d=2"),
        (b"connection", b"x"),
    ]
    told, _, rest = head_of(201, headers).partition(bytes(8))
    assert (json.loads(told), rest) == (
        {"statusCode": 201, "headers": {"vary": "a, b"}, "cookies": ["c=1", "d=2"]},
        b"",
    )


@pytest.mark.parametrize(
    ("event", "status", "text"),
    [
        (function_url("/v2/models/nothing/infer", "{}"), 404, "nothing"),
        (function_url("/v2/models/steps/infer", "{}") | {"body": "*", "isBase64Encoded": True}, 400, "base64"),
        (function_url("/own/steps", query="header=1"), 500, "error"),
        (function_url(f"/{OIP}/Nothing", b"", kind="application/proto"), 404, "unimplemented"),
    ],
    ids=["of the application", "of the event", "too long headers", "connect"],
)
def test_a_refusal_has_its_status(start: Start, event: Any, status: int, text: str) -> None:
    """It is a stream, too: the sender expects a head."""
    taken = start().api.send(event)
    assert (taken.head["statusCode"], text in taken.body.decode()) == (status, True)


@pytest.mark.parametrize(("said", "mode"), [("true", "streaming"), ("false", ""), ("perhaps", "")])
def test_a_function_with_wrong_settings_refuses_in_the_form_that_its_sender_expects(
    start: Start, said: str, mode: str
) -> None:
    """A whole document would be the body of an answer with status 200."""
    taken = start(DRAGOMAN_THREADS="many", DRAGOMAN_RESPONSE_STREAMING=said).url("/v2/health/live", method="GET").wait()
    assert (taken.mode, (taken.head if mode else taken.document)["statusCode"]) == (mode, 503)


def test_a_stream_of_events_that_pauses_has_comments(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep gateways from ending it, and stand between two events."""
    monkeypatch.setattr("handler.edge.runtime.carrier.BEAT_SECONDS", 0.01)
    running = start()
    taken = running.api.send(generate(3))
    until(lambda: b'"y":0}\n\n:\n\n:\n\n' in b"".join(taken.pieces))  # a slow one has comments before, too
    running.go()
    blocks = taken.body.split(b"\n\n")[:-1]
    assert [json.loads(each[6:])["y"] for each in blocks if not each.startswith(b":")] == [0, 1, 2]


class Noted(ResponseStream):
    """Notes the second of each piece, and sends nothing."""

    def __init__(self) -> None:
        super().__init__(None, None)  # type: ignore[arg-type] # what sends is replaced
        self.seconds: list[tuple[float, bytes]] = []

    async def _write(self, *parts: Any) -> None:
        self.seconds.append((self.sent, b"".join(parts).split(b"\r\n")[1]))


def test_a_comment_comes_when_the_stream_has_paused_for_so_long() -> None:
    """It counts from the last piece. The loop's clock moves when nothing else is to be done."""
    stream, now = Noted(), [100.0]

    class Waits(selectors.SelectSelector):
        """Moves the clock in place of waiting."""

        def select(self, timeout: float | None = None) -> Any:
            now[0] += timeout or 0
            return super().select(0)

    async def paused() -> None:
        beating = asyncio.create_task(carrier._beat(stream))
        for pause, piece in (
            (1, b"a\n\n"),
            (40, b"b\n\n"),
            (14, b"c\n\n"),
            (20, b"half of "),
            (70, b"d\n\n"),
            (16, b""),
        ):
            await asyncio.sleep(pause)
            await stream.send(piece)
        beating.cancel()

    loop = asyncio.SelectorEventLoop(Waits())
    loop.time = lambda: now[0]  # type: ignore[method-assign] # the clock
    loop.run_until_complete(paused())
    loop.close()
    assert [second for second, piece in stream.seconds if piece == carrier.BEAT] == [116, 131, 170, 260]


ENDS = {
    "answer": ("return {'y': np.array([3], np.int32)}", b'data: {"model_name":"late","model_version":"1","y":3}'),
    "failure": ("raise RuntimeError", b'data: {"error":"model \'late\' raised RuntimeError"}'),
    "refusal": ("", b'data: {"error":"model \'late\': model.py has no function predict'),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_stream_of_events_says_how_far_its_model_is(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """After some seconds it begins with comments. A refusal is an event then, because the status has been sent."""
    monkeypatch.setattr("handler.edge.runtime.carrier.BEAT_SECONDS", 0.01)
    running, (work, last) = start(), ENDS[end]
    code = LOADS_LATE.partition("def predict")[0] + (f"def predict(*_):\n    {work}\n" if work else "")
    publish(tmp_path / "models", "late", 1, code.encode(), "model.py")
    taken = running.api.send(function_url("/v2/models/late/generate_stream", '{"x": 5}'))
    until(lambda: b": model 'late' has been loading in its runtime for 0 s\n\n" in taken.pieces)
    assert (taken.head["statusCode"], taken.head["headers"]["content-type"]) == (
        200,
        "text/event-stream; charset=utf-8",
    )
    (tmp_path / "models" / "late" / "1" / "gate").touch()
    blocks = [each for each in taken.body.split(b"\n\n") if each and not each.startswith(b":")]
    assert [each[: len(last)] for each in blocks] == [last]


def test_a_stream_of_events_that_is_never_answered_ends_with_an_event(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function's time is up while the model loads, or the application breaks."""
    monkeypatch.setattr("handler.edge.runtime.carrier.BEAT_SECONDS", 0.01)
    running = start()

    async def app(*_: Any) -> None:
        await asyncio.sleep(0.1)
        raise ValueError("a secret")

    running.function._asgi = app
    taken = running.api.send(generate(1))
    assert taken.body.endswith(b'data: {"error": "%b"}\n\n' % INTERNAL.encode())
    assert taken.error["errorType"] == "ValueError"


@pytest.mark.parametrize("error", [None, asyncio.CancelledError()], ids=["no end", "cancelled"])
def test_an_application_that_breaks_its_answer_off_does_not_end_it_well(start: Start, error: Any) -> None:
    """Its sender sees trailers, or a connection that ends; the next event is answered."""
    running = start()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if error is not None:
            raise error

    usual, running.function._asgi = running.function._asgi, app
    taken = running.url("/v2/health/live", method="GET").wait()
    assert taken.gone if error is not None else taken.error["errorType"] == "RuntimeError"
    running.function._asgi = usual
    assert running.url("/v2/health/live", method="GET").head["statusCode"] == 200


def test_who_watches_gets_one_answer(start: Start) -> None:
    """A function that watches for ever would be paid for as long."""
    taken = start().api.send(function_url("/grpc.health.v1.Health/Watch", envelope(b""), kind=STREAM))
    assert len(judged(200, taken.head["headers"], taken.body).messages) == 1
