"""handler.edge.calls.connect: the limits of size, of work and of time, and what a refused call leaves in memory."""

import asyncio
import base64
import gc
import gzip
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.schema import open_inference as oip
from handler.edge.app import App
from tests.handler.edge.calls.connect.client import BODY, TEXT, Answer, call, exchange, settings, untext, until
from tests.support.connect_client import GRPS, OIP, PROTO, STREAM, WEB, envelope
from tests.support.remote import question, typed


class Content(bytearray):
    """A bytearray that a weak reference can watch."""


@pytest.mark.parametrize("content_type", [PROTO, WEB, STREAM])
def test_a_refused_body_is_let_go_at_once(app: App, content_type: str) -> None:
    """A refused body is freed without the cyclic collector."""
    content = Content(b"\0\0\0\0\3abc")
    bodies, body = [memoryview(content)], weakref.ref(content)
    del content
    path, refused = (GRPS, "PredictStreaming") if content_type == STREAM else (OIP, "ModelInfer")
    stays, sent = asyncio.Event(), []

    async def receive() -> Any:
        if not bodies:
            await stays.wait()
        return {"type": "http.request", "body": bodies.pop()}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        headers = [(b"content-type", content_type.encode())]
        await app({"type": "http", "method": "POST", "path": f"/{path}/{refused}", "headers": headers}, receive, send)
        await asyncio.wait_for(until(lambda: body() is None), 30)

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
    assert sent


def test_reading_text_is_work_that_is_bounded(repository: Path) -> None:
    """A large body in base64 waits for a thread, or is turned away."""
    app = App(settings(repository, DRAGOMAN_THREADS="1", DRAGOMAN_QUEUE="1"))
    hold = threading.Event()
    text = base64.b64encode(envelope(b"\x7a\xff\xff\x7f" + bytes(2**21 - 1)))

    async def main() -> tuple[Answer, Answer]:
        workers: Any = app.dispatcher._workers  # type: ignore[union-attr] # of Threads
        busy = asyncio.gather(workers.run(hold.wait), workers.run(hold.wait))
        await asyncio.sleep(0)
        turned_away = await exchange(app, f"/{OIP}/ServerLive", TEXT, text)
        hold.set()
        await busy
        return turned_away, await exchange(app, f"/{OIP}/ServerLive", TEXT, text)

    turned_away, answered = asyncio.run(asyncio.wait_for(main(), 60))
    assert turned_away._replace(body=untext(turned_away.body)).trailers["grpc-status"] == "14"
    assert answered._replace(body=untext(answered.body)).trailers == {"grpc-status": "0"}
    app.close()


def test_what_is_too_large_is_refused_in_every_form(repository: Path) -> None:
    """An announced size, a sent one, an inflated one and an envelope's count alike."""
    app = App(settings(repository, DRAGOMAN_MAX_BODY_BYTES="100"))
    big = gzip.compress(bytes(1000))
    for answer in (
        call(app, "ModelInfer", PROTO, bytes(101)),
        call(app, "ModelInfer", PROTO, b"", content_length="101"),
        call(app, "ModelInfer", PROTO, big, content_encoding="gzip"),
    ):
        assert answer.error[:2] == (429, "resource_exhausted")
    for body, more in ((bytes(101), {}), (envelope(big, flags=1), {"grpc_encoding": "gzip"}), (b"\0\0\0\0\x65", {})):
        assert call(app, "ModelInfer", WEB, body, **more).trailers["grpc-status"] == "8"
    answer = call(app, "ModelStreamInfer", STREAM, b"\0\0\0\0\x65")
    assert answer.end["error"]["code"] == "resource_exhausted"
    app.close()


def test_text_that_is_no_base64_is_refused(app: App) -> None:
    """The refusal is in base64."""
    answer = call(app, "ModelInfer", TEXT, b"!")
    assert answer._replace(body=base64.b64decode(answer.body)).trailers["grpc-status"] == "3"


@pytest.mark.parametrize("content_type", [PROTO, WEB])
def test_a_deadline_is_kept_while_a_model_is_being_loaded(app: App, repository: Path, content_type: str) -> None:
    """The refusal comes before the deadline, and the load goes on for later requests."""
    body = question("late", typed("x", "INT32", np.array([1], np.int32))).SerializeToString()
    if content_type == PROTO:
        answer = call(app, "ModelInfer", PROTO, body, connect_timeout_ms="1000")
        status, code, text = answer.error
        assert (status, code) == (503, "unavailable")
    else:
        answer = call(app, "ModelInfer", WEB, envelope(body), grpc_timeout="1S")
        assert answer.trailers["grpc-status"] == "14"
        text = answer.trailers["grpc-message"]
    assert "model 'late' has been loading" in text
    (repository / "late" / "1" / "gate").touch()
    answer = call(app, "ModelInfer", PROTO, body, connect_timeout_ms="60000")
    assert list(oip.ModelInferResponse.FromString(answer.body).outputs[0].contents.int_contents) == [1]
    assert (repository / "late" / "1" / "loads").read_text() == "x"


@pytest.mark.parametrize(("method", "content_type", "limits", "told"), [
    ("ModelInfer", PROTO, {"connect_timeout_ms": "0"}, "0"), ("ServerLive", PROTO, {"connect_timeout_ms": "0"}, "0"),
    ("ModelInfer", WEB, {"grpc_timeout": "0S"}, "0"), ("ServerLive", WEB, {"grpc_timeout": "1n"}, "1e-06"),
    ("ModelStreamInfer", STREAM, {"connect_timeout_ms": "0"}, "0"),
])  # fmt: skip
def test_a_deadline_that_has_passed_ends_a_call_before_its_work(
    repository: Path, method: str, content_type: str, limits: dict[str, str], told: str
) -> None:
    """It does so whether the model is loaded or not, and where the answer would be there at once."""
    app = App(settings(repository))
    message = b"" if method == "ServerLive" else BODY
    for _ in range(2):
        answer = call(app, method, content_type, message if content_type == PROTO else envelope(message), **limits)
        text = f"no answer within {told} ms"
        if content_type == PROTO:
            assert answer.error == (504, "deadline_exceeded", text)
        elif content_type == WEB:
            assert answer.trailers == {"grpc-status": "4", "grpc-message": text}
        else:
            assert answer.end["error"] == {"code": "deadline_exceeded", "message": text}
            assert len(answer.envelopes) == 1
        call(app, "ModelInfer", PROTO, BODY)
    app.close()


@pytest.mark.parametrize("content_type", [PROTO, WEB])
def test_a_deadline_ends_a_call_that_waits_for_a_thread(repository: Path, content_type: str) -> None:
    """The refusal names the deadline in milliseconds."""
    app = App(settings(repository, DRAGOMAN_THREADS="1"))
    hold = threading.Event()

    async def main() -> Answer:
        workers: Any = app.dispatcher._workers  # type: ignore[union-attr] # of Threads
        busy = asyncio.ensure_future(workers.run(hold.wait))
        await asyncio.sleep(0)
        limits = {"connect_timeout_ms": "50", "grpc_timeout": "50m"}
        body = BODY if content_type == PROTO else envelope(BODY)
        answer = await exchange(app, f"/{OIP}/ModelInfer", content_type, body, **limits)
        hold.set()
        await busy
        return answer

    answer = asyncio.run(asyncio.wait_for(main(), 60))
    if content_type == PROTO:
        assert answer.error == (504, "deadline_exceeded", "no answer within 50 ms")
    else:
        assert answer.trailers == {"grpc-status": "4", "grpc-message": "no answer within 50 ms"}
    app.close()
