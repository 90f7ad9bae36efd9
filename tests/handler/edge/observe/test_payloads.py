"""handler.edge.observe.payloads: what the log gets, where it goes, and what never waits for it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest
from cloudevents.http import from_http, from_json
from google.protobuf.json_format import MessageToJson

from core.schema import open_inference as oip
from handler.edge.observe.observer import Observer
from handler.edge.observe.payloads import outbox as outboxes
from handler.edge.observe.payloads import places
from handler.edge.observe.payloads.events import REQUEST, RESPONSE, CloudEvent
from handler.edge.observe.payloads.outbox import Outbox
from handler.settings import InvalidSettings
from tests.handler.calling import http
from tests.handler.edge.calls.connect.client import call
from tests.handler.edge.client import BODY, INFER, ask, make
from tests.handler.edge.observe.test_access import MESSAGE, Context, function
from tests.handler.edge.observe.test_metrics import of, scraped
from tests.handler.edge.observe.test_traces import ASK
from tests.protocols.test_waiting import until
from tests.support import s3_stand_in, web
from tests.support.connect_client import OIP, envelope
from tests.support.remote import question, raw, tensors

TYPES = ["org.kubeflow.serving.inference.request", "org.kubeflow.serving.inference.response"]


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("protocol", ASK)
def test_an_inference_is_two_events(protocol: str, tmp_path: Path) -> None:
    """Of one id, and valid CloudEvents, as their own package reads them; the files are their owner's alone."""
    with closing(make(PAYLOAD_LOG=str(tmp_path / "log"), NAME="my server")) as app:
        ASK[protocol](app, [(b"x-request-id", b"mine"), (b"authorization", b"Bearer secret")])
        ask(app, "GET", "/v2/models/half_plus_three")
        app.observer.close()
        found = logged(tmp_path / "log")
        assert app.observer.counts.payloads == {"written": 1}
    request, response = found
    assert [each["type"] for each in found] == TYPES
    for each in found:
        read = from_json(json.dumps(each))
        known = {
            "id": "mine",
            "source": "/my%20server",
            "specversion": "1.0",
            "inferenceservicename": "half_plus_three",
        }
        known |= {"modelversion": "123", "protocol": protocol, "namespace": "my server", "component": "predictor"}
        assert {name: read[name] for name in known} == known
        assert read["time"]
    if protocol in ("v2", "v1", "grps"):
        assert request["data"].keys() & {"inputs", "instances", "ndarray"}
        assert "3.5" in json.dumps(response["data"])
        assert response["status"] == "200"
    else:
        assert b64decode(request["data_base64"]) == MESSAGE
        assert bytes.fromhex("00006040") in b64decode(response["data_base64"])
    assert "secret" not in json.dumps(found)
    (file,) = (tmp_path / "log").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_an_answer_of_grpc_over_http_is_its_message(coding: str, tmp_path: Path) -> None:
    """It has neither the envelope nor the HTTP status of its carrier, so that it can be replayed over any."""
    values = np.zeros(2000 if coding else 2, np.float32)
    asked = question("half_plus_three", raw("x", "FP32", values)).SerializeToString()
    sent = envelope(gzip.compress(asked), flags=1) if coding else envelope(asked)
    headers = [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"gzip")]
    headers += [(b"grpc-encoding", b"gzip")] * bool(coding)
    extensions = {"http.response.trailers": {}}
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        ask(app, "POST", f"/{OIP}/ModelInfer", sent, headers=headers, extensions=extensions)
    request, response = logged(tmp_path)
    assert b64decode(request["data_base64"]) == asked
    assert (response["status"], response["datacontenttype"]) == ("OK", "application/protobuf")
    assert response.get("contentencoding", "") == coding
    payload = b64decode(response["data_base64"])
    answer = oip.ModelInferResponse.FromString(gzip.decompress(payload) if coding else payload)
    assert set(tensors(answer)["y"].tolist()) == {3.0}


