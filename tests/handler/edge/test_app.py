"""handler.edge.app, workers, asgi and cli: the ASGI edge, one message at a time."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.errors import ServerBusy
from core.wire import Options
from handler import asgi, cli
from handler.edge.app import App
from handler.edge.workers import Workers
from handler.lifecycle.versions import QUICK_RUNS
from handler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
BODY = json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]}).encode()
INFER = "/v2/models/half_plus_three/infer"


def make(repository: Path = ROOT / "models", *, inline: bool = False, **settings: str) -> App:
    """An application of the sample models."""
    environ = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    return App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository), **environ}), inline=inline)


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """The one that tests may share."""
    made = make()
    yield made
    made.close()


async def exchange(
    app: App, method: str, path: str, *messages: dict[str, Any], **scope: Any
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body; (0, {}, b"") where nothing was answered."""
    inbox = list(messages) or [{"type": "http.request"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return inbox.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": [], **scope}, receive, send)
    if not sent:
        return 0, {}, b""
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, bytes(sent[1]["body"])


def ask(app: App, method: str, path: str, body: bytes = b"", **scope: Any) -> tuple[int, dict[str, str], bytes]:
    """One request in one message."""
    return asyncio.run(exchange(app, method, path, {"type": "http.request", "body": body}, **scope))


def test_the_first_request_loads_the_model_and_is_answered(app: App) -> None:
    """It never hears that the model is not ready."""
    status, headers, body = ask(app, "POST", INFER, BODY)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["outputs"][0]["data"] == [3.5, 4.25]
    assert ask(app, "GET", "/v2/models/half_plus_three/ready")[0] == 200


def test_sixty_four_first_requests_are_answered_from_one_load() -> None:
    """Two threads, no deadlock."""
    app = make(THREADS="2")

    async def crowd() -> list[Any]:
        request = {"type": "http.request", "body": BODY}
        return await asyncio.gather(*(exchange(app, "POST", INFER, request) for _ in range(64)))

    assert {answer[0] for answer in asyncio.run(crowd())} == {200}
    assert app.registry.statistics(None)[0].success.count == 64
    app.close()


def test_what_is_proven_quick_does_not_change_threads(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger body does, and a compressed one, whose size says nothing."""
    monkeypatch.setattr("handler.lifecycle.versions.QUICK_NS", 10**12)
    for _ in range(QUICK_RUNS + 1):
        assert ask(app, "POST", INFER, BODY)[0] == 200
    changed: list[Any] = []
    run = app._workers.run  # type: ignore[union-attr] # it has workers

    async def watched(work: Any) -> Any:
        changed.append(work)
        return await run(work)

    monkeypatch.setattr(app._workers, "run", watched)
    assert ask(app, "POST", INFER, BODY)[0] == 200
    assert changed == []
    assert ask(app, "POST", INFER, BODY + b" " * 20_000)[0] == 200
    assert len(changed) == 1
    assert ask(app, "POST", INFER, gzip.compress(BODY), headers=[(b"content-encoding", b"gzip")])[0] == 200
    assert len(changed) == 2


def test_loading_by_call_is_answered_when_it_is_done(app: App) -> None:
    """The load's own result is the answer."""
    assert ask(app, "POST", "/v2/repository/models/iris/load")[0] == 200
    assert ask(app, "GET", "/v2/models/iris/ready")[0] == 200
    assert ask(app, "POST", "/v2/repository/models/nobody/load")[0] == 404


def test_inline_everything_happens_in_the_callers_thread() -> None:
    """As on Lambda."""
    before = set(threading.enumerate())
    app = make(inline=True, PRELOAD="iris")
    app.start()
    assert ask(app, "GET", "/v2/models/iris/ready")[0] == 200
    assert ask(app, "POST", INFER, BODY)[0] == 200
    assert set(threading.enumerate()) <= before
    app.close()


def test_the_lifespan_begins_to_load_and_may_come_again() -> None:
    """Test clients start and shut down the same application many times."""
    app = make(PRELOAD="half_plus_three")

    async def lifespan() -> list[str]:
        inbox = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[str] = []

        async def receive() -> Any:
            return inbox.pop(0)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        return sent

    for _ in range(2):
        assert asyncio.run(lifespan()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    deadline = time.monotonic() + 30
    while ask(app, "GET", "/v2/health/ready")[0] != 200:
        assert time.monotonic() < deadline
    assert ask(app, "POST", INFER, BODY)[0] == 200
    app.close()


def test_another_kind_of_connection_is_not_served(app: App) -> None:
    """A WebSocket has nothing to talk to."""
    with pytest.raises(RuntimeError, match="websocket is not served"):
        asyncio.run(app({"type": "websocket"}, None, None))  # type: ignore[arg-type] # never used


@pytest.mark.parametrize("path", ["/stage/v2/health/live", "/v2/health/live", "/v2/health/live/"])
def test_a_path_in_front_of_the_application_is_none_of_its_own(app: App, path: str) -> None:
    """Whether the gateway cut it off or not."""
    assert ask(app, "GET", path, root_path="/stage")[0] == 200


def test_an_answer_to_head_has_no_body(app: App) -> None:
    """And says how long it would have been."""
    status, headers, body = ask(app, "HEAD", "/v2/health/live")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_a_client_that_goes_in_the_middle_of_its_body_gets_nothing(app: App) -> None:
    """Nor does anything happen."""
    part = {"type": "http.request", "body": BODY[:5], "more_body": True}
    gone = {"type": "http.disconnect"}
    assert asyncio.run(exchange(app, "POST", INFER, part, gone)) == (0, {}, b"")
    assert asyncio.run(exchange(app, "POST", INFER, gone)) == (0, {}, b"")


def test_a_body_over_the_limit_is_refused_announced_or_not() -> None:
    """At once where it is announced, after reading it where it is not."""
    app = make(MAX_BODY_BYTES="100")
    announced = [(b"content-length", b"101")]
    assert ask(app, "POST", INFER, b"", headers=announced)[0] == 413
    parts = [{"type": "http.request", "body": b" " * 60, "more_body": more} for more in (True, False)]
    assert asyncio.run(exchange(app, "POST", INFER, *parts))[0] == 413
    assert ask(app, "POST", INFER, b" " * 100, headers=[(b"content-length", b"100")])[0] == 400
    app.close()


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_binary_tensors_are_right_in_any_number_of_pieces(app: App, pieces: int) -> None:
    """However the JSON's length aligns them."""
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


def test_inference_is_compressed_for_who_accepts_it_and_nothing_else_is(app: App) -> None:
    """Tritonclient's asyncio client asks for gzip everywhere and decodes it only there."""
    tensor = {"name": "x", "shape": [1000], "datatype": "FP32", "data": [1.0] * 1000}
    body = json.dumps({"inputs": [tensor]}).encode()
    accept = [(b"accept-encoding", b"gzip")]
    assert ask(app, "POST", INFER, body, headers=accept)[1]["content-encoding"] == "gzip"
    assert "content-encoding" not in ask(app, "POST", INFER, BODY, headers=accept)[1]
    assert "content-encoding" not in ask(app, "GET", "/v2/models/stats", headers=accept)[1]
    inline = make(inline=True)
    assert "content-encoding" not in ask(inline, "POST", INFER, body, headers=accept)[1]


def test_an_unforeseen_error_is_told_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the traceback."""

    def broken() -> Any:
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
    """As KServe's asks; with and without the site, and mounted somewhere."""
    app = make(SITE=site)
    headers = [] if accept is None else [(b"accept", accept)]
    root_path = path.rstrip("/")
    status, told, body = ask(app, "GET", path, headers=headers, root_path=root_path)
    assert (status, told["content-type"], json.loads(body)) == (200, "application/json", {"status": "alive"})
    status, told, body = ask(app, "HEAD", path, headers=headers, root_path=root_path)
    assert (status, body, told["content-length"]) == (200, b"", "18")
    app.close()


def test_the_root_is_the_site_for_browsers(app: App) -> None:
    """They say that they read HTML; where there is no site, nothing is there."""
    headers = [(b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")]
    scope = {"query_string": b"", "headers": headers}
    status, told, _ = ask(app, "GET", "/", **scope)
    assert status == 200
    assert told["content-type"].startswith("text/html")
    bare = make(SITE="false")
    assert ask(bare, "GET", "/", **scope)[0] == 404
    assert ask(bare, "POST", "/")[0] == 404
    bare.close()


ROW = [5.1, 3.5, 1.4, 0.2]
EXAMPLES = json.dumps({"examples": [{"x": ROW}]}).encode()


def test_every_way_to_name_a_version_leads_to_the_same_answer(app: App) -> None:
    """The newest, by number, by label, in another case; the body is never looked at as a form."""
    form = [(b"content-type", b"application/x-www-form-urlencoded")]
    answers = set()
    for place in ("", "/versions/1", "/Versions/01", "/versions/0", "/labels/stable"):
        status, headers, body = ask(app, "POST", f"/v1/models/iris{place}:classify", EXAMPLES, headers=form)
        assert (status, headers["content-type"]) == (200, "application/json")
        answers.add(body)
    assert len(answers) == 1
    labels = [label for label, _ in json.loads(answers.pop())["results"][0]]
    assert labels == ["setosa", "versicolor", "virginica"]


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/v1/models/q:predict", 404, "Servable not found for request: Latest(q)"),
        ("POST", "/v1/models/iris/versions/9:predict", 404, "Servable not found for request: Specific(iris, 9)"),
        ("POST", "/v1/models/iris/labels/q:predict", 400, "Unrecognized servable version label: q"),
        ("GET", "/v1/models/iris/labels/q", 400, "Unrecognized servable version label: q"),
        ("GET", "/v1/models/q", 404, "Could not find any versions of model q"),
        ("PUT", "/v1/models/iris", 400, "Malformed request: PUT /v1/models/iris"),
        ("GET", "/V1/nothing", 400, "Malformed request: GET /V1/nothing"),
        ("POST", "/v1/models/half_plus_three:explain", 501, None),
    ],
)
def test_what_cannot_be_answered_under_v1_is_refused_in_its_words(
    app: App, method: str, path: str, status: int, text: str | None
) -> None:
    """Always with an error and nothing else; without an explainer it says how to get one."""
    found, headers, body = ask(app, method, path, b'{"instances": [1.0]}')
    assert (found, headers["content-type"]) == (status, "application/json")
    (error,) = json.loads(body).values()
    assert error == text if text is not None else "explainer" in error


def test_status_follows_what_is_loaded() -> None:
    """Asking loads nothing; a prediction does."""
    app = make()
    status, _, body = ask(app, "GET", "/v1/models/half_plus_three")
    assert status == 503
    assert json.loads(body)["model_version_status"][0]["state"] == "START"
    assert ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"instances": [1.0]}')[0] == 200
    status, _, body = ask(app, "GET", "/v1/models/half_plus_three")
    told = json.loads(body)
    assert (status, told["ready"], told["model_version_status"][0]["state"]) == (200, True, "AVAILABLE")
    app.close()


def test_an_explanation_never_runs_where_quick_requests_do(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick the model's inferences are: it takes hundreds of them."""
    changed: list[Any] = []
    run = app._workers.run  # type: ignore[union-attr] # it has workers

    async def watched(work: Any) -> Any:
        changed.append(work)
        return await run(work)

    document = {"signature_name": "serving_default", "instances": [ROW, ROW]}
    body = json.dumps(document).encode()
    assert ask(app, "POST", "/v1/models/iris:predict", body)[0] == 200
    monkeypatch.setattr(app._workers, "run", watched)
    monkeypatch.setattr(app.registry, "is_quick", lambda ref, size: True)
    assert ask(app, "POST", "/v1/models/iris:predict", body)[0] == 200
    assert changed == []
    status, _, answer = ask(app, "POST", "/v1/models/iris:explain", body)
    assert (status, len(changed)) == (200, 1)
    told = json.loads(answer)
    assert set(told) == {"predictions", "explanations"}
    assert [len(told[key]) for key in told] == [2, 2]
    assert "importance_scores" in told["explanations"][0]


def test_the_server_may_pin_whose_answers_it_gives() -> None:
    """By its setting."""
    for dialect, keys in (("auto", {"predictions", "outputs"}), ("tfs", {"outputs"}), ("kserve", {"predictions"})):
        app = make(V1_DIALECT=dialect)
        _, _, body = ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"inputs": [1.0]}')
        assert set(json.loads(body)) == keys
        app.close()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/anything"])
def test_the_site_can_be_turned_off(path: str) -> None:
    """Every path outside the protocols is then unknown."""
    app = make(SITE="false")
    status, headers, body = ask(app, "GET", path)
    assert (status, headers["content-type"]) == (404, "application/json")
    assert path in json.loads(body)["error"]
    app.close()


def test_options_come_from_the_settings() -> None:
    """Not from anywhere else."""
    app = make(NON_FINITE="null", MAX_BODY_BYTES="7")
    assert app._options == Options(7, "null", "auto")
    app.close()


def test_a_full_queue_is_said_at_once() -> None:
    """With when to come back; what waits is done, in order of its coming."""

    async def crowd() -> tuple[list[int], ServerBusy]:
        gate, order = threading.Event(), []

        def work(number: int) -> int:
            gate.wait(10)
            order.append(number)
            return number

        running = [asyncio.ensure_future(workers.run(lambda n=n: work(n))) for n in range(3)]  # type: ignore[misc] # bound now
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="3 requests wait already") as busy:
            await workers.run(lambda: None)
        gate.set()
        assert await asyncio.gather(*running) == [0, 1, 2]
        return order, busy.value

    workers = Workers(1, 2)
    order, busy = asyncio.run(crowd())
    assert order == [0, 1, 2]
    assert busy.retry_after == 1
    workers.close()


def test_whatever_work_raises_is_raised_where_it_is_awaited() -> None:
    """And the thread goes on."""
    workers = Workers(1, 1)

    def fail() -> None:
        raise KeyError("k")

    async def run() -> Any:
        with pytest.raises(KeyError):
            await workers.run(fail)
        return await workers.run(lambda: 5)

    assert asyncio.run(run()) == 5
    workers.close()


def test_what_nobody_awaits_any_more_is_not_begun_and_not_missed() -> None:
    """Cancelled while waiting, cancelled while running, and a loop that is gone."""
    workers, gate, begun = Workers(1, 2), threading.Event(), []

    async def run() -> int:
        first = asyncio.ensure_future(workers.run(lambda: gate.wait(10)))
        second = asyncio.ensure_future(workers.run(lambda: begun.append(1)))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        return await workers.run(lambda: 7)

    assert asyncio.run(run()) == 7
    assert begun == []
    late = threading.Event()

    async def leave() -> None:
        asyncio.ensure_future(workers.run(lambda: late.wait(10)))  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    late.set()
    assert asyncio.run(workers.run(lambda: 8)) == 8  # type: ignore[arg-type] # a coroutine
    workers.close()


def test_threads_end_when_the_pool_is_closed() -> None:
    """Idle ones at once, busy ones with their work; closing again changes nothing."""
    workers, gate = Workers(2, 1), threading.Event()
    threads = list(workers._idle)

    async def leave() -> None:
        asyncio.ensure_future(workers.run(lambda: gate.wait(10)))  # noqa: RUF006 - abandoned on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    workers.close()
    gate.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    workers.close()


def test_an_idle_thread_keeps_nothing_alive() -> None:
    """A request's tensors go with its answer."""

    class Large:
        pass

    workers = Workers(1, 1)
    made = Large()
    seen = weakref.ref(made)

    async def run(held: list[Large]) -> None:
        await workers.run(lambda: held.pop() and None)

    asyncio.run(run([made]))
    del made
    gc.collect()
    assert seen() is None
    workers.close()


def test_importing_asgi_configures_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `uvicorn handler.asgi:app` does."""
    monkeypatch.setenv("DRAGOMAN_NAME", "mine")
    app = asgi.create()
    assert app.settings.name == "mine"
    app.close()


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[Any]]:
    """The exit code and what uvicorn was told; uvicorn itself runs in tests/conformance."""
    served: list[Any] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **options: served.append((app, options)))
    return cli.main(arguments), served


def test_the_command_serves_what_its_flags_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints commands to try."""
    for variable in ("DRAGOMAN_REPOSITORY", "DRAGOMAN_PRELOAD", "DRAGOMAN_LOG_LEVEL", "DRAGOMAN_ALLOW_CODE"):
        monkeypatch.setenv(variable, "")  # put back afterwards, whatever the command sets
    monkeypatch.setattr(asgi, "app", make(ROOT / "models"))
    flags = ("--repository", str(ROOT / "models"), "--preload", "iris", "--allow-code", "--log-level", "warning")
    code, served = run_cli(monkeypatch, "serve", "--port", "9", *flags)
    assert code == 0
    assert served[0][1]["port"] == 9
    assert served[0][1]["log_level"] == "warning"
    printed = capsys.readouterr().out
    assert "http://127.0.0.1:9: half_plus_three, iris, strings" in printed
    assert "curl -d" in printed
    asgi.app.close()


def test_the_command_says_what_is_wrong_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong settings, no uvicorn, a repository that is not there."""
    monkeypatch.setenv("DRAGOMAN_THREADS", "many")
    assert run_cli(monkeypatch, "serve")[0] == 2
    assert "DRAGOMAN_THREADS is 'many'" in capsys.readouterr().err
    monkeypatch.delenv("DRAGOMAN_THREADS")
    monkeypatch.setattr(asgi, "app", make(ROOT / "nowhere"))
    assert run_cli(monkeypatch, "serve")[0] == 0
    captured = capsys.readouterr()
    assert "the repository does not answer yet" in captured.err
    assert "no model yet" in captured.out
    asgi.app.close()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["serve"]) == 2
    assert "pip install 'dragoman[server]'" in capsys.readouterr().err


def imported(statement: str) -> set[str]:
    """The modules that a new interpreter has after a statement."""
    script = f"{statement}\nimport sys; print(*sys.modules, sep='\\n')"
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "AWS_LAMBDA_FUNCTION_NAME": "f", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


HEAVY = {
    "core.dialects.v1.verbs",
    "core.explanation",
    "numpy.random",
    "boto3",
    "botocore",
    "fastapi",
    "google.protobuf",
    "grpc",
    "onnxruntime",
    "pydantic",
    "simdjson",
    "starlette",
    "uvicorn",
}
HEALTH = """
from handler.aws import lambda_handler
event = {"version": "2.0", "headers": {}, "requestContext": {"http": {"method": "GET", "path": "PATH", "sourceIp": ""}}}
assert lambda_handler(event, None)["statusCode"] == 200
"""


def test_a_cold_start_imports_only_what_it_needs() -> None:
    """Start-up and health, without the frameworks, the store's client, the runtimes: INIT is billed."""
    loaded = imported(HEALTH.replace("PATH", "/v2/health/live"))
    assert not loaded & HEAVY
    assert not loaded & {"asyncio.tasks", "numpy"} ^ {"asyncio.tasks", "numpy"}
    assert not loaded & {
        "handler.site.pages",
        "handler.stores.s3.store",
        "handler.backends.onnx",
        "tempfile",
        "importlib.metadata",
    }


def test_what_no_protocol_knows_imports_the_site() -> None:
    """Then, and not before."""
    assert imported(HEALTH.replace("PATH", "/docs")) >= {"fastapi", "handler.site.pages"}


def test_opening_a_bucket_imports_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question to it does."""
    script = "from handler.settings import *; from handler.stores import *\n"
    script += "open_store(Settings.from_env({'DRAGOMAN_REPOSITORY': 's3://b'}))"
    assert not imported(script) & HEAVY


def test_logging_is_the_servers_own_business() -> None:
    """No handler is added by importing the application."""
    assert not logging.getLogger("handler").handlers
