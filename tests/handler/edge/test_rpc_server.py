"""handler.edge.rpc: how a gRPC server starts and ends."""

from __future__ import annotations

import asyncio
import http.client
import os
import queue
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import grpc

from handler.edge import rpc
from tests.handler.edge.beside import served
from tests.handler.edge.client import ROOT
from tests.handler.edge.test_rpc import wait_until
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from grpc import aio

    from handler.edge.app import App


def lifespan(app: Any) -> list[dict[str, Any]]:
    """Returns what an application reports to a server that starts and ends at once."""
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
    """A second start can listen on the same port."""
    beside = rpc.Beside(app, f"127.0.0.1:{free_port()}")
    for _ in range(2):
        said = lifespan(beside)
        assert [message["type"] for message in said] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_port_in_use_fails_the_start(app: App) -> None:
    """A second server on the port would take half of the calls."""

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


def test_other_scopes_than_lifespan_pass_through_unchanged() -> None:
    """The application gets the same scope, receive and send."""
    seen = []

    async def inner(*call: Any) -> None:
        seen.append(call)

    asyncio.run(rpc.Beside(inner, "nowhere")({"type": "http"}, 1, 2))  # type: ignore[arg-type] # stands for an App
    assert seen == [({"type": "http"}, 1, 2)]


def test_a_server_ends_while_clients_watch(tmp_path: Path) -> None:
    """SIGTERM ends the process although watches have no end of their own. Their clients and the log learn why."""
    port, rpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "handler.cli", "serve", "--port", str(port), "--grpc-port", str(rpc_port)]
    environ = {**os.environ, "DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SHUTDOWN_TIMEOUT": "1"}
    log, bodies = tmp_path / "log", queue.SimpleQueue[bytes | None]()
    bodies.put(b"\xff")
    with log.open("wb") as written:
        server = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=written)
    try:
        watch = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wait_until(lambda: _connects(watch))
        watch.request("POST", "/grpc.health.v1.Health/Watch", bytes(5), {"content-type": "application/connect+proto"})
        answer = watch.getresponse()
        assert answer.read(7) == b"\0\0\0\0\2\x08\1"
        with grpc.insecure_channel(f"127.0.0.1:{rpc_port}") as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            assert next(stream(iter(bodies.get, None)))
            server.send_signal(signal.SIGTERM)
            assert b'"code":"unavailable"' in answer.read()
            server.wait(60)
        watch.close()
    finally:
        bodies.put(None)
        server.kill()
        server.wait()
    lines = log.read_text()
    assert "Traceback" not in lines
    assert "POST /grpc.health.v1.Health/Watch 200" in lines
    assert "gRPC /inference.GRPCInferenceService/ModelStreamInfer" in lines


def _connects(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    return True


def test_neither_grpc_nor_protobuf_is_imported_for_rest() -> None:
    """The command, the application and an inference over REST import neither."""
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
