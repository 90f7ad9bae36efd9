"""Models that answer whole requests: their settings, their path, the application."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.deadline import SCOPE_KEY, Deadline, within
from core.errors import ModelNotLoadable, ModelUnavailable
from handler.edge.app import App
from handler.settings import model as model_settings
from handler.settings.model import CustomPath
from tests.support import gated
from tests.support.asgi import application
from tests.support.gated import line

CHAT = """
import json
from pathlib import Path

def predict(inputs, parameters):
    return inputs

def http(request):
    asked = json.loads(request.body or b"{}")
    if asked.get("fail"):
        raise RuntimeError("no more")
    if not asked.get("stream"):
        kind = request.headers["x-type"]
        return {"method": request.method, "path": request.path, "query": request.query, "type": kind}
    def events():
        for number in range(asked["stream"]):
            yield f"data: {number}\\n\\n"
        if asked.get("break"):
            raise RuntimeError("no more")
    return 200, {"content-type": "text/event-stream"}, events()
"""
PATH = "/v1/chat/completions"


def add(folder: Path, name: str, code: str = CHAT, **http: Any) -> None:
    """Adds a python model with its own path."""
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1" / "model.py").write_text(code)
    if http:
        (folder / name / "model-settings.json").write_text(json.dumps({"http": http}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that answers at PATH, and one at a path outside the protocols."""
    add(tmp_path, "chat", path=PATH)
    add(tmp_path, "own", path="/own/path", methods=["GET", "POST"])
    return tmp_path


def make(folder: Path, *, inline: bool = False, **settings: str) -> App:
    """An application of these models."""
    return application(folder, inline=inline, **{"ALLOW_CODE": "true", **settings})


