"""The web pages, as a FastAPI application: the status, the models, the routes' documentation, its description.

FastAPI costs more start-up time than all of the server: this module is imported with the first request for a page, and
never before. None of its pages loads a model. The models are those that the gate lets the caller see, and a page makes
its changes through the protocols' own routes.
"""

import platform
import re
from collections.abc import Mapping, MutableMapping
from html import escape
from operator import is_
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from core.deadline import NEVER, SCOPE_KEY
from core.errors import ModelNotFound, ServingError, shown
from core.operations import IndexEntry, ModelRef, ModelSpec
from core.ports import CONTROL_KEY, MODELS_KEY, OWN_ID_KEY, Models
from core.wire import ID_MEMBER, HttpResponse, headers_of, status_of
from handler.lifecycle.particulars import Particulars
from handler.lifecycle.registry import Registry
from handler.lifecycle.room import memory
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.site import assets, described, examples, frame, instance, model, paths, platform_routes, status
from handler.site.documentation import Documentation
from handler.site.views import ModelView, StatusView, entry_view, model_view, now

HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
STATUS_SECONDS, MODEL_SECONDS = "5", "2"
"""Between two looks of an open page. On Lambda each look is an invocation, so pages there begin paused."""
REMEMBERED: Final = 8
"""Descriptions; callers whose rights differ see different models."""
PAGES: Final = 4
"""Pages of the documentation that are kept, of half a megabyte each."""
MISSING: Final = (
    '<section class="card narrow"><h1>{title}</h1><p>{text}</p><p><a href="{start}">All models</a></p></section>'
)
READ: Final = ["GET", "HEAD"]
TITLES: Final = {403: "Not permitted", 404: "Not found"}


def create(registry: Registry, settings: Settings, grpc_port: int | None = None) -> FastAPI:
    """Returns the site, which shows the registry's knowledge. `grpc_port`: see `model.content`."""
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _refuse, ServingError: _fail},
    )
    site = _Site(registry, settings, grpc_port)
    # Plain functions run in a thread: listing a remote repository must not delay inferences.
    for path, answer in (
        (paths.START, site.status_page),
        (paths.DOCS, site.documentation),
        (paths.DESCRIPTION, site.description),
        (paths.ICON, _icon),
    ):
        app.add_route(path, answer, READ)
    app.api_route(paths.STATUS, methods=READ, response_model=StatusView)(site.status)
    app.add_route(f"{paths.MODELS}{{model}}", site.model_page, READ)
    return app


def is_page(app: FastAPI, scope: MutableMapping[str, Any]) -> bool:
    """Decides whether a request is for a page of the site, which refuses any other one at once."""
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)


