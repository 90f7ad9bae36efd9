"""Every refusal is one line with its reason, and counts once, wherever it is made; no client can forge either."""

from __future__ import annotations

import json
import re
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from grpc import aio

from core.schema.health import HealthCheckRequest
from core.schema.open_inference import ModelInferRequest
from handler.edge.observe import record
from tests.handler.calling import http
from tests.handler.edge.beside import served
from tests.handler.edge.calls.connect.client import call
from tests.handler.edge.client import BODY, INFER, ask, make
from tests.handler.edge.observe.test_access import GRPS, Context, function, lines
from tests.handler.edge.observe.test_metrics import scraped
from tests.support.connect_client import envelope
from tests.support.gated import line
from tests.support.remote import question, raw

if TYPE_CHECKING:
    from pathlib import Path

JSON = [(b"content-type", b"application/json")]
SERVICE = "/inference.GRPCInferenceService/"
ODD = 'a "b"\n2026 INFO dragoman.access: POST / 200 id=1\x1b[2J\u2028\u202e\\" status=200'
"""A name that would be a line of its own, a field of its own, or a series of its own."""
KEYS = {"AUTH": "keys", "KEYS": "a sha256:" + "0" * 64 + " infer"}


def named(name: str) -> bytes:
    return question(name).SerializeToString()


def over_grpc(path: str, *messages: bytes, metadata: Any = ()) -> Any:
    def sent(app: Any) -> None:
        async def main(channel: aio.Channel, _: object) -> None:
            method: Any = channel.stream_stream(path)
            with suppress(aio.AioRpcError):
                assert [each async for each in method(iter(messages), metadata=metadata)]

        served(app, main)

    return sent


def post(path: str, body: bytes = b"{}", headers: Any = JSON) -> Any:
    return lambda app: ask(app, "POST", path, body, headers=headers)


def get(path: str) -> Any:
    return lambda app: ask(app, "GET", path)


def connect(method: str, kind: str, body: bytes) -> Any:
    return lambda app: call(app, method, kind, body)


