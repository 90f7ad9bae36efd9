"""Requests come from a neighbour, a proxy, a page of another site or an authorizer, which decides what they may see."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.operations import ModelRef
from core.schema import grps, health
from core.schema import open_inference as oip
from handler.aws import Function
from handler.edge.app import App
from handler.edge.gate import identity
from handler.edge.gate.view import not_permitted
from handler.edge.observe.calls import client_of
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from tests.handler.edge.client import ROOT
from tests.support.asgi import application
from tests.support.connect_client import STREAM, WEB, envelope, judged
from tests.support.gated import KEYS, Reply, ask, line
from tests.support.remote import question, raw

if TYPE_CHECKING:
    from collections.abc import Iterator

LOAD = "/v2/repository/models/half_plus_three/load"
OFFLINE = "/grps/v1/health/offline"
HOST = {"host": "127.0.0.1:8080"}
make = partial(application, inline=True)
OIP, GRPS, HEALTH = "inference.GRPCInferenceService", "grps.protos.v1.GrpsService", "grpc.health.v1.Health"


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """An application without authentication."""
    with closing(make()) as made:
        yield made


LOCAL: list[dict[str, str]] = [{}, HOST, {"host": "localhost:8080"}, {"host": "LOCALHOST"}, {"host": "[::1]:8080"},
    {"host": "127.0.0.2"}, {"host": "10.0.0.7:8080"}, {"host": "10.0.0.7"}, {**HOST, "origin": "http://127.0.0.1:8080"},
    {**HOST, "sec-fetch-site": "same-origin"}, {**HOST, "sec-fetch-site": "none"}, {**HOST, "x-request-id": "1"},
    {**HOST, "user-agent": "curl/8.5.0", "accept": "*/*", "content-type": "application/json"}]  # fmt: skip
FOREIGN: list[dict[str, str]] = [{"host": "evil.example"}, {"host": "evil.example:8080"},
    {"host": "127.0.0.1.evil.example"}, {"host": "localhost.evil.example"}, {"host": "localhost@evil.example"},
    {"host": ""}, {"host": "0.0.0.1"},
    {"host": "10.0.0.8:8080"}, {**HOST, "origin": "https://evil.example"}, {**HOST, "origin": "null"},
    {**HOST, "origin": "http://127.0.0.1:3000"}, {**HOST, "origin": ""}, {**HOST, "sec-fetch-site": "cross-site"},
    {**HOST, "sec-fetch-site": "same-site"}, {**HOST, "sec-fetch-site": ""}, {**HOST, "x-forwarded-for": "127.0.0.1"},
    {**HOST, "forwarded": "for=127.0.0.1"}, {**HOST, "via": "1.1 proxy"}, {**HOST, "x-real-ip": "127.0.0.1"},
    {**HOST, "x-forwarded-host": "x"}]  # fmt: skip


@pytest.mark.parametrize("headers", LOCAL)
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.9.9.9"])
def test_a_neighbour_changes_state_without_authentication(app: App, headers: dict[str, str], peer: str) -> None:
    """Its peer address is this machine's, and its Host is a name of this machine or the address that is bound."""
    assert ask(app, "POST", LOAD, headers, client=(peer, 1), server=("10.0.0.7", 8080)).status == 200


AGENT = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}


