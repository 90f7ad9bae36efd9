"""Chooses the protocols of a server, the route of a request, and the format of a refusal before there is a route."""

from collections.abc import Mapping
from typing import Final

from core.dialects import DIALECTS, refusing
from core.encoding import jsonio
from core.errors import ServingError
from core.records import NamedTuple
from core.router import Router
from core.wire import JSON, Dialect, HttpResponse, Route, by_name
from handler.edge.exchange import Scope, encoded_of, path_of
from handler.edge.observe.record import sent_in
from handler.settings.hosts import Contract

INTERNAL: Final = "internal error: the server's log has the details"
"""The text that clients read for an unforeseen exception."""
OF_CALLS: Final = (b"application/grpc", b"application/connect+")
"""Beginnings of the media types that only remote calls have. Connect's calls of one message have others, too."""
REMEMBERED_PATHS: Final = 1024
LONGEST_REMEMBERED: Final = 256


def dialects_of(contract: Contract) -> tuple[Dialect, ...]:
    """Returns the protocols that a server speaks: behind the routes of its platform, those of DIALECTS."""
    if not contract.infer:
        return DIALECTS
    from core.dialects.platforms.contract import dialects  # noqa: PLC0415 - for servers that a platform starts

    own = dialects(contract.health, contract.infer, contract.hosted, as_mlflow=contract.as_mlflow)
    return (*own, *DIALECTS)


def refuse(error: ServingError, scope: Scope) -> HttpResponse:
    """Returns the refusal in the format of the protocol that owns the request's path; V2's if none does."""
    own_id = sent_in(scope["headers"])
    method, (path, is_rpc) = scope["method"], path_of(scope)
    if is_rpc:
        from core.dialects.connect import protocol  # noqa: PLC0415 - not for servers whose clients speak REST alone

        return protocol.kind_of(by_name(scope["headers"])).refuse(error, own_id)
    return phrased(refusing(path), error, method, path, own_id)


def phrased(dialect: Dialect, error: ServingError, method: str, path: str, own_id: bytes) -> HttpResponse:
    """Returns a refusal in the words of a protocol, with the id that the client has sent."""
    return identified(dialect.refuse(error, method, path), dialect, own_id)


def identified(refusal: HttpResponse, dialect: Dialect, own_id: bytes) -> HttpResponse:
    """Returns a refusal whose JSON ends with a member for the id, if the client has sent one."""
    if not own_id or not dialect.id_member or JSON not in refusal.headers:
        return refusal
    member = jsonio.dumps({dialect.id_member: own_id.decode()})
    return refusal._replace(parts=(b"%b,%b" % (b"".join(refusal.parts)[:-1], member[1:]),))


class RouteMatch(NamedTuple):
    """The route of a request. `path`: below the application's mount. `values`: of the route's {placeholders}."""

    path: str
    dialect: Dialect
    route: Route
    values: Mapping[str, str]


class Destination(NamedTuple):
    """Where a request goes. `path`: below the application's mount.

    `is_rpc`: it is /package.Service/Method, or nobody's path from a client that reads only refusals of calls.
    `dialect`: the protocol that owns the path, None if none does. `match`: of a path that is remembered.
    """

    path: str
    is_rpc: bool
    dialect: Dialect | None
    match: RouteMatch | None = None


class Routes:
    """The routes of a server. It remembers where paths lead: all of it is one look for a warm request."""

    def __init__(self, contract: Contract) -> None:
        self._dialects = dialects_of(contract)
        self._routers: dict[tuple[str, str], Router] = {}
        self._known: dict[tuple[str, str, str], Destination] = {}
        self._has_pages = bool(contract.hosted)

    def destination(self, scope: Scope) -> Destination:
        if self._has_pages and _asks_for_page(scope):
            return Destination(path_of(scope)[0], is_rpc=False, dialect=None)
        known = self._known.get((scope["method"], scope["path"], scope.get("root_path", "")))
        if known is not None and b"%" not in (scope.get("raw_path") or b""):  # nearly always
            return known
        path, is_rpc = path_of(scope)
        owners = () if is_rpc else self._dialects
        dialect = next((dialect for dialect in owners if dialect.owns(path)), None)
        return Destination(path, is_rpc or (dialect is None and _says_call(scope)), dialect)

    def find(self, path: str, dialect: Dialect, scope: Scope) -> RouteMatch:
        """Returns the dialect's route for a path. Raises RouteNotFound, MethodNotAllowed."""
        key = dialect.name, dialect.prefix  # a platform's path may be the prefix of a protocol
        router = self._routers.get(key)
        if router is None:
            router = self._routers[key] = Router(dialect)
        method, encoded = scope["method"], encoded_of(scope)
        if encoded:
            return RouteMatch(path, dialect, *router.find_encoded(method, encoded))
        match = RouteMatch(path, dialect, *router.find(method, path))
        if len(path) < LONGEST_REMEMBERED:
            if len(self._known) >= REMEMBERED_PATHS:  # a client has made up most of them; warm ones soon come again
                self._known.clear()
            known = Destination(path, is_rpc=False, dialect=dialect, match=match)
            self._known[method, scope["path"], scope.get("root_path", "")] = known
        return match


def _says_call(scope: Scope) -> bool:
    """Decides whether a request says that it is a call of gRPC or gRPC-Web, or a stream of Connect."""
    if scope["method"] != "POST":
        return False
    return any(name == b"content-type" and value.lower().startswith(OF_CALLS) for name, value in scope["headers"])


def _asks_for_page(scope: Scope) -> bool:
    """Decides whether a browser asks for a model's page, whose path a platform of several models has, too."""
    if scope["method"] not in ("GET", "HEAD") or not path_of(scope)[0].startswith("/models/"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
