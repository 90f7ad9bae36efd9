"""Tokens: JWTs (RFC 7519) that an issuer signs, proved with its public keys.

A verified token is remembered by its digest, for REMEMBERED seconds at most and never beyond its end, so that a warm
request costs a digest and not a signature. The digest is of the whole token: another byte means a new verification.
"""

import time
from importlib.util import find_spec
from typing import Any, Final

from core.errors import ServingError, Unauthenticated, shown
from handler.edge.gate.identity import EVERY, Caller, patterns, scoped
from handler.edge.gate.jwks import JwkSet
from handler.settings import InvalidSettings, Settings

REMEMBERED: Final = 60.0
"""Seconds. A key that its issuer has withdrawn proves no token for longer than that, once the set is renewed."""
MOST: Final = 1024
SHOWN_NAME: Final = 64
MOST_MODELS: Final = 256
NO_LIBRARY: Final = (
    "DRAGOMAN_AUTH with tokens needs PyJWT: pip install 'dragoman[jwt]', or for Lambda EXTRAS='onnx jwt' sam build"
)
REASONS: Final = {
    "ExpiredSignatureError": "it has expired",
    "ImmatureSignatureError": "it is not valid yet",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuedAtError": "its iat is not a number",
    "InvalidIssuerError": "it is from another issuer",
    "InvalidJTIError": "its jti is not a text",
    "InvalidSignatureError": "its signature is wrong",
    "InvalidSubjectError": "its sub is not a text",
    "MissingRequiredClaimError": "it lacks exp, iss or aud",
}
"""The texts that clients read for an exception of PyJWT. Each is a fact about their own token."""


class Tokens:
    """The proof of tokens, and the tokens that were proved lately."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidSettings."""
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise InvalidSettings(NO_LIBRARY)
        required = {
            "DRAGOMAN_JWT_JWKS": settings.jwt_jwks,
            "DRAGOMAN_JWT_ISSUER": settings.jwt_issuer,
            "DRAGOMAN_JWT_AUDIENCE": settings.jwt_audience,
        }
        for variable, value in required.items():
            if not value:
                raise InvalidSettings(f"DRAGOMAN_AUTH with tokens needs {variable}")
        self._settings = settings
        self._set = JwkSet(settings.jwt_jwks)
        self._proved: dict[bytes, tuple[Caller, float, float]] = {}
        self._generation = self._set.generation

    def known(self, digest: bytes) -> Caller | None:
        """Returns the caller of a token that was proved lately."""
        if self._generation != self._set.generation:
            self._generation = self._set.generation
            self._proved.clear()
        known = self._proved.get(digest)
        # A clock that is set back must not remember for hours what a withdrawn key has signed.
        return known[0] if known is not None and time.time() < known[1] and time.monotonic() < known[2] else None

    async def identity(self, token: bytes, digest: bytes) -> Caller:
        """Returns a token's caller. Raises Unauthenticated, ServerBusy while no keys are known."""
        identity, until = await self._prove(token)
        if len(self._proved) >= MOST:
            self._proved.clear()
        self._proved[digest] = identity, until, time.monotonic() + REMEMBERED
        return identity

    async def _prove(self, token: bytes) -> tuple[Caller, float]:
        import jwt  # noqa: PLC0415 - as in jwks

        try:
            text = token.decode("ascii")
            header = jwt.get_unverified_header(text)
            algorithm, kid = header.get("alg"), header.get("kid", "")
            key = await self._key(algorithm, kid)
            claims = jwt.decode(
                text,
                key,
                algorithms=[str(algorithm)],
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer,
                leeway=self._settings.jwt_leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
            return self._identity(claims), float(claims["exp"]) + self._settings.jwt_leeway
        except ServingError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client's bytes make PyJWT raise, the caller is not known
            reason = REASONS.get(type(error).__name__, "it is not a token of this server's issuer")
            raise Unauthenticated(f"the token is not valid: {reason}") from None

    async def _key(self, algorithm: Any, kid: Any) -> Any:
        """Returns the key of a token's header. Raises Unauthenticated, ServerBusy."""
        if algorithm not in self._settings.jwt_algorithms or not isinstance(kid, str):
            raise Unauthenticated("the token is not valid: its algorithm or key id is not permitted")
        return await self._set.key(kid, algorithm)

    def _identity(self, claims: dict[str, Any]) -> Caller:
        name = f"token {shown(claims.get('sub', ''), SHOWN_NAME)}"
        return Caller(name, scoped(scopes(claims), self._settings.jwt_scope_prefix), patterns(models(claims)))


def scopes(claims: Any) -> list[str]:
    """Returns the scopes of claims: `scope`, a text (RFC 8693 4.2), and `scp`, a text or a list (Entra, Okta)."""
    found: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        words = value.split() if isinstance(value, str) else value if isinstance(value, list) else ()
        found += [word for word in words if isinstance(word, str)]
    return found


def models(claims: Any) -> list[str]:
    """Returns the patterns of models that claims permit: `models`, a list or a text; every model without it.

    Raises Unauthenticated for another type: a limit that is not understood must not vanish.
    """
    value = claims.get("models")
    if value is None:
        return [EVERY]
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(words, list) or len(words) > MOST_MODELS or not all(isinstance(word, str) for word in words):
        raise Unauthenticated("the claim 'models' is not understood; expected a list of patterns")
    return words