@pytest.fixture(params=[False, True], ids=["threads", "inline"])
def app(folder: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    """Such an application, on an ASGI server and as on Lambda."""
    made = make(folder, inline=request.param)
    yield made
    made.close()


def ask(
    app: App, method: str, path: str, body: Any = None, query: bytes = b"", *, gone: bool = False, **scope: Any
) -> list[Any]:
    """Returns the messages sent for a request, whose client may leave after it. `scope`: more of its members."""
    sent: list[Any] = []
    text = b"" if body is None else json.dumps(body).encode()

    async def main() -> None:
        inbox = [{"type": "http.request", "body": text}]
        stays = asyncio.Event()

        async def receive() -> Any:
            if inbox:
                return inbox.pop()
            await stays.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if gone and len(sent) > 1:
                stays.set()
            await asyncio.sleep(0)

        head = {"type": "http", "method": method, "path": path, "query_string": query, "headers": [(b"x-type", b"t")]}
        await app({**head, **scope}, receive, send)

    asyncio.run(main())
    return sent


def told(sent: list[Any]) -> tuple[int, Any]:
    """Returns status and JSON of an answer."""
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_whole_request_goes_to_the_model_that_names_its_path(app: App) -> None:
    """The model answers its path below a protocol's prefix as anywhere, first while it is being loaded."""
    expected = {"method": "POST", "path": PATH, "query": {"a": "b"}, "type": "t"}
    assert told(ask(app, "POST", PATH, {}, b"a=b")) == (200, expected)
    assert told(ask(app, "POST", PATH, {}, b"a=b")) == (200, expected)
    assert told(ask(app, "GET", "/own/path"))[1]["method"] == "GET"
    assert told(ask(app, "POST", "/own/path", {}, b"model=chat-1"))[1]["query"] == {"model": "chat-1"}


def test_a_named_models_own_methods_hold_on_any_path(app: App) -> None:
    """Otherwise a link could start what a model does for POST alone."""
    for query in (b"model=chat", b"model=chat-1"):
        start, body = ask(app, "GET", "/own/path", query=query)
        text = "'GET' is not possible on '/own/path'; allowed: POST"
        assert (start["status"], json.loads(body["body"])) == (405, {"error": text})
        assert (b"allow", b"POST") in start["headers"]
        assert told(ask(app, "POST", "/own/path", {}, query))[0] == 200
    assert told(ask(app, "GET", "/own/path", {}, b"model=own"))[0] == 200


def test_a_stream_that_fails_before_its_first_piece_has_a_status(app: App) -> None:
    """No status line was sent yet. A stream without pieces is an answer."""
    failed = ask(app, "POST", PATH, {"stream": -1, "break": True})
    assert told(failed) == (500, {"error": "model 'chat' raised RuntimeError"})
    start, *bodies = ask(app, "POST", PATH, {"stream": -1})
    assert (start["status"], b"".join(each["body"] for each in bodies)) == (200, b"")


@pytest.fixture
def threads(folder: Path) -> Iterator[App]:
    """Such an application on a server, which sends pieces."""
    with closing(make(folder)) as made:
        yield made


def test_a_function_that_answers_once_keeps_a_stream(folder: Path) -> None:
    """So a failure has its own status, whenever it comes, and a stream without an end does not fill the memory."""
    with closing(make(folder, inline=True)) as app:
        start, *bodies = ask(app, "POST", PATH, {"stream": 100})
        assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
        assert b"".join(each["body"] for each in bodies) == b"".join(b"data: %d\n\n" % n for n in range(100))
        assert told(ask(app, "POST", PATH, {"stream": 1, "break": True})) == (
            500,
            {"error": "model 'chat' raised RuntimeError"},
        )
        app.dispatcher.buffers = 1000  # type: ignore[misc] # a shorter test
        status, body = told(ask(app, "POST", PATH, {"stream": 10**9}))
        assert (status, "more than 1000 bytes" in body["error"]) == (413, True)


def test_a_stream_is_sent_piece_by_piece(threads: App) -> None:
    """Each piece is a message of its own, with the content type that the model set."""
    start, *bodies = ask(threads, "POST", PATH, {"stream": 100})
    headers = dict(start["headers"])
    assert b"start;desc=" in headers.pop(b"server-timing")
    assert headers.pop(b"x-request-id")
    assert headers.pop(b"x-accel-buffering") == b"no"  # a proxy in front passes each piece on
    assert (start["status"], headers) == (200, {b"content-type": b"text/event-stream", b"model-version": b"1"})
    assert [body["body"].decode() for body in bodies[:-1]] == [f"data: {number}\n\n" for number in range(100)]
    assert all(body["more_body"] for body in bodies[:-1])
    assert bodies[-1] == {"type": "http.response.body", "body": b""}


LARGE = """
def predict(inputs, parameters):
    return inputs

def http(request):
    def pieces():
        for _ in range(3):
            yield b"x" * 300_000
    return 200, {}, pieces()
"""


def test_a_stream_without_a_place_for_errors_is_whole_whatever_is_in_flight(folder: Path) -> None:
    """Its pieces count, and none is refused: the answer would be cut off without a reason."""
    add(folder, "large", LARGE, path="/large")
    with closing(make(folder, BYTES_IN_FLIGHT="400000")) as app, app.flight.holding(400_000):
        sent = ask(app, "POST", "/large")
    assert sent[0]["status"] == 200
    assert sum(len(message.get("body", b"")) for message in sent) == 900_000


def test_a_stream_stops_when_its_client_goes(threads: App) -> None:
    """The application sends no more pieces to a client that has left."""
    sent = ask(threads, "POST", PATH, {"stream": 10**9}, gone=True)
    assert 0 < len(sent) < 10


def test_a_stream_that_breaks_is_not_ended_as_if_it_were_whole(threads: App) -> None:
    """The failure is raised to the server, which cuts the connection."""
    with pytest.raises(Exception, match="raised RuntimeError"):
        ask(threads, "POST", PATH, {"stream": 1, "break": True})


def test_what_goes_wrong_is_answered_in_the_protocols_format(app: App) -> None:
    """A model's failure is a 500, a wrong method a 405, and an unknown path is refused by the owner of its prefix."""
    status, body = told(ask(app, "POST", PATH, {"fail": True}))
    assert (status, body) == (500, {"error": "model 'chat' raised RuntimeError"})
    sent = ask(app, "PUT", "/own/path")
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"allow"]) == (405, b"GET, HEAD, POST")
    assert ask(app, "POST", "/v1/chat")[0]["status"] == 400  # the answer is /v1's, because the path is its own then
    assert ask(app, "POST", "/own/other")[0]["status"] == 404


