"""The tests ask for the status page, the documentation and the OpenAPI description through the whole application."""

import argparse
import asyncio
import base64
import hashlib
import importlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from core.dialects import DIALECTS
from core.dialects.grps.http import GRPS
from handler.edge.app import App
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

ROOT = Path(__file__).parents[3]
HOSTILE = "<script>alert(1)<b>"


@dataclass(frozen=True)
class Answer:
    """The received answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def value(self) -> Any:
        """Returns the body as JSON."""
        return json.loads(self.text)


def ask(app: App, path: str, method: str = "GET", body: bytes = b"", **where: str) -> Answer:
    """Sends one request, as a server would hand it over.

    `where`: the host, the root path in front of the application, the query, the media type of the body, and
    the scheme ("": the server names none).
    """
    root, host = where.get("root", ""), where.get("host", "127.0.0.1:8080")
    media = [(b"content-type", where["media"].encode())] if "media" in where else []
    scheme = {"scheme": where.get("scheme", "http")} if where.get("scheme") != "" else {}
    sent: list[Any] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, **scheme,
        "path": root + path, "raw_path": (root + path).encode(), "root_path": root,
        "query_string": where.get("query", "").encode(),
        "headers": [(b"host", host.encode()), (b"accept", b"text/html"), *media], "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]).decode())


def serving(repository: Path | str) -> App:
    """Makes the application over a repository, without threads."""
    return App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}), inline=True)


@pytest.fixture
def app() -> App:
    """The application over the sample models."""
    return serving(ROOT / "models")


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[App]:
    """A repository with a model that cannot be loaded and has an unpleasant name."""
    folder = tmp_path / HOSTILE / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"no model at all")
    yield serving(tmp_path)
    shutil.rmtree(tmp_path / HOSTILE)


def test_the_status_page_shows_server_models_versions_and_states(app: App) -> None:
    """They are name, version, uptime, platform, and one row for each version in the repository."""
    answer = ask(app, "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for text in ("dragoman", app.registry.server().version, "0 of 7", platform.machine(), "not loaded yet"):
        assert text in answer.text
    assert re.search(r"<dt>Up</dt><dd>\d+ (s|min|h|d)", answer.text)
    for model, version in (("half_plus_three", "123"), ("iris", "1"), ("strings", "1")):
        assert re.search(rf'class="name">{model}</td><td data-label="Version" class="number">{version}<', answer.text)


def test_the_uptime_is_that_of_the_process(tmp_path: Path) -> None:
    """It is read from /proc if that exists, whatever the command is called; else it counts from the module's import."""
    site = importlib.import_module("handler.site.pages")  # not above: this file is imported to see what imports it
    (tmp_path / "self").mkdir()
    began = 100 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "self" / "stat").write_text(f"7 (a b) c) S {' '.join('0' * 18)} {began} 0\n")
    (tmp_path / "uptime").write_text("142.50 80.00\n")
    assert site.age(tmp_path) == 42.5
    assert 0 <= site.age(tmp_path / "missing") < site.age() < 3600


def test_the_status_page_loads_no_model(app: App) -> None:
    """A look does not change the state."""
    ask(app, "/")
    assert {entry.reason for entry in app.registry.index(Background())} == {"not loaded yet"}


