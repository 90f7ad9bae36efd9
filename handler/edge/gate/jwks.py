"""The public keys that tokens are signed with: a JWK set (RFC 7517) from a URL or a file, kept and renewed.

A token with an unknown key's id starts one request for the set at most every COOLDOWN seconds, however many such tokens
come. The request runs in a thread of its own. Tokens with an unknown id wait for it, and all tokens if the set is old.
A set stays in use until the next one arrives: an issuer that cannot be reached must not stop a server.
"""

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from core.errors import ServerBusy, Unauthenticated, shown
from core.records import NamedTuple
from handler.edge.gate.key_file import KeyFile
from handler.edge.leaving import landed
from handler.settings import InvalidSettings

log = logging.getLogger(__name__)
COOLDOWN: Final = 30.0
"""The least seconds between two requests for the set. One that takes longer is given up when the next one begins."""
FIRST_COOLDOWN: Final = 5.0
"""The same number until the first set is there."""
FRESH: Final = 600.0
"""Seconds after which a use of the set starts its renewal."""
OLD: Final = 3600.0
"""Seconds after which tokens wait for the renewal: a server that was idle must not accept a key withdrawn long ago."""
SECONDS: Final = 5.0
"""Seconds for one request, from its start to its last byte. No token waits longer, even if the request does.

A host's address, and each piece of a head, may take as long again."""
LARGEST: Final = 512 * 1024
PIECE: Final = 16 * 1024
MOST_KEYS: Final = 256
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
KINDS: Final = ("RSA", "EC", "OKP")
"""The asymmetric kinds of keys. A symmetric one in a public set would let every reader of it sign tokens."""
OF_RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
"""The algorithms of an RSA key. A key on a curve has one."""
NO_SIGNATURE: Final = "none"
"""The algorithm of tokens without a signature (RFC 7518 3.6)."""
NO_KID: Final = (
    "the token does not name its key, and its issuer publishes several: "
    "the issuer has to set 'kid' in the token's header"
)
LEAST_BITS: Final = 2048
"""The fewest bits of an RSA key (RFC 7518 3.3 and 3.5)."""


class PublicKey(NamedTuple):
    """A key of a set. `kid`: its id, "" without one. `algorithms`: those that its issuer may use it for."""

    kid: str
    key: Any
    algorithms: frozenset[str]


Keys = Sequence[PublicKey]