def test_a_request_has_the_members_of_its_query_and_the_form_that_change_its_answer(tmp_path: Path) -> None:
    """A replay repeats them. Other members can be credentials; V2 does not have a query."""
    query = b"model=half_plus_three&api_key=secret&return-ndarray=true&streaming="
    more: Any = {"query_string": query, "headers": [(b"content-type", b"application/json"), (b"accept", b"text/csv")]}
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        ask(app, "POST", "/grps/v1/infer/predict", b'{"ndarray": [1]}', **more)
        ask(app, "POST", INFER, BODY, **more | {"headers": [(b"accept", b"*/*")]})
    found = [(each.get("query"), each.get("accept")) for each in logged(tmp_path)]
    assert found == [("model=half_plus_three&return-ndarray=true&streaming=", "text/csv"), *[(None, None)] * 3]


@pytest.mark.parametrize("encoding", ["json", "proto"])
def test_the_message_of_a_get_has_the_type_of_its_encoding(encoding: str, tmp_path: Path) -> None:
    asked = question("half_plus_three", raw("x", "FP32", np.zeros(2, np.float32)))
    message = MessageToJson(asked).encode() if encoding == "json" else asked.SerializeToString()
    query = f"connect=v1&encoding={encoding}&base64=1&message={quote(b64encode(message).decode())}".encode()
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        ask(app, "GET", f"/{OIP}/ModelInfer", query_string=query)
    request, response = logged(tmp_path)
    assert response["status"] == "200"
    if encoding == "json":
        assert (request["datacontenttype"], request["data"]) == ("application/json", json.loads(message))
    else:
        assert request["datacontenttype"] == "application/protobuf"
        assert b64decode(request["data_base64"]) == message


@pytest.mark.parametrize(("path", "body", "headers", "data"), [
    (INFER, b'{\n"inputs"\r\n: []}', [], {"inputs": []}),
    (INFER, b"{", [], None), (INFER, b'{"inputs": NaN}', [], None), (INFER, b"\xff", [], None),
    (INFER, BODY, [(b"content-encoding", b"gzip")], None),
    (INFER, BODY, [(b"content-type", b"application/octet-stream")], None),
    ("/v2/models/no\ud800\nbody/infer", BODY, [(b"content-type", b'a/b\xff; x="\x85')], None),
])  # fmt: skip
def test_any_request_is_one_line(path: str, body: bytes, headers: Any, data: Any, tmp_path: Path) -> None:
    """JSON stands in the line as it came but for its line ends; anything else is base64."""
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        ask(app, "POST", path, body, headers=headers)
    request, response = logged(tmp_path)
    assert request["data"] == data if data else b64decode(request["data_base64"]) == body
    assert ("error" in response["data"]) is (response["status"] != "200")


@pytest.mark.parametrize(
    ("name", "value"),
    [("content-type", b"a/" + b"b" * 60_000), ("content-encoding", b"gzip," * 12_000),
     ("inference-header-content-length", b"9" * 60_000), ("x-request-id", b"a" * 60_000), ("accept", b"a" * 60_000)],
)  # fmt: skip
def test_a_long_header_does_not_make_a_long_event(name: str, value: bytes, tmp_path: Path) -> None:
    """The memory of events that wait is counted by their payloads."""
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        ask(app, "POST", INFER, BODY, headers=[(name.encode(), value)])
    for each in logged(tmp_path):
        assert len(json.dumps(each)) < len(BODY) * 2 + outboxes.OVERHEAD


def test_what_is_no_inference_is_not_logged(tmp_path: Path) -> None:
    """Neither are streams of calls, whose messages are many, nor requests that were refused before they were read."""
    with closing(make(PAYLOAD_LOG=str(tmp_path))) as app:
        for method, path in (("GET", "/v2"), ("POST", "/v2/repository/index"), ("POST", "/v9"), ("POST", INFER)):
            ask(app, method, path)
        call(app, "ModelStreamInfer", "application/connect+proto", envelope(MESSAGE))
        app.observer.close()
        assert not app.observer.counts.payloads
    assert not logged(tmp_path)


def test_a_share_of_the_inferences(tmp_path: Path) -> None:
    with closing(make(PAYLOAD_LOG=str(tmp_path), PAYLOAD_LOG_SAMPLE="0.5")) as app:
        for _ in range(100):
            ask(app, "POST", INFER, BODY)
        app.observer.close()
        count = app.observer.counts.payloads["written"]
    assert 20 < count < 80
    assert len(logged(tmp_path)) == 2 * count


