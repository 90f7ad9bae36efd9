"""Answers the requests that no protocol owns: metrics, the root of a client that is not a browser, the site.

The site is imported with the first request for one of its pages. An unknown caller gets the page that asks for a key,
and the files that pages refer to, which have no data of this server: neither imports FastAPI. The refusal of a path
that does not exist, as scanners try them, does not import it either.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from core.dialects import DIALECTS
from core.errors import NotPermitted, ServerBusy, ServingError, Unauthenticated
from core.ports import CONTROL_KEY, MODELS_KEY, OWN_ID_KEY
from core.router import Router
from core.wire import HttpResponse, MethodNotAllowed, Right
from handler.edge import exchange
from handler.edge.exchange import SAFE, Receive, Scope, Send
from handler.edge.gate.gate import Visitor
from handler.edge.observe.observer import Observer, paths
from handler.edge.observe.record import own_id, refused, unfound
from handler.edge.protocols import phrased
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from handler.site.paths import may_have

if TYPE_CHECKING:
    from handler.edge.dispatch.inline import Inline
    from handler.edge.dispatch.threads import Threads

ASSETS: Final = "/assets/"
PAGES, SCRAPES = 2, 1
"""How many are made at a time. With many models, each takes tenths of a second from inferences and health."""
MOST_WAITING: Final = 32


class Turns:
    """Limits how many answers of a kind are made at a time, and how many requests wait for that. `kind`: their name."""

    def __init__(self, kind: str, most: int) -> None:
        self._kind = kind
        self._places = asyncio.Semaphore(most)
        self._waiting = 0

    async def taken(self) -> ExitStack:
        """Waits for a turn, and returns what ends it. Raises ServerBusy."""
        if self._waiting >= MOST_WAITING:
            raise ServerBusy(f"{self._waiting} requests for {self._kind} wait already: try again", retry_after=1)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        turn = ExitStack()
        turn.callback(self._places.release)
        return turn


class Elsewhere:
    """One application's. `metrics`: the paths that have metrics. `grpc_port`: the site's, see `App.speaks_grpc`."""

    def __init__(
        self, settings: Settings, registry: Registry, observer: Observer, dispatcher: "Inline | Threads"
    ) -> None:
        self.metrics = paths(settings)
        self.grpc_port: int | None = None
        self._settings = settings
        self._registry = registry
        self._observer = observer
        self._dispatcher = dispatcher
        self._site: Any = None
        self._making = asyncio.Lock()
        self._pages = Turns("pages", PAGES)
        self._scrapes = Turns("metrics", SCRAPES)

    async def serve(self, path: str, scope: Scope, receive: Receive, send: Send, visitor: Visitor) -> None:
        """Answers a request. `path`: below the application's mount."""
        answer = _root(scope) if path == "/" else None
        try:
            if answer is None:
                answer = await self._own(path, scope, visitor)
            if answer is None:
                await self._page(scope, receive, send)
                unfound(path)
                return
        except ServingError as error:
            answer = self._refusal(error, scope, path)
        await exchange.answer(answer, scope["method"], send)

    def keeps(self, method: str, path: str, models: Mapping[str, Sequence[str]]) -> bool:
        """Decides whether the site answers at a path that models have named.

        Its pages stay unless one of the models takes the method. `models`: by name, the methods that each accepts.
        """
        if not self._settings.site or method not in SAFE or not may_have(path):
            return False
        from core.dialects import custom  # noqa: PLC0415 - for models that answer HTTP themselves

        return not custom.takers(method, models)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the site answer. A page takes a turn until it was made: its client may be slow to read."""
        if self._site is None:
            async with self._making:  # the first requests may be many: the site is made once, in one thread
                if self._site is None:
                    self._site = await self._dispatcher.promptly(self._made)
        site, is_page = self._site
        if not is_page(scope):
            await site(scope, receive, send)
            return
        with await self._pages.taken() as turn:

            async def sending(message: MutableMapping[str, Any]) -> None:
                turn.close()
                await send(message)

            await site(scope, receive, sending)

    async def _own(self, path: str, scope: Scope, visitor: Visitor) -> HttpResponse | None:
        """Returns the answer to all but the site's pages, whose scope it prepares. Raises ServingError."""
        method = scope["method"]
        if self._settings.site and method in SAFE and path.startswith(ASSETS):
            from handler.site import assets  # noqa: PLC0415 - for browsers only

            found = assets.find(path)
            if found is not None:
                return found
        scope[MODELS_KEY] = visitor.models(Right.READ)
        if path in self.metrics:
            return await self._scraped(method, path, visitor)
        if not self._settings.site or not (may_have(path) or reads_html(scope)):
            return unrouted(method, path)
        scope[CONTROL_KEY] = visitor.barred()
        scope[OWN_ID_KEY] = own_id()
        scope.setdefault("query_string", b"")  # ASGI: optional; FastAPI needs it
        return None

    async def _scraped(self, method: str, path: str, visitor: Visitor) -> HttpResponse:
        """Returns the metrics. Raises MethodNotAllowed, NotPermitted to a caller of some models: they name all."""
        if method not in SAFE:
            raise MethodNotAllowed(method, path, SAFE)
        caller = visitor.recognise()
        if caller.models is not None:
            visitor.gate.log.refused(visitor.scope, caller.name)
            raise NotPermitted("this credential is for some models; the metrics concern all of them")
        accept = visitor.headers.get(b"accept", b"").decode("latin-1")
        with await self._scrapes.taken():
            kind, metrics = await self._dispatcher.promptly(self._observer.scrape, path, accept)
        return HttpResponse(200, (kind,), (metrics,))

    def _refusal(self, error: ServingError, scope: Scope, path: str) -> HttpResponse:
        """Returns the page that asks a browser for a key, and the protocol's error for anybody else."""
        refused(error)
        answer = phrased(DIALECTS[0], error, scope["method"], path, own_id())
        if not self._settings.site or not reads_html(scope) or not isinstance(error, Unauthenticated | NotPermitted):
            return answer
        from handler.site import frame  # noqa: PLC0415 - as above

        kept = tuple(pair for pair in answer.headers if pair[0] != b"content-type")
        return HttpResponse(answer.status, kept + frame.HEADERS, (frame.sign_in(scope, path, error.message),))

    def _made(self) -> tuple[Any, Callable[[Scope], bool]]:
        """Returns the site, and what decides whether a request is for one of its pages.

        The import of FastAPI takes half a second, and so does not run in the event loop.
        """
        from handler.site import pages  # noqa: PLC0415 - FastAPI costs as much as everything else together

        site = pages.create(self._registry, self._settings, self.grpc_port)
        return site, partial(pages.is_page, site)


def unrouted(method: str, path: str) -> HttpResponse:
    """Returns the refusal of a path that neither a protocol nor the site has."""
    dialect = DIALECTS[0]
    try:
        Router(dialect).find(method, path)
    except ServingError as error:
        refused(error)
        return phrased(dialect, error, method, path, own_id())
    raise AssertionError(path)


def reads_html(scope: Scope) -> bool:
    """Decides whether a client shows pages: a browser that was sent somewhere names HTML in Accept."""
    return scope["method"] in SAFE and b"text/html" in dict(scope["headers"]).get(b"accept", b"")


def _root(scope: Scope) -> HttpResponse | None:
    """Returns what a protocol answers at the root, if the client does not read HTML."""
    if scope["method"] not in SAFE or reads_html(scope):
        return None
    return next((dialect.root for dialect in DIALECTS if dialect.root), None)