@pytest.mark.parametrize("control", ["auto", "open"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (AGENT, 403),
        ({**AGENT, "referer": "http://127.0.0.1:8080/"}, 403),
        ({**AGENT, "sec-fetch-site": "cross-site"}, 403),
        ({**AGENT, "sec-fetch-site": "none"}, 200),
        ({**AGENT, "sec-fetch-site": "same-origin"}, 200),
        ({"user-agent": "curl/8.5.0"}, 200),
        ({}, 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_image_of_a_page_sets_no_server_offline(
    control: str, headers: dict[str, str], status: int, method: str
) -> None:
    """Over plain HTTP to another machine, browsers send neither an Origin nor Fetch Metadata with it."""
    with closing(make(CONTROL=control)) as app:
        assert ask(app, method, OFFLINE, {**HOST, **headers}).status == status
        assert ask(app, "GET", "/v2/health/ready", AGENT).status == (200 if status == 403 else 503)


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_or_a_proxy_does_not(app: App, headers: dict[str, str]) -> None:
    """Origin, Sec-Fetch-Site and Host betray a browser, and a forwarding header betrays a proxy on this machine."""
    for method, path in (("POST", LOAD), ("GET", OFFLINE)):
        assert ask(app, method, path, headers, server=("10.0.0.7", 8080)).status == 403
    assert ask(app, "GET", "/v2/health/ready").status == 200


@pytest.mark.parametrize("client", [("192.0.2.1", 1), ("::2", 1), ("128.0.0.1", 1), ("testclient", 1), None, ("", 0)])
def test_another_machine_does_not(app: App, client: Any) -> None:
    """The refusal names the setting that a container's user needs. It stands in docs/security.md, with its command."""
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    found = re.search(r"test_gate_places.py -->\n```console\n\$ curl -X POST http://([^/]*)(/\S*)\n(.*)\n```", page)
    assert found
    reply = ask(app, "POST", found[2], {"host": found[1]}, client=client, server=("172.17.0.2", 8080))
    assert (reply.status, reply.json()) == (403, json.loads(found[3]))


@pytest.mark.parametrize(("control", "headers", "client", "status"), [
    ("open", HOST, "192.0.2.1", 200), ("open", {"host": "models.example"}, "192.0.2.1", 200),
    ("open", {**HOST, "origin": "https://evil.example"}, "192.0.2.1", 403),
    ("open", {**HOST, "origin": "https://evil.example"}, "127.0.0.1", 403),
    ("off", HOST, "127.0.0.1", 403)])  # fmt: skip
def test_a_setting_opens_or_closes_the_control(control: str, headers: dict[str, str], client: str, status: int) -> None:
    """A page of another site is refused even where every client may change state, and where CORS permits it."""
    with closing(make(CONTROL=control, CORS_ORIGINS="*")) as app:
        assert ask(app, "POST", LOAD, headers, client=(client, 1)).status == status


def test_control_that_is_off_is_off_with_a_key_too() -> None:
    """An operator who wants no changes by calls gets none."""
    with closing(make(CONTROL="off", AUTH="keys", KEYS=line("ops", KEYS["admin"], "admin"))) as app:
        assert ask(app, "POST", LOAD, {"x-api-key": KEYS["admin"]}).status == 403
        assert ask(app, "GET", "/v2/models", {"x-api-key": KEYS["admin"]}).status == 200


@pytest.mark.parametrize(("peer", "client"), [
    ("ipv4:127.0.0.1:50", ("127.0.0.1", 50)), ("ipv6:%5B::1%5D:50", ("::1", 50)),
    ("ipv6:[::1]:50", ("::1", 50)), ("unix:/tmp/s", None), ("unix:", None), ("", None)])  # fmt: skip
def test_a_peer_of_grpc_is_an_address(peer: str, client: Any) -> None:
    """A socket of another kind is not a neighbour's: a proxy may stand behind it."""
    assert client_of(peer) == client


# -- other sites ---------------------------------------------------------------------------------------------------

PAGE = "https://app.example.com"
PREFLIGHT = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-mine"}


@pytest.fixture(scope="module", params=[PAGE, "*"])
def shared(request: pytest.FixtureRequest) -> Iterator[App]:
    """An application with keys that pages of one site, or of every one, may call."""
    with closing(make(CORS_ORIGINS=request.param, AUTH="keys", KEYS=line("a", KEYS["read"], "read"))) as made:
        yield made


def is_shared(reply: Reply, app: App) -> bool:
    """Returns whether a page may read the answer, and a cache keeps it apart from other sites' answers."""
    every = app.settings.cors_origins == ("*",)
    assert ("access-control-allow-credentials" in reply.headers) is not every
    assert ("origin" in reply.headers.get("vary", "")) is not every
    return reply.headers.get("access-control-allow-origin") == ("*" if every else PAGE)


@pytest.mark.parametrize("path", ["/v2/models/m/infer", f"/{OIP}/ModelInfer", LOAD, "/nothing", "/"])
def test_a_preflight_needs_no_key(shared: App, path: str) -> None:
    """A browser sends none. The headers of gRPC-Web, Connect and this server are allowed, and the requested ones."""
    reply = ask(shared, "OPTIONS", path, PREFLIGHT)
    assert (reply.status, reply.body, reply.reads) == (204, b"", 0)
    assert is_shared(reply, shared)
    allowed = reply.headers["access-control-allow-headers"]
    assert {"authorization", "x-api-key", "x-grpc-web", "connect-protocol-version", "grpc-timeout", "x-mine"} <= {
        *allowed.split(", ")
    }
    assert "POST" in reply.headers["access-control-allow-methods"]


@pytest.mark.parametrize(("path", "key", "status"), [("/v2/models", "read", 200), ("/v2/models", None, 401),
    ("/v2/models/nobody", "read", 404), (LOAD, "read", 405), ("/docs", None, 401), ("/openapi.json", "read", 200),
    (f"/{OIP}/ServerLive", None, 400)])  # fmt: skip
def test_a_page_reads_answers_and_errors(shared: App, path: str, key: str | None, status: int) -> None:
    """Without the header on a 401, a page would see a network error."""
    headers = {"origin": PAGE, **({} if key is None else {"x-api-key": KEYS[key]})}
    reply = ask(shared, "GET", path, headers)
    assert reply.status == status
    assert is_shared(reply, shared)
    assert "grpc-status" in reply.headers["access-control-expose-headers"]


def test_a_page_of_a_third_site_reads_nothing() -> None:
    """Its preflight and its answers lack the permission; a cache keeps them apart all the same."""
    with closing(make(CORS_ORIGINS=f"{PAGE},https://b.example")) as app:
        for reply in (
            ask(app, "OPTIONS", "/v2/models", {**PREFLIGHT, "origin": "https://evil.example"}),
            ask(app, "GET", "/v2/models", {"origin": "https://evil.example"}),
            ask(app, "GET", "/v2/models", {"origin": f"{PAGE}.evil.example"}),
            ask(app, "GET", "/v2/models"),
        ):
            assert not [name for name in reply.headers if name.startswith("access-control-allow-origin")]
            assert "origin" in reply.headers["vary"]


def test_without_the_setting_there_is_no_cors(app: App) -> None:
    """No answer has a CORS header, and a preflight uses a method that routes do not know."""
    assert not [name for name in ask(app, "GET", "/v2/models", {"origin": PAGE}).headers if name.startswith("access")]
    assert ask(app, "OPTIONS", "/v2/models", PREFLIGHT).status == 405


# -- what a caller of some models sees -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def some() -> Iterator[App]:
    """An application with a key for models that begin with "half", and one for all."""
    lines = ";".join((line("some", "dgm_some", "admin", "half*"), line("all", "dgm_all", "admin")))
    with closing(make(AUTH="keys", KEYS=lines)) as made:
        yield made


def seen(app: App, path: str, key: str = "dgm_some", method: str = "GET", body: bytes = b"", **more: str) -> Reply:
    return ask(app, method, path, {"x-api-key": key, "content-type": "application/json", **more}, body)


@pytest.mark.parametrize(("method", "path"), [("GET", "/v2/models"), ("GET", "/v1/models"), ("GET", "/v2/models/stats"),
    ("POST", "/v2/repository/index"), ("GET", "/grps/v1/metadata/server"), ("GET", "/"),
    ("POST", f"/{OIP}/RepositoryIndex"), ("POST", f"/{OIP}/ModelStatistics"),
    ("POST", f"/{GRPS}/ServerMetadata")])  # fmt: skip
def test_a_listing_leaves_other_models_out(some: App, method: str, path: str) -> None:
    """A listing would otherwise reveal the names of models."""
    for name in ("half_plus_three", "iris"):  # so that statistics have both
        assert seen(some, f"/v2/models/{name}", "dgm_all").status == 200
    every = seen(some, path, "dgm_all", method, b"{}", accept="text/html")
    mine = seen(some, path, "dgm_some", method, b"{}", accept="text/html")
    assert (b"iris" in every.body, b"half_plus_three" in every.body, every.status) == (True, True, 200)
    assert (b"iris" in mine.body, b"half_plus_three" in mine.body, mine.status) == (False, True, 200)


MESSAGES = [
    (OIP, "ModelReady", oip.ModelReadyRequest(name="iris")),
    (OIP, "ModelMetadata", oip.ModelMetadataRequest(name="iris")),
    (OIP, "ModelConfig", oip.ModelConfigRequest(name="iris")),
    (OIP, "ModelStatistics", oip.ModelStatisticsRequest(name="iris")),
    (OIP, "ModelInfer", oip.ModelInferRequest(model_name="iris")),
    (OIP, "RepositoryModelLoad", oip.RepositoryModelLoadRequest(model_name="iris")),
    (OIP, "RepositoryModelUnload", oip.RepositoryModelUnloadRequest(model_name="iris")),
    (GRPS, "Predict", grps.GrpsMessage(model="iris", str_data="x")),
    (GRPS, "Predict", grps.GrpsMessage(model="iris-1", str_data="x")),
    (GRPS, "ModelMetadata", grps.GrpsMessage(str_data="iris")),
    (HEALTH, "Check", health.HealthCheckRequest(service="iris")),
]


@pytest.mark.parametrize(("service", "method", "message"), MESSAGES, ids=[f"{m[1]}" for m in MESSAGES])
def test_a_name_in_a_message_is_checked(some: App, service: str, method: str, message: Any) -> None:
    """The refusal is the same as for a model that does not exist. In GRPS, it also ends the call."""
    name = f"/{service}/{method}"
    reply = ask(some, "POST", name, {"x-api-key": "dgm_some", "content-type": "application/proto"},
        message.SerializeToString())  # fmt: skip
    assert (reply.status, reply.json()["code"]) == (403, "permission_denied")
    other = message.SerializeToString().replace(b"iris", b"nope")
    reply = ask(some, "POST", name, {"x-api-key": "dgm_some", "content-type": "application/proto"}, other)
    assert (reply.status, reply.json()["code"]) == (403, "permission_denied")


@pytest.mark.parametrize("kind", [STREAM, WEB])
def test_a_name_in_a_message_of_a_stream_is_checked(some: App, kind: str) -> None:
    """The error belongs to its own request: the other requests of the stream have their answers."""
    x = raw("x", "FP32", np.array([1, 2.5], np.float32))
    names = {"1": "half_plus_three", "2": "iris", "3": "half_plus_three"}
    body = envelope(*(question(name, x, id=number).SerializeToString() for number, name in names.items()))
    reply = ask(some, "POST", f"/{OIP}/ModelStreamInfer", {"x-api-key": "dgm_some", "content-type": kind}, body)
    outcome = judged(reply.status, reply.headers, reply.body)
    answers = [oip.ModelStreamInferResponse.FromString(message) for message in outcome.messages]
    found = {answer.infer_response.id: answer.error_message for answer in answers}
    assert (outcome.code, found) == (None, {"1": "", "2": not_permitted("iris").message, "3": ""})


@pytest.mark.parametrize("body", [{"model": "iris"}, {"model": "iris-1"}, {"model": "nope"}])
def test_a_name_in_a_body_of_grps_is_checked(some: App, body: dict[str, str]) -> None:
    """The status is in the message, as always in GRPS over HTTP."""
    reply = seen(some, "/grps/v1/infer/predict", method="POST", body=json.dumps({**body, "ndarray": [1]}).encode())
    assert (reply.status, reply.json()["status"]["code"]) == (403, 403)


def test_a_caller_of_some_models_does_not_set_the_server_offline(some: App) -> None:
    """Readiness covers all models."""
    assert seen(some, OFFLINE).status == 403
    assert seen(some, LOAD, method="POST").status == 200


@pytest.mark.parametrize("path", ["series?name=*qps", "metrics"])
def test_a_caller_of_some_models_does_not_read_the_monitor(some: App, path: str) -> None:
    """Its series have the inferences of all models."""
    path, _, query = f"/grps/v1/monitor/{path}".partition("?")
    for key, status in (("dgm_some", 403), ("dgm_all", 200)):
        headers = {"x-api-key": key}
        assert ask(some, "GET", path, headers, query_string=query.encode()).status == status


def test_the_health_of_a_model_is_for_known_callers(some: App) -> None:
    """The server's health is for everybody, without the names of models."""
    for service, code in (("", None), ("half_plus_three", "unauthenticated")):
        message = health.HealthCheckRequest(service=service).SerializeToString()
        reply = ask(some, "POST", f"/{HEALTH}/Check", {"content-type": "application/proto"}, message)
        assert (reply.json()["code"] if reply.status != 200 else None) == code
    with closing(make(AUTH="keys", KEYS=line("a", "dgm_a", "read"), PRELOAD="nobody")) as app:
        assert b"nobody" not in ask(app, "GET", "/v2/health/ready").body
        assert b"nobody" in ask(app, "GET", "/v2/health/ready", {"x-api-key": "dgm_a"}).body


@pytest.mark.parametrize("version", [None, "9"])
@pytest.mark.parametrize(("globs", "name", "wanted"), [
    (["a"], "a-1", ("a", "1")), (["a-1"], "a-1", ("a-1", None)), (["*"], "a-1", ("a-1", None)),
    (["a"], "a-01", ("a", "01")), (["b"], "", ("b", None)), (["a*"], "a-1", ("a-1", None))])  # fmt: skip
def test_a_dashed_name_means_a_model_of_the_caller(
    globs: list[str], name: str, wanted: Any, version: str | None
) -> None:
    """If a name could be one model's version or another model, it means the one that the caller may use."""
    from handler.edge.gate.view import SeenModels  # noqa: PLC0415 - of this unit

    class Asked:
        def names(self, _: Any) -> list[str]:
            return ["a", "a-1", "b"]

    caller = identity.Caller("x", frozenset(), identity.patterns(globs))
    ref = SeenModels(Asked(), caller, "", {})._ref(ModelRef(name, version, dashed=True), Background())  # type: ignore[arg-type] # names alone
    assert (ref.name, ref.version) == (wanted[0], version or wanted[1])


def test_the_default_model_is_not_named_to_a_caller_that_may_not_use_it() -> None:
    """A refusal with the name would tell it to a caller whose listings leave it out."""
    headers = {"x-api-key": "dgm_a", "content-type": "application/json"}
    settings = {"DEFAULT_MODEL": "half_plus_three", "PLATFORM": "mlflow"}
    with closing(make(AUTH="keys", KEYS=line("a", "dgm_a", "infer", "iris"), **settings)) as app:
        for path in ("/invocations", "/grps/v1/infer/predict"):
            reply = ask(app, "POST", path, headers, b'{"instances": [1], "gtensors": {"tensors": []}}')
            assert reply.status == 403
            assert b"default model" in reply.body
            assert b"half_plus_three" not in reply.body


# -- Lambda --------------------------------------------------------------------------------------------------------


def called(authorizer: Any, path: str = "/v2/models", method: str = "GET", **headers: str) -> dict[str, Any]:
    context = {"http": {"method": method, "path": path, "sourceIp": "127.0.0.1"}, "stage": "$default"}
    context |= {} if authorizer is None else {"authorizer": authorizer}
    return {"version": "2.0", "requestContext": context, "rawPath": path, "headers": headers, "body": ""}


def function(**settings: str) -> Function:
    environ = {f"DRAGOMAN_{name}": value for name, value in settings.items()}
    base = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "AWS_LAMBDA_FUNCTION_NAME": "f"}
    return Function(Settings.from_env({**base, **environ}))


AUTHORIZERS: dict[str, tuple[Any, list[int]]] = {
    "none": (None, [401, 401]), "null": ({}, [401, 401]), "a text": ("x", [401, 401]), "a list": ([1], [401, 401]),
    "jwt": ({"jwt": {"claims": {"sub": "s"}, "scopes": None}}, [200, 403]),
    "jwt of some models": ({"jwt": {"claims": {"sub": "s", "models": "half*"}}}, [200, 403]),
    "jwt with scopes": ({"jwt": {"claims": {"scope": "dragoman:admin"}}}, [200, 200]),
    "jwt with a scope that cannot read": ({"jwt": {"claims": {"scope": "dragoman:infer"}}}, [403, 403]),
    "jwt with an odd limit": ({"jwt": {"claims": {"models": 7}}}, [401, 401]),
    "function": ({"lambda": {"scope": "dragoman:read"}}, [200, 403]), "function alone": ({"lambda": None}, [200, 403]),
    "iam": ({"iam": {"userArn": "arn:aws:iam::1:user/x"}}, [200, 403]),
    "cognito": ({"claims": {"sub": "s"}}, [200, 403]), "rest function": ({"principalId": "u"}, [200, 403]),
    "nothing known": ({"other": 1}, [401, 401]),
}  # fmt: skip


@pytest.mark.parametrize(("authorizer", "statuses"), AUTHORIZERS.values(), ids=AUTHORIZERS)
def test_a_trusted_authorizers_claims_are_a_caller(authorizer: Any, statuses: list[int]) -> None:
    """Rights come from its scopes, or from DRAGOMAN_AUTHORIZER_RIGHTS. Claims of another shape are not a caller."""
    with closing(function(TRUST_AUTHORIZER="true")) as made:
        answers = [made(called(authorizer), None), made(called(authorizer, LOAD, "POST"), None)]
        assert [answer["statusCode"] for answer in answers] == statuses


SENT: dict[str, tuple[dict[str, str], list[int]]] = {
    "its token": ({"authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"}, [200, 200]),
    "its signature": (
        {"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20260310/us-east-1/x"},
        [200, 200],
    ),
    "a key of ours": ({"authorization": "Bearer dgm_a"}, [200, 403]),
    "a wrong key in our own header": ({"x-api-key": "dgm_b"}, [401, 401]),
}


@pytest.mark.parametrize(("sent", "statuses"), SENT.values(), ids=SENT)
def test_a_trusted_authorizers_credential_need_not_be_ours(sent: dict[str, str], statuses: list[int]) -> None:
    """Clients of JWT authorizers, Cognito and IAM send theirs in Authorization. A key of ours counts for more."""
    for settings, status in zip(({}, {"AUTH": "keys", "KEYS": line("a", "dgm_a", "infer")}), statuses, strict=True):
        with closing(function(TRUST_AUTHORIZER="true", **settings)) as made:
            assert made(called(AUTHORIZERS["jwt"][0], **sent), None)["statusCode"] == status
            assert made(called(None, **sent | {"authorization": "Bearer x"}), None)["statusCode"] == 401


@pytest.mark.parametrize(("models", "names"), [
    ("[iris species]", ["iris", "species"]), ("[half*]", ["half_plus_three"]), ("[iris]", ["iris"]), ("[]", []),
    ("iris", ["iris"]), ("iris,species", ["iris", "species"]), (["iris"], ["iris"]),
])  # fmt: skip
def test_an_http_api_writes_a_list_of_claims_as_a_text(models: Any, names: list[str]) -> None:
    """Its JWT authorizer passes ["a", "b"] on as "[a b]": the words are the patterns and the scopes."""
    claims = {"models": models, "scp": "[dragoman:infer dragoman:read]"}
    with closing(function(TRUST_AUTHORIZER="true")) as made:
        answer = made(called({"jwt": {"claims": claims}}), None)
        assert json.loads(answer["body"]) == {"models": names}
        assert made(called({"jwt": {"claims": claims}}, LOAD, "POST"), None)["statusCode"] == 403


def test_claims_count_on_lambda_alone_and_when_they_are_trusted() -> None:
    """A client can write headers, but not the requestContext."""
    claims = {"jwt": {"claims": {"scope": "dragoman:admin"}}}
    keyed = {"AUTH": "keys", "KEYS": line("a", "dgm_a", "read")}
    with closing(function(**keyed)) as made:
        assert made(called(claims), None)["statusCode"] == 401
    forged = {"x-amzn-request-context": json.dumps({"authorizer": claims}), "x-authorizer": json.dumps(claims)}
    with closing(function(TRUST_AUTHORIZER="true")) as made:
        assert made(called(None, **forged), None)["statusCode"] == 401
    with closing(make(TRUST_AUTHORIZER="true")) as app:
        assert ask(app, "GET", "/v2/models", forged).status == 401


def test_a_cookies_authorizer_is_no_way_for_another_site() -> None:
    """An authorizer may read a cookie, which a browser adds by itself: a foreign page must not change state so."""
    claims = {"lambda": {"scope": "dragoman:admin"}}
    with closing(function(TRUST_AUTHORIZER="true")) as made:
        foreign = called(claims, LOAD, "POST", host="a.example", origin="https://evil.example")
        assert made(foreign, None)["statusCode"] == 403
        own = called(claims, LOAD, "POST", host="a.example", origin="https://a.example")
        assert made(own, None)["statusCode"] == 200


def test_a_usage_plans_key_is_not_a_credential() -> None:
    """The gateway has consumed the x-api-key header; this server's key is sent beside it."""
    with closing(function(AUTH="keys", KEYS=line("a", "dgm_a", "read"))) as made:
        event = called(None, **{"x-api-key": "gateways", "authorization": "Bearer dgm_a"})
        assert made(event, None)["statusCode"] == 401
        event["requestContext"]["identity"] = {"apiKey": "gateways"}
        assert made(event, None)["statusCode"] == 200


def test_a_direct_invocation_has_been_permitted_by_iam() -> None:
    """It may infer. It is the whole event, so an HTTP client cannot send one."""
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    with closing(function(AUTH="keys", KEYS=line("a", "dgm_a", "read"))) as made:
        assert made({"model_name": "half_plus_three", "inputs": [x]}, None)["outputs"][0]["data"] == [3.5]
        event = called(None, "/v2/models/half_plus_three/infer", "POST") | {"dragoman.invoked": True}
        assert made(event | {"body": json.dumps({"inputs": [x]})}, None)["statusCode"] == 401


# -- the log, and the start ----------------------------------------------------------------------------------------


def test_the_log_names_callers_and_stays_short(some: App, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand wrong keys make ten lines. No line contains a key, and no path breaks a line."""
    caplog.set_level(logging.INFO)
    assert seen(some, LOAD, method="POST").status == 200
    for _ in range(200):
        ask(some, "GET", "/v2/models\r\nERROR \u2028forged", {"x-api-key": "dgm_wrong_secret"})
        seen(some, "/v2/models/iris")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("handler.edge.gate")]
    assert f"key some called POST {LOAD}" in lines
    assert len(lines) <= 30
    assert not [each for each in lines if "dgm_" in each or len(each.splitlines()) > 1]


def test_a_start_without_authentication_imports_nothing_for_it() -> None:
    """Lambda's INIT takes as long as before."""
    script = (
        "import sys, handler.aws; print([m for m in ('jwt', 'cryptography', 'urllib.request', 'handler.edge.gate.keys',"
    )
    script += " 'handler.edge.gate.tokens', 'handler.edge.gate.claims') if m in sys.modules])"
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "AWS_LAMBDA_FUNCTION_NAME": "f", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_refused_body_is_not_gathered(some: App) -> None:
    """A client without a key cannot make the server take 64 MB."""
    reads = 0

    async def receive() -> Any:
        nonlocal reads
        reads += 1
        return {"type": "http.request", "body": bytes(2**20), "more_body": True}

    async def send(_: Any) -> None:
        """Drops the message."""

    scope = {"type": "http", "method": "POST", "path": "/v2/models/iris/infer", "headers": [], "client": None}
    asyncio.run(some(scope, receive, send))
    assert reads == 0


def test_keys_new_prints_a_key_once_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The line makes the key valid, and does not contain it."""
    from handler import cli  # noqa: PLC0415 - of this command

    assert cli.main(["keys", "new", "--name", "ci", "--rights", "read", "--models", "iris*"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    key, text = first.rpartition(" ")[2], second.partition(": ")[2]
    assert key not in text
    with closing(make(AUTH="keys", KEYS=text)) as app:
        assert ask(app, "GET", "/v2/models", {"x-api-key": key}).json() == {"models": ["iris"]}


@pytest.mark.parametrize("flags", [("--name", "a b"), ("--name", "a", "--rights", "all"), ("--name", "#"),
    ("--name", "a", "--models", "x;b y"), ("--name", "a", "--models", "a#b"),
    ("--name", "a", "--models", "")])  # fmt: skip
def test_keys_new_refuses_what_no_line_can_hold(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """No key is printed if a server would not read its line."""
    from handler import cli  # noqa: PLC0415 - of this command

    assert cli.main(["keys", "new", *flags]) == 2
    assert capsys.readouterr().out == ""