def test_the_status_page_shows_how_long_a_model_took_to_load(app: App) -> None:
    """After its first inference a model is READY and has a load time."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
    assert ask(app, "/v2/models/half_plus_three/infer", "POST", body).status == 200
    text = ask(app, "/").text
    assert "1 of 7" in text
    assert re.search(
        r'half_plus_three.*?state ready">READY</span></td><td data-label="Loaded in" class="number">[\d,]+ ms<', text
    )


def test_the_status_page_escapes_what_it_did_not_write(hostile: App) -> None:
    """A name and a reason with markup arrive as text."""
    assert ask(hostile, f"/v2/models/{HOSTILE}/infer", "POST", b'{"inputs": []}').status == 503
    text = ask(hostile, "/").text
    assert "&lt;script&gt;alert(1)&lt;b&gt;" in text
    assert "<script" not in text
    assert "<b>" not in text
    assert '<span class="state failed">UNAVAILABLE</span>' in text
    assert "cannot be loaded" in text


def test_the_status_page_says_when_the_repository_does_not_answer(tmp_path: Path) -> None:
    """It is there to show problems, so it answers when there is one."""
    answer = ask(serving(tmp_path / "missing"), "/")
    assert answer.status == 200
    assert '<p class="bad">' in answer.text


def test_the_status_page_says_that_a_repository_is_empty(tmp_path: Path) -> None:
    """There is no table without rows."""
    assert "The repository has no models." in ask(serving(tmp_path), "/").text


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_are_complete_in_themselves(app: App, path: str) -> None:
    """They have no script and fetch nothing, and the policy allows exactly the one style in them."""
    answer = ask(app, path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == f"'sha256-{digest}'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script" not in answer.text
    assert " style=" not in answer.text
    assert " src=" not in answer.text
    assert "url(" not in style
    links = re.findall(r'href="([^"]*)"', answer.text)
    assert all(link.startswith(("./", "data:image/svg+xml,")) for link in links), links


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_links_stay_below_a_known_prefix(app: App, path: str) -> None:
    """The prefix is an API Gateway stage, also for /Prod without a slash at its end."""
    links = re.findall(r'<a href="([^"]*)"', ask(app, path, root="/Prod").text)
    assert links == ["/Prod/", "/Prod/docs", "/Prod/openapi.json", "/Prod/v2"]


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json"])
def test_head_is_answered_as_get(app: App, path: str) -> None:
    """Status and headers are those of GET; servers leave the body out."""
    head, get = ask(app, path, "HEAD"), ask(app, path)
    assert (head.status, head.headers.keys()) == (200, get.headers.keys())


def test_an_unknown_path_is_404_with_an_error_object(app: App) -> None:
    """FastAPI's {"detail"} is not used."""
    answer = ask(app, "/favicon.ico")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert answer.value == {"error": "there is nothing at '/favicon.ico'"}


def test_the_path_in_an_error_is_bounded(app: App) -> None:
    """A long path is shortened."""
    assert len(ask(app, "/" + "x" * 5000).text) < 400


def test_a_wrong_method_is_405_with_allow(app: App) -> None:
    """RFC 9110 15.5.6 requires that."""
    answer = ask(app, "/docs", "DELETE")
    assert answer.status == 405
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD"]
    assert "DELETE" in answer.value["error"]


def test_the_description_has_exactly_the_routes_of_the_protocols(app: App) -> None:
    """The document and the dialects' tables cannot drift apart."""
    described = {
        (method.upper(), path)
        for path, methods in ask(app, "/openapi.json").value["paths"].items()
        for method in methods
    }
    assert described == {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}


def test_the_description_names_the_server_as_the_client_reaches_it(app: App) -> None:
    """Tools put the prefix before every path."""
    assert ask(app, "/openapi.json").value["servers"] == [{"url": "/"}]
    assert ask(app, "/openapi.json", root="/Prod").value["servers"] == [{"url": "/Prod"}]


def test_the_description_has_the_version_of_the_distribution(app: App) -> None:
    """The document's version is the server's."""
    assert ask(app, "/openapi.json").value["info"]["version"] == app.registry.server().version


def commands(page: str) -> list[tuple[str, str, str, str]]:
    """Returns the curl lines of a page as method, URL, media type and body."""
    lines = [shlex.split(unescape(text)) for text in re.findall(r'<pre class="copy">(.*?)</pre>', page, re.DOTALL)]
    parser = argparse.ArgumentParser()
    for option in ("-X", "-H", "-d"):
        parser.add_argument(option)
    parser.add_argument("url")
    found = []
    for program, *words in lines:
        assert program == "curl"
        said = parser.parse_args(words)
        name, _, media = (said.H or "content-type: ").partition(": ")
        assert name == "content-type"
        found.append((said.X or ("GET" if said.d is None else "POST"), said.url, media, said.d or ""))
    return found


def test_every_command_of_the_documentation_works(app: App) -> None:
    """Each curl line, unchanged, gets 200 from the sample models; inferences come first, because they load."""
    found = commands(ask(app, "/docs").text)
    assert len(found) >= sum(len(dialect.routes) for dialect in DIALECTS)
    turns = {"offline": -2, "online": -1, "infer": 0, "predict": 0, "unload": 2}
    found.sort(key=lambda command: turns.get(re.split("[/:]", urlsplit(command[1]).path)[-1], 1))
    for method, url, media, body in found:
        assert url.startswith(tuple(f"http://127.0.0.1:8080{dialect.prefix}" for dialect in DIALECTS))
        path, query = urlsplit(url).path, urlsplit(url).query
        assert ask(app, path, method, body.encode(), query=query, media=media).status == 200, (url, body)


