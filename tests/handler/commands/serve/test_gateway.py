"""`dragoman serve --lambda`: the real function in a process of its own, behind what API Gateway does."""

import asyncio
import base64
import gzip
import json
import os
import re
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from handler import cli
from handler.commands.serve import events, gateway, runtime
from handler.commands.serve.events import Came
from handler.commands.serve.gateway import APIS, LARGEST_BODY, LARGEST_EVENT, Gateway
from tests.handler.edge.client import BODY, INFER, ROOT, lifespan
from tests.protocols.test_waiting import until
from tests.support.asgi import spoken
from tests.support.server import HOST, running
from tests.support.wire import Wire

CODE = """
def predict(inputs, parameters):
    import os, time
    print("a word on stdout, which is not the answer")
    if inputs["how"][0] == b"exit":
        os._exit(3)
    if inputs["how"][0] == b"wait":
        open(os.path.join(FOLDER, "waits"), "w").close()
        time.sleep(60)
    return {"out": inputs["how"]}
"""
SETTINGS = {
    "inputs": [{"name": "how", "datatype": "BYTES", "shape": [1]}],
    "outputs": [{"name": "out", "datatype": "BYTES", "shape": [1]}],
}


def environ(repository: Path = ROOT / "models") -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "AWS_"))}
    return inherited | {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_ALLOW_CODE": "true"}


@pytest.fixture(scope="module", params=["rest", "http"])
def api(request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """The function behind each kind of API."""
    made = Gateway(APIS[request.param], environ())
    yield made
    made._instance.close()


def ask(
    made: Gateway, method: str, target: str, body: bytes = b"", prefix: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Sends a request below the stage, in two pieces."""
    path, _, query = target.partition("?")
    path = (made._api.prefix if prefix is None else prefix) + path
    half = len(body) // 2
    inbox = [{"body": body[:half], "more_body": True}, {"body": body[half:]}]
    pairs = [(b"host", b"here"), *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())]
    scope = {"type": "http", "method": method, "raw_path": path.encode(), "query_string": query.encode()}
    sent = asyncio.run(spoken(made, {**scope, "headers": pairs, "client": ("192.0.2.1", 1)}, *inbox))
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, sent[1]["body"]


def test_a_request_goes_through_the_function_and_back(api: Gateway) -> None:
    """JSON, binary tensors, gzip, a query, and the refusals of the function itself."""
    assert ask(api, "GET", "/v2/health/live")[::2] == (200, b'{"live":true}')
    assert ask(api, "HEAD", "/v2/health/live")[::2] == (200, b"")
    status, headers, body = ask(api, "POST", INFER, BODY, content_type="application/json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["content-length"] == str(len(body))
    assert json.loads(body)["outputs"][0]["data"] == [3.5, 4.25]
    packed = gzip.compress(BODY)
    assert json.loads(ask(api, "POST", INFER, packed, content_encoding="gzip")[2]) == json.loads(body)
    raw = BODY[:-1] + b', "parameters": {"binary_data_output": true}}'
    status, headers, body = ask(api, "POST", INFER, raw, content_type="application/json")
    assert body[int(headers["inference-header-content-length"]) :] == b"\x00\x00\x60\x40\x00\x00\x88\x40"
    assert ask(api, "GET", "/v2/models/nobody")[0] == 404
    assert b"monitor" not in ask(api, "GET", "/grps/v1/metadata/model?name=iris")[2]


def test_ctrl_c_in_a_terminal_does_not_reach_the_function(api: Gateway) -> None:
    """The terminal sends it to the server's group. The server still waits for the answer to the last request."""
    assert ask(api, "GET", "/v2/health/live")[0] == 200
    process = api._instance._process
    assert process is not None
    assert os.getpgid(process.pid) != os.getpgrp()


def test_what_is_not_below_the_stage_is_the_gateways(api: Gateway) -> None:
    """A REST API has its own answer; the stage of the HTTP API is not in the path."""
    status, _, body = ask(api, "GET", "/v2/health/live", prefix="/prod" if api._api.prefix else "")
    rest = (403, b'{"message": "Missing Authentication Token"}')
    assert (status, body) == (rest if api._api.prefix else (200, b'{"live":true}'))
    if api._api.prefix:
        assert ask(api, "GET", "uction/v2/health/live")[0] == 403  # /Produ...


def test_the_gateways_limits_hold(api: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 MB of a request, 6 MB of an event with its base64, and as much of an answer."""
    text = api._api.own["large"]
    for size in (LARGEST_BODY + 1, LARGEST_EVENT * 3 // 4 + 1):
        status, _, body = ask(api, "POST", INFER, bytes(size), content_type="application/octet-stream")
        assert (status, json.loads(body)) == (text[0], {"message": text[1]})
    assert ask(api, "POST", INFER, bytes(LARGEST_EVENT * 3 // 4 - 4096))[0] == 400  # the function's own
    if not api._api.is_http:
        for size in (LARGEST_BODY + 1, LARGEST_BODY * 3):
            assert ask(api, "POST", INFER, gzip.compress(bytes(size)), content_encoding="gzip")[0] == 413
    monkeypatch.setattr(gateway, "LARGEST_RESPONSE", 64)
    assert ask(api, "POST", INFER, BODY)[0] == api._api.own["failed"][0]


PACKED = gzip.compress(BODY, mtime=0)


@pytest.mark.parametrize("body", [b"xx", b"", b"no gzip", PACKED[:-1], PACKED[:20]], ids=len)
def test_a_body_that_is_not_gzip_is_not_too_large(api: Gateway, body: bytes) -> None:
    """A REST API inflates it, and refuses what it cannot inflate. An HTTP API leaves that to the function."""
    status, _, answer = ask(api, "POST", INFER, body, content_encoding="gzip")
    assert status == (400 if api._api.is_http else 415)
    assert api._api.is_http or json.loads(answer) == {"message": "Unsupported Media Type"}


def write_model(folder: Path) -> None:
    """Writes a model that does what its input says. It notes in the folder that it waits."""
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "1" / "model.py").write_text(CODE.replace("FOLDER", repr(str(folder))))
    (folder / "m" / "model-settings.json").write_text(json.dumps(SETTINGS))


def infer(made: Gateway, how: str) -> tuple[int, bytes]:
    tensor = {"name": "how", "shape": [1], "datatype": "BYTES", "data": [how]}
    return ask(made, "POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}).encode())[::2]


def test_an_instance_that_ends_is_followed_by_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its request fails; what a model prints is not taken for an answer."""
    write_model(tmp_path)
    made = Gateway(APIS["rest"], environ(tmp_path))
    assert json.loads(infer(made, "word")[1])["outputs"][0]["data"] == ["word"], infer(made, "word")
    assert infer(made, "exit") == (502, b'{"message": "Internal server error"}')
    assert "API Gateway answers 502 Internal server error: the function's process ended" in caplog.text
    assert infer(made, "word")[0] == 200
    made._instance._seconds = 0.0
    assert infer(made, "wait") == (504, b'{"message": "Endpoint request timed out"}')
    assert made._instance._process is None
    made._instance._seconds = 60.0
    assert infer(made, "word")[0] == 200

    assert lifespan(made) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert made._instance._process is None


@pytest.mark.parametrize("how", ["the server closes", "the server dies"])
def test_a_server_that_ends_does_not_wait_for_its_function(how: str, tmp_path: Path) -> None:
    """It has waited for the requests before. A function that still works would live on."""
    write_model(tmp_path)
    made = Gateway(APIS["rest"], environ(tmp_path))
    assert infer(made, "word")[0] == 200
    process, found = made._instance._process, list[tuple[int, bytes]]()
    client = threading.Thread(target=lambda: found.append(infer(made, "wait")))
    client.start()
    until((tmp_path / "waits").exists)
    if how == "the server closes":
        made._instance.close()
    else:  # the pipe ends, and its number goes to nobody else
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), made._instance._questions.fileno())
    assert process is not None
    process.wait(30)
    client.join(30)
    assert found == [(502, b'{"message": "Internal server error"}')]


def test_requests_wait_for_each_other() -> None:
    """There is one instance, which has one request at a time."""
    made = Gateway(APIS["rest"], environ())
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(ask(made, "POST", INFER, BODY)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made._instance.close()
    assert found == [200] * 4


def test_a_function_that_cannot_start_is_the_gateways_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Its process ends before it has answered."""
    made = Gateway(APIS["http"], {"PATH": os.environ["PATH"], "PYTHONSTARTUP": "", "DRAGOMAN_REPOSITORY": "s3://"})
    assert ask(made, "GET", "/v2/models")[0] in (500, 503)  # settings that are wrong are the function's own refusal
    made._instance._environ = {"PATH": "", "PYTHONHOME": "/nowhere"}
    made._instance._end()
    assert ask(made, "GET", "/v2/models")[0] == 500
    assert "the function's process ended" in caplog.text


def test_the_functions_process_answers_until_its_pipe_ends() -> None:
    """With what the function returns, or the error that it raises, in the runtime's words."""
    reads, asks = os.pipe()
    hears, writes = os.pipe()
    thread = threading.Thread(target=runtime.main, args=(reads, writes))
    thread.start()
    answers, questions = Connection(hears, writable=False), Connection(asks, readable=False)
    assert json.loads(answers.recv_bytes())["init"] >= 0
    context = {"request_id": "r", "function": "f", "seconds": 60}
    for event, expected in ((None, "errorType"), ({"warmup": True}, "answer")):
        questions.send_bytes(json.dumps({"event": event, "context": context}).encode())
        found = json.loads(answers.recv_bytes())
        assert expected in found
        assert found["peak"] > 0
    questions.close()
    thread.join()
    answers.close()
    members = runtime.InvocationContext(context)
    assert 0 < members.get_remaining_time_in_millis() <= 60_000
    assert members.invoked_function_arn.endswith(":function:f")


@pytest.mark.parametrize(("kind", "golden", "own"), [
    ("rest", "rest-v1-infer-json.json", {"identity", "requestTime", "extendedRequestId"}),
    ("http", "http-v2-infer-json.json", {"time"}),
])  # fmt: skip
def test_events_have_the_members_of_real_ones(kind: str, golden: str, own: set[str]) -> None:
    """Those of an event that API Gateway has made, but for a few that no function here reads."""
    headers = ((b"host", b"h"), (b"x-a", b"1"), (b"x-a", b"2"), (b"content-type", b"application/json"), (b"te", b"x"))
    came = Came("POST", "/v2/a%20b", "q=1&q=2&e=", headers, b'{"a": "\xc3\xbc"}', "192.0.2.1", "Prod")
    event = getattr(events, kind)(came)
    real = json.loads((ROOT / "events" / golden).read_text(encoding="utf-8"))
    assert set(real) <= set(event)
    assert set(real["requestContext"]) - set(event["requestContext"]) <= own
    if kind == "rest":
        assert event["multiValueHeaders"]["X-A"] == ["1", "2"]
        assert (event["headers"]["X-A"], event["queryStringParameters"]) == ("2", {"q": "2", "e": ""})
        assert event["multiValueQueryStringParameters"] == {"q": ["1", "2"], "e": [""]}
        assert (event["path"], event["requestContext"]["path"]) == ("/v2/a%20b", "/Prod/v2/a%20b")
        assert base64.b64decode(event["body"]) == came.body
    else:
        assert (event["headers"]["x-a"], event["rawQueryString"]) == ("1,2", "q=1&q=2&e=")
        assert (event["rawPath"], event["isBase64Encoded"]) == ("/v2/a b", False)
        assert event["body"].encode() == came.body
        assert events.http(came._replace(body=b"\xff"))["isBase64Encoded"]
        assert events.http(came._replace(headers=((b"cookie", b"a=1"),), body=b""))["cookies"] == ["a=1"]


@pytest.mark.parametrize(("found", "rest", "http"), [
    ({"statusCode": 201, "body": "x", "headers": {"A": "1"}}, (201, b"x"), (201, b"x")),
    ({"statusCode": "200", "body": "eA==", "isBase64Encoded": True}, (200, b"x"), (200, b"x")),
    ({"answer": 1}, None, (200, b'{"answer": 1}')),
    ({"statusCode": 200, "body": 5}, None, None),
    ({"statusCode": 200, "body": "%", "isBase64Encoded": True, "headers": 3}, None, None),
    ({"statusCode": "many"}, None, None),
])  # fmt: skip
def test_an_answer_is_what_its_integration_makes_of_it(found: Any, rest: Any, http: Any) -> None:
    """An HTTP API takes any value for a body; a REST API takes only its own form."""
    for expected, is_http in ((rest, False), (http, True)):
        if expected is None:
            with pytest.raises(events.WrongAnswer):
                events.answer(found, is_http=is_http)
        else:
            assert events.answer(found, is_http=is_http)[::2] == expected


def test_an_answers_headers_are_each_sent() -> None:
    """Those with many values, and cookies."""
    said = {"statusCode": 200, "headers": {"A": "1", "Content-Length": "9"}, "multiValueHeaders": {"B": ["2", "3"]}}
    goes = events.answer(said | {"cookies": ["c=4"]}, is_http=True)
    assert goes.headers == ((b"a", b"1"), (b"b", b"2"), (b"b", b"3"), (b"set-cookie", b"c=4"))


def test_the_command_serves_the_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its flags get into the function's process, and not into that of the command."""

    def arguments(port: int) -> list[str]:
        flags = ["--lambda", "--repository", str(ROOT / "models"), "--name", "by flag", "--port", str(port)]
        return ["-m", "dragoman", "serve", *flags]

    with running(arguments, 1, tmp_path / "log", {}) as (_, (port,)):
        with Wire(HOST, port) as wire:
            assert wire.call("GET", "/Prod/v2").json()["name"] == "by flag"
        assert cli.main(["infer", "iris", "--sample", "--url", f"http://{HOST}:{port}/Prod"]) == 0
    log = (tmp_path / "log").read_text()
    assert re.search(r"^\S+ \S+ INFO handler.lifecycle.versions: model iris version 1 loaded", log, re.MULTILINE)
    assert "infer flowers --sample" in log
    assert f"handler.aws.lambda_handler behind an API Gateway REST API on http://127.0.0.1:{port}/Prod" in log
    assert "Init Duration: " in log
    own = ((["--reload"], "--reload"), (["--grpc-port", "9000"], "gRPC"), (["--on-empty", "stop"], "--on-empty stop"))
    for flags, told in own:
        assert cli.main(["serve", "--lambda", "http", *flags]) == 2
        assert told in capsys.readouterr().err