def test_payloads_have_bounds(tmp_path: Path) -> None:
    """A request or an answer that is too large is counted; metrics say so, by outcome."""
    with closing(make(PAYLOAD_LOG=str(tmp_path), PAYLOAD_LOG_SIZE=str(len(BODY)))) as app:
        ask(app, "POST", INFER, BODY)  # whose answer is larger
        ask(app, "POST", INFER, BODY + b" ")
        ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"instances": [1]}')
        app.observer.close()
        found = scraped(app)
        assert of(found, "dragoman_payloads_total", outcome="size") == 2
        assert of(found, "dragoman_payloads_total", outcome="written") == 1


class Gate:
    """A place that is in the way: it writes when it may, and fails as often as it was told to."""

    pause = 0.0

    def __init__(self, failures: int = 0) -> None:
        self.entered, self.may = threading.Event(), threading.Event()
        self.failures = failures
        self.events: list[CloudEvent] = []

    def write(self, events: Any) -> Any:
        self.entered.set()
        assert self.may.wait(60)
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("the disk\nis full")
        self.events += events
        return ()


def one(size: int = 10) -> list[CloudEvent]:
    return [
        CloudEvent({"type": REQUEST, "id": "1"}, "", "", b"x" * size),
        CloudEvent({"type": RESPONSE, "id": "1"}, "", "", b""),
    ]


def test_a_place_that_hangs_is_in_nobodys_way() -> None:
    """What waits is bounded in bytes; the rest is dropped and counted, and all that waited is written later."""
    gate, counts = Gate(), dict[str, int]()
    outbox = Outbox(gate, 100_000, counts)
    outbox.put(one())
    assert gate.entered.wait(60)
    for _ in range(100):
        outbox.put(one(10_000))
    assert counts["memory"] == 100 - 6
    gate.may.set()
    outbox.close()
    assert counts == {"memory": 94, "written": 7}
    assert len(gate.events) == 14
    outbox.put(one())
    until(lambda: counts["written"] == 8)


def test_a_server_that_ends_waits_once_for_a_place_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes its log after the requests over HTTP, and again after those over gRPC."""
    gate, counts = Gate(), dict[str, int]()
    outbox = Outbox(gate, 100_000, counts)
    outbox.put(one())
    assert gate.entered.wait(60)
    monkeypatch.setattr(outboxes, "LAST_SECONDS", 0.01)
    outbox.close()
    monkeypatch.setattr(outboxes, "LAST_SECONDS", 600)
    outbox.close()
    assert counts == {}
    gate.may.set()
    until(lambda: counts == {"written": 1})
    outbox.put(one())
    outbox.close()
    assert counts == {"written": 2}


@pytest.mark.parametrize(("failures", "counted"), [(2, {"written": 1}), (9, {"failed": 1})])
def test_a_place_that_fails_is_asked_again(
    failures: int, counted: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three times; then the log says so in one line, and the next events are tried anew."""
    monkeypatch.setattr(outboxes, "RETRIES", (0.0, 0.0, 0.0))
    gate, counts = Gate(failures), dict[str, int]()
    gate.may.set()
    outbox = Outbox(gate, 100_000, counts)
    outbox.put(one())
    until(lambda: bool(counts))
    assert counts == counted
    told = [each for each in caplog.messages if "were not written" in each]
    assert told == (["payloads of 1 request were not written: the disk\\nis full"] if "failed" in counted else [])
    gate.failures = 0
    outbox.put(one())
    until(lambda: counts.get("written", 0) == counted.get("written", 0) + 1)


