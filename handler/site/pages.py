"""The pages for people, as a FastAPI application: the status, the routes' documentation, the OpenAPI description.

FastAPI costs more start-up time than all of the server: this module is imported with the first request that matches no
protocol route, and never before. Its pages are complete in themselves (no script, no fetched resource), and none of
them loads a model.
"""

import base64
import hashlib
import json
import os
import platform
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from core.deadline import NEVER, SCOPE_KEY, Deadline
from core.errors import ServingError, shown
from core.operations import IndexEntry, State
from core.ports import MODELS_KEY, Models
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

PAGE: Final = Path(__file__).with_name("status.html").read_text("utf-8")
DESCRIPTION: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
STYLE: Final = hashlib.sha256(PAGE.partition("<style>")[2].partition("</style>")[0].encode()).digest()
HEADERS: Final = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{base64.b64encode(STYLE).decode()}'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
JSON: Final = "application/json"
LINE: Final = 140
"""The most characters of JSON that are shown in one line."""
IMPORTED: Final = time.monotonic()
PROC: Final = Path("/proc")
HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def create(registry: Registry, settings: Settings) -> FastAPI:
    """Returns the site, which shows what the registry knows already."""

    # Plain functions run in a thread: listing a remote repository must not delay inferences.
    def status(request: Request) -> Response:
        server, models = registry.server(), request.scope.get(MODELS_KEY, registry)
        deadline = request.scope.get(SCOPE_KEY, NEVER)
        heading = f"{escape(server.name)} <small>{escape(server.version)}</small>"
        return _page(request, f"{server.name}: status", heading, _status(registry, models, settings, deadline))

    def documentation(request: Request) -> Response:
        heading = f"API <small>{_text(DESCRIPTION['info']['summary'])}</small>"
        return _page(request, "API", heading, _routes(_base(request)))

    def description(request: Request) -> Response:
        return JSONResponse({**app.openapi(), "servers": [{"url": _root(request) or "/"}]})

    app = FastAPI(
        routes=[Route("/", status), Route("/docs", documentation), Route("/openapi.json", description)],
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _refuse},
    )
    app.openapi = lambda: DESCRIPTION  # type: ignore[method-assign] # FastAPI's documented way to another description
    return app


async def _refuse(request: Request, error: Any) -> Response:
    """Returns an HTTPException as {"error": text}, like the protocols' errors, instead of FastAPI's {"detail"}."""
    path = shown(request.scope["path"])  # request.url raises for a Host or a scheme that no URL can have
    texts = {404: f"there is nothing at {path}", 405: f"{request.method} is not possible on {path}"}
    return JSONResponse({"error": texts.get(error.status_code, error.detail)}, error.status_code, error.headers)


def _root(request: Request) -> str:
    """Returns the path in front of the server's: an API Gateway stage, a proxy's prefix, or ""."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _base(request: Request) -> str:
    """Returns this server's URL as a client types it."""
    host = request.headers.get("host", "")
    scheme = "https" if request.scope.get("scheme") == "https" else "http"  # ASGI: optional
    return f"{scheme}://{host if HOST.fullmatch(host) else 'localhost'}{_root(request)}"


def _page(request: Request, title: str, heading: str, content: str) -> Response:
    # A known prefix is part of each link: behind a stage, relative links of /Prod (no slash) would leave the stage.
    root = escape(_root(request))
    start = f"{root}/" if root else "./"
    links = (("", "Status"), ("docs", "API"), ("openapi.json", "OpenAPI"), ("v2", "Metadata"))
    navigation = "\n".join(f'<a href="{start}{path}">{label}</a>' for path, label in links)
    page = Template(PAGE).substitute(title=escape(title), heading=heading, navigation=navigation, content=content)
    return HTMLResponse(page, headers=HEADERS)


def _status(registry: Registry, models: Models, settings: Settings, deadline: Deadline) -> str:
    try:
        entries = models.index(Background(deadline))
    except ServingError as error:
        return _facts(settings, "unknown") + f'<h2>Models</h2>\n<p class="bad">{escape(error.message)}</p>'
    ready = f"{sum(entry.state is State.READY for entry in entries)} of {len(entries)}"
    return _facts(settings, ready) + _models(registry, entries)


