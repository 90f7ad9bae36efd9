"""handler.edge.app and dispatch: the ASGI edge, one message at a time."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.wire import Options
from handler.lifecycle.single_flight import Background
from handler.lifecycle.usage import QUICK_RUNS
from handler.stores import private
from tests.handler.edge.client import BODY, INFER, ask, exchange, lifespan, make, watched

if TYPE_CHECKING:
    from pathlib import Path

    from handler.edge.app import App

CUT = "the server ends before it has answered the request: try again"


def test_the_first_request_loads_the_model_and_is_answered(app: App) -> None:
    """The first request waits for the load and gets the outputs."""
    status, headers, body = ask(app, "POST", INFER, BODY)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["outputs"][0]["data"] == [3.5, 4.25]
    assert ask(app, "GET", "/v2/models/half_plus_three/ready")[0] == 200


def test_sixty_four_first_requests_are_answered_from_one_load() -> None:
    """Two threads answer 64 requests that came before the load."""
    app = make(THREADS="2")

    async def crowd() -> list[Any]:
        request = {"type": "http.request", "body": BODY}
        return await asyncio.gather(*(exchange(app, "POST", INFER, request) for _ in range(64)))

    assert {answer[0] for answer in asyncio.run(crowd())} == {200}
    assert app.registry.statistics(None, Background())[0].success.times == 64
    app.close()


def test_what_is_proven_quick_does_not_change_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger body changes threads, and so does a compressed one, whose size does not indicate its work."""
    monkeypatch.setattr("handler.lifecycle.usage.QUICK_NS", 10**12)
    app = make()
    for _ in range(QUICK_RUNS + 1):
        assert ask(app, "POST", INFER, BODY)[0] == 200
    changed = watched(app, monkeypatch)
    assert ask(app, "POST", INFER, BODY)[0] == 200
    assert changed == []
    assert ask(app, "POST", INFER, BODY + b" " * 20_000)[0] == 200
    assert len(changed) == 1
    assert ask(app, "POST", INFER, gzip.compress(BODY), headers=[(b"content-encoding", b"gzip")])[0] == 200
    assert len(changed) == 2
    app.close()


def test_loading_by_call_is_answered_when_it_is_done(app: App) -> None:
    """The answer to a load request is the load's own result."""
    assert ask(app, "POST", "/v2/repository/models/iris/load")[0] == 200
    assert ask(app, "GET", "/v2/models/iris/ready")[0] == 200
    assert ask(app, "POST", "/v2/repository/models/nobody/load")[0] == 404


def test_inline_everything_happens_in_the_callers_thread() -> None:
    """An inline application starts no thread but the one that ends what takes too long."""
    before = set(threading.enumerate())
    app = make(inline=True, PRELOAD="iris")
    app.start()
    assert ask(app, "GET", "/v2/models/iris/ready")[0] == 200
    assert ask(app, "POST", INFER, BODY)[0] == 200
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"dragoman-watchdog"}
    app.close()


def test_the_lifespan_begins_to_load_and_may_come_again() -> None:
    """The preloaded model answers after the same application was started and shut down twice."""
    app = make(PRELOAD="half_plus_three")

    for _ in range(2):
        assert lifespan(app) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    deadline = time.monotonic() + 30
    while ask(app, "GET", "/v2/health/ready")[0] != 200:
        assert time.monotonic() < deadline
    assert ask(app, "POST", INFER, BODY)[0] == 200
    app.close()


def test_another_kind_of_connection_is_not_served(app: App) -> None:
    """It raises RuntimeError."""
    with pytest.raises(RuntimeError, match="webtransport is not served"):
        asyncio.run(app({"type": "webtransport"}, None, None))  # type: ignore[arg-type] # never used


@pytest.mark.parametrize(("event", "sent"), [("websocket.connect", ["websocket.close"]), ("websocket.disconnect", [])])
def test_a_websocket_is_closed_before_it_is_accepted(app: App, event: str, sent: list[str]) -> None:
    """The server answers 403, whatever the path."""
    got: list[str] = []

    async def receive() -> Any:
        return {"type": event}

    async def send(message: Any) -> None:
        got.append(message["type"])

    asyncio.run(app({"type": "websocket", "path": "/v2"}, receive, send))
    assert got == sent


@pytest.mark.parametrize("path", ["/stage/v2/health/live", "/v2/health/live", "/v2/health/live/"])
def test_a_path_in_front_of_the_application_is_none_of_its_own(app: App, path: str) -> None:
    """The root path is ignored, whether the gateway cut it off or not."""
    assert ask(app, "GET", path, root_path="/stage")[0] == 200


