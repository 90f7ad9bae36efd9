"""handler.edge.observe.traces: the SDK's own exporter sends them to a receiver that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import aio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from core.errors import ModelFailed
from handler.edge.observe.observer import Observer
from handler.edge.observe.traces import provider
from handler.edge.observe.traces.parents import xray
from handler.lifecycle.registry import Registry
from handler.settings import InvalidSettings, Settings
from tests.handler.calling import http
from tests.handler.edge.beside import served
from tests.handler.edge.client import BODY, INFER, ROOT, ask, make
from tests.handler.edge.observe.test_access import GRPS, MESSAGE, TEXT, Context, envelope, function, lines
from tests.protocols.test_waiting import until
from tests.support import web
from tests.support.connect_client import OIP
from tests.support.otlp import Collector, attributes, collecting
from tests.support.remote import question
from tests.support.server import HOST, serve

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
STEPS = ["queue", "fetch", "load", "decode", "infer", "encode"]
CALL = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A receiver that the SDK's own variable names."""
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


def post(app: Any, path: str, body: bytes, kind: str, headers: Any) -> None:
    ask(app, "POST", path, body, headers=[(b"content-type", kind.encode()), *headers])


def over_grpc(app: Any, headers: Any) -> None:
    async def main(channel: aio.Channel, _: object) -> None:
        one: Any = channel.unary_unary(CALL)
        await one(MESSAGE, metadata=[(name.decode(), value.decode()) for name, value in headers])

    served(app, main)


ASK: dict[str, Any] = {
    "v2": lambda app, headers: post(app, INFER, BODY, "application/json", headers),
    "v1": lambda app, headers: post(
        app, "/v1/models/half_plus_three:predict", b'{"instances": [1]}', "application/json", headers
    ),
    "grps": lambda app, headers: post(app, "/grps/v1/infer/predict", GRPS, "application/json", headers),
    "connect": lambda app, headers: post(app, CALL, MESSAGE, "application/proto", headers),
    "grpc-web": lambda app, headers: post(app, CALL, envelope(MESSAGE), "application/grpc-web+proto", headers),
    "grpc": over_grpc,
}
NAMES = {
    "v2": "POST /v2/models/{model}/infer", "v1": "POST /v1/models/{model}:predict",
    "grps": "POST /grps/v1/infer/predict", **dict.fromkeys(("connect", "grpc-web", "grpc"), CALL[1:]),
}  # fmt: skip