def test_a_function_writes_before_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after a failure not for a while, rather than in the way of each request."""
    tries: list[int] = []
    with closing(function(DRAGOMAN_PAYLOAD_LOG=str(tmp_path))) as made:
        made(http("POST", INFER, BODY.decode()), Context())
        assert [each["id"] for each in logged(tmp_path)] == ["invocation-1"] * 2

        def fail(*_: Any) -> None:
            tries.append(1)
            raise OSError

        monkeypatch.setattr(places.EventFolder, "write", fail)
        for _ in range(3):
            assert made(http("POST", INFER, BODY.decode()), Context())["statusCode"] == 200
        assert (len(tries), made.app.observer.counts.payloads) == (1, {"written": 1, "failed": 3})  # type: ignore[union-attr]


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one whose last line may be cut off."""
    folder = places.EventFolder(tmp_path)
    monkeypatch.setattr(places, "FILE_BYTES", 100)
    for _ in range(2):
        folder.write(one(200))
    assert len(list(tmp_path.iterdir())) == 2
    folder._room, write = 1, places.os.write

    def half(file: int, content: Any) -> int:
        monkeypatch.undo()
        write(file, content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places.os, "write", half)
    with pytest.raises(OSError, match="No space"):
        folder.write(one())
    folder.write(one())
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_does_not_collect_empty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try begins a file, because the last line of the one before may be cut off."""
    folder = places.EventFolder(tmp_path)

    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places.os, "write", fail)
    for _ in range(5):
        with pytest.raises(OSError, match="No space"):
            folder.write(one())
    monkeypatch.undo()
    folder.write(one())
    (file,) = tmp_path.iterdir()
    assert file.read_bytes().count(b"\n") == 2


def test_a_file_that_was_deleted_or_moved_is_followed_by_another(tmp_path: Path) -> None:
    """A job that cleans up deletes or moves the open file, or the whole folder."""
    place = tmp_path / "log"
    folder = places.EventFolder(place)
    written = lambda: [file.read_bytes().count(b"\n") for file in sorted(place.iterdir())]  # noqa: E731 - of this test
    folder.write(one())
    folder.write(one())
    assert written() == [4]
    (file,) = place.iterdir()
    file.unlink()
    folder.write(one())
    assert written() == [2]
    (file,) = place.iterdir()
    file.rename(tmp_path / "taken.jsonl")
    folder.write(one())
    assert written() == [2]
    shutil.rmtree(place)
    folder.write(one())
    assert written() == [2]
    assert place.stat().st_mode & 0o777 == 0o700


@contextmanager
def receiver(statuses: list[int]) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A receiver of CloudEvents, which answers with these statuses, then with 202."""
    taken: list[tuple[dict[str, str], bytes]] = []

    class Handler(web.Handler):
        def do_POST(self) -> None:
            body = self.body()
            status = statuses.pop(0) if statuses else 202
            if status == 202:
                taken.append((dict(self.headers), body))
            self.answer(status)

    with web.serving(Handler) as server:
        yield f"{server.url}/in", taken


def test_a_receiver_gets_kserves_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """In binary content mode; a refusal is tried again. What a client has made up stays in its header."""
    monkeypatch.setattr(outboxes, "RETRIES", (0.0,))
    with receiver([503]) as (url, taken), closing(make(PAYLOAD_LOG=url)) as app:
        ask(app, "POST", INFER, BODY)
        until(lambda: len(taken) == 2)
        ask(app, "POST", '/v2/models/a%\r\nce-id: forged "\u202e"/infer', BODY)
        until(lambda: len(taken) == 4)
    events = [from_http(headers, body) for headers, body in taken]
    assert [each["type"] for each in events] == TYPES * 2
    assert [each["id"] for each in events[::2]] == [each["id"] for each in events[1::2]]
    assert json.loads(taken[0][1]) == json.loads(BODY)
    assert unquote(events[2]["inferenceservicename"]) == 'a%\\r\\nce-id: forged "\\u202e"'
    assert "forged" not in events[2]["id"]


def test_an_event_that_a_receiver_refuses_keeps_no_other_one_back() -> None:
    """It is not sent again, and its request counts as refused."""
    counts = dict[str, int]()
    with receiver([413]) as (url, taken):
        outbox = Outbox(places.Receiver(url, 60), 100_000, counts)
        for _ in range(3):
            outbox.put(one())
        until(lambda: sum(counts.values()) == 3)
    assert counts == {"written": 2, "refused": 1}
    assert len(taken) == 3 * len(one()) - 1


