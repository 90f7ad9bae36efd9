"""No malformed key, no wrong token and no source of keys lets a caller through."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from handler.edge import leaving
from handler.edge.app import App
from handler.edge.gate import jwks, key_file, keys
from handler.settings import InvalidSettings
from tests.support import web
from tests.support.asgi import application
from tests.support.gated import AUDIENCE, ISSUER, KEYS, LINES, Issuer, ask, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

READ, MODELS = KEYS["read"], "/v2/models"
Pairs = list[tuple[bytes, bytes]]
make = partial(application, inline=True)


@pytest.fixture(scope="module")
def app(issuer: Issuer) -> Iterator[App]:
    """An application that accepts keys and tokens."""
    with closing(make(**issuer.settings("both"))) as made:
        yield made


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


@pytest.mark.parametrize("origins", ["", "https://app.example"])
@pytest.mark.parametrize(("path", "expected"), [
    (MODELS, "no-store"), ("/v2/health/ready", "no-store"), ("/nothing", "no-store"), ("/metrics", "no-store"),
    ("/favicon.ico", "public, max-age=86400"),
    ("/inference.GRPCInferenceService/RepositoryIndex?connect=v1&encoding=json&message={}", "no-store")])  # fmt: skip
def test_no_cache_keeps_the_answer_to_a_credential(origins: str, path: str, expected: str) -> None:
    """Shared caches know Authorization (RFC 9111 3.5), but not x-api-key. Files of the console are for everybody."""
    with closing(make(AUTH="keys", KEYS=LINES, CORS_ORIGINS=origins, METRICS="triton")) as app:
        for method in ("GET", "HEAD"):
            name, _, query = path.partition("?")
            reply = ask(app, method, name, {"x-api-key": READ}, query_string=query.encode())
            assert reply.headers["cache-control"] == expected
    with closing(make()) as app:
        assert "cache-control" not in ask(app, "GET", MODELS).headers


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
def test_a_credential_stands_in_either_header(app: App, issuer: Issuer, name: str, scheme: str) -> None:
    """A key and a token are accepted in both, however the scheme is written."""
    for credential in (READ, issuer.token("read"), issuer.token("read", kid="ec")):
        text = credential if name == "x-api-key" else scheme + credential
        assert [ask(app, "GET", MODELS, {name: text}).status for _ in range(2)] == [200, 200]


KEY = READ.encode()
MALFORMED: dict[str, Pairs] = {
    "two keys": [(b"x-api-key", KEY), (b"x-api-key", KEY)],
    "two tokens": [(b"authorization", b"Bearer " + KEY), (b"authorization", b"Bearer " + KEY)],
    "both headers": [(b"authorization", b"Bearer " + KEY), (b"x-api-key", KEY)],
    "contradiction": [(b"x-api-key", KEY), (b"authorization", b"Bearer dgm_other")],
    "joined": [(b"authorization", b"Bearer " + KEY + b", Bearer " + KEY)],
    "joined keys": [(b"x-api-key", KEY + b"," + KEY)],
    "no token": [(b"authorization", b"Bearer")],
    "empty token": [(b"authorization", b"Bearer ")],
    "no scheme": [(b"authorization", KEY)],
    "basic": [(b"authorization", b"Basic " + base64.b64encode(b"user:" + KEY))],
    "scheme in x-api-key": [(b"x-api-key", b"Bearer " + KEY)],
    "empty": [(b"x-api-key", b"")],
    "blank": [(b"x-api-key", b" " + KEY)],
    "non-ASCII": [(b"x-api-key", "dgm_é日".encode())],
    "latin": [(b"authorization", b"Bearer \xff\xfe\x00")],
    "huge": [(b"x-api-key", b"a" * 2**20)],
    "huge token": [(b"authorization", b"Bearer " + b"a." * 2**19)],
    "upper case": [(b"x-api-key", KEY.upper())],
    "prefix": [(b"x-api-key", KEY[:-1])],
    "digest": [(b"x-api-key", LINES.split("sha256:")[2].split()[0].encode())],
    "dots": [(b"authorization", b"Bearer ..")],
    "cookie": [(b"cookie", b"x-api-key=" + KEY)],
}


@pytest.mark.parametrize("pairs", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_credential_is_refused_and_health_is_not(app: App, pairs: Pairs) -> None:
    """Anything except exactly one key or one token is 401 with the scheme that is expected."""
    assert ask(app, "GET", MODELS, {"x-api-key": READ}).status == 200  # what is remembered of it must not help
    reply = ask(app, "GET", MODELS, pairs)
    assert (reply.status, reply.headers["www-authenticate"], reply.reads) == (401, "Bearer", 0)
    assert ask(app, "GET", "/v2/health/ready", pairs).status == 200


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def signed(issuer: Issuer, header: Any, payload: Any) -> str:
    """Returns a token with any header and payload, correctly signed with the key "rsa"."""
    text = f"{part(header)}.{part(payload)}"
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(text.encode(), issuer.rsa)
    return f"{text}.{part(signature)}"


def confused(issuer: Issuer) -> str:
    """Returns a token signed by HMAC with the public key, which everybody has."""
    import hashlib  # noqa: PLC0415 - of this attack alone
    import hmac  # noqa: PLC0415 - the same

    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    text = f"{part({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{part(issuer.claims('admin'))}"
    return f"{text}.{part(hmac.digest(issuer.rsa.public_key().public_bytes(*form), text.encode(), hashlib.sha256))}"


GOOD = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
FORGED: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda i: f"{part({'alg': 'none'})}.{part(i.claims('admin'))}.",
    "alg None": lambda i: f"{part({'alg': 'None', 'kid': 'rsa'})}.{part(i.claims('admin'))}.",
    "HS256 with the public key": confused,
    "other key": lambda i: jwt.encode(i.claims(), rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "RS256", {"kid": "rsa"}),
    "key of another kind": lambda i: jwt.encode(i.claims(), i.ec, "ES256", {"kid": "rsa"}),
    "unknown key": lambda i: i.token(kid="nobody's"),
    "no key id": lambda i: i.token(kid=None),
    "key id a number": lambda i: signed(i, {**GOOD, "kid": 1}, i.claims()),
    "own key": lambda i: signed(i, {"alg": "RS256", "jwk": {"kty": "RSA"}, "jku": "https://evil"}, i.claims()),
    "critical": lambda i: signed(i, {**GOOD, "crit": ["b64"], "b64": False}, i.claims()),
    "audience": lambda i: i.token(aud="others"),
    "no audience": lambda i: i.token(aud=None),
    "issuer": lambda i: i.token(iss="https://evil"),
    "no issuer": lambda i: i.token(iss=None),
    "expired": lambda i: i.token(exp=time.time() - 31),
    "no end": lambda i: i.token(exp=None),
    "infinite end": lambda i: signed(i, GOOD, json.dumps({**i.claims(), "exp": 1e999}).encode()),
    "end a list": lambda i: signed(i, GOOD, {**i.claims(), "exp": [1]}),
    "not yet": lambda i: i.token(nbf=time.time() + 100),
    "models a number": lambda i: i.token(models=7),
    "models of numbers": lambda i: i.token(models=[7]),
    "payload a list": lambda i: signed(i, GOOD, [1]),
    "header a list": lambda i: signed(i, [1], i.claims()),
    "bomb in the header": lambda i: f"{part(b'[' * 10_000)}.{part(i.claims())}.x",
    "bomb in the payload": lambda i: signed(i, GOOD, b'{"a":' * 2_000),
    "not UTF-8": lambda i: signed(i, GOOD, b"\xff\xfe"),
    "four parts": lambda i: i.token() + ".x",
    "two parts": lambda i: ".".join(i.token().split(".")[:2]),
    "changed": lambda i: i.token()[:-5] + "AAAAA",
}  # fmt: skip


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(app: App, issuer: Issuer, forge: Callable[[Issuer], str]) -> None:
    """It causes no exception and grants no right: the caller is unknown."""
    assert ask(app, "GET", "/v2/health/live", bearer(issuer.token())).status == 200
    reply = ask(app, "GET", MODELS, bearer(forge(issuer)))
    assert (reply.status, list(reply.json())) == (401, ["error"])


@pytest.mark.parametrize(("claims", "reason"), [
    ({"sub": 5}, "its sub is not a text"), ({"jti": 5}, "its jti is not a text"),
    ({"iat": "x"}, "its iat is not a number"),
    ({"exp": 1}, "it has expired"), ({"nbf": 2**40}, "it is not valid yet"),
    ({"aud": "others"}, "it is for another audience"), ({"iss": "others"}, "it is from another issuer")])  # fmt: skip
def test_the_refusal_of_a_token_has_the_reason(app: App, issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    """The reason is a fact about the token alone: its issuer's operator can mend it."""
    reply = ask(app, "GET", MODELS, bearer(signed(issuer, GOOD, issuer.claims(**claims))))
    assert (reply.status, reply.json()) == (401, {"error": f"the token is not valid: {reason}"})