@pytest.mark.parametrize("protocol", ASK)
def test_a_request_is_a_span_of_its_callers_trace_with_its_steps(
    protocol: str, collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cold one waits for its model; each step begins where the one before it has ended. The line has the trace."""
    with closing(make(TRACES="otlp", ACCESS_LOG="true")) as app:
        ASK[protocol](app, [])
        ASK[protocol](app, [(b"traceparent", PARENT.encode())])
        logged = lines(app, capsys)
    cold, joined = sorted(collector.roots(), key=lambda span: span.start_time_unix_nano)
    assert (joined.trace_id.hex(), joined.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])
    assert cold.trace_id != joined.trace_id
    assert [line.rpartition(" trace=")[2] for line in logged] == [cold.trace_id.hex(), joined.trace_id.hex()]
    for root, names in ((cold, STEPS), (joined, [each for each in STEPS if each not in ("fetch", "load")])):
        assert (root.name, root.kind) == (NAMES[protocol], 2)
        children = collector.children(root)
        assert [child.name for child in children] == names
        ends = [(child.start_time_unix_nano, child.end_time_unix_nano) for child in children]
        assert all(end == start for (_, end), (start, _) in pairwise(ends))
        assert root.start_time_unix_nano <= ends[0][0]
        known = {
            "dragoman.protocol": protocol,
            "dragoman.model.name": "half_plus_three",
            "dragoman.model.version": "123",
        }
        assert attributes(root) | known == attributes(root)
    assert {each["service.name"] for each in collector.resources} == {"dragoman"}


@pytest.mark.parametrize("protocol", ASK)
def test_a_failure_is_an_error_of_its_span(
    protocol: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kind of fault. A span that a client's text is in stays one line, and its name has none of it."""

    def fail(*_: Any) -> Any:
        raise ModelFailed(TEXT)

    monkeypatch.setattr(Registry, "use", fail)
    with closing(make(TRACES="otlp")) as app:
        if protocol == "grpc":
            with pytest.raises(aio.AioRpcError):
                over_grpc(app, [])
        else:
            ASK[protocol](app, [])
    (root,) = collector.roots()
    assert (root.name, root.status.code, attributes(root)["error.type"]) == (NAMES[protocol], 2, "INTERNAL")
    assert "\n" not in root.status.message


def test_a_stream_over_grpc_is_one_span(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    """In its caller's trace; so is a call that no service has, whose name is not the client's."""

    async def main(channel: aio.Channel, _: object) -> None:
        many: Any = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        assert len([each async for each in many(iter([MESSAGE] * 3), metadata=(("traceparent", PARENT),))]) == 3
        with pytest.raises(aio.AioRpcError):
            await channel.unary_unary("/odd.Service/Method")(b"")

    with closing(make(TRACES="otlp", ACCESS_LOG="true")) as app:
        served(app, main)
        logged = lines(app, capsys)
    stream, odd = sorted(collector.roots(), key=lambda span: span.start_time_unix_nano)
    assert (stream.name, odd.name) == ("inference.GRPCInferenceService/ModelStreamInfer", "grpc")
    assert stream.trace_id.hex() in logged[0]
    assert stream.trace_id.hex() == PARENT.split("-")[1]
    codes = [attributes(each)["rpc.grpc.status_code"] for each in (stream, odd)]
    assert (codes, odd.status.code) == ([0, 12], 2)
    steps = [each for each in STEPS if each not in ("fetch", "load")]
    assert [child.name for child in collector.children(stream)] == steps


SLOW = """
import time

import numpy as np

metadata = {"inputs": [], "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}

def predict(inputs, parameters):
    for n in range(3):
        time.sleep(0.002)
        yield {"y": np.array([n])}
"""
ASKED = question("slow").SerializeToString()
IN_PARTS: dict[str, Any] = {
    "v2": (INFER.replace("half_plus_three/infer", "slow/generate_stream"), b"{}", "application/json"),
    "connect": (f"/{OIP}/ModelStreamInfer", envelope(ASKED), "application/connect+proto"),
    "grpc-web": (f"/{OIP}/ModelStreamInfer", envelope(ASKED), "application/grpc-web+proto"),
}


@pytest.mark.parametrize(("protocol", "inline"), [("v2", False), *((protocol, True) for protocol in IN_PARTS)])
def test_an_answer_in_parts_has_the_steps_of_all_parts(
    protocol: str, inline: Any, collector: Collector, tmp_path: Path
) -> None:
    """`infer` is the model's time for all of them, which sleeps before each."""
    (tmp_path / "slow" / "1").mkdir(parents=True)
    (tmp_path / "slow" / "1" / "model.py").write_text(SLOW, "utf-8")
    path, body, kind = IN_PARTS[protocol]
    with closing(make(tmp_path, inline=inline, TRACES="otlp", ALLOW_CODE="true")) as app:
        post(app, path, body, kind, [])
    (root,) = collector.roots()
    spent = {each.name: each.end_time_unix_nano - each.start_time_unix_nano for each in collector.children(root)}
    assert [*spent] == STEPS
    assert spent["infer"] >= 3 * 2_000_000
    assert spent["encode"] > 0
    assert sum(spent.values()) <= root.end_time_unix_nano - root.start_time_unix_nano


@pytest.mark.parametrize("over", ["v2", "connect", "grpc"])
def test_the_members_of_tracestate_are_those_of_all_its_headers(over: str, collector: Collector) -> None:
    """They are combined in their order (W3C Trace Context 3.3)."""
    with closing(make(TRACES="otlp")) as app:
        ASK[over](app, [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1"), (b"tracestate", b"b=2,c=3")])
    (root,) = collector.roots()
    assert (root.trace_id.hex(), root.trace_state) == (PARENT.split("-")[1], "a=1,b=2,c=3")


def test_a_request_with_two_parents_begins_a_trace(collector: Collector) -> None:
    """Neither traceparent counts. Of X-Ray's header the first one does."""
    other = PARENT.replace("4bf9", "0000")
    with closing(make(TRACES="otlp")) as app:
        ASK["v2"](app, [(b"traceparent", PARENT.encode()), (b"traceparent", other.encode())])
        ASK["v2"](app, [(b"x-amzn-trace-id", XRAY.encode()), (b"x-amzn-trace-id", b"Root=1-0-0;Sampled=0")])
    first, second = collector.roots()
    assert first.parent_span_id == b""
    assert first.trace_id.hex() not in (PARENT.split("-")[1], other.split("-")[1])
    assert second.trace_id.hex() == "5759e988bd862e3fe1be46a994272793"


def test_what_no_protocol_owns_has_a_name_that_no_client_chooses(collector: Collector) -> None:
    with closing(make(TRACES="otlp", SITE="false")) as app:
        for method, path in (("GET", "/v2/models/odd\n\ud800"), ("ODD", "/v9"), ("GET", "/" + "x" * 9999)):
            ask(app, method, path)
        ask(app, "POST", "/odd.Service/Method", headers=[(b"content-type", b"application/proto")])
    found = {span.name: attributes(span) for span in collector.roots()}
    assert found.keys() == {"GET /v2/models/{model}", "HTTP", "GET", "connect"}
    assert found["HTTP"]["http.request.method"] == "_OTHER"
    assert found["HTTP"]["http.request.method_original"] == "ODD"
    assert {each.get("url.scheme") for name, each in found.items() if name != "connect"} == {"http"}
    assert len(found["GET"]["url.path"]) == 256


def test_a_function_sends_its_spans_before_it_answers(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """They continue Lambda's own span where X-Ray records it, else the header's; a traceparent comes first."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    with closing(function(DRAGOMAN_TRACES="otlp")) as made:
        for variable, headers in (
            ("", {}), (XRAY, {}), (XRAY, {"traceparent": PARENT}), (XRAY[:-1] + "0", {}),
            (XRAY[:-1] + "0", {"X-Amzn-Trace-Id": XRAY.replace("5759e988", "00000001")}),
        ):  # fmt: skip
            monkeypatch.setenv("_X_AMZN_TRACE_ID", variable)
            before = collector.posts
            made(http("POST", INFER, BODY.decode()) | {"headers": headers}, Context())
            assert collector.posts == before + 1
        made(http("GET", "/v2") | {"isBase64Encoded": True, "body": "%"}, Context())
    traces = [root.trace_id.hex() for root in collector.roots()]
    assert traces[1:3] == ["5759e988bd862e3fe1be46a994272793", PARENT.split("-")[1]]
    assert traces[4] == "00000001bd862e3fe1be46a994272793"
    assert len({*traces}) == 6
    assert {attributes(root)["faas.invocation_id"] for root in collector.roots()} == {"invocation-1"}
    assert {each["faas.name"] for each in collector.resources} == {"f"}
    assert attributes(collector.roots()[0])["url.scheme"] == "https"


def test_a_function_does_not_wait_for_a_receiver_that_fails(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failure the spans of some seconds are dropped, and then it tries again."""
    collector.status = 400
    with closing(function(DRAGOMAN_TRACES="otlp")) as made:
        for _ in range(3):
            assert made(http("POST", INFER, BODY.decode()), Context())["statusCode"] == 200
        assert collector.posts == 1
        collector.status = 200
        monkeypatch.setattr(provider, "time", type("Later", (), {"monotonic": staticmethod(lambda: float("inf"))}))
        made(http("POST", INFER, BODY.decode()), Context())
    assert len(collector.roots()) == 1
    assert [each for each in caplog.messages if "spans were not sent" in each]


def test_events_that_a_function_answers_at_once_send_their_spans_one_after_the_other() -> None:
    """Each span once. The exporter has one session, and a receiver that hangs is waited for once."""
    meeting, sent, met = threading.Barrier(2), list[Any](), list[int]()

    class Exporter:
        def export(self, spans: list[Any]) -> Any:
            sent.extend(spans)
            with suppress(threading.BrokenBarrierError):
                met.append(meeting.wait(0.2))
            meeting.reset()
            return SimpleNamespace(name="SUCCESS")

    gathered = provider.Gathered(Exporter(), 60)
    spans = [SimpleNamespace(context=SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))) for _ in range(4)]

    def ended(span: Any) -> bool:
        gathered.on_end(span)
        gathered.flush()
        return span in sent

    with ThreadPoolExecutor(4) as pollers:
        assert all(pollers.map(ended, spans))
    assert (len(sent), met) == (4, [])


@pytest.mark.parametrize(("text", "trace", "is_sampled"), [
    (XRAY, "5759e988bd862e3fe1be46a994272793", True),
    (XRAY.replace("Sampled=1", "Sampled=0"), "5759e988bd862e3fe1be46a994272793", False),
    ("Self=1-67891234-12456789abcdef012345678;" + XRAY, "5759e988bd862e3fe1be46a994272793", True),
    ("Root=1-5759e988-bd862e3fe1be46a994272793", None, False),
    (XRAY.replace("1-5759e988", "1-00000000").replace("bd862e3fe1be46a994272793", "0" * 24), None, False),
    ("Root=1-5759e988-bd;Parent=53995c3f42cd8ad8;Sampled=1", None, False),
    ("Root=;Parent=;Sampled", None, False), ("", None, False), ("=;" * 9999, None, False),
])  # fmt: skip
def test_xrays_header(text: str, trace: str | None, *, is_sampled: bool) -> None:
    """Without a parent, or with one that is malformed, a trace begins here."""
    found = xray(text)
    assert (None if found is None else f"{found.trace_id:032x}") == trace
    assert found is None or bool(found.trace_flags.sampled) is is_sampled


def test_a_caller_that_does_not_record_is_not_recorded(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    """OTEL_TRACES_SAMPLER decides, by default as the caller did. The line has the trace all the same."""
    with closing(make(TRACES="otlp", ACCESS_LOG="true", LOG_FORMAT="json")) as app:
        ask(app, "POST", INFER, BODY, headers=[(b"traceparent", (PARENT[:-1] + "0").encode())])
        (line,) = lines(app, capsys)
    assert json.loads(line)["trace_id"] == PARENT.split("-")[1]
    assert not collector.spans


def test_traces_join_across_a_proxy(collector: Collector, tmp_path: Path) -> None:
    """A proxy with a span of its own, and behind it a server in its own process: one trace in the receiver."""
    settings = Settings.from_env({"DRAGOMAN_NAME": "proxy"})
    exporting = provider.connect(settings, freezes=False)

    class Proxy(web.Handler):
        def do_POST(self) -> None:
            with exporting.tracer.start_as_current_span("proxied"):
                headers: dict[str, str] = {"content-type": self.headers["content-type"]}
                TraceContextTextMapPropagator().inject(headers)
                asked = urllib.request.Request(f"http://{HOST}:{upstream}{self.path}", self.body(), headers)
                with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - loopback
                    content = answer.read()
            self.answer(200, content)

    with web.serving(Proxy) as proxy, serve(tmp_path / "log", REPOSITORY=str(ROOT / "models"), TRACES="otlp") as server:
        upstream = server.port
        asked = urllib.request.Request(f"{proxy.url}{INFER}", BODY, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - loopback
            assert json.load(answer)["outputs"][0]["data"] == [3.5, 4.25]
    exporting.flush()
    (outer,) = (span for span in collector.spans if span.name == "proxied")
    (inner,) = collector.children(outer)
    assert (inner.trace_id, inner.name) == (outer.trace_id, NAMES["v2"])
    assert {each["service.name"] for each in collector.resources} == {"proxy", "dragoman"}


@pytest.mark.parametrize(("environ", "traces"), [
    ({}, "off"), ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"), ({"OTEL_TRACES_EXPORTER": "none"}, "off"),
    ({"OTEL_TRACES_EXPORTER": "otlp", "DRAGOMAN_TRACES": "off"}, "off"), ({"DRAGOMAN_TRACES": "otlp"}, "otlp"),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, "off"),
])  # fmt: skip
def test_opentelemetrys_own_variable_turns_traces_on(environ: dict[str, str], traces: str) -> None:
    assert Settings.from_env(environ).traces == traces


def test_without_traces_nothing_is_different() -> None:
    """The observer is the plain one, and a server imports nothing of OpenTelemetry."""
    with closing(make()) as app:
        assert type(app.observer) is Observer
    script = "print([name for name in sys.modules if name.startswith('opentelemetry') or 'tapped' in name])"
    script = f"import handler.asgi, handler.edge.rpc, sys; {script}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "missing", ["opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.propagate"]
)
def test_a_set_up_that_cannot_work_ends_the_start(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is not installed, or a propagator is not."""
    if missing.endswith("propagate"):
        monkeypatch.delitem(sys.modules, missing, raising=False)
        monkeypatch.delattr("opentelemetry.propagate", raising=False)
        monkeypatch.setenv("OTEL_PROPAGATORS", "odd")
        expected = "OTEL_PROPAGATORS is wrong"
    else:
        monkeypatch.setitem(sys.modules, missing, None)
        expected = r"DRAGOMAN_TRACES=otlp needs .*: pip install 'dragoman\[otel\]'"
    with pytest.raises(InvalidSettings, match=expected):
        make(TRACES="otlp")


def test_the_end_of_a_server_does_not_wait_for_a_receiver_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch has the exporter's time, one after the other: longer than an orchestrator waits for the process."""
    came, left = threading.Event(), threading.Event()
    monkeypatch.setattr(provider, "LAST_SECONDS", 0.5)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")

    class Handler(web.Handler):
        def do_POST(self) -> None:
            self.body()
            came.set()
            left.wait()
            self.answer(200)

    with web.serving(Handler) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        with closing(make(TRACES="otlp")) as app:
            ask(app, "GET", "/v2")
        assert came.wait(60)
        app.close()
        left.set()
        until(lambda: not any(thread.name == "dragoman-limited" for thread in threading.enumerate()))
    assert caplog.messages.count("the last spans were not sent within 0 s") == 2


@pytest.mark.parametrize(("variable", "value", "told"), [
    ("OTEL_BSP_MAX_QUEUE_SIZE", "1", "max_export_batch_size must be less than or equal to max_queue_size"),
    ("OTEL_BSP_SCHEDULE_DELAY", "0", "schedule_delay_millis must be positive"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer"),
])  # fmt: skip
def test_a_variable_that_the_sdk_refuses_ends_the_start_in_one_line(variable: str, value: str, told: str) -> None:
    """The SDK reads some of them when it is imported, hence a process of its own."""
    environ = {**os.environ, "DRAGOMAN_REPOSITORY": "models", "DRAGOMAN_TRACES": "otlp", variable: value}
    command = [sys.executable, "-m", "handler.cli", "serve", "--port", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dragoman: a variable OTEL_* is wrong: {told}")


def test_settings_of_the_sdk_that_do_not_apply_are_named(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans go over HTTP, in protobuf; a service's name is the SDK's if it has one."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with closing(make(TRACES="otlp")) as app:
        ask(app, "GET", "/v2")
    assert [each["service.name"] for each in collector.resources] == ["mine"]
    assert "spans are sent as http/protobuf, and not as grpc" in caplog.messages
