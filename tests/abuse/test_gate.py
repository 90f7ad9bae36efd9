"""Every route of every protocol meets the gate with every kind of caller; the routes come from the tables."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from grpc import aio

from core.dialects import DIALECTS
from core.dialects.rpcs import RPCS
from core.rpc import Form
from core.wire import Right
from handler.aws import Function
from handler.edge import admission
from handler.edge.app import App
from handler.settings import Settings
from handler.site import pages
from tests.handler.edge.beside import running
from tests.support.connect_client import judged
from tests.support.gated import CALLERS, Issuer, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from core.rpc import RpcMethod

ROOT: Final = Path(__file__).parents[2]
MODEL: Final = "half_plus_three"
AUTHS: Final = ("none", "keys", "jwt")
CUSTOM: Final = "/own/path"
CODE: Final = "def predict(inputs, parameters):\n    return inputs\ndef http(request):\n    return 'mine'\n"
CHANGING: Final = {
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/grps/v1/health/online",
    "/grps/v1/health/offline",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
    "/grps.protos.v1.GrpsService/Online",
    "/grps.protos.v1.GrpsService/Offline",
}
OPEN: Final = {
    "/",
    "/v2/health/live",
    "/v2/health/ready",
    "/grps/v1/health/live",
    "/grps/v1/health/ready",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/grps.protos.v1.GrpsService/CheckLiveness",
    "/grps.protos.v1.GrpsService/CheckReadiness",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
}
PLACES: Final = {"model": MODEL, "version": "123", "label": "stable"}
Case = tuple[str, str, Right]


def filled(pattern: str) -> str:
    for name, value in PLACES.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def rest() -> list[Case]:
    """Every HTTP route except Connect's: those of the protocols, of models and of the site, and an unknown one."""
    protocols = [(r.method, filled(r.pattern), r.right) for dialect in DIALECTS for r in dialect.routes]
    site = [("GET", str(route.path), Right.READ) for route in pages.create(None, None).routes if route.path != "/"]  # type: ignore[arg-type, attr-defined] # of routes alone
    root: list[Case] = [("GET", "/", Right.OPEN)]
    return [*protocols, *site, *root, ("POST", CUSTOM, Right.INFER)]


def types(method: RpcMethod) -> list[str]:
    """Returns the content types of a method, for Connect and for gRPC-Web."""
    kinds = ["proto", "json"] if method.form is Form.UNARY else ["connect+proto", "connect+json"]
    return [f"application/{kind}" for kind in (*kinds, "grpc-web+proto")]


@pytest.fixture(scope="module")
def environ(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """The environment of a server with an authentication, over a sample model and one that answers at CUSTOM."""
    repository = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "models" / MODEL, repository / MODEL)
    (repository / "own" / "1").mkdir(parents=True)
    (repository / "own" / "1" / "model.py").write_text(CODE)
    (repository / "own" / "model-settings.json").write_text(json.dumps({"http": {"path": CUSTOM}}))

    def of(auth: str) -> dict[str, str]:
        mine = {"REPOSITORY": str(repository), "ALLOW_CODE": "true", **issuer.settings(auth)}
        return {f"DRAGOMAN_{name}": value for name, value in mine.items()}

    return of


@pytest.fixture(scope="module")
def apps(environ: Callable[[str], dict[str, str]]) -> Iterator[dict[str, App]]:
    """One application for each authentication."""
    made = {auth: App(Settings.from_env(environ(auth)), inline=True) for auth in AUTHS}
    yield made
    for app in made.values():
        app.close()