class JwkSet:
    """The keys of one issuer. `generation` counts the sets: a token that an older set proved is proved again."""

    def __init__(self, source: str) -> None:
        """`source`: DRAGOMAN_JWT_JWKS. Raises InvalidSettings."""
        self._file: KeyFile | None = None
        self._url = ""
        self._keys: Keys | None = None
        self._flight: Future[Keys] | None = None
        self._has_failed = False
        self._begun = self._taken = float("-inf")
        self.generation = 0
        if "://" in source:
            self._url = _checked(source)
            return
        self._file = KeyFile(Path(source), LARGEST)
        try:
            self._take(_parsed(self._file.read()))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidSettings(f"DRAGOMAN_JWT_JWKS cannot be read: {reason}") from None

    async def key(self, kid: str, algorithm: str) -> Any:
        """Returns the key with an id, for an algorithm; without an id, the only one.

        Raises Unauthenticated, ServerBusy.
        """
        self._renew()
        found = self._find(kid)
        if not found and self._may_ask():
            self._start()
        flight = self._flight
        if flight is not None and (not found or self._is_older(OLD)):
            # A request that hangs delays the tokens of its first seconds, and not those that come later.
            await landed(flight, max(0.0, self._begun + SECONDS - time.monotonic()) if found else SECONDS)
            self._land()
            found = self._find(kid)
        if found:
            fitting = [each.key for each in found if algorithm in each.algorithms]
            if not fitting:
                raise Unauthenticated("the token is not valid: its algorithm is not that of its key")
            return fitting[-1]
        if not kid and self._keys is not None:
            raise Unauthenticated(NO_KID)
        if self._keys is None or self._has_failed or (flight is not None and not flight.done()):
            pause = (
                FIRST_COOLDOWN if self._keys is None else max(FIRST_COOLDOWN, self._begun + COOLDOWN - time.monotonic())
            )
            raise ServerBusy("the keys that tokens are signed with cannot be fetched at the moment", retry_after=pause)
        raise Unauthenticated("the token is signed with a key that its issuer does not publish")

    def _find(self, kid: str) -> Keys:
        """Returns the keys with an id: keys of different kinds can share one (RFC 7517 4.5)."""
        keys = self._keys or ()
        if kid:
            return [each for each in keys if each.kid == kid]
        return keys if len(keys) == 1 else ()

    def _may_ask(self) -> bool:
        pause = FIRST_COOLDOWN if self._keys is None and self._flight is None else COOLDOWN
        return bool(self._url) and time.monotonic() - self._begun >= pause

    def _renew(self) -> None:
        """Takes the answer of the last request, and starts the next one if it is due."""
        self._land()
        if self._file is not None:
            self._read_again(self._file)
        elif self._keys is not None and self._is_older(FRESH) and self._may_ask():
            self._start()

    def _is_older(self, seconds: float) -> bool:
        return time.monotonic() - self._taken >= seconds

    def _read_again(self, file: KeyFile) -> None:
        try:
            document = file.changed()
            if document is not None:
                self._take(_parsed(document))
        except (OSError, ValueError) as error:
            log.error("DRAGOMAN_JWT_JWKS: %s; the keys that were read before stay valid", type(error).__name__)  # noqa: TRY400 - the message has all the facts

    def _start(self) -> None:
        self._begun = time.monotonic()
        flight: Future[Keys] = Future()
        self._flight = flight

        def run() -> None:
            try:
                flight.set_result(_parsed(_fetched(self._url)))
            except Exception as error:  # noqa: BLE001 - whatever a foreign server makes urllib or the parser raise
                kept = "" if self._keys is None else "; those that were fetched before stay valid"
                log.warning("the keys that tokens are signed with cannot be fetched: %s%s", type(error).__name__, kept)
                flight.set_exception(error)

        threading.Thread(target=run, name="dragoman-jwks", daemon=True).start()

    def _land(self) -> None:
        flight = self._flight
        if flight is not None and flight.done():
            self._flight = None
            self._has_failed = flight.exception() is not None
            if not self._has_failed:
                self._take(flight.result())
                self._taken = self._begun  # a function can be frozen between the answer and this line

    def _take(self, keys: Keys) -> None:
        self._keys = keys
        self.generation += 1


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        return url
    raise InvalidSettings("DRAGOMAN_JWT_JWKS is neither a file nor an https URL; http is for this machine only")


def _fetched(url: str) -> bytes:
    """Returns the document at a URL. Follows no redirect. Raises OSError, ValueError."""
    from urllib import request  # noqa: PLC0415 - 30 ms of cold start for servers without tokens
    from urllib.error import HTTPError  # noqa: PLC0415 - the same

    class NoRedirect(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    deadline, pieces, size = time.monotonic() + SECONDS, [], 0
    try:
        answer = request.build_opener(NoRedirect).open(url, timeout=SECONDS)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise
    with answer as response:
        while piece := response.read1(PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
    return b"".join(pieces)


def _is_for_signatures(member: Any) -> bool:
    """Decides whether a member of a set is a key of a known kind for signatures."""
    if not isinstance(member, dict) or member.get("kty") not in KINDS or member.get("alg") == NO_SIGNATURE:
        return False
    is_wanted: bool = member.get("use", "sig") == "sig"
    return is_wanted


def _parsed(document: bytes) -> Keys:
    """Returns the keys for signatures of a set. Leaves out those that this server cannot use. Raises ValueError."""
    import jwt  # noqa: PLC0415 - an extra, and 60 ms of cold start with cryptography

    if len(document) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    try:
        members = json.loads(document)["keys"][:MOST_KEYS]
    except (KeyError, TypeError, RecursionError):
        raise ValueError("it is not a JWK set") from None
    keys: list[PublicKey] = []
    for member in members:
        if not _is_for_signatures(member):
            continue
        with suppress(jwt.PyJWTError, ValueError, TypeError, KeyError):  # a key that this server cannot use
            if "verify" not in member.get("key_ops", ("verify",)):  # RFC 7517 4.3
                continue
            made = jwt.PyJWK(member)
            is_rsa = member["kty"] == "RSA"
            if is_rsa and made.key.key_size < LEAST_BITS:
                told = "the RSA key %s for tokens has %d bits: it is left out; RFC 7518 requires %d"
                log.warning(told, shown(member.get("kid", "")), made.key.key_size, LEAST_BITS)
                continue
            is_any = is_rsa and member.get("alg") is None
            algorithms = OF_RSA if is_any else frozenset((made.algorithm_name,))
            keys.append(PublicKey(str(member.get("kid", "")), made.key, algorithms))
    if not keys:
        raise ValueError("it has no key for signatures")
    return keys