def _facts(settings: Settings, ready: str) -> str:
    """Returns the table of the instance's facts: its age, its models, its platform."""
    rows = {
        "Up": _duration(age()),
        "Models ready": ready,
        "Platform": f"{'AWS Lambda' if settings.platform == 'lambda' else platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows.items())
    return f'<dl class="facts">{"".join(cells)}</dl>\n'


def _models(registry: Registry, entries: Sequence[IndexEntry]) -> str:
    if not entries:
        return "<h2>Models</h2>\n<p>The repository has no models.</p>"
    columns = "".join(f"<th>{name}</th>" for name in ("Model", "Version", "State", "Loaded in", "Reason"))
    rows = "\n".join(_model(entry, registry.load_seconds(entry.name, entry.version)) for entry in entries)
    return (
        f'<h2>Models</h2>\n<table class="models"><thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>\n'
        '<p class="note">A model loads with the first request for it. The states are those of this instance: '
        "every other instance loads its own models.</p>"
    )


def _model(entry: IndexEntry, load_seconds: float | None) -> str:
    idle = entry.reason.partition("; ")[0] in ("unloaded", "not loaded yet")
    tone = {State.READY: "ready", State.LOADING: "loading", State.UNAVAILABLE: "idle" if idle else "failed"}[
        entry.state
    ]
    loaded = "" if load_seconds is None else f"{load_seconds * 1e3:,.0f} ms"
    return (
        f'<tr><td data-label="Model" class="name">{escape(entry.name)}</td>'
        f'<td data-label="Version" class="number">{escape(entry.version)}</td>'
        f'<td data-label="State"><span class="state {tone}">{escape(entry.state)}</span></td>'
        f'<td data-label="Loaded in" class="number">{loaded}</td>'
        f'<td data-label="Reason" class="reason">{escape(entry.reason)}</td></tr>'
    )


def age(proc: Path = PROC) -> float:
    """Returns the seconds since this process began; without /proc, since the import.

    Source: proc(5), field 22 of stat, in ticks since boot.
    """
    try:
        began = int((proc / "self" / "stat").read_text("utf-8").rpartition(")")[2].split()[19])
        return float((proc / "uptime").read_text("utf-8").split()[0]) - began / os.sysconf("SC_CLK_TCK")
    except OSError:
        return time.monotonic() - IMPORTED


def _duration(seconds: float) -> str:
    """Returns the two largest units of a time span.

    >>> _duration(7), _duration(190), _duration(7_500), _duration(180_000)
    ('7 s', '3 min 10 s', '2 h 5 min', '2 d 2 h')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    largest = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[largest : largest + 2])


def _routes(base: str) -> str:
    """Returns the description as a page: every route with a command to copy."""
    server = f"<p>{_text(DESCRIPTION['info']['description'])}</p>"
    groups = (_group(tag, base) for tag in DESCRIPTION["tags"])
    schemas = (
        f"<details><summary><code>{escape(name)}</code><span>{_text(schema.get('description', ''))}</span></summary>"
        f"<div>{_json(schema)}</div></details>"
        for name, schema in DESCRIPTION["components"]["schemas"].items()
    )
    return "\n".join((server, *groups, "<h2>Schemas</h2>", *schemas))


def _group(tag: Mapping[str, str], base: str) -> str:
    operations = "\n".join(
        _operation(method, path, operation, base)
        for path, methods in DESCRIPTION["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    )
    name = tag.get("x-displayName", tag["name"].capitalize())
    return f"<h2>{escape(name)} <small>{_text(tag['description'])}</small></h2>\n{operations}"


def _operation(method: str, path: str, operation: Mapping[str, Any], base: str) -> str:
    parameters = [_resolved(parameter) for parameter in operation.get("parameters", ())]
    responses = ((status, _resolved(response)) for status, response in operation["responses"].items())
    commands = _commands(base, method, path, operation)
    summary = (
        f'<b class="{method}">{method.upper()}</b><code>{escape(path)}</code><span>{_text(operation["summary"])}</span>'
    )
    lines = [
        f"<details><summary>{summary}</summary><div>",
        f"<p>{_text(operation['description'])}</p>",
        *(f"<p><code>{escape(p['name'])}</code> {_text(p['description'])}</p>" for p in parameters),
        *(
            f'<h3>{escape(label)}</h3><pre class="copy">{escape(text)}</pre>{answer}'
            for label, text, answer in commands
        ),
        "<h3>Answers</h3>",
        *(f"<p><code>{status}</code> {_text(r['description'])}</p>{_example(r)}" for status, r in responses),
        "</div></details>",
    ]
    return "\n".join(lines)


def _commands(base: str, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields a label, a shell command and its answer, if that is described, for each example of the request's body.

    An example may name its model (`x-path`) and its query (`x-query`).
    """
    parameters = [_resolved(parameter) for parameter in operation.get("parameters", ())]
    values = {p["name"]: p.get("example", "") for p in parameters}
    answers = {
        name: _shown(media, answer["value"]) for media, name, answer in _examples(operation["responses"]["200"]) if name
    }
    examples = list(_examples(operation.get("requestBody", {})))
    if not examples:
        option = " -X POST" if method == "post" else ""
        needed = {p["name"]: p["example"] for p in parameters if p["in"] == "query" and p["required"]}
        query = f"?{urlencode(needed)}" if needed else ""
        yield "Try it", f"curl{option} {shlex.quote(base + _filled(path, values) + query)}", ""
    for media, name, example in examples:
        query = f"?{urlencode(example['x-query'])}" if "x-query" in example else ""
        url = shlex.quote(base + _filled(path, values | example.get("x-path", {})) + query)
        content = example["value"]
        data = shlex.quote(json.dumps(content, ensure_ascii=False) if media == JSON else content)
        command = f"curl {url} -H 'content-type: {media}' -d {data}"
        yield example.get("summary", "Try it"), command, answers.get(name, "")


def _examples(body: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields the media type, the name ("" for a single one) and the value of each example of a request or an answer."""
    for media, content in body.get("content", {}).items():
        alone = {"": {"value": content["example"]}} if "example" in content else {}
        for name, example in content.get("examples", alone).items():
            yield media, name, example


def _shown(media: str, value: Any) -> str:
    return _json(value) if media == JSON else f"<pre>{escape(value)}</pre>"


def _filled(path: str, values: Mapping[str, str]) -> str:
    return re.sub(r"{(\w+)}", lambda match: values[match[1]], path)


def _example(response: Mapping[str, Any]) -> str:
    return "".join(_json(example["value"]) for _, name, example in _examples(response) if not name)


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the target of a local reference, or the node itself."""
    found: Any = DESCRIPTION if "$ref" in node else node
    for step in node.get("$ref", "#").split("/")[1:]:
        found = found[step]
    return found  # type: ignore[no-any-return] # parsed JSON


def _text(text: str) -> str:
    """Escapes a text, with text between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    text = line if len(line) <= LINE else json.dumps(value, ensure_ascii=False, indent=2)
    return f"<pre>{escape(text)}</pre>"