def test_head_works_where_get_does(app: App) -> None:
    """The head is that of GET; no body follows it."""
    got, head = ask(app, "GET", "/own/path"), ask(app, "HEAD", "/own/path")
    assert (head[0]["status"], got[0]["status"]) == (200, 200)
    lengths = [dict(sent[0]["headers"])[b"content-length"] for sent in (got, head)]
    assert lengths[0] == lengths[1] != b"0"
    assert b"".join(sent["body"] for sent in head[1:]) == b""


def test_a_page_of_the_site_stays_for_the_methods_that_no_model_takes(folder: Path) -> None:
    """A model can have the page's path, for POST or for GET."""
    add(folder, "hides", path="/docs")
    add(folder, "takes", path="/openapi.json", methods=["GET"])
    with closing(make(folder)) as app:
        start, body = ask(app, "GET", "/docs")[:2]
        assert (start["status"], b"<html" in body["body"]) == (200, True)
        assert ask(app, "HEAD", "/docs")[0]["status"] == 200
        assert told(ask(app, "POST", "/docs", {}))[1]["path"] == "/docs"
        assert told(ask(app, "DELETE", "/docs"))[0] == 405
        assert told(ask(app, "GET", "/openapi.json"))[1]["path"] == "/openapi.json"


def test_a_model_without_the_function_says_so(folder: Path) -> None:
    """A model without the function http(request) answers its path with a 501."""
    add(folder, "empty", "def predict(inputs, parameters):\n    return inputs", path="/empty")
    app = make(folder, inline=True)
    assert told(ask(app, "POST", "/empty")) == (501, {"error": "model 'empty' has no function http(request)"})


def test_no_path_is_a_models_unless_code_may_run(folder: Path) -> None:
    """The paths in the models' settings count for nothing without DRAGOMAN_ALLOW_CODE."""
    app = make(folder, inline=True, ALLOW_CODE="false")
    assert ask(app, "POST", PATH)[0]["status"] == 400
    assert ask(app, "GET", "/own/path")[0]["status"] == 404


def test_paths_are_looked_up_again_after_a_while(folder: Path) -> None:
    """A new model's path is found after some seconds, and a model with wrong settings hides no other path."""
    app = make(folder, inline=True)
    assert ask(app, "POST", "/late")[0]["status"] == 404
    add(folder, "late", path="/late")
    add(folder, "wrong", path="")
    assert ask(app, "POST", "/late")[0]["status"] == 404
    app.registry._paths._until = 0.0  # the seconds have passed
    assert ask(app, "POST", "/late", {})[0]["status"] == 200