@pytest.fixture(params=[(auth, caller) for auth in AUTHS for caller in CALLERS], ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """An authentication, and a kind of caller."""
    auth, caller = request.param
    return auth, caller


def expected(auth: str, caller: str, right: Right, *, local: bool = True) -> int:
    """Returns the status that the gate answers with, 0 if it lets the request through."""
    if right is Right.OPEN:
        return 0
    if auth == "none":
        return 403 if right is Right.ADMIN and not local else 0
    return {"none": 401, "wrong": 401, "lacking": 403, "right": 0}[caller]


def refused(status: int) -> int:
    return status if status in (401, 403) else 0


def headers(credential: str | None, **more: str) -> dict[str, str]:
    given = {} if credential is None else {"authorization": f"Bearer {credential}"}
    return given | {name.replace("_", "-"): value for name, value in more.items()}


def test_every_route_states_its_right() -> None:
    """A route that changes state, or that states no right, needs ADMIN. Only health needs no right."""
    stated = {(r.pattern, r.right) for dialect in DIALECTS for r in dialect.routes}
    stated |= {(method.path, method.rpc.right) for method in RPCS}
    assert {path for path, right in stated if right is Right.ADMIN} == CHANGING
    assert {path for path, right in stated if right is Right.OPEN} == OPEN - {"/"}


def test_every_method_of_grpc_has_a_right_at_the_doorkeeper() -> None:
    """A method that grpc serves and the doorkeeper does not know would be open to every known caller."""
    assert admission.RIGHTS.keys() == {m.path for m in RPCS}


def test_every_route_over_http(case: tuple[str, str], apps: dict[str, App], issuer: Issuer) -> None:
    """A request is refused by its right alone, before its body is read."""
    auth, caller = case
    wrong = []
    for method, path, right in rest():
        reply = ask(apps[auth], method, path, headers(issuer.credential(auth, caller, right)), b"{}")
        want = expected(auth, caller, right)
        if refused(reply.status) != want or (want and reply.reads):
            wrong.append((method, path, right.name, reply.status, reply.reads))
    assert wrong == []


def test_every_route_from_elsewhere(case: tuple[str, str], apps: dict[str, App], issuer: Issuer) -> None:
    """A caller on another machine needs a credential to change state."""
    auth, caller = case
    wrong = []
    for method, path, right in rest():
        given = headers(issuer.credential(auth, caller, right))
        reply = ask(apps[auth], method, path, given, b"{}", client=("192.0.2.1", 1))
        if refused(reply.status) != expected(auth, caller, right, local=False):
            wrong.append((method, path, right.name, reply.status))
    assert wrong == []


CODES: Final = {"unauthenticated": 401, "permission_denied": 403}


def test_every_method_over_connect_and_grpc_web(case: tuple[str, str], apps: dict[str, App], issuer: Issuer) -> None:
    """Each protocol has its own code for the refusal, and unary Connect a status. A long body is not read first."""
    auth, caller = case
    wrong = []
    for method in RPCS:
        for kind in types(method):
            long = {"content_length": str(64 * 1024)}
            given = headers(issuer.credential(auth, caller, method.rpc.right), content_type=kind, **long)
            body = {"proto": b"", "json": b"{}"}.get(kind.removeprefix("application/"), bytes(5))
            reply = ask(apps[auth], "POST", method.path, given, body)
            code = judged(reply.status, reply.headers, reply.body).code
            want = expected(auth, caller, method.rpc.right)
            if CODES.get(code or "", 0) != want or (want and reply.reads):
                wrong.append((method.path, kind, reply.status, code))
    assert wrong == []


def test_every_method_over_grpc(
    case: tuple[str, str], environ: Callable[[str], dict[str, str]], issuer: Issuer
) -> None:
    """The metadata carry the credential, in either form."""
    auth, caller = case
    codes = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.PERMISSION_DENIED: 403}

    forms = {method.path: method.form for method in RPCS}

    async def outcome(channel: aio.Channel, path: str, right: Right) -> int:
        credential = issuer.credential(auth, caller, right)
        metadata = () if credential is None else (("x-api-key", credential),)
        form, call = forms.get(path, Form.EXCHANGE), None
        try:
            if form is Form.UNARY:
                await channel.unary_unary(path)(b"", metadata=metadata, timeout=30)
                return 0
            several: Any = channel.stream_stream if form is Form.EXCHANGE else channel.unary_stream
            call = several(path)(iter(()) if form is Form.EXCHANGE else b"", metadata=metadata, timeout=30)
            return codes.get(await call.code(), 0) if await call.read() is aio.EOF else 0
        except aio.AioRpcError as error:
            return codes.get(error.code(), 0)
        finally:
            if call is not None:
                call.cancel()

    async def main(app: App) -> list[Any]:
        async with running(app) as (channel, _):
            found = [(path, await outcome(channel, path, right), right) for path, right in admission.RIGHTS.items()]
        return [each for each in found if each[1] != expected(auth, caller, each[2])]

    with closing(App(Settings.from_env(environ(auth)))) as app:
        assert asyncio.run(main(app)) == []


@pytest.fixture(scope="module")
def functions(environ: Callable[[str], dict[str, str]]) -> Iterator[dict[str, Function]]:
    """One function for each authentication."""
    made = {}
    for auth in AUTHS:
        made[auth] = Function(Settings.from_env({**environ(auth), "AWS_LAMBDA_FUNCTION_NAME": "f"}))
    yield made
    for function in made.values():
        function.close()


def http_api(method: str, path: str, given: dict[str, str]) -> dict[str, Any]:
    context = {"http": {"method": method, "path": path, "sourceIp": "127.0.0.1"}, "stage": "$default"}
    return {"version": "2.0", "requestContext": context, "rawPath": path, "headers": given, "body": "{}"}


def rest_api(method: str, path: str, given: dict[str, str]) -> dict[str, Any]:
    context = {"httpMethod": method, "path": path, "stage": "prod", "identity": {"sourceIp": "127.0.0.1"}}
    several = {name: [value] for name, value in given.items()}
    event = {
        "resource": "/{proxy+}",
        "httpMethod": method,
        "path": path,
        "headers": given,
        "multiValueHeaders": several,
        "body": "{}",
    }
    return event | {"requestContext": context, "queryStringParameters": None, "isBase64Encoded": False}


@pytest.mark.parametrize("event", [http_api, rest_api])
def test_every_route_on_lambda(
    case: tuple[str, str], event: Callable[..., Any], functions: dict[str, Function], issuer: Issuer
) -> None:
    """Changing state needs a credential: the address in an event does not make a caller a neighbour."""
    auth, caller = case
    calls = [("POST", m.path, m.rpc.right) for m in RPCS if m.form is Form.UNARY]
    wrong = []
    for method, path, right in [*rest(), *calls]:
        given = headers(issuer.credential(auth, caller, right), content_type="application/json")
        answer = functions[auth](event(method, path, given), None)
        if refused(answer["statusCode"]) != expected(auth, caller, right, local=False):
            wrong.append((method, path, right.name, answer["statusCode"]))
    assert wrong == []


@pytest.mark.parametrize("auth", ["keys", "jwt"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/v2/nothing"), ("PUT", "/v2"),
    ("POST", "/v1/nothing"), ("GET", "/grps/v1/nothing"), ("POST", "/inference.GRPCInferenceService/Nothing"),
    ("POST", "/no.Service/Nothing"), ("OPTIONS", "/v2/models"), ("GET", "/v2/models/nobody")])  # fmt: skip
def test_an_unknown_path_is_not_told_from_a_known_one(auth: str, method: str, path: str, apps: dict[str, App]) -> None:
    """An unauthenticated caller learns neither the routes nor the models."""
    assert ask(apps[auth], method, path).status == 401
