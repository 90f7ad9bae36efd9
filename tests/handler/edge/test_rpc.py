"""handler.edge.rpc: the gRPC edge in this process."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from contextlib import closing
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import grpc
import numpy as np
import pytest
from grpc import aio

from core import operations as ops
from core.bounds import LONGEST_CALL
from core.dialects.connect import ends
from core.dialects.rpcs import RPCS
from core.errors import ModelFailed
from core.operations import ModelRef
from core.schema import health, reflection
from core.schema import open_inference as oip
from handler.edge import rpc
from handler.edge.flight import SMALL, WEIGHT
from handler.edge.gate.gate import AccessGate
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from tests.handler.edge.beside import served
from tests.handler.edge.client import ROOT, make
from tests.support.remote import question, raw, tensors, typed
from tests.support.zoo.python import ENDLESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from core.ports import Context
    from handler.edge.app import App

METHODS = {method.rpc.name: method for method in reversed(RPCS)}
X = np.array([1, 2.5], np.float32)
MESSAGE = question("half_plus_three", raw("x", "FP32", X), id="1")
BODY = MESSAGE.SerializeToString()
KEYS = f"ci sha256:{'0' * 64} infer"
SERVING, NOT_SERVING = 1, 2


def ask(method: str, body: bytes, service: str = "inference.GRPCInferenceService") -> Any:
    """Returns the work that makes one call."""

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        call: Any = channel.unary_unary(f"/{service}/{method}")
        return await call(body)

    return work


def test_a_call_is_answered_by_the_models_of_the_application(app: App) -> None:
    """Raw and typed tensors are answered, first while the model is being loaded."""
    message = question("half_plus_three", typed("x", "FP32", X))
    for body in (BODY, message.SerializeToString()):
        answer = oip.ModelInferResponse.FromString(served(app, ask("ModelInfer", body)))
        assert tensors(answer)["y"].tolist() == [3.5, 4.25]
    assert app.registry.readiness(ModelRef("half_plus_three"), Background()).ready


@pytest.mark.parametrize(("server", "model", "is_raw"), [
    ({}, {}, False),
    ({"GRPC_OUTPUTS": "raw"}, {}, True),
    ({"GRPC_OUTPUTS": "raw"}, {"grpc_outputs": "mirror"}, False),
    ({}, {"grpc_outputs": "raw"}, True),
])  # fmt: skip
def test_outputs_are_raw_where_the_operator_says_so(
    tmp_path: Path,
    server: dict[str, str],
    model: dict[str, str],
    is_raw: bool,  # noqa: FBT001 - a column
) -> None:
    """The model's settings come first. Requests with typed contents are mirrored else."""
    (tmp_path / "half_plus_three").mkdir()
    (tmp_path / "half_plus_three" / "123").symlink_to(ROOT / "models" / "half_plus_three" / "123")
    (tmp_path / "half_plus_three" / "model-settings.json").write_text(json.dumps(model))
    app = make(tmp_path, **server)
    body = question("half_plus_three", typed("x", "FP32", X)).SerializeToString()
    answer = oip.ModelInferResponse.FromString(served(app, ask("ModelInfer", body)))
    app.close()
    assert bool(answer.raw_output_contents) is is_raw
    assert tensors(answer)["y"].tolist() == [3.5, 4.25]


def test_a_load_is_answered_when_it_is_done(app: App) -> None:
    """The model is ready when the call returns."""
    body = oip.RepositoryModelLoadRequest(model_name="half_plus_three").SerializeToString()
    assert served(app, ask("RepositoryModelLoad", body)) == b""
    assert app.registry.readiness(ModelRef("half_plus_three"), Background()).ready


def refused(app: App, method: str, body: bytes) -> aio.AioRpcError:
    """Returns the error of a call."""
    with pytest.raises(aio.AioRpcError) as error:
        served(app, ask(method, body))
    return error.value


