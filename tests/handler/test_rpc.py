"""handler.edge.rpc, rpc_jobs, and gRPC on the command line: the edge in this process."""

from __future__ import annotations

import asyncio
import gc
import http.client
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
import uvicorn
from google.protobuf import json_format
from grpc import aio

from core.dialects.grps import messages as grps_messages
from core.dialects.rpcs import RPCS
from core.errors import InvalidInput, ModelFailed, ServingError
from core.operations import ModelRef
from core.schema import grps, health, reflection
from core.schema import open_inference as oip
from handler import cli
from handler.edge import rpc, streams
from handler.edge.app import App
from handler.edge.rpc_jobs import QUICKLY_READ, RpcJob
from handler.lifecycle.registry import Pending, Registry
from handler.lifecycle.versions import QUICK_RUNS
from handler.settings import Settings
from tests.support.ports import free_port
from tests.support.remote import question, raw, tensors, typed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from core import operations as ops

ROOT = Path(__file__).parents[2]
METHODS = {method.rpc.name: method for method in reversed(RPCS)}
INFER, STREAM = METHODS["ModelInfer"], METHODS["ModelStreamInfer"]
X = np.array([1, 2.5], np.float32)
MESSAGE = question("half_plus_three", raw("x", "FP32", X), id="1")
BODY = MESSAGE.SerializeToString()
SERVING, NOT_SERVING = 1, 2


@pytest.fixture
def app() -> Iterator[App]:
    """The sample models."""
    made = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}))
    yield made
    made.close()


def served(app: App, work: Callable[[aio.Channel, rpc.RpcServer], Awaitable[Any]]) -> Any:
    """What the work finds on a server of the application."""

    async def main() -> Any:
        address = f"127.0.0.1:{free_port()}"
        server = rpc.RpcServer(app, address)
        await server.start()
        try:
            async with aio.insecure_channel(address) as channel:
                return await work(channel, server)
        finally:
            await server.stop()

    return asyncio.run(asyncio.wait_for(main(), 60))


def ask(method: str, body: bytes, service: str = "inference.GRPCInferenceService") -> Any:
    """Work that makes one call."""

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        call: Any = channel.unary_unary(f"/{service}/{method}")
        return await call(body)

    return work


def test_a_call_is_answered_by_the_models_of_the_application(app: App) -> None:
    """Raw and typed, first while the model is being loaded and then loaded."""
    message = question("half_plus_three", typed("x", "FP32", X))
    for body in (BODY, message.SerializeToString()):
        answer = oip.ModelInferResponse.FromString(served(app, ask("ModelInfer", body)))
        assert tensors(answer)["y"].tolist() == [3.5, 4.25]
    assert app.registry.readiness(ModelRef("half_plus_three")).ready


def test_a_load_is_answered_when_it_is_done(app: App) -> None:
    """Its result is that of the call."""
    body = oip.RepositoryModelLoadRequest(model_name="half_plus_three").SerializeToString()
    assert served(app, ask("RepositoryModelLoad", body)) == b""
    assert app.registry.readiness(ModelRef("half_plus_three")).ready


def refused(app: App, method: str, body: bytes) -> aio.AioRpcError:
    """The error of a call."""
    with pytest.raises(aio.AioRpcError) as error:
        served(app, ask(method, body))
    return error.value


def test_a_refusal_has_a_code_and_one_line(app: App) -> None:
    """Of the fault's own name."""
    error = refused(app, "ModelInfer", b"\x0a")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the 1 bytes of the request are not a ModelInferRequest"