WEB, STREAM, PROTO = "application/grpc-web+proto", "application/connect+proto", "application/proto"
LARGE = b"x" * 3000
CASES: list[tuple[str, Any, dict[str, str], str, str]] = [
    # what, how it is asked, settings, protocol, reason
    *[
        (f"no key over {protocol}", asked, KEYS, protocol, "UNAUTHENTICATED")
        for protocol, asked in {
            "v2": post(INFER, BODY), "v1": post("/v1/models/iris:predict"),
            "grps": post("/grps/v1/infer/predict", GRPS), "site": post("/metrics"),
            "connect": connect("ModelInfer", PROTO, named("iris")),
            "grpc-web": connect("ModelInfer", WEB, envelope(named("iris"))),
            "grpc": over_grpc(SERVICE + "ModelInfer", named("iris")),
        }.items()
    ],
    *[
        (f"too large over {protocol}", asked, {"MAX_BODY_BYTES": "2000"}, protocol, "RESOURCE_EXHAUSTED")
        for protocol, asked in {
            "v2": post(INFER, LARGE), "v1": post("/v1/models/iris:predict", LARGE),
            "grps": post("/grps/v1/infer/predict", LARGE), "connect": connect("ModelInfer", PROTO, LARGE),
            "grpc-web": connect("ModelInfer", WEB, envelope(LARGE)),
        }.items()
    ],
    ("no route of v2", post("/v2/odd"), {}, "v2", "NOT_FOUND"),
    ("no route of v1", post("/v1/odd"), {}, "v1", "NOT_FOUND"),
    ("no route of grps", post("/grps/v1/odd"), {}, "grps", "NOT_FOUND"),
    ("no model of v1", get("/v1/models/nobody"), {}, "v1", "NOT_FOUND"),
    ("no version of no model of v1", get("/v1/models/nobody/versions/9"), {}, "v1", "NOT_FOUND"),
    ("no version of v1", get("/v1/models/half_plus_three/versions/9"), {}, "v1", "NOT_FOUND"),
    ("no model of v2", get("/v2/models/nobody/ready"), {}, "v2", "NOT_FOUND"),
    ("no method of v2", lambda app: ask(app, "PUT", INFER), {}, "v2", "UNIMPLEMENTED"),
    ("nothing on the site", post("/odd"), {}, "site", "NOT_FOUND"),
    ("no site", post("/odd"), {"SITE": "false"}, "site", "NOT_FOUND"),
    ("no method of connect", connect("Odd", PROTO, b""), {}, "connect", "UNIMPLEMENTED"),
    ("no method of grpc-web", connect("Odd", WEB, b""), {}, "grpc-web", "UNIMPLEMENTED"),
    ("no method of grpc", over_grpc(SERVICE + "Odd", b""), {}, "grpc", "UNIMPLEMENTED"),
    ("no service of grpc", over_grpc("/odd.Service/Method", b""), {}, "grpc", "UNIMPLEMENTED"),
    ("no service of grpc, and no key", over_grpc("/odd.Service/Method", b""), KEYS, "grpc", "UNAUTHENTICATED"),
    ("absent", over_grpc(SERVICE + "SystemSharedMemoryStatus", b""), {}, "grpc", "UNIMPLEMENTED"),
    ("no message", over_grpc(SERVICE + "ModelInfer", b"\xff\xff"), {}, "grpc", "INVALID_ARGUMENT"),
    ("a stream", over_grpc(SERVICE + "ModelStreamInfer", named("nobody")), {}, "grpc", "NOT_FOUND"),
    ("a stream of connect", connect("ModelStreamInfer", STREAM, envelope(named("no"))), {}, "connect", "NOT_FOUND"),
    ("a stream of grpc-web", connect("ModelStreamInfer", WEB, envelope(named("no"))), {}, "grpc-web", "NOT_FOUND"),
    ("events", post("/v2/models/nobody/generate_stream"), {}, "v2", "NOT_FOUND"),
    ("a broken envelope", connect("ModelInfer", WEB, b"\0\0"), {}, "grpc-web", "INVALID_ARGUMENT"),
]  # fmt: skip


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("asked", "settings", "protocol", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_refusal_is_one_line_and_counts_once(
    asked: Any, settings: dict[str, str], protocol: str, reason: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the gate, at the size, at the route, in the message, and within a stream."""
    with closing(make(LOG_FORMAT=form, ACCESS_LOG="true", **settings)) as app:
        asked(app)
        (line,) = lines(app, capsys)
        if form == "json":
            found = json.loads(line)
            assert (found["level"], found["protocol"], found["reason"]) == ("WARNING", protocol, reason)
        else:
            assert re.search(rf" WARNING dragoman.access: .* {protocol} model=.* reason={reason} ", line)
        assert app.observer.counts.refusals == {(protocol, reason): 1}
        assert sum(sum(tally.times.steps) for tally in app.observer.counts.tallies.values()) == 1


CRASHING = """
metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}],
}

def predict(inputs, parameters):
    yield {"y": inputs["x"][:1]}
    raise ValueError("no")
"""
CRASH, MISSHAPEN = (question("odd", raw("x", "FP32", np.ones(size, np.float32))).SerializeToString() for size in (2, 3))


@pytest.mark.parametrize(("messages", "line_reason", "counted"), [
    ([MISSHAPEN, CRASH, CRASH], "INTERNAL", {"INVALID_ARGUMENT": 1, "INTERNAL": 2}),
    ([CRASH, MISSHAPEN, MISSHAPEN], "INTERNAL", {"INVALID_ARGUMENT": 2, "INTERNAL": 1}),
    ([MISSHAPEN, MISSHAPEN], "INVALID_ARGUMENT", {"INVALID_ARGUMENT": 2}),
])  # fmt: skip
@pytest.mark.parametrize("protocol", ["grpc", "connect", "grpc-web"])
def test_each_refused_message_of_a_stream_counts(
    protocol: str, messages: list[bytes], line_reason: str, counted: dict[str, int], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The stream's line has the reason that an operator has to look into: a failure of the model, or else the first."""
    (tmp_path / "odd" / "1").mkdir(parents=True)
    (tmp_path / "odd" / "1" / "model.py").write_text(CRASHING, "utf-8")
    asked = {
        "grpc": over_grpc(SERVICE + "ModelStreamInfer", *messages),
        "connect": connect("ModelStreamInfer", STREAM, envelope(*messages)),
        "grpc-web": connect("ModelStreamInfer", WEB, envelope(*messages)),
    }[protocol]
    with closing(make(tmp_path, ALLOW_CODE="true")) as app:
        asked(app)
        (found,) = lines(app, capsys)
        assert f" {protocol} model=odd version=1 " in found
        assert f" reason={line_reason} error=" in found
        assert app.observer.counts.refusals == {(protocol, reason): times for reason, times in counted.items()}
        assert app.observer.counts.failures == {("odd", "1", reason): times for reason, times in counted.items()}


