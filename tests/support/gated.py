"""Keys, tokens and settings for servers with a gate, and requests to one in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from core.wire import Right

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from handler.edge.app import App

ISSUER, AUDIENCE = "https://issuer.example", "dragoman-models"
KEYS: Final = {words: f"dgm_{words.replace(',', '_and_')}" for words in ("infer", "read", "admin", "infer,read")}
"""A key for each set of rights."""
LACKING: Final = {Right.INFER: "read", Right.READ: "infer", Right.ADMIN: "infer,read"}
"""The rights of a known caller that lacks a right."""
WITH: Final = {Right.INFER: "infer", Right.READ: "read", Right.ADMIN: "admin", Right.OPEN: "infer"}
CALLERS: Final = ("none", "wrong", "lacking", "right")


def line(name: str, key: str, rights: str, models: str = "*") -> str:
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()} {rights} {models}"


LINES: Final = ";".join(line(words.replace(",", "-"), key, words) for words, key in KEYS.items())


class Issuer:
    """An issuer of tokens with two keys: "rsa" and "ec". `jwks`: the file of its public keys."""

    def __init__(self, folder: Path) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        members = [
            {**RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
            {**ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True), "kid": "ec"},
        ]
        self.document = json.dumps({"keys": members})
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(self.document)

    def claims(self, rights: str = "infer", **more: Any) -> dict[str, Any]:
        """Returns the claims of a good token; None removes one."""
        scope = " ".join(f"dragoman:{right}" for right in rights.split(","))
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "somebody", "exp": time.time() + 300, "scope": scope}
        return {name: value for name, value in {**good, **more}.items() if value is not None}

    def token(self, rights: str = "infer", *, kid: str | None = "rsa", **more: Any) -> str:
        key, algorithm = (self.ec, "ES256") if kid == "ec" else (self.rsa, "RS256")
        return jwt.encode(self.claims(rights, **more), key, algorithm, {} if kid is None else {"kid": kid})

    def settings(self, auth: str) -> dict[str, str]:
        """Returns settings of a server with an authentication, without their prefix."""
        tokens = {"JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE, "JWT_JWKS": str(self.jwks)}
        mine = {"none": {}, "keys": {"KEYS": LINES}, "jwt": tokens, "both": {"KEYS": LINES, **tokens}}[auth]
        return {"AUTH": auth, **mine}

    def credential(self, auth: str, caller: str, right: Right) -> str | None:
        """Returns the credential of a kind of caller (see CALLERS) on a route that needs a right."""
        if caller == "none":
            return None
        if caller == "wrong":
            return "dgm_wrong" if auth != "jwt" else self.token("admin", aud="others")
        rights = WITH[right] if caller == "right" else LACKING.get(right, "read")
        return self.token(rights) if auth == "jwt" else KEYS[rights]


class Reply(NamedTuple):
    """An answer. `headers`: all values of a name joined. `reads`: how often the application asked for the body."""

    status: int
    headers: dict[str, str]
    body: bytes
    reads: int

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: App,
    method: str,
    path: str,
    headers: Mapping[str, str] | Iterable[tuple[bytes, bytes]] = (),
    body: bytes = b"",
    **scope: Any,
) -> Reply:
    """Sends one request of a client of this machine. `scope`: other members of ASGI's scope."""
    pairs = [(k.encode(), v.encode()) for k, v in headers.items()] if hasattr(headers, "items") else list(headers)
    sent: list[Any] = []
    inbox: list[Any] = [{"type": "http.request", "body": body}]
    reads = 0

    async def receive() -> Any:
        nonlocal reads
        reads += 1
        return inbox.pop(0) if inbox else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    base = {"type": "http", "method": method, "path": path, "headers": pairs, "client": ("127.0.0.1", 1)}
    asyncio.run(app({**base, **scope}, receive, send))
    found: dict[str, str] = {}
    for name, value in sent[0]["headers"]:
        found[name.decode()] = ", ".join(filter(None, (found.get(name.decode()), value.decode("latin-1"))))
    return Reply(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]), reads)
