"""handler.edge.observe.aside: a function's answer leaves in time, whatever those do who get its payloads and spans."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from handler.edge.observe.aside import Aside
from handler.edge.observe.payloads import outbox
from handler.edge.observe.payloads.events import CloudEvent
from handler.edge.observe.traces.provider import Gathered
from tests.handler.calling import context, infer
from tests.handler.edge.observe.test_access import function
from tests.protocols.test_waiting import until
from tests.support import web


@pytest.mark.parametrize("what", ["payloads", "spans"])
def test_an_answer_does_not_wait_for_a_receiver_that_answers_bit_by_bit(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece comes in time, and the whole never does. The answer leaves before the function's time ends."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    came, left = threading.Event(), threading.Event()

    class Handler(web.Handler):
        def do_POST(self) -> None:
            self.body()
            came.set()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\nx: ")
            while not left.wait(0.05):
                self.wfile.write(b"y")
            self.wfile.write(b"\r\n\r\n")
            self.close_connection = True

    with web.serving(Handler) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        settings = {"DRAGOMAN_PAYLOAD_LOG": server.url} if what == "payloads" else {"DRAGOMAN_TRACES": "otlp"}
        with closing(function(DRAGOMAN_PRELOAD="half_plus_three", **settings)) as made:
            for _ in range(2):
                assert made(infer(), context(0.5))["statusCode"]
                assert came.wait(60)
            left.set()
            until(lambda: not any(thread.name == "dragoman-limited" for thread in threading.enumerate()))


def test_late_work_goes_on_and_no_other_begins_beside_it() -> None:
    """A connection is used by one thread at a time."""
    aside, may, begun = Aside(60), threading.Event(), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        assert may.wait(60)
        return number

    with pytest.raises(TimeoutError, match="too long"):
        aside.run(lambda: work(1), time.monotonic())
    with pytest.raises(TimeoutError, match="earlier"):
        aside.run(lambda: work(2), math.inf)
    may.set()
    found: list[int] = []

    def is_free() -> bool:
        with suppress(TimeoutError):
            found.append(aside.run(lambda: work(3), math.inf))
        return bool(found)

    until(is_free)
    assert (begun, found) == ([1, 3], [3])


def test_work_that_fails_leaves_room_for_the_next() -> None:
    """Its error is the caller's."""
    aside = Aside(60)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            aside.run(lambda: 1 / 0, math.inf)


@pytest.mark.parametrize("what", ["payloads", "spans"])
def test_an_answer_does_not_wait_longer_for_another_ones_work(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several answers of an instance can leave at once. What one of them cannot wait for, the next one takes along."""
    monkeypatch.setattr(outbox, "LAMBDA_SECONDS", 60)
    entered, may, sent = threading.Event(), threading.Event(), list[Any]()

    def take(work: list[Any]) -> Any:
        entered.set()
        assert may.wait(60)
        sent.extend(work)
        return () if what == "payloads" else SimpleNamespace(name="SUCCESS")

    if what == "payloads":
        events = outbox.Outbox(SimpleNamespace(pause=0.0, write=take), 100_000, {}, freezes=True)

        def end(number: int, until: float) -> None:
            events.put([CloudEvent({"id": f"{number}"}, "", "", b"")], until)
    else:
        gathered = Gathered(SimpleNamespace(export=take), 60)

        def end(number: int, until: float) -> None:
            context = SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))
            gathered.on_end(SimpleNamespace(context=context, number=number))
            gathered.flush(until)

    with ThreadPoolExecutor(1) as first:
        waiting = first.submit(end, 1, math.inf)
        assert entered.wait(60)
        end(2, time.monotonic())
        assert sent == []
        may.set()
        waiting.result(60)
    end(3, math.inf)
    assert len(sent) == 3


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process has as many threads as it may have. A limit of the system would also stop the test's own."""

    def start(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        yield


def test_a_thread_that_cannot_start_leaves_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has too many threads for a moment sends later."""
    aside = Aside(60)
    for _ in range(2):
        with no_threads(monkeypatch), pytest.raises(RuntimeError, match="new thread"):
            aside.run(lambda: 1, math.inf)
    assert aside.run(lambda: 1, math.inf) == 1


def test_an_exporter_that_fails_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's exporter lets errors through that it does not expect, such as that of an unusable proxy."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")

    def export(*_: Any) -> None:
        raise ValueError("odd\nproxy")

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    with closing(function(DRAGOMAN_TRACES="otlp")) as made:
        assert made(infer(), context(60))["statusCode"] == 200
    assert "the exporter of spans failed: ValueError: odd\\nproxy" in caplog.messages