def test_the_refusals_of_a_stream_take_little_memory_however_many_models_they_name() -> None:
    """Those of further models count without their names."""
    found = record.Record("gRPC", "/", b"1")
    for number in range(record.MOST_KEPT * 3):
        found.refuse_one(record.Failure("NOT_FOUND", "no"), f"m{number}", "")
    assert found.refusals is not None
    assert len(found.refusals) == record.MOST_KEPT + 1
    assert found.refusals["NOT_FOUND", "", ""] == record.MOST_KEPT * 2


HEALTH = "/grpc.health.v1.Health/Check"
HEALTH_OF_A_MODEL = HealthCheckRequest(service="half_plus_three").SerializeToString()
ANN = [*JSON, (b"x-api-key", b"dgm_ann")]
SOME: dict[str, Any] = {
    "metrics": lambda app: ask(app, "GET", "/metrics", headers=ANN),
    "monitor": lambda app: ask(app, "GET", "/grps/v1/monitor/metrics", headers=ANN),
    "offline": lambda app: ask(app, "GET", "/grps/v1/health/offline", headers=ANN),
    "v2": lambda app: ask(app, "GET", "/v2/models/iris", headers=ANN),
    "grps": post("/grps/v1/infer/predict", b'{"model": "iris", "ndarray": [1]}', ANN),
    "grps without a name": post("/grps/v1/infer/predict", b'{"ndarray": [1]}', ANN),
    "connect": lambda app: call(app, "ModelInfer", PROTO, named("iris"), x_api_key="dgm_ann"),
    "connect stream": lambda app: call(app, "ModelStreamInfer", STREAM, envelope(named("iris")), x_api_key="dgm_ann"),
    "grpc": over_grpc(SERVICE + "ModelInfer", named("iris"), metadata=(("x-api-key", "dgm_ann"),)),
    "grpc stream": over_grpc(SERVICE + "ModelStreamInfer", named("iris"), metadata=(("x-api-key", "dgm_ann"),)),
    "health without the right": over_grpc(HEALTH, HEALTH_OF_A_MODEL, metadata=(("x-api-key", "dgm_bob"),)),
    "health without a key": post(HEALTH, HEALTH_OF_A_MODEL, [(b"content-type", PROTO.encode())]),
}