def test_a_text_that_no_client_could_receive_is_cut(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between characters; percent-encoded it is three times as long."""

    def fail(_: Registry) -> Any:
        raise ModelFailed("日" * 100_000, retry_after=0.1)

    monkeypatch.setattr(Registry, "server", fail)
    error = refused(app, "ServerMetadata", b"")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "日" * (rpc.LONGEST_DETAILS // 3)
    assert ("retry-after", "1") in list(error.trailing_metadata() or ())


def test_what_nobody_expected_is_logged_and_told_without_its_words(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As an error, and in a stream as an answer."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Registry, "use", fail)
    error = refused(app, "ModelInfer", BODY)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INTERNAL,
        "internal error: the server's log has the details",
    )
    assert "a secret" in caplog.text

    async def stream(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        exchange: Any = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        return [oip.ModelStreamInferResponse.FromString(answer) async for answer in exchange(iter([BODY]))]

    (answer,) = served(app, stream)
    assert answer.error_message == "internal error: the server's log has the details"
    assert answer.infer_response.id == "1"


class Aborted(Exception):
    """As grpc raises, and keeps."""


class Ends:
    """The context of a call that nobody has made."""

    def __init__(self) -> None:
        self.kept: list[Aborted] = []

    def time_remaining(self) -> None:
        """No deadline."""

    def set_trailing_metadata(self, _: Any) -> None:
        """Nobody reads it."""

    def trailing_metadata(self) -> tuple[()]:
        """As before any is set."""
        return ()

    async def abort(self, code: grpc.StatusCode, details: str, _: Any) -> None:
        """With an error that outlives the call."""
        self.kept.append(Aborted(code, details))
        raise self.kept[-1]


@pytest.mark.parametrize(
    ("behaviour", "method"),
    [
        ("unary", "ModelInfer"),
        ("each", "PredictStreaming"),
        ("watch", "Watch"),
        ("exchange", "ModelStreamInfer"),
        ("reflect", "Check"),
    ],
)
def test_a_refused_message_is_let_go_at_once(app: App, behaviour: str, method: str) -> None:
    """Though grpc keeps what ends a call, and with it every frame on its way, until the cyclic collector runs."""
    called = METHODS[method]._replace(rpc=METHODS[method].rpc._replace(instead=None))
    bodies = [memoryview(b"\xff" * 100)]
    body = weakref.ref(bodies[0])
    context: Any = Ends()
    server: Any = None

    async def sent() -> AsyncIterator[memoryview]:
        yield bodies.pop()

    def answers() -> Any:
        if behaviour == "unary":
            return server._unary(called, bodies.pop(), context)
        if behaviour == "reflect":
            return anext(server._reflect(sent(), context))
        if behaviour == "exchange":
            return anext(server._exchange(called, sent(), context))
        return anext(server._many(getattr(server, f"_{behaviour}"), called, bodies.pop(), context))

    async def main() -> None:
        nonlocal server
        server = rpc.RpcServer(app, "127.0.0.1:0")
        await answers()

    gc.disable()
    try:
        with pytest.raises(Aborted, match="INVALID_ARGUMENT"):
            asyncio.run(main())
        wait_until(lambda: body() is None)
    finally:
        gc.enable()
    assert len(context.kept) == 1


def wait_until(condition: Callable[[], bool]) -> None:
    """For what another thread is about to do."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_reflection_answers_and_refuses_what_asks_nothing(app: App) -> None:
    """The stream ends with what cannot be read."""

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        exchange: Any = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        request = reflection.ServerReflectionRequest(list_services="").SerializeToString()
        call = exchange(iter([request, b"\x1a\xff"]))
        first = reflection.ServerReflectionResponse.FromString(await call.read())
        with pytest.raises(aio.AioRpcError, match="ServerReflectionRequest"):
            await call.read()
        return [service.name for service in first.list_services_response.service]

    assert served(app, work) == list(rpc.SERVICES)


def test_who_watches_is_told_of_a_change_and_let_go_at_the_end(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said twice."""
    monkeypatch.setattr(rpc, "WATCH_SECONDS", 0.01)
    thrice, looks = asyncio.Event(), 0
    ready = app.registry.readiness

    def counted(ref: ModelRef) -> ops.Readiness:
        nonlocal looks
        looks += 1
        if looks == 3:
            loop.call_soon_threadsafe(thrice.set)
        return ready(ref)

    loop: Any = None
    monkeypatch.setattr(app.registry, "readiness", counted)

    async def work(channel: aio.Channel, server: rpc.RpcServer) -> list[int]:
        nonlocal loop
        loop = asyncio.get_running_loop()
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        call = watch(health.HealthCheckRequest(service="half_plus_three").SerializeToString())
        found = [health.HealthCheckResponse.FromString(await call.read()).status]
        await thrice.wait()
        await ask("ModelInfer", BODY)(channel, server)
        found.append(health.HealthCheckResponse.FromString(await call.read()).status)
        await server.stop()
        assert await call.read() is aio.EOF
        return found

    assert served(app, work) == [NOT_SERVING, SERVING]


def lifespan(app: Any) -> list[dict[str, Any]]:
    """What an application says to a server that starts and ends at once."""
    said: list[dict[str, Any]] = []

    async def main() -> None:
        inbox = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> dict[str, Any]:
            return inbox.pop(0)

        async def send(message: Any) -> None:
            said.append(message)

        await app({"type": "lifespan"}, receive, send)

    asyncio.run(asyncio.wait_for(main(), 60))
    return said


def test_grpc_starts_and_ends_with_the_application(app: App) -> None:
    """The port is free again afterwards."""
    beside = rpc.Beside(app, f"127.0.0.1:{free_port()}")
    for _ in range(2):
        said = lifespan(beside)
        assert [message["type"] for message in said] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_port_that_is_taken_is_said_at_the_start(app: App) -> None:
    """Another server on it would take half of the calls."""

    async def work(_: aio.Channel, server: rpc.RpcServer) -> Any:
        said = []

        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            said.append(message)

        await rpc.Beside(app, server.address)({"type": "lifespan"}, receive, send)
        return said[0]

    failed = served(app, work)
    assert failed["type"] == "lifespan.startup.failed"
    assert failed["message"].startswith("no gRPC on 127.0.0.1:")


def test_what_is_no_lifespan_goes_to_the_application_as_it_is() -> None:
    """HTTP has nothing to do with it."""
    seen = []

    async def inner(*call: Any) -> None:
        seen.append(call)

    asyncio.run(rpc.Beside(inner, "nowhere")({"type": "http"}, 1, 2))  # type: ignore[arg-type] # stands for an App
    assert seen == [({"type": "http"}, 1, 2)]


def test_the_command_serves_grpc_beside_http(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same process, on an address of its own; the welcome says which."""
    runs: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: runs.append((app, options)))
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    assert cli.main(["serve", "--grpc-port", "9000"]) == 0
    assert cli.main(["serve", "--host", "::1", "--grpc-port", "9000"]) == 0
    assert cli.main(["serve"]) == 0
    (first, options), (second, _), (third, _) = runs
    assert options["timeout_graceful_shutdown"] == streams.GRACE_SECONDS
    assert isinstance(first, rpc.Beside)
    assert isinstance(second, rpc.Beside)
    assert isinstance(third, App)
    out = capsys.readouterr().out
    assert "gRPC on 127.0.0.1:9000" in out
    assert "gRPC on [::1]:9000" in out
    assert out.count("gRPC on") == 2


def test_the_command_without_grpc_installed_says_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And serves nothing."""
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["serve", "--grpc-port", "9000"]) == 2
    assert "pip install 'dragoman[grpc]'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_the_command_refuses_what_is_no_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, port: int
) -> None:
    """Of 99999 gRPC would listen on 34463."""
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["serve", flag, str(port)]) == 2
    assert capsys.readouterr().err == f"dragoman: {flag} is {port}; expected 1 to 65535\n"


def test_a_server_ends_though_somebody_watches() -> None:
    """Over HTTP a watch has no end of its own."""
    port = free_port()
    imports = "from handler import cli\nfrom handler.edge import streams"
    script = f"{imports}\nstreams.GRACE_SECONDS = 1\ncli.main(['serve', '--port', '{port}'])"
    environ = {**os.environ, "DRAGOMAN_REPOSITORY": str(ROOT / "models")}
    server = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environ, stderr=subprocess.DEVNULL)
    try:
        watch = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wait_until(lambda: _connects(watch))
        watch.request("POST", "/grpc.health.v1.Health/Watch", bytes(5), {"content-type": "application/connect+proto"})
        assert watch.getresponse().read(7) == b"\0\0\0\0\2\x08\1"
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        watch.close()
    finally:
        server.kill()
        server.wait()


def _connects(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    return True


def test_neither_grpc_nor_protobuf_is_imported_by_who_does_without() -> None:
    """Not by the command, the application, or an inference over REST."""
    script = """
import asyncio, sys
from handler import asgi, cli
body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'
sent = []
async def receive(): return {"type": "http.request", "body": body}
async def send(message): sent.append(message)
scope = {"type": "http", "method": "POST", "path": "/v2/models/half_plus_three/infer", "headers": []}
asyncio.run(asgi.app(scope, receive, send))
assert sent[0]["status"] == 200, sent
print([name for name in sys.modules if name.split(".")[0] in ("grpc", "google") or "rpc" in name.split(".")[-1]])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = [name for name in done.stdout.strip("[]\n").split(", ") if "xmlrpc" not in name and name]
    assert imported == []


def settle(registry: Registry, job: RpcJob) -> bytes:
    """The answer, however often the job has to wait."""
    while True:
        try:
            return job.run()
        except Pending as pending:
            pending.future.result(30)


def test_a_job_is_quick_once_its_model_is_and_its_message_is_not_too_large_to_be_read_first(app: App) -> None:
    """A method without a model never is."""
    registry = app.registry
    assert not RpcJob(registry, INFER, BODY).is_quick()
    while not RpcJob(registry, INFER, BODY).is_quick():
        for _ in range(QUICK_RUNS):
            settle(registry, RpcJob(registry, INFER, BODY))
    assert RpcJob(registry, STREAM, BODY).is_quick()
    assert not RpcJob(registry, METHODS["ServerReady"], b"").is_quick()
    assert not RpcJob(registry, INFER, bytes(QUICKLY_READ + 1)).is_quick()


def test_no_tensor_is_made_before_it_is_known_which_thread_its_model_runs_in(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of 1 MB may have a hundred thousand of them, whoever answers it."""
    monkeypatch.setattr(grps_messages, "_tensor", lambda *_: pytest.fail("made"))
    tensors = grps.GenericTensorData(tensors=[grps.GenericTensor(dtype="DT_INT32", shape=[0])] * 1000)
    for model in ("half_plus_three", "nobody"):
        body = grps.GrpsMessage(model=model, gtensors=tensors).SerializeToString()
        job = RpcJob(app.registry, METHODS["Predict"], body)
        assert not job.is_quick()
        with pytest.raises(ServingError, match="1000 tensors are 1000 inputs" if model != "nobody" else "nobody"):
            settle(app.registry, job)


def test_a_job_has_nothing_to_phrase_before_it_was_run(app: App) -> None:
    """That would be a mistake in this project."""
    with pytest.raises(AssertionError):
        RpcJob(app.registry, INFER, BODY).phrase(None)


def test_a_job_tells_what_its_method_answers_in_place_of_an_error(app: App) -> None:
    """Or that it is an error."""
    error = InvalidInput("no")
    assert RpcJob(app.registry, INFER, BODY).instead(error) is None
    assert RpcJob(app.registry, METHODS["ModelReady"], b"").instead(error) is None
    told = RpcJob(app.registry, STREAM, BODY).instead(error)
    assert told is not None
    assert oip.ModelStreamInferResponse.FromString(told).error_message == "no"


@pytest.mark.parametrize("model", ["nobody", "half_plus_three"])
@pytest.mark.parametrize("json", [True, False], ids=["json", "proto"])
def test_what_is_told_in_place_of_an_error_has_the_requests_id(app: App, model: str, json: bool) -> None:  # noqa: FBT001 - both ways
    """Of a model that is not there, and of tensors that it does not take."""
    message = question(model, typed("x", "FP32", X), id="7")
    message.inputs[0].shape[0] = 3
    body = json_format.MessageToJson(message).encode() if json else message.SerializeToString()
    job = RpcJob(app.registry, STREAM, body, json=json)
    with pytest.raises(ServingError) as error:
        settle(app.registry, job)
    told = job.instead(error.value)
    assert told is not None
    answer = oip.ModelStreamInferResponse()
    json_format.Parse(told, answer) if json else answer.MergeFromString(told)
    assert (answer.infer_response.id, answer.error_message) == ("7", error.value.message)