def test_the_commands_have_every_method_of_every_route(app: App) -> None:
    """A command for POST counts with a body and without one."""
    asked = {(method, urlsplit(url).path) for method, url, _, _ in commands(ask(app, "/docs").text)}
    routes = {(route.method, route.pattern) for route in GRPS.routes}
    assert routes <= asked


def test_answers_to_several_examples_stand_below_their_commands(app: App) -> None:
    """JSON is formatted and anything else is unchanged; none of them is repeated among the statuses."""
    page = ask(app, "/docs").text
    operation = page[page.index("/grps/v1/infer/predict") :]
    operation = operation[: operation.index("</details>")]
    shown = dict(re.findall(r'<h3>([^<]*)</h3><pre class="copy">[^<]*</pre><pre>([^<]*)</pre>', operation))
    assert shown["bytes in and out"] == "dragoman"
    assert json.loads(unescape(shown["a stream of messages"]))["str_data"] == "dragoman"
    assert json.loads(unescape(shown["nested numbers in the answer, too"]))["ndarray"] == [[3.5, 4.0], [4.5, 5.0]]
    assert "SUCCESS" not in operation.partition("<h3>Answers</h3>")[2]


def test_a_protocol_is_called_as_it_is_spelled(app: App) -> None:
    """The name of a tag is for programs."""
    assert "<h2>GRPS <small>" in ask(app, "/docs").text


def test_the_answer_shown_for_an_inference_is_what_comes(app: App) -> None:
    """It is the first example's answer, literally."""
    operation = ask(app, "/openapi.json").value["paths"]["/v2/models/{model}/infer"]["post"]
    request = next(iter(operation["requestBody"]["content"]["application/json"]["examples"].values()))["value"]
    answer = ask(app, "/v2/models/half_plus_three/infer", "POST", json.dumps(request).encode())
    assert answer.value == operation["responses"]["200"]["content"]["application/json"]["example"]


@pytest.mark.parametrize("host", ["a.example:8080", "[::1]:3000"])
def test_commands_name_the_host_that_was_asked(app: App, host: str) -> None:
    """A line can then be pasted unchanged."""
    assert f"http://{host}/v2/health/live" in ask(app, "/docs", host=host).text


@pytest.mark.parametrize(("scheme", "expected"), [("https", "https"), ("http", "http"), ("", "http"), ("<b>", "http")])
def test_commands_name_the_scheme_of_the_request(app: App, scheme: str, expected: str) -> None:
    """The scheme is http if the server does not name one, as in ASGI, or names one other than https."""
    assert f"curl {expected}://127.0.0.1:8080/v2/health/live" in ask(app, "/docs", scheme=scheme).text


@pytest.mark.parametrize("host", ["evil.example/<script>", "a b", "x';rm -rf ~;'", "", "[zz]"])
def test_commands_do_not_repeat_a_host_that_is_none(app: App, host: str) -> None:
    """Whatever the header contains, the page stays a page and a line stays one command."""
    text = ask(app, "/docs", host=host).text
    assert "curl http://localhost/v2/health/live" in text
    assert "evil" not in text


def test_the_site_can_be_turned_off() -> None:
    """DRAGOMAN_SITE=false leaves the protocol's own 404."""
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SITE": "false"})
    answer = ask(App(settings, inline=True), "/")
    assert answer.status == 404
    assert "error" in answer.value


IMPORTS = """
import sys
sys.path[:0] = {path!r}
from test_pages import ask, serving, ROOT
app = serving(ROOT / "models")
before = "fastapi" in sys.modules, "starlette" in sys.modules
for method in ("GET", "POST", "DELETE"):
    for path in ("", "/health/ready", "/nothing", "/repository/index", "/models/iris", "/models/iris/infer"):
        ask(app, "/v2" + path, method)
after = "fastapi" in sys.modules, "starlette" in sys.modules
ask(app, "/")
print(before, after, "fastapi" in sys.modules)
"""


def test_no_protocol_request_imports_fastapi() -> None:
    """The rule holds for answers and refusals; the first page imports it."""
    code = IMPORTS.format(path=[str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "(False, False) (False, False) True", done.stderr