def test_a_refusal_has_a_code_and_one_line(app: App) -> None:
    """The code is the fault's name, and the details are one line."""
    error = refused(app, "ModelInfer", b"\x0a")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the 1 bytes of the request are not a ModelInferRequest"


def test_a_text_that_no_client_could_receive_is_cut(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is cut between two characters, because clients limit the size of trailers."""

    def fail(_: Registry) -> Any:
        raise ModelFailed("日" * 100_000, retry_after=0.1)

    monkeypatch.setattr(Registry, "server", fail)
    error = refused(app, "ServerMetadata", b"")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "日" * (ends.LONGEST_DETAILS // 3)
    assert ("retry-after", "1") in list(error.trailing_metadata() or ())


def test_an_unforeseen_error_is_logged_and_answered_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call ends with INTERNAL, and a stream has an answer with the request's id."""

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


@pytest.mark.parametrize("keys", ["", KEYS], ids=["open", "with keys"])
@pytest.mark.parametrize("method", ["ServerLive", "ModelStreamInfer"])
def test_an_error_before_the_work_is_logged_and_answered_without_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, keys: str, method: str
) -> None:
    """The gate's, with and without a doorkeeper in front."""

    async def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(AccessGate, "enter", fail)
    monkeypatch.setattr(AccessGate, "looks", lambda *_: True)
    with closing(make(**({"DRAGOMAN_AUTH": "keys", "DRAGOMAN_KEYS": keys} if keys else {}))) as app:
        error = refused(app, method, BODY)
        told = "internal error: the server's log has the details"
        assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, told)
        assert app.observer.counts.refusals == {("grpc", "INTERNAL"): 1}
    assert "a secret" in caplog.text