class _Site:
    """The pages of one application."""

    def __init__(self, registry: Registry, settings: Settings, grpc_port: int | None) -> None:
        self._registry = registry
        self._settings = settings
        self._grpc_port = grpc_port
        self._documents: list[tuple[list[ModelSpec], Mapping[str, Any]]] = []
        self._typed: dict[str, described.TypedModel] = {}
        self._written: list[tuple[Mapping[str, Any], tuple[Any, ...], str]] = []

    def status(self, request: Request) -> StatusView:
        """Returns the status for programs; the page shows the same."""
        server, trouble, entries = self._registry.server(), "", []
        try:
            entries = list(self._models(request).index(_context(request)))
        except ServingError as error:
            trouble = error.message
        known = self._known(entries)
        return StatusView(
            name=server.name,
            version=server.version,
            looked=now(),
            up_seconds=int(instance.age()),
            resident_bytes=memory.resident(),
            platform=instance.described(self._settings),
            python=platform.python_version(),
            trouble=trouble,
            models=[entry_view(each, known.get((each.name, each.version))) for each in entries],
        )

    def status_page(self, request: Request) -> Response:
        view = self.status(request)
        return self._page(
            request, f"{view.name}: status", status.content(view, _start(request)), STATUS_SECONDS, kind="status"
        )

    def model_page(self, request: Request) -> Response:
        """Returns a model's page, for programs its view as JSON. Raises ModelNotFound, NotPermitted."""
        name = request.path_params["model"]
        found = self._models(request).status(ModelRef(name), _context(request))
        if not found.versions:
            raise ModelNotFound(f"model {shown(name)} does not exist")
        known = self._registry.particulars(name)
        view = model_view(name, found, known, request.scope.get(CONTROL_KEY, ""))
        if not _reads_html(request):
            return _json(view)
        content = model.content(view, self._grpc_port)
        return self._page(request, f"{name}: model", content, MODEL_SECONDS, kind="model")

    def documentation(self, request: Request) -> Response:
        models = {each.name: each.version for each in reversed(self._index(request))}
        document, written = self._document(request), self._written
        about = (_base(request), dict(sorted(models.items())), _start(request))
        content = next((text for known, its, text in written if known is document and its == about), None)
        if content is None:
            content = Documentation(document, *about).content()
            self._written = [(document, about, content), *written[: PAGES - 1]]
        return self._page(request, "API", content, "", kind="docs")

    def description(self, request: Request) -> Response:
        document = self._document(request)
        return JSONResponse({**document, "servers": [{"url": frame.root_of(request.scope) or "/"}]})

    def _document(self, request: Request) -> Mapping[str, Any]:
        """Returns the OpenAPI description for the caller, which is made once for a set of models."""
        specs, made = self._loaded(request), self._documents
        found = next((each for known, each in made if len(known) == len(specs) and all(map(is_, known, specs))), None)
        if found is None:
            name = self._settings.default_model or (specs[0].name if len(specs) == 1 else "")
            model = next((spec for spec in specs if spec.name == name), None)
            example = None if model is None else examples.v1(model)
            found = platform_routes.added(described.document(specs, self._typed), self._settings.contract, example)
            self._documents = [(specs, found), *made[: REMEMBERED - 1]]
        return found

    def _page(self, request: Request, title: str, content: str, live: str, *, kind: str) -> Response:
        live += " paused" if live and self._settings.platform == "lambda" else ""
        name = self._registry.server().name
        return _html(frame.page(request.scope, _path(request), title, content, name=name, live=live, kind=kind))

    def _models(self, request: Request) -> Models:
        found: Models = request.scope.get(MODELS_KEY, self._registry)
        return found

    def _index(self, request: Request) -> list[IndexEntry]:
        """Returns the versions that the caller may see; none while the repository does not answer."""
        try:
            return list(self._models(request).index(_context(request)))
        except ServingError:
            return []

    def _known(self, entries: list[IndexEntry]) -> Mapping[tuple[str, str], Particulars]:
        names = dict.fromkeys(entry.name for entry in entries)
        return {(name, each.version): each for name in names for each in self._registry.particulars(name)}

    def _loaded(self, request: Request) -> list[ModelSpec]:
        """Returns the specs of the models in memory that the caller may see, each of its newest version."""
        specs = {}
        for (name, _), each in self._known(self._index(request)).items():
            if each.spec is not None:
                specs[name] = each.spec
        return [specs[name] for name in sorted(specs)]


def _context(request: Request) -> Background:
    return Background(request.scope.get(SCOPE_KEY, NEVER))


def _path(request: Request) -> str:
    """Returns the path below the server's prefix."""
    path: str = request.scope["path"]
    root = request.scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _start(request: Request) -> str:
    """Returns the prefix of links to the server's root."""
    return frame.start_of(request.scope, _path(request))


def _reads_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _html(content: bytes, status_code: int = 200, more: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    answer = Response(content, status_code)
    answer.raw_headers = [(b"content-length", b"%d" % len(content)), *frame.HEADERS, *more]
    return answer


def _json(view: ModelView) -> Response:
    headers = {"cache-control": "no-store", "vary": "accept"}
    return Response(view.model_dump_json(), media_type="application/json", headers=headers)


def _icon(_: Request) -> Response:
    found: HttpResponse = assets.icon()
    answer = Response(b"".join(found.parts))
    answer.raw_headers = [*answer.raw_headers, *found.headers]
    return answer


async def _refuse(request: Request, error: Any) -> Response:
    """Returns an HTTPException as a page to browsers, else as {"error": text} like the protocols' errors."""
    path = shown(request.scope["path"])  # request.url raises for a Host or a scheme that no URL can have
    texts = {404: f"there is nothing at {path}", 405: f"{request.method} is not possible on {path}"}
    return _refusal(request, error.status_code, texts.get(error.status_code, error.detail), error.headers or {})


async def _fail(request: Request, error: Any) -> Response:
    """Returns a model's error, such as that there is none of the name."""
    headers = {name.decode(): value.decode() for name, value in headers_of(error)}
    return _refusal(request, status_of(error), error.message, headers)


def _refusal(request: Request, code: int, text: str, headers: Mapping[str, str]) -> Response:
    if not _reads_html(request) or request.method not in READ:
        own_id = request.scope.get(OWN_ID_KEY, b"")
        told = {"error": text} | ({ID_MEMBER: own_id.decode()} if own_id else {})
        return JSONResponse(told, code, headers)
    path, title = _path(request), TITLES.get(code, "Not possible")
    content = MISSING.format(title=title, text=escape(text), start=escape(_start(request)))
    more = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return _html(frame.page(request.scope, path, title, content), code, more)


def _base(request: Request) -> str:
    """Returns this server's URL as a client types it."""
    host = request.headers.get("host", "")
    scheme = "https" if request.scope.get("scheme") == "https" else "http"  # ASGI: optional
    return f"{scheme}://{host if HOST.fullmatch(host) else 'localhost'}{frame.root_of(request.scope)}"