def test_while_the_store_does_not_answer_paths_are_as_they_were(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last paths stay valid, and the store is asked again after a while."""
    asked: list[None] = []

    def down(_: Any) -> Any:
        asked.append(None)
        raise ModelUnavailable("the store does not answer")

    monkeypatch.setattr("handler.lifecycle.custom_paths.PAUSE", 600.0)  # the requests below come within it
    with monkeypatch.context() as store:
        store.setattr(app.registry._repository, "models", down)
        assert ask(app, "GET", "/nothing")[0]["status"] == 404
        assert ask(app, "GET", "/")[0]["status"] == 200
        assert len(asked) == 1
    app.registry._paths.forget()
    assert told(ask(app, "POST", PATH, {}))[0] == 200
    monkeypatch.setattr(app.registry._repository, "models", down)
    app.registry._paths.forget()
    assert told(ask(app, "POST", PATH, {}))[0] == 200
    assert told(ask(app, "GET", "/own/path"))[0] == 200
    assert len(asked) == 2


@pytest.mark.parametrize("path", [PATH, "/v1/nothing", "/own/path", "/nothing"])
def test_a_look_for_paths_ends_with_its_request(app: App, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The store gets the deadline that the edge has put into the scope."""
    deadline, asked = within(60), []
    models = app.registry._repository.models

    def noted(until: Deadline) -> Any:
        asked.append(until)
        return models(until)

    monkeypatch.setattr(app.registry._repository, "models", noted)
    ask(app, "POST", path, {}, **{SCOPE_KEY: deadline})
    assert asked == [deadline]


def test_remote_calls_are_no_models_own(app: App, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model's settings can claim the path of a remote call, but they can claim one that only looks alike."""
    method = "/grpc.health.v1.Health/Check"
    add(folder, "greedy", path=method)
    add(folder, "versioned", path="/v1.0/chat")
    assert told(ask(app, "POST", "/v1.0/chat", {}))[1]["path"] == "/v1.0/chat"
    monkeypatch.setattr(app.registry, "custom", lambda *_: pytest.fail("looked up"))
    assert ask(app, "PUT", method)[0]["status"] == 405
    assert told(ask(app, "PUT", method))[1]["code"] == "unknown"


@pytest.mark.parametrize("path", ["/own/path", PATH, "/both"])
def test_a_path_of_hidden_models_is_like_any_unknown_path(folder: Path, path: str) -> None:
    """A refusal of a path could name the model that has it, its methods, and the models that share it."""
    add(folder, "one", path="/both")
    add(folder, "two", path="/both")
    keys = ";".join((line("some", "some", "infer,read", "others*"), line("all", "all", "infer,read")))
    app = make(folder, inline=True, AUTH="keys", KEYS=keys)
    unknown = path.replace("a", "e").replace("o", "u")
    for method in ("GET", "POST", "PUT"):
        hidden, absent = (gated.ask(app, method, each, {"x-api-key": "some"}, b"{}") for each in (path, unknown))
        assert hidden.status == absent.status
        assert hidden.body.replace(path.encode(), unknown.encode()) == absent.body
    reply = gated.ask(app, "POST", path, {"x-api-key": "all", "x-type": "a"}, b"{}")
    assert reply.status == (400 if path == "/both" else 200)


def test_a_path_that_models_share_is_that_of_the_one_the_caller_may_use(folder: Path) -> None:
    """The query need not name the model: this caller sees one model on the path."""
    add(folder, "one", path="/both")
    add(folder, "two", path="/both")
    app = make(folder, inline=True, AUTH="keys", KEYS=line("some", "some", "infer", "tw*"))
    reply = gated.ask(app, "POST", "/both", {"x-api-key": "some", "x-type": "a"}, b"{}")
    assert (reply.status, reply.headers["model-version"]) == (200, "1")


def test_an_answer_without_a_body_is_sent_without_its_length(folder: Path) -> None:
    """An answer with status 204 has neither a body nor a Content-Length."""
    code = "def predict(inputs, parameters):\n    return inputs\ndef http(request):\n    return 204, {}, 'no'"
    add(folder, "silent", code, path="/silent")
    app = make(folder, inline=True)
    start, *parts = ask(app, "POST", "/silent")
    assert (start["status"], b"".join(part["body"] for part in parts)) == (204, b"")
    assert b"content-length" not in dict(start["headers"])


def test_the_settings_say_where_a_model_answers() -> None:
    """A model answers POST on its path unless its settings name other methods."""
    assert model_settings.parse("m", b'{"http": {"path": "/a/b"}}').http == CustomPath("/a/b", ("POST",))
    assert model_settings.parse("m", b"{}").http is None


@pytest.mark.parametrize(("http", "words"), [
    ("[]", "http is \\[\\]; expected an object"),
    ('{"path": "a"}', "http.path is 'a'; expected a path such as /v1/chat/completions"),
    ('{"path": "/"}', "http.path is '/'"),
    ("{}", "http.path is null"),
    ('{"path": "/v2/health/live"}', "http.path is '/v2/health/live'; expected a path without a route of a protocol"),
    ('{"path": "/V1/models/"}', "http.path is '/V1/models/'; expected a path without"),
    ('{"path": "/v1/embeddings"}', "http.path is '/v1/embeddings'; expected a path without"),
    ('{"path": "/grps/v1/infer/predict", "methods": ["GET"]}', "http.path is '/grps/v1/infer/predict'; expected"),
    ('{"path": "/a", "methods": []}', "http.methods is \\[\\]; expected some of GET, POST"),
    ('{"path": "/a", "methods": ["get"]}', "http.methods is \\['get'\\]"),
    ('{"path": "/a", "method": "GET"}', "http.method is 'GET'; expected no such key"),
])  # fmt: skip
def test_settings_that_are_wrong_are_named(http: str, words: str) -> None:
    """The error names the key with its path."""
    with pytest.raises(ModelNotLoadable, match=words):
        model_settings.parse("m", f'{{"http": {http}}}'.encode())


def test_a_custom_answer_counts_under_its_own_protocol(app: App) -> None:
    """Its path is one that no protocol owns."""
    ask(app, "GET", "/own/path")
    assert [protocol for protocol, _ in app.observer.counts.tallies] == ["custom"]