def test_an_answer_to_head_has_no_body(app: App) -> None:
    """The Content-Length is that of the answer to GET."""
    status, headers, body = ask(app, "HEAD", "/v2/health/live")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_a_client_that_goes_in_the_middle_of_its_body_gets_nothing(app: App) -> None:
    """The application sends nothing to a client that left before the end of its body."""
    part = {"type": "http.request", "body": BODY[:5], "more_body": True}
    gone = {"type": "http.disconnect"}
    assert asyncio.run(exchange(app, "POST", INFER, part, gone)) == (0, {}, b"")
    assert asyncio.run(exchange(app, "POST", INFER, gone)) == (0, {}, b"")


@pytest.mark.parametrize(("path", "expected"), [
    (INFER, {"error": CUT}),
    ("/v1/models/half_plus_three:predict", {"error": CUT}),
    ("/inference.GRPCInferenceService/ModelInfer", {"code": "unavailable", "message": CUT}),
])  # fmt: skip
def test_a_request_that_an_ending_server_cuts_off_is_answered(app: App, path: str, expected: Any) -> None:
    """The client may repeat it elsewhere. The server that has cancelled it has nothing to log."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        waits: Any = asyncio.Event().wait  # the body does not come
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("127.0.0.1", 1)}
        task = asyncio.create_task(app(scope, waits, send))
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(main())
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"retry-after"]) == (503, b"1")
    assert json.loads(sent[1]["body"]) == expected


def test_the_lifespan_ends_with_the_folders_of_this_process(app: App) -> None:
    """Under uvicorn each end left one behind, with all downloads where the usual folders are not private."""
    made = private.fresh("dragoman-test-")
    assert made.is_dir()
    lifespan(app)
    assert not made.exists()


async def cut_off(
    app: App, path: str, body: bytes, *headers: tuple[bytes, bytes]
) -> tuple[list[Any], asyncio.Task[Any]]:
    """Returns what a stream has sent, to which more is added, and its task, which was cancelled after a first part."""
    sent, began = list[Any](), asyncio.Event()
    inbox = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        return inbox.pop() if inbox else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            began.set()

    scope = {"type": "http", "method": "POST", "path": path, "headers": [*headers], "client": ("127.0.0.1", 1)}
    task = asyncio.create_task(app(scope, receive, send))
    await began.wait()
    task.cancel()
    return sent, task


def test_the_lifespan_ends_after_the_last_answers(app: App) -> None:
    """The server cancels what is under way, and ends the lifespan, and then itself, before a stream has its end."""

    async def main() -> list[Any]:
        async def nothing(*_: Any) -> Any: ...

        proto = (b"content-type", b"application/connect+proto")
        sent, _ = await cut_off(app, "/grpc.health.v1.Health/Watch", bytes(5), proto)
        await app({"type": "lifespan"}, nothing, nothing)
        return sent

    sent = asyncio.run(main())
    assert (b"x-accel-buffering", b"no") in sent[0]["headers"]  # a proxy in front passes each part on
    assert CUT.encode() in sent[-1]["body"]


def test_a_stream_of_events_that_an_ending_server_cuts_off_ends_with_an_event(tmp_path: Path) -> None:
    """The client reads why, and that it may try again; otherwise its connection just breaks."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    metadata = "metadata = {'inputs': [], 'outputs': [{'name': 'y', 'datatype': 'INT64', 'shape': [1]}]}\n"
    code = "def predict(inputs, parameters):\n    for n in range(10**9):\n        yield {'y': np.array([n])}\n"
    (tmp_path / "m" / "1" / "model.py").write_text(f"import numpy as np\n{metadata}{code}")
    app = make(REPOSITORY=str(tmp_path), ALLOW_CODE="true")

    async def main() -> Any:
        sent, task = await cut_off(app, "/v2/models/m/generate_stream", b"{}")
        await task
        return sent[-1]

    last = asyncio.run(main())
    app.close()
    assert (last["body"], last.get("more_body", False)) == (b'data: {"error":"%b"}\n\n' % CUT.encode(), False)


def test_a_list_may_be_cut_into_several_header_lines(app: App) -> None:
    """The codings of a body are undone in the order of all lines; what is not a list is refused if it comes twice."""
    lines = [(b"content-encoding", b"deflate"), (b"content-encoding", b"gzip")]
    assert ask(app, "POST", INFER, gzip.compress(zlib.compress(BODY)), headers=lines)[0] == 200
    length = [(b"inference-header-content-length", b"%d" % len(BODY))] * 2
    assert ask(app, "POST", INFER, BODY, headers=length)[0] == 400
    timeouts = [(b"content-type", b"application/json"), *[(b"connect-timeout-ms", b"5000")] * 2]
    status, _, body = ask(app, "POST", "/inference.GRPCInferenceService/ServerLive", b"{}", headers=timeouts)
    assert (status, json.loads(body)["code"]) == (400, "invalid_argument")