@pytest.mark.parametrize(("auth", "sent", "reason"), [
    ("keys", "dgm_wrong", "the key is not valid"), ("both", "dgm_wrong", "the key is not valid"),
    ("both", "a.b", "the key is not valid"),
    ("both", "a.b.c", "the token is not valid: it is not a token of this server's issuer"),
    ("jwt", "dgm_wrong", "the token is not valid: it is not a token of this server's issuer"),
])  # fmt: skip
def test_the_refusal_names_the_kind_of_credential_that_was_sent(
    issuer: Issuer, auth: str, sent: str, reason: str
) -> None:
    """A text without two dots cannot be a token: where keys are accepted, it is a wrong or a revoked key."""
    with closing(make(**issuer.settings(auth))) as app:
        reply = ask(app, "GET", MODELS, {"x-api-key": sent})
        assert (reply.status, reply.json()) == (401, {"error": reason})


@pytest.mark.parametrize(("kid", "reason"), [
    (None, "the token does not name its key, and its issuer publishes several: the issuer has to set 'kid' in the"),
    ("nobody's", "the token is signed with a key that its issuer does not publish"),
])  # fmt: skip
def test_the_refusal_of_a_token_without_a_key_is_true(app: App, issuer: Issuer, kid: str | None, reason: str) -> None:
    """The issuer publishes the key of a token without an id. Which one that is, the token does not say."""
    reply = ask(app, "GET", MODELS, bearer(issuer.token("read", kid=kid)))
    assert reply.status == 401
    assert reply.json()["error"].startswith(reason)


