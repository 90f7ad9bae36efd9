"""The gate itself: the caller of a request, and whether it has a right on a model. Nothing else decides that.

Every edge enters here, and gets the models that it may ask from a Visitor: a route that forgot the gate would have
none. The decision is made of an identity, a right and a model. Without authentication a caller's identity is its place:
this machine, or elsewhere.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from core.errors import SHOWN_CHARACTERS, NotPermitted, ServingError, Unauthenticated, escaped
from core.records import NamedTuple
from core.wire import Header, Right, by_name
from handler.edge.exchange import SAFE, Headers, Receive, Scope, Send
from handler.edge.gate import origins
from handler.edge.gate.caching import unstored
from handler.edge.gate.credentials import API_KEY, AUTHORIZATION, credential, gateways_key, sole
from handler.edge.gate.identity import GRANTS, Caller
from handler.edge.gate.refusals import UNKNOWN_CALLER, RefusalLog
from handler.edge.gate.view import SeenModels, lacking, not_permitted
from handler.edge.jobs import ServedModels
from handler.settings import InvalidSettings, Settings

if TYPE_CHECKING:
    from handler.edge.gate.keys import KeyRing
    from handler.edge.gate.tokens import Tokens

Application = Callable[["Visitor", Scope, Receive, Send], Awaitable[None]]
log = logging.getLogger(__name__)
DOTS: Final = 2
"""Those of every token (RFC 7515 7.1)."""
MOST_DIGESTS: Final = 256
"""Valid credentials whose digests are remembered, by the whole header: a warm request is spared the hash. Whether the
credential is still valid is decided for each request. Finding it leaks nothing: a dictionary compares hashes first, and
those of bytes depend on a secret of the process."""
INVOKED: Final = "dragoman.invoked"
"""The member of ASGI's scope that marks a direct invocation of the function, which IAM has permitted."""
FROM_ELSEWHERE: Final = (
    "load, unload, online and offline are for direct clients on this machine, and this one is not: set DRAGOMAN_AUTH "
    "and send a key with the right 'admin', or set DRAGOMAN_CONTROL=open in a network where every client may do it"
)
"""The refusal that a container's user reads first: with a published port, every peer is another machine."""
ON_LAMBDA: Final = (
    "load, unload, online and offline are off on Lambda: set DRAGOMAN_AUTH and send a key with the right 'admin', "
    "or set DRAGOMAN_CONTROL=open; online and offline need DRAGOMAN_GRPS_HEALTH_CONTROL=instance, too"
)
OF_A_PAGE: Final = (
    "a page of another site sent this request: its Origin, Sec-Fetch-Site or Host header does not name this server; "
    "such pages cannot load or unload models, or set the server online or offline"
)
SWITCHED_OFF: Final = "load, unload, online and offline are off: DRAGOMAN_CONTROL=off"
NO_CREDENTIAL: Final = "a key or a token is required: send it as Authorization: Bearer, or as x-api-key"
ANYBODY: Final = GRANTS["infer"] | GRANTS["read"]
LOCAL: Final = Caller("a local client", GRANTS["admin"])
OPEN_CONTROL: Final = Caller("any client", GRANTS["admin"])
EVERYBODY: Final = Caller("a client", ANYBODY)
"""The caller of a server without authentication, on a route where its place does not matter."""
INVOKER: Final = Caller("an invoker", GRANTS["infer"])
REFUSED: Final = {
    why: Caller("a client", ANYBODY, why=why) for why in (FROM_ELSEWHERE, ON_LAMBDA, OF_A_PAGE, SWITCHED_OFF)
}


class Visitor(NamedTuple):
    """One request at the gate. `identity` None: the caller is not known, for the reason `error`."""

    gate: "AccessGate"
    scope: Scope
    headers: Headers
    identity: Caller | None
    error: ServingError | None

    def models(self, right: Right | None, model: str | None = None) -> ServedModels:
        """Returns the models for a route. `right` None: any known caller, without a route. `model`: the path's.

        Raises Unauthenticated, NotPermitted, ServerBusy while the keys of tokens cannot be fetched.
        """
        identity, gate = self.identity, self.gate
        if identity is not None and right in identity.rights and right is not Right.ADMIN:  # nearly always
            if identity.models is None:
                return gate.models
            if model is None or identity.may_use(model):
                return SeenModels(gate.models, identity, gate.default_model, self.scope)
        return gate.admit(self, right, model)

    def barred(self) -> str:
        """Returns why the caller cannot change state, "" if it can. A page shows it before any request for a change."""
        return self.gate.barred(self)

    def recognise(self) -> Caller:
        """Returns the caller. Raises Unauthenticated for an unknown one, which does not learn which paths exist."""
        if self.identity is None:
            self.gate.log.refused(self.scope, UNKNOWN_CALLER)
            raise self.error or Unauthenticated(NO_CREDENTIAL)
        return self.identity