@pytest.mark.parametrize("what", SOME)
def test_the_line_of_a_refused_caller_names_it(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where its credential is for some models, and the request or the model is known only behind the gate."""
    keys = ";".join((line("ann", "dgm_ann", "admin", "half*"), line("bob", "dgm_bob", "infer")))
    with closing(make(AUTH="keys", KEYS=keys, DEFAULT_MODEL="iris")) as app:
        SOME[what](app)
        (found,) = lines(app, capsys)
    name = {"health without a key": "an unknown caller", "health without the right": "key bob"}.get(what, "key ann")
    reason = "UNAUTHENTICATED" if what == "health without a key" else "PERMISSION_DENIED"
    assert f' reason={reason} caller="{name}" peer="127.0.0.1" error=' in found


FORGED: dict[str, Any] = {
    "v2": post(f"/v2/models/{ODD}/infer", BODY), "v1": post(f"/v1/models/{ODD.replace(':', '')}:predict"),
    "grps": post("/grps/v1/infer/predict", json.dumps({"model": ODD, "ndarray": [1]}).encode()),
    "connect": connect("ModelInfer", PROTO, named(ODD)),
    "connect json": connect("ModelInfer", "application/json", json.dumps({"modelName": ODD}).encode()),
    "grpc-web": connect("ModelInfer", WEB, envelope(named(ODD))),
    "grpc": over_grpc(SERVICE + "ModelInfer", named(ODD), metadata=(("x-request-id", 'a" reason=OK b'),)),
    "grpc version": over_grpc(
        SERVICE + "ModelInfer", ModelInferRequest(model_name="iris", model_version=ODD).SerializeToString()
    ),
    "grpc path": over_grpc(SERVICE + '%0a"x', b""),
    "path": post(f"/{ODD}"), "method": lambda app: ask(app, ODD, INFER), "long": post("/v2/models/" + "x" * 100_000),
    "id": post("/v2/odd", headers=[(b"x-request-id", b'a" reason=OK\nb')]),
}  # fmt: skip


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("what", FORGED)
def test_no_text_of_a_client_makes_a_line_a_field_or_a_series(
    what: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, versions, paths, methods, ids: one line, whose fields are the server's; the same series as before."""
    with closing(make(LOG_FORMAT=form, ACCESS_LOG="true")) as app:
        FORGED[what](app)
        app.observer.lines.flush()
        (line,) = [each for each in capsys.readouterr().err.split("\n") if each]
        assert line.isprintable()
        assert len(line) < 2000
        if form == "json":
            assert json.loads(line)["level"] == "WARNING"
        else:
            bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)  # without the quoted values
            for field in ("reason=", "id=", "model=", "dragoman.access:", "version="):
                assert len(re.findall(rf"(?:^| ){field}", bare)) == 1, (field, line)
            assert bare.count(" WARNING ") == 1
        assert "2026 INFO" not in str(scraped(app).keys())
        assert all(len(value) < 64 and value.isprintable() for _, labels in scraped(app) for _, value in labels)


@pytest.mark.parametrize("path", ["/v1/models/broken", "/v2/models/broken/ready", "/v2/models/broken/versions/1/ready"])
def test_only_a_failed_load_makes_a_models_readiness_a_refusal(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is only not loaded yet is the answer to a question, and nothing that an operator has to mend."""
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no")
    protocol = path[1:3]
    with closing(make(tmp_path, ACCESS_LOG="true")) as app:
        assert get(path)(app)[0] == 503
        (line,) = lines(app, capsys)
        assert " INFO dragoman.access: " in line
        assert " reason=" not in line
        assert post("/v2/models/broken/infer", BODY)(app)[0] == 503
        assert app.observer.counts.refusals == {("v2", "FAILED_PRECONDITION"): 1}
        app.observer.counts.refusals.clear()
        lines(app, capsys)
        status, _, body = get(path)(app)
        (line,) = lines(app, capsys)
        assert (status, json.loads(body)["ready"]) == (503, False)
        assert re.search(r" WARNING .* reason=FAILED_PRECONDITION error=\"model 'broken' is not ready: model ", line)
        assert app.observer.counts.refusals == {(protocol, "FAILED_PRECONDITION"): 1}


@pytest.mark.parametrize("path", [
    "/v2/models/nobody/infer", "/v1/models/nobody:predict", "/grps/v1/infer/predict", SERVICE + "ModelInfer", "/odd",
    "GET /v1/models/nobody",
])  # fmt: skip
def test_a_refusal_on_lambda_is_one_line_over_every_protocol(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And counts once, with the invocation's id."""
    method, _, path = path.rpartition(" ")
    with closing(function(DRAGOMAN_ACCESS_LOG="true")) as made:
        body = '{"modelName": "nobody"}' if path.startswith(SERVICE) else '{"instances": [1], "model": "nobody"}'
        answer = made(http(method or "POST", path, body) | {"headers": {"content-type": "application/json"}}, Context())
        (line,) = lines(made.app, capsys)
        assert f" {answer['statusCode']} " in line
        assert " id=invocation-1 reason=" in line
        assert [*made.app.observer.counts.refusals.values()] == [1]  # type: ignore[union-attr]