@pytest.mark.parametrize("method", ["RepositoryIndex", "ServerReady"])
def test_the_deadline_of_a_call_ends_its_questions_to_the_store(
    app: App, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A store that hangs would otherwise hold the threads of clients that have left."""
    left: list[float] = []

    def look(_: Registry, context: Context) -> Any:
        left.append(context.deadline.left)
        return ops.Readiness(ready=True) if method == "ServerReady" else []

    monkeypatch.setattr(Registry, "index" if method == "RepositoryIndex" else "ready", look)

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> None:
        called: Any = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        await called(b"", timeout=1.5)

    served(app, work)
    assert 0 < left[0] < 1.6  # on grpc's clock


class Aborted(Exception):
    """grpc raises such an error, and keeps it."""


class Ends:
    """The context of a call without a client."""

    def __init__(self) -> None:
        self.kept: list[Aborted] = []

    def time_remaining(self) -> None:
        """Returns None: the call does not have a deadline."""

    def set_trailing_metadata(self, _: Any) -> None:
        """Ignores the metadata."""

    def trailing_metadata(self) -> tuple[()]:
        """Returns no metadata, as before any are set."""
        return ()

    async def abort(self, code: grpc.StatusCode, details: str, _: Any) -> None:
        """Raises an error that outlives the call."""
        self.kept.append(Aborted(code, details))
        raise self.kept[-1]


def test_a_call_whose_client_leaves_at_its_refusal_is_cancelled(app: App) -> None:
    """No refusal can be sent, which is not an error of the server. A stand-in, because the moment is short."""
    context: Any = Ends()
    context.abort = AsyncMock(side_effect=aio.InternalError)

    async def sent() -> AsyncIterator[bytes]:
        yield b"\xff"

    async def main() -> None:
        await rpc.RpcServer(app, "127.0.0.1:0")._unary(METHODS["ModelInfer"], sent(), context)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    context.abort.assert_awaited_once()


@pytest.mark.parametrize(
    ("behaviour", "method"),
    [
        ("unary", "ModelInfer"),
        ("each", "PredictStreaming"),
        ("watch", "Watch"),
        ("exchange", "ModelStreamInfer"),
    ],
)
def test_a_refused_message_is_let_go_at_once(app: App, behaviour: str, method: str) -> None:
    """No frame that grpc keeps holds the message after its refusal."""
    called = METHODS[method]._replace(rpc=METHODS[method].rpc._replace(instead=None))
    bodies = [memoryview(b"\xff" * 100)]
    body = weakref.ref(bodies[0])
    context: Any = Ends()
    server: Any = None

    async def sent() -> AsyncIterator[memoryview]:
        yield bodies.pop()

    async def read() -> Any:
        return bodies.pop() if bodies else aio.EOF

    context.read = read

    def answers() -> Any:
        if behaviour == "unary":
            return server._unary(called, sent(), context)
        if behaviour == "exchange":
            return anext(server._exchange(called, sent(), context))
        return anext(server._stream(getattr(server, f"_{behaviour}"), called, sent(), context))

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


def test_a_message_counts_until_its_last_answer(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that yields works with the message's tensors all the time."""

    async def answered(*_: Any) -> Any:
        return iter([b"1", b"2"])

    async def main() -> list[int]:
        server: Any = rpc.RpcServer(app, "127.0.0.1:0")
        monkeypatch.setattr(server, "_answered", answered)
        held = [app.flight.held async for _ in server._each(METHODS["PredictStreaming"], bytes(SMALL), Ends())]
        return [*held, app.flight.held]

    assert asyncio.run(main()) == [WEIGHT * SMALL, WEIGHT * SMALL, 0]


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for an action of another thread."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_reflection_lists_the_services_and_refuses_other_bytes(app: App) -> None:
    """The stream ends at a message that cannot be read."""

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        exchange: Any = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        request = reflection.ServerReflectionRequest(list_services="").SerializeToString()
        call = exchange(iter([request, b"\x1a\xff"]))
        first = reflection.ServerReflectionResponse.FromString(await call.read())
        with pytest.raises(aio.AioRpcError, match="ServerReflectionRequest"):
            await call.read()
        return [service.name for service in first.list_services_response.service]

    assert served(app, work) == [*dict.fromkeys(method.service for method in RPCS)]


def test_reflection_refuses_a_message_that_is_too_long_before_it_reads_it(app: App) -> None:
    """As every call without tensors."""

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> Any:
        exchange: Any = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        message = reflection.ServerReflectionRequest(host="h" * LONGEST_CALL).SerializeToString()
        with pytest.raises(aio.AioRpcError, match="a request without tensors has at most") as refused:
            await exchange(iter([message])).read()
        return refused.value.code()

    assert served(app, work) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_watch_answers_every_change_and_ends_with_the_server(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same state is never sent twice."""
    monkeypatch.setattr(rpc, "WATCH_SECONDS", 0.01)
    thrice, looks = asyncio.Event(), 0
    ready = app.registry.readiness

    def counted(ref: ModelRef, context: Context) -> ops.Readiness:
        nonlocal looks
        looks += 1
        if looks == 3:
            loop.call_soon_threadsafe(thrice.set)
        return ready(ref, context)

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


def test_a_client_that_leaves_its_stream_ends_all_requests_under_way(tmp_path: Path) -> None:
    """Both of two endless answers end, whichever the client was about to get."""
    folder = tmp_path / "endless" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(ENDLESS)
    notes = [{"note": oip.InferParameter(string_param=name)} for name in "ab"]
    bodies = [question("endless", id=str(n), parameters=note).SerializeToString() for n, note in enumerate(notes)]

    async def work(channel: aio.Channel, _: rpc.RpcServer) -> None:
        exchange: Any = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        call, seen = exchange(iter(bodies)), set()
        while len(seen) < 2:
            seen.add(oip.ModelStreamInferResponse.FromString(await call.read()).infer_response.id)
        call.cancel()
        await asyncio.to_thread(wait_until, lambda: all((folder / name).exists() for name in "ab"))

    app = make(tmp_path, ALLOW_CODE="true", THREADS="4")
    served(app, work)
    app.close()