class AccessGate:
    """The gate of one application."""

    def __init__(self, settings: Settings, models: ServedModels) -> None:
        """Raises InvalidSettings."""
        self.models = models
        self.default_model = settings.default_model
        self.log = RefusalLog(log)
        self.sharing = origins.Sharing(settings.cors_origins) if settings.cors_origins else None
        self._settings = settings
        self.is_closed = settings.auth != "none" or settings.trust_authorizer
        self._digests: dict[tuple[bytes, bytes | None], bytes] = {}
        self._sha256: Any = None
        self._keys: KeyRing | None = None
        self._tokens: Tokens | None = None
        if self.is_closed:
            from hashlib import sha256  # noqa: PLC0415 - for servers with authentication, as what follows

            self._sha256 = sha256
        if settings.auth in ("keys", "both"):
            from handler.edge.gate import keys  # noqa: PLC0415 - the same

            if not settings.keys and not settings.keys_file:
                raise InvalidSettings("DRAGOMAN_AUTH with keys needs DRAGOMAN_KEYS_FILE or DRAGOMAN_KEYS")
            self._keys = keys.KeyRing(settings.keys, settings.keys_file)
        if settings.auth in ("jwt", "both"):
            from handler.edge.gate import tokens  # noqa: PLC0415 - the same

            self._tokens = tokens.Tokens(settings)

    def serve(self, application: Application, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Passes a request on, with its visitor, to `application`."""
        if self.sharing is not None:
            return self._shared(self.sharing, application, scope, receive, send)
        if self.is_closed and scope["method"] in SAFE:
            send = unstored(send)
        headers = by_name(scope["headers"])
        identity = self._caller_at_hand(scope, headers) if self.is_closed else EVERYBODY
        if identity is not None:  # nearly always; a coroutine less
            return application(Visitor(self, scope, headers, identity, None), scope, receive, send)
        return self._passed(application, scope, receive, send)

    def models_at_hand(self, scope: Scope, headers: Headers, right: Right, model: str | None) -> ServedModels | None:
        """Returns the models for a route, if the caller is known at once and permitted; None: `serve` has to decide."""
        if self.sharing is not None or (self.is_closed and scope["method"] in SAFE):
            return None
        identity = self._caller_at_hand(scope, headers) if self.is_closed else EVERYBODY
        if identity is None or right is Right.ADMIN or not (right is Right.OPEN or right in identity.rights):
            return None
        if identity.models is None and Right.READ in identity.rights:
            return self.models
        may = model is None or identity.may_use(model)
        return SeenModels(self.models, identity, self.default_model, scope) if may else None

    async def _passed(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        await application(await self.enter(scope), scope, receive, send)

    async def _shared(
        self, sharing: origins.Sharing, application: Application, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Lets pages of other sites read the answer. Answers a browser's preflight itself."""
        send = sharing.wrapped(scope, unstored(send) if self.is_closed and scope["method"] in SAFE else send)
        answer = sharing.preflight(scope)
        if answer is None:
            await self._passed(application, scope, receive, send)
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
        await send({"type": "http.response.body", "body": b""})

    # -- the caller ---------------------------------------------------------------------------------------------------

    def looks(self, right: Right) -> bool:
        """Decides whether the gate will look at the head of a request for a route."""
        return self.is_closed or right is Right.ADMIN

    async def enter(self, scope: Scope) -> Visitor:
        """Returns a request's visitor. Raises nothing: health is for callers with a wrong credential, too."""
        headers, identity = by_name(scope.get("headers", ())), None if self.is_closed else EVERYBODY
        try:
            return Visitor(self, scope, headers, identity or await self._identity(scope), None)
        except ServingError as error:
            return Visitor(self, scope, headers, None, error)

    async def _identity(self, scope: Scope) -> Caller | None:
        """Returns the caller, None without a credential. Raises Unauthenticated, ServerBusy."""
        if INVOKED in scope:
            return INVOKER
        event = scope.get(origins.EVENT)
        sent = sole(scope["headers"], None if event is None else gateways_key(event))
        found = None if event is None else self._authorized(scope, event)
        if sent is None:
            return found
        try:
            return await self._proved(sent)
        except Unauthenticated:
            if found is None or sent[0] != AUTHORIZATION:
                raise
            return found  # the authorizer has read this header: its tokens and signatures are not ours

    def _authorized(self, scope: Scope, event: Any) -> Caller | None:
        """Returns the caller that a trusted authorizer has let through. Raises Unauthenticated."""
        if not self._settings.trust_authorizer:
            return None
        from handler.edge.gate import claims  # noqa: PLC0415 - on Lambda only

        found = claims.caller(event, self._settings)
        if found is None or not origins.is_cross_site(scope):
            return found
        # An authorizer may have read a cookie, which a browser adds to the requests of every page.
        return Caller(found.name, found.rights - {Right.ADMIN}, found.models, OF_A_PAGE)

    async def _proved(self, sent: Header) -> Caller:
        """Returns the owner of a credential. Raises Unauthenticated, ServerBusy."""
        text = credential(sent)
        digest = self._sha256(text).digest()
        found = self._known(digest)
        if found is None and self._tokens is not None and (self._keys is None or text.count(b".") == DOTS):
            found = await self._tokens.identity(text, digest)
        if found is None:
            raise Unauthenticated("the key is not valid")
        if len(self._digests) >= MOST_DIGESTS:
            self._digests.clear()
        self._digests[sent] = digest
        return found

    def _known(self, digest: bytes) -> Caller | None:
        """Returns the owner of a key, or of a token that was proved lately."""
        found = None if self._keys is None else self._keys.identity(digest)
        return self._tokens.known(digest) if found is None and self._tokens is not None else found

    def _caller_at_hand(self, scope: Scope, headers: Headers) -> Caller | None:
        """Returns a caller that has been here before, None if a closer look has to decide."""
        bearer, key = headers.get(AUTHORIZATION), headers.get(API_KEY)
        if len(headers) != len(scope["headers"]) or origins.EVENT in scope or (bearer is None) is (key is None):
            return None  # perhaps a header was sent twice
        digest = self._digests.get((AUTHORIZATION, bearer) if key is None else (API_KEY, key))
        return None if digest is None else self._known(digest)

    # -- what it may do -----------------------------------------------------------------------------------------------

    def admit(self, visitor: Visitor, right: Right | None, model: str | None) -> ServedModels:
        """Returns the models that the visitor may ask on a route. Raises Unauthenticated, NotPermitted, ServerBusy."""
        identity = visitor.identity
        if right is not Right.OPEN:
            identity = visitor.recognise()
            if right is not None:
                identity = self._decided(visitor.scope, identity, right)
            if model is not None and not identity.may_use(model):
                self.log.refused(visitor.scope, identity.name)
                raise not_permitted(model)
        if identity is not None and identity.models is None and Right.READ in identity.rights:
            return self.models
        return SeenModels(self.models, identity, self.default_model, visitor.scope)

    def barred(self, visitor: Visitor) -> str:
        """Returns why a visitor cannot change state, "" if it can."""
        if visitor.identity is None:
            return NO_CREDENTIAL
        found = self._administrator(visitor.scope, visitor.identity)
        return "" if Right.ADMIN in found.rights else found.why or lacking(Right.ADMIN).message

    def _decided(self, scope: Scope, identity: Caller, right: Right) -> Caller:
        """Returns the caller if it has the right. Raises NotPermitted."""
        if right is Right.ADMIN:
            identity = self._administrator(scope, identity)
        if right not in identity.rights:
            self.log.refused(scope, identity.name)
            raise NotPermitted(identity.why) if identity.why and right is Right.ADMIN else lacking(right)
        if right is Right.ADMIN:
            method, path = (escaped(scope[key][:SHOWN_CHARACTERS]) for key in ("method", "path"))
            log.info("%s called %s %s", identity.name, method, path)
        return identity

    def _administrator(self, scope: Scope, identity: Caller) -> Caller:
        """Returns the caller of a route that changes state: without authentication, its place."""
        if self._settings.control == "off":
            return REFUSED[SWITCHED_OFF]
        if self.is_closed:
            return identity
        if origins.is_cross_site(scope):
            return REFUSED[OF_A_PAGE]
        return OPEN_CONTROL if self._settings.control == "open" else self._placed(scope)

    def _placed(self, scope: Scope) -> Caller:
        if self._settings.platform == "lambda" or origins.EVENT in scope:
            return REFUSED[ON_LAMBDA]
        if not origins.is_local(scope):
            return REFUSED[FROM_ELSEWHERE]
        return REFUSED[OF_A_PAGE] if origins.is_rebound(scope) else LOCAL