@pytest.mark.parametrize(("ending", "counted"), [([], {"written": 40}), ([503] * 9, {"written": 36, "failed": 4})])
def test_a_receiver_that_misses_some_events_gets_each_once(
    ending: list[int], counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one that it has missed, and those behind it, are sent again; four failures in a row lose the rest.

    A batch began anew with each: at one failure in a hundred events, nearly all were lost after four of them.
    """
    monkeypatch.setattr(outboxes, "RETRIES", (0.0, 0.0, 0.0))
    counts, most = dict[str, int](), 10 if not ending else 9
    with receiver([202, 202, 202, 202, 202, 202, 202, 202, 503] * most + ending) as (url, taken):
        outbox = Outbox(places.Receiver(url, 60), 10_000_000, counts)
        with outbox._lock:  # all of them are one batch
            outbox._waiting += [
                [CloudEvent({"id": f"{number}-{half}"}, "", "", b"{}") for half in (0, 1)] for number in range(39)
            ]
        outbox.put([CloudEvent({"id": f"39-{half}"}, "", "", b"{}") for half in (0, 1)])
        until(lambda: sum(counts.values()) == 40)
    assert counts == counted
    ids = [headers["ce-id"] for headers, _ in taken]
    assert ids == [f"{number}-{half}" for number in range(40) for half in (0, 1)][: len(ids)]
    assert len(ids) == 2 * counted["written"]


def test_events_that_a_function_answers_at_once_are_all_written() -> None:
    """Each before its own answer. Two threads on one connection took each other's replies, and lost the events."""
    counts = dict[str, int]()
    with receiver([]) as (url, taken):
        place = places.Receiver(url, 60)
        outbox = Outbox(place, 100_000, counts, freezes=True)

        def answered(number: int) -> bool:
            outbox.put([CloudEvent({"id": f"{number}"}, "", "", b"{}")])
            return any(headers["ce-id"] == f"{number}" for headers, _ in list(taken))

        with ThreadPoolExecutor(4) as pollers:
            assert all(pollers.map(answered, range(40)))
        place._drop()
    assert counts == {"written": 40}
    assert len(taken) == 40


@pytest.mark.parametrize(("settings", "told"), [
    ({"PAYLOAD_LOG": "http://user:secret@host/"}, "without credentials"),
    ({"PAYLOAD_LOG": "http://"}, "expected a URL"), ({"PAYLOAD_LOG": "http://host:x/"}, "expected a URL"),
    ({"PAYLOAD_LOG": "s3://"}, "DRAGOMAN_PAYLOAD_LOG is 's3://'"),
    ({"PAYLOAD_LOG": "/proc/none/x"}, "DRAGOMAN_PAYLOAD_LOG: /proc/none/x cannot be made: No such file"),
    ({"PAYLOAD_LOG": "gs://secret/x"}, "DRAGOMAN_PAYLOAD_LOG begins with 'gs://'; expected a folder, s3://bucket/prefix"),
    ({"PAYLOAD_LOG_SAMPLE": "1.5"}, "a number from 0 to 1"), ({"PAYLOAD_LOG_SIZE": "-1"}, "a number of bytes"),
])  # fmt: skip
def test_a_wrong_setting_ends_the_start(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSettings, match=told) as refused:
        make(**settings)
    assert "secret" not in str(refused.value)


def test_without_a_place_nothing_is_different() -> None:
    with closing(make(PAYLOAD_LOG="", PAYLOAD_LOG_SAMPLE="1")) as app:
        assert type(app.observer) is Observer


@pytest.mark.usefixtures("no_aws")
def test_a_bucket_gets_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for many requests, below a folder of its day."""
    with s3_stand_in.running() as store:
        store.settings(monkeypatch)
        with closing(make(PAYLOAD_LOG="s3://bucket/logs")) as app:
            for _ in range(5):
                ask(app, "POST", INFER, BODY)
            app.observer.close()
            assert app.observer.counts.payloads == {"written": 5}
    ((key, thing),) = store.things.items()
    assert re.fullmatch(r"logs/\d{4}/\d\d/\d\d/\d{8}T\d{6}Z-\S+\.jsonl", key)
    assert len(thing.content.splitlines()) == 10