def test_keys_of_different_kinds_can_share_an_id(issuer: Issuer, tmp_path: Path) -> None:
    """The algorithm of the token chooses the key (RFC 7517 4.5). A key can be listed once for each algorithm."""
    rsa_key, ec_key = json.loads(issuer.document)["keys"]
    shared = [rsa_key | {"alg": "PS256"}, rsa_key | {"alg": "RS256"}, ec_key]
    for members in (shared, shared[::-1]):
        jwks_file = tmp_path / "jwks.json"
        jwks_file.write_text(json.dumps({"keys": [each | {"kid": "shared"} for each in members]}))
        with closing(make(**issuer.settings("jwt") | {"JWT_JWKS": str(jwks_file)})) as app:
            for key, algorithm, status in (
                (issuer.rsa, "RS256", 200),
                (issuer.rsa, "PS256", 200),
                (issuer.ec, "ES256", 200),
                (issuer.rsa, "RS512", 401),
            ):
                token = jwt.encode(issuer.claims("read"), key, algorithm, {"kid": "shared"})
                assert ask(app, "GET", MODELS, bearer(token)).status == status


@pytest.mark.parametrize("unusable", [{"alg": "none"}, {"key_ops": ["encrypt"]}, {"key_ops": 1}, {"use": "enc"}])
def test_a_key_that_is_not_for_signatures_is_left_out(issuer: Issuer, tmp_path: Path, unusable: Any) -> None:
    """The other keys of the set stay valid."""
    rsa_key, ec_key = json.loads(issuer.document)["keys"]
    jwks_file = tmp_path / "jwks.json"
    jwks_file.write_text(json.dumps({"keys": [rsa_key | unusable, ec_key | {"key_ops": ["verify"]}]}))
    with closing(make(**issuer.settings("jwt") | {"JWT_JWKS": str(jwks_file)})) as app:
        for kid, status in (("rsa", 401), ("ec", 200)):
            assert ask(app, "GET", MODELS, bearer(issuer.token("read", kid=kid))).status == status


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(("bits", "status"), [(1024, 401), (2047, 401), (2048, 200)])
def test_a_short_rsa_key_is_left_out(
    issuer: Issuer, tmp_path: Path, bits: int, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The other keys of the set stay valid, and the log names the key (RFC 7518 3.3)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    member = {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "short"}
    jwks_file = tmp_path / "jwks.json"
    jwks_file.write_text(json.dumps({"keys": [member, *json.loads(issuer.document)["keys"]]}))
    with closing(make(**issuer.settings("jwt") | {"JWT_JWKS": str(jwks_file)})) as app:
        token = jwt.encode(issuer.claims("read"), key, "RS256", {"kid": "short"})
        assert ask(app, "GET", MODELS, bearer(token)).status == status
        assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
    told = f"the RSA key 'short' for tokens has {bits} bits: it is left out; RFC 7518 requires 2048"
    assert (told in caplog.messages) is (status == 401)


def test_a_clock_may_differ_by_some_seconds(app: App, issuer: Issuer) -> None:
    """DRAGOMAN_JWT_LEEWAY is 30 seconds by default."""
    token = issuer.token("read", exp=time.time() - 10, nbf=time.time() + 10)
    assert ask(app, "GET", MODELS, bearer(token)).status == 200


@pytest.mark.parametrize("scopes", [{"scope": "openid dragoman:read x"}, {"scope": None, "scp": ["dragoman:read"]},
    {"scope": None, "scp": "dragoman:read"}, {"scope": "dragoman:admin"}])  # fmt: skip
def test_scopes_are_rights(app: App, issuer: Issuer, scopes: dict[str, Any]) -> None:
    """The claim is a text or a list, and may hold scopes of other services; admin includes the others."""
    assert ask(app, "GET", MODELS, bearer(issuer.token(**scopes))).status == 200


@pytest.mark.parametrize("scopes", [{"scope": "read infer"}, {"scope": None}, {"scope": ["dragoman:read"], "scp": 1},
    {"scope": "dragoman:everything dragoman:"}])  # fmt: skip
def test_other_scopes_are_no_rights(app: App, issuer: Issuer, scopes: dict[str, Any]) -> None:
    """A known caller without a right gets 403."""
    if isinstance(scopes["scope"], list):
        scopes = {"scope": {"dragoman:read": 1}, "scp": 1}
    assert ask(app, "GET", MODELS, bearer(issuer.token(**scopes))).status == 403


def test_a_tokens_models_limit_it(app: App, issuer: Issuer) -> None:
    """The claim holds patterns, as a key's line does."""
    token = bearer(issuer.token("read", models=["iris*"]))
    assert ask(app, "GET", MODELS, token).json() == {"models": ["iris"]}
    assert ask(app, "GET", f"{MODELS}/strings", token).status == 403


def test_a_proved_token_is_forgotten_when_it_ends(issuer: Issuer) -> None:
    """What is remembered of a token does not outlive it."""
    with closing(make(**issuer.settings("jwt"), JWT_LEEWAY="0")) as app:
        end = time.time() + 5
        assert ask(app, "GET", MODELS, bearer(issuer.token("read", exp=end))).status == 200
        tokens: Any = app.gate._tokens
        assert [until <= end for _, until, _ in tokens._proved.values()] == [True]


def test_a_clock_that_is_set_back_lets_no_token_be_remembered_longer(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remembered token asks for no keys: a withdrawn one would count until the clock has caught up."""
    with closing(make(**issuer.settings("jwt"))) as app:
        token = issuer.token("read")
        assert ask(app, "GET", MODELS, bearer(token)).status == 200
        known: Any = app.gate._tokens
        [digest] = known._proved
        now, later = time.time() - 5 * 3600, time.monotonic() + 61
        assert known.known(digest) is not None
        monkeypatch.setattr(time, "time", lambda: now)
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert known.known(digest) is None


def test_a_file_of_public_keys_may_have_the_time_of_the_one_before_it(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a build that can be repeated are all of 1970."""
    file = tmp_path / "set.json"
    file.write_text(issuer.document)
    os.utime(file, (0, 0))
    with closing(make(**{**issuer.settings("jwt"), "JWT_JWKS": str(file)})) as app:
        second = Issuer(tmp_path)
        os.utime(second.jwks, (0, 0))
        second.jwks.replace(file)
        later = time.monotonic() + 2
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert ask(app, "GET", MODELS, bearer(second.token("read"))).status == 200


def test_a_new_file_of_public_keys_that_cannot_be_read_yet_is_read_later(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its permissions may come after its content. Until then the keys that were read before stay valid."""
    now, file = [time.monotonic()], tmp_path / "set.json"
    file.write_text(issuer.document)

    def denied(_: Any) -> bytes:
        raise PermissionError(13, "Permission denied")

    with closing(make(**{**issuer.settings("jwt"), "JWT_JWKS": str(file)})) as app:
        second = Issuer(tmp_path)
        second.jwks.replace(file)
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        with monkeypatch.context() as unreadable:
            unreadable.setattr(type(file), "read_bytes", denied)
            now[0] += 2
            assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
        now[0] += 2
        assert ask(app, "GET", MODELS, bearer(second.token("read"))).status == 200


# -- sources of keys -----------------------------------------------------------------------------------------------


class _Jwks(web.Handler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.asked += 1
        status, body = server.answer
        self.answer(status, body, {"location": "/other"} if status == 302 else {})


@pytest.fixture
def site(issuer: Issuer) -> Iterator[Any]:
    """A server of the issuer's keys. `asked`: the number of requests so far. `answer`: a status and a body."""
    server: Any
    with web.serving(_Jwks) as server:
        server.asked, server.answer = 0, (200, issuer.document.encode())
        yield server


def remote(site: Any, issuer: Issuer) -> App:
    return make(**{**issuer.settings("jwt"), "JWT_JWKS": f"{site.url}/jwks"})


def test_unknown_keys_cost_the_issuer_one_request(site: Any, issuer: Issuer) -> None:
    """A client that invents key ids cannot make this server ask its issuer over and over."""
    with closing(remote(site, issuer)) as app:
        statuses = [ask(app, "GET", MODELS, bearer(issuer.token("read", kid=f"made up {n}"))).status for n in range(20)]
        assert set(statuses) == {401}
        assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
        assert site.asked == 1


def test_a_new_key_of_an_issuer_that_fails_is_not_called_unpublished(
    site: Any, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows that then, and clients do not retry a 401."""
    now = [time.monotonic()]
    with closing(remote(site, issuer)) as app:
        token = bearer(issuer.token("read", kid="new"))
        assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        found = []
        for answer in ((500, b""), (200, issuer.document.encode())):
            site.answer = answer
            now[0] += jwks.COOLDOWN + 1
            found += [ask(app, "GET", MODELS, token) for _ in range(2)]
        assert [reply.status for reply in found] == [503, 503, 401, 401]
        assert 1 <= int(found[1].headers["retry-after"]) <= jwks.COOLDOWN


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_server_that_was_idle_accepts_no_withdrawn_key(
    site: Any, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_renewed: bool
) -> None:
    """The first token after a long pause waits for the renewal. `is_renewed`: a set came just before the pause."""
    (tmp_path / "second").mkdir()
    second = Issuer(tmp_path / "second")
    with closing(remote(site, issuer)) as app:
        old = bearer(issuer.token("read"))
        assert ask(app, "GET", MODELS, old).status == 200
        now = [time.monotonic()]
        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now[0])
            if is_renewed:
                now[0] += jwks.FRESH
                assert ask(app, "GET", MODELS, old).status == 200
                for thread in threading.enumerate():
                    if thread.name == "dragoman-jwks":
                        thread.join()
            site.answer = 200, second.document.encode()
            now[0] += 36 * 3600
            assert ask(app, "GET", MODELS, old).status == 401
            assert ask(app, "GET", MODELS, bearer(second.token("read"))).status == 200
        assert site.asked == 2 + is_renewed


def test_an_old_set_proves_tokens_while_its_issuer_fails(
    site: Any, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The renewal is tried again after the shorter pause, and the log has each failure."""
    with closing(remote(site, issuer)) as app:
        assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
        site.answer, now = (500, b""), [time.monotonic()]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        asked = []
        for pause in (jwks.OLD, 1, jwks.COOLDOWN, 1, jwks.COOLDOWN):
            now[0] += pause
            assert ask(app, "GET", MODELS, bearer(issuer.token("read", sub=str(now[0])))).status == 200
            asked.append(site.asked)
        assert asked == [2, 2, 3, 3, 4]
    text = (
        "the keys that tokens are signed with cannot be fetched: HTTPError; those that were fetched before stay valid"
    )
    assert caplog.messages.count(text) == 3


class _Stuck(_Jwks):
    """Answers once. Further answers wait for `ends`."""

    def do_GET(self) -> None:
        server: Any = self.server
        if server.asked:
            server.ends.wait(60)
        super().do_GET()


def test_a_renewal_that_hangs_delays_no_later_token(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of its first seconds wait for it; after that the old set proves tokens at once."""
    waits: list[float | None] = []

    def landed(flight: Any, seconds: float | None = None) -> Any:
        waits.append(seconds)
        return leaving.landed(flight, 0)

    server: Any
    with web.serving(_Stuck) as server:
        server.ends, server.asked, server.answer = threading.Event(), 0, (200, issuer.document.encode())
        with closing(remote(server, issuer)) as app:
            assert ask(app, "GET", MODELS, bearer(issuer.token("read"))).status == 200
            now = [time.monotonic()]
            monkeypatch.setattr(time, "monotonic", lambda: now[0])
            monkeypatch.setattr(jwks, "landed", landed)
            for pause in (jwks.OLD, 2.0, jwks.SECONDS):
                now[0] += pause
                assert ask(app, "GET", MODELS, bearer(issuer.token("read", sub=str(now[0])))).status == 200
            server.ends.set()
    assert waits == pytest.approx([jwks.SECONDS, jwks.SECONDS - 2, 0])


def test_many_tokens_wait_for_one_request(site: Any, issuer: Issuer) -> None:
    """The first tokens come at the same moment."""
    with closing(remote(site, issuer)) as app:

        async def main() -> list[bool]:
            scopes = [{"headers": [(b"x-api-key", issuer.token("read", sub=str(n)).encode())]} for n in range(8)]
            return [v.identity is not None for v in await asyncio.gather(*map(app.gate.enter, scopes))]

        assert asyncio.run(main()) == [True] * 8
        assert site.asked == 1


class _Endless(web.Handler):
    """`good`: the body of every answer but the first, which never ends."""

    def do_GET(self) -> None:
        server: Any = self.server
        if server.good and server.asked:
            self.answer(200, server.good)
            return
        server.asked += 1
        self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not server.ends.wait(0.05):
            self.wfile.write(b"x")


def test_no_token_waits_for_an_issuer_whose_answer_never_ends(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of a head has the time limit of a read, and so the request has none."""
    monkeypatch.setattr(jwks, "SECONDS", 0.5)
    server: Any
    with web.serving(_Endless) as server:
        server.ends, server.asked, server.good = threading.Event(), 0, b""
        with closing(remote(server, issuer)) as app:
            answers = [ask(app, "GET", MODELS, bearer(issuer.token("read"))) for _ in range(2)]
            server.ends.set()
        assert [(each.status, each.headers["retry-after"]) for each in answers] == [(503, "5")] * 2


def test_a_request_for_keys_that_never_ends_is_given_up(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad connection kept this server from its issuer for good."""
    monkeypatch.setattr(jwks, "SECONDS", 0.5)
    server: Any
    with web.serving(_Endless) as server:
        server.ends, server.asked, server.good = threading.Event(), 0, issuer.document.encode()
        with closing(remote(server, issuer)) as app:
            statuses = [ask(app, "GET", MODELS, bearer(issuer.token("read"))).status]
            monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
            monkeypatch.setattr(jwks, "SECONDS", 30.0)
            statuses.append(ask(app, "GET", MODELS, bearer(issuer.token("read"))).status)
            server.ends.set()
        assert statuses == [503, 200]


def test_a_new_key_is_fetched_and_a_withdrawn_one_is_forgotten(
    site: Any, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The issuer's next set also counts for tokens that an older one has proved."""
    monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
    second = Issuer(tmp_path)
    with closing(remote(site, issuer)) as app:
        old = bearer(issuer.token("read"))
        assert ask(app, "GET", MODELS, old).status == 200
        site.answer = 200, second.document.replace('"rsa"', '"new"').replace('"ec"', '"newer"').encode()
        assert ask(app, "GET", MODELS, bearer(second.token("read", kid="new"))).status == 200
        assert ask(app, "GET", MODELS, old).status == 401


@pytest.mark.parametrize("answer", [(500, b"no"), (302, b""), (200, b"no JSON"), (200, b'{"keys": []}'),
    (200, b"[" * 100_000), (200, b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}, 7]}'),
    (200, b" " * (jwks.LARGEST + 1))], ids=range(7))  # fmt: skip
def test_without_the_issuers_keys_the_server_says_so(site: Any, issuer: Issuer, answer: tuple[int, bytes]) -> None:
    """The client may retry, because the mistake is not its own. A redirect is not followed."""
    site.answer = answer
    with closing(remote(site, issuer)) as app:
        reply = ask(app, "GET", MODELS, bearer(issuer.token("read")))
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert ask(app, "GET", "/v2/health/live", bearer(issuer.token("read"))).status == 200
        assert site.asked == 1


def test_the_file_of_keys_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was taken out is refused, though it was used a moment ago; a broken file changes nothing."""
    monkeypatch.setattr(key_file, "LOOK_SECONDS", 0.0)
    file = tmp_path / "keys"
    file.write_text(line("old", "dgm_old", "read"))
    with closing(make(AUTH="keys", KEYS_FILE=str(file))) as app:

        def statuses() -> list[int]:
            return [ask(app, "GET", MODELS, {"x-api-key": key}).status for key in ("dgm_old", "dgm_new")]

        assert statuses() == [200, 401]
        file.write_text("# changed\n" + line("new", "dgm_new", "read,infer"))
        assert statuses() == [401, 200]
        file.write_text("this is not a line of a key")
        assert statuses() == [401, 200]
        os.remove(file)  # noqa: PTH107 - as rm does
        assert statuses() == [401, 200]
        file.write_text(line("old", "dgm_old", "read"), "utf-8-sig")  # as editors on Windows save it
        assert statuses() == [200, 401]


DIGEST = "ab" * 32
JSON_KEYS = json.dumps([{"name": "a", "sha256": DIGEST, "rights": ["read"], "models": ["x*"]}])


@pytest.mark.parametrize("text", [f"a sha256:{DIGEST} read x*", f"a {DIGEST.upper()} read x* # mine", JSON_KEYS,
    f'{{"keys": {JSON_KEYS}}}', f"# none\n;\na sha256:{DIGEST} read x*,y"])  # fmt: skip
def test_keys_are_lines_or_json(text: str) -> None:
    """Each form names the same key."""
    ((digest, caller),) = keys.parsed(text).items()
    assert (digest.hex(), caller.name, caller.may_use("x1"), caller.may_use("z")) == (DIGEST, "key a", True, False)


def test_names_that_a_caller_makes_up_leave_room_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern permits any number of names. Few are remembered, and the last one always is."""
    monkeypatch.setattr("handler.edge.gate.identity.MOST_REMEMBERED", 2)
    ((_, caller),) = keys.parsed(f"a sha256:{DIGEST} read x*").items()
    for name in ("x1", "x2", "x3"):
        assert caller.may_use(name)
        assert len(caller._permitted) <= 2
        assert name in caller._permitted


@pytest.mark.parametrize("text", ["a", f"a sha256:{DIGEST}", f"a sha256:{DIGEST[1:]} read", f"a {DIGEST} all",
    f"a b {DIGEST} read x", f"ä {DIGEST} read", f"a {DIGEST} read;b {DIGEST} infer", f"a {DIGEST} read x,,y", "[1]",
    '{"keys": 1}', "[", "[" * 100_000, '[{"name": "a", "sha256": "dgm_secret", "rights": ["read"]}]',
    f'[{{"name": "a", "sha256": "{DIGEST}", "rights": "read"}}]', JSON_KEYS.replace("models", "model")])  # fmt: skip
def test_a_wrong_entry_is_named_without_its_values(text: str) -> None:
    """A start with it is refused in one line, which does not contain anything that could be a key."""
    with pytest.raises(InvalidSettings, match="^DRAGOMAN_KEYS: ") as error:
        make(AUTH="keys", KEYS=text)
    assert DIGEST not in str(error.value)
    assert "dgm_secret" not in str(error.value)


TOKENS = {"JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}


@pytest.mark.parametrize(("settings", "text"), [
    ({"AUTH": "keys"}, "DRAGOMAN_AUTH with keys needs DRAGOMAN_KEYS_FILE or DRAGOMAN_KEYS"),
    ({"AUTH": "keys", "KEYS": " ;# none;"}, "DRAGOMAN_KEYS: expected at least one key"),
    ({"AUTH": "keys", "KEYS": "[]"}, "DRAGOMAN_KEYS: expected at least one key"),
    ({"AUTH": "keys", "KEYS_FILE": "/nowhere"}, "DRAGOMAN_KEYS_FILE cannot be read: No such file or directory"),
    ({"AUTH": "jwt", **TOKENS}, "DRAGOMAN_AUTH with tokens needs DRAGOMAN_JWT_JWKS"),
    ({"AUTH": "jwt", "JWT_JWKS": "https://x", "JWT_ISSUER": "x"}, "needs DRAGOMAN_JWT_AUDIENCE"),
    ({"AUTH": "jwt", "JWT_JWKS": "https://x", "JWT_AUDIENCE": "x"}, "needs DRAGOMAN_JWT_ISSUER"),
    ({"AUTH": "jwt", "JWT_JWKS": "http://x/", **TOKENS}, "neither a file nor an https URL"),
    ({"AUTH": "jwt", "JWT_JWKS": "file:///etc/passwd", **TOKENS}, "neither a file nor an https URL"),
    ({"AUTH": "jwt", "JWT_JWKS": "/nowhere", **TOKENS}, "DRAGOMAN_JWT_JWKS cannot be read"),
    ({"JWT_ALGORITHMS": "HS256"}, "DRAGOMAN_JWT_ALGORITHMS is 'HS256'; expected some of ES256"),
    ({"JWT_ALGORITHMS": "none"}, "expected some of"), ({"AUTH": "basic"}, "expected one of none, keys, jwt, both"),
    ({"CORS_ORIGINS": "https://a.example/path"}, "expected origins such as https://app.example.com"),
    ({"CORS_ORIGINS": "null"}, "expected origins"), ({"AUTHORIZER_RIGHTS": "all"}, "expected some of infer"),
    ({"JWT_LEEWAY": "x"}, "a number of seconds below 1000"),
])  # fmt: skip
def test_a_gate_that_would_not_close_is_no_gate(settings: dict[str, str], text: str) -> None:
    """A server whose settings are incomplete does not start."""
    with pytest.raises(InvalidSettings, match=text):
        make(**settings)