def test_a_body_over_the_limit_is_refused_announced_or_not() -> None:
    """An announced body is refused at once, any other one after it was read."""
    app = make(MAX_BODY_BYTES="100")
    announced = [(b"content-length", b"101")]
    assert ask(app, "POST", INFER, b"", headers=announced)[0] == 413
    parts = [{"type": "http.request", "body": b" " * 60, "more_body": more} for more in (True, False)]
    assert asyncio.run(exchange(app, "POST", INFER, *parts))[0] == 413
    assert ask(app, "POST", INFER, b" " * 100, headers=[(b"content-length", b"100")])[0] == 400
    app.close()


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_binary_tensors_are_right_in_any_number_of_pieces(app: App, pieces: int) -> None:
    """The outputs are right, however the JSON's length aligns the tensors."""
    values = np.arange(1000, dtype="<f4")
    for extra in range(4):
        tensor = {"name": "x", "shape": [1000], "datatype": "FP32", "parameters": {"binary_data_size": 4000}}
        head = json.dumps({"id": "i" * extra, "inputs": [tensor]}).encode()
        body = head + values.tobytes()
        step = -(-len(body) // pieces)
        parts = [body[at : at + step] for at in range(0, len(body), step)]
        messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]
        header = (b"inference-header-content-length", b"%d" % len(head))
        status, _, answer = asyncio.run(exchange(app, "POST", INFER, *messages, headers=[header]))
        assert status == 200
        assert json.loads(answer)["outputs"][0]["data"] == (values / 2 + 3).tolist()


def test_only_inferences_are_compressed_for_clients_that_accept_it(app: App) -> None:
    """Large answers to inferences are compressed, other answers never are."""
    tensor = {"name": "x", "shape": [1000], "datatype": "FP32", "data": [1.0] * 1000}
    body = json.dumps({"inputs": [tensor]}).encode()
    accept = [(b"accept-encoding", b"gzip")]
    assert ask(app, "POST", INFER, body, headers=accept)[1]["content-encoding"] == "gzip"
    assert "content-encoding" not in ask(app, "POST", INFER, BODY, headers=accept)[1]
    assert "content-encoding" not in ask(app, "GET", "/v2/models/stats", headers=accept)[1]
    inline = make(inline=True)
    assert "content-encoding" not in ask(inline, "POST", INFER, body, headers=accept)[1]


def test_an_unforeseen_error_is_answered_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets a 500, and the log has the traceback."""

    def broken(_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(app.registry, "names", broken)
    status, _, body = ask(app, "GET", "/v2/models")
    assert status == 500
    assert b"secret" not in body
    assert "RuntimeError: secret" in caplog.text


@pytest.mark.parametrize("accept", [None, b"*/*", b"application/json"])
@pytest.mark.parametrize("site", ["true", "false"])
@pytest.mark.parametrize("path", ["/", "/stage/"])
def test_the_root_is_alive_for_clients(accept: bytes | None, site: str, path: str) -> None:
    """The root answers a client with JSON, with and without the site, and below a root path."""
    app = make(SITE=site)
    headers = [] if accept is None else [(b"accept", accept)]
    root_path = path.rstrip("/")
    status, told, body = ask(app, "GET", path, headers=headers, root_path=root_path)
    assert (status, told["content-type"], json.loads(body)) == (200, "application/json", {"status": "alive"})
    status, told, body = ask(app, "HEAD", path, headers=headers, root_path=root_path)
    assert (status, body, told["content-length"]) == (200, b"", "18")
    app.close()


def test_the_root_is_the_site_for_browsers(app: App) -> None:
    """A browser gets HTML, or a 404 where the site is off."""
    headers = [(b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")]
    scope = {"query_string": b"", "headers": headers}
    status, told, _ = ask(app, "GET", "/", **scope)
    assert status == 200
    assert told["content-type"].startswith("text/html")
    bare = make(SITE="false")
    assert ask(bare, "GET", "/", **scope)[0] == 404
    assert ask(bare, "POST", "/")[0] == 404
    bare.close()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/anything"])
def test_the_site_can_be_turned_off(path: str) -> None:
    """Every path outside the protocols is unknown without the site."""
    app = make(SITE="false")
    status, headers, body = ask(app, "GET", path)
    assert (status, headers["content-type"]) == (404, "application/json")
    assert path in json.loads(body)["error"]
    app.close()


def test_options_come_from_the_settings() -> None:
    """The options of the wire are those of the settings."""
    app = make(NON_FINITE="null", MAX_BODY_BYTES="7")
    assert app.rest.options == Options(7, "null", "auto")
    app.close()
