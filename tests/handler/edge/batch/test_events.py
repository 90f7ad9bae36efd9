"""handler.edge.batch.events: messages of a queue and asynchronous batches, through the Lambda handler."""

from __future__ import annotations

import io
import json
import logging
import math
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from core.deadline import Deadline
from core.errors import InvalidInput, ModelNotLoadable, ModelUnavailable
from handler.aws import Function
from handler.edge.batch.events import RecordEvents
from handler.edge.batch.messages import MessageRunner
from handler.edge.batch.objects import chain_of, version_of
from handler.edge.batch.runner import BatchRunner
from handler.edge.function.events import UnsupportedEvent
from handler.lifecycle.single_flight import Background
from handler.settings import InvalidSettings
from tests.handler.calling import context
from tests.handler.edge.client import make
from tests.support import fault_proxy, s3_stand_in
from tests.support.fault_proxy import Fault
from tests.support.server import ROOT

ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]
TENSOR = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}
IRIS = {"model": "iris", "instances": ROWS}
BROKEN = {"model": "broken", "instances": [1]}
NOBODY = {"model": "nobody", "instances": [1]}
HALF = {"model": "half_plus_three", "version": 123, "inputs": [TENSOR], "id": "q"}


@contextmanager
def function(monkeypatch: pytest.MonkeyPatch, output: str, **settings: str) -> Iterator[Function]:
    """An instance whose results go to `output`."""
    for name, value in {"REPOSITORY": str(ROOT / "models"), "BATCH_OUTPUT": output, **settings}.items():
        monkeypatch.setenv(f"DRAGOMAN_{name}", value)
    level, made = logging.getLogger().level, Function()
    try:
        yield made
    finally:
        made.close()
        logging.getLogger().setLevel(level)


def broken_model(repository: Path) -> None:
    """Makes a repository of models that load, and of one that does not."""
    (repository / "broken" / "1").mkdir(parents=True)
    (repository / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    for name in ("iris", "half_plus_three"):
        (repository / name).symlink_to(ROOT / "models" / name)


def queue(*bodies: Any, fifo: bool = False) -> dict[str, Any]:
    """An event as SQS makes it; a text is a body as it stands."""
    own = {"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q" + ".fifo" * fifo, "attributes": {}}
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    return {"Records": [own | {"messageId": f"m{n}", "body": text} for n, text in enumerate(texts)]}


def failed(answer: dict[str, Any]) -> list[str]:
    (failures,) = answer.values()
    return [each["itemIdentifier"] for each in failures]


def lines(content: bytes | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: lines(path.read_bytes()) for path in sorted(folder.iterdir())}


def test_each_message_has_a_result_under_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Messages of one model run together. What sending again would not change is a result, too."""
    runs: list[int] = []
    run = MessageRunner._run

    def counted(self: Any, *arguments: Any) -> None:
        runs.append(len(arguments[2]))
        run(self, *arguments)

    monkeypatch.setattr(MessageRunner, "_run", counted)
    odd = ["{", [], {"model": 7}, {"model": "iris"}, {"model": "iris", "version": [1], "instances": [1]}]
    odd += [{"model": "iris", "signature_name": 3, "instances": [1]}, {"model": "nobody", "instances": [1, 2]}]
    odd += [{"model": "iris", "version": "9", "instances": ROWS}, IRIS | {"signature_name": "odd"}]
    with function(monkeypatch, f"file://{tmp_path}") as aws:
        mixed = IRIS | {"instances": [{"x": ROWS[0], "id": "own"}, [1], {"inputs": [TENSOR | {"shape": [1, 2]}]}]}
        event = queue(IRIS, HALF, IRIS | {"instances": ROWS[1:]}, mixed, *odd)
        assert failed(aws(event, None)) == []
        first = results(tmp_path)
        assert failed(aws(event, None)) == []
    found = results(tmp_path)
    assert (found, len(found)) == (first, 4 + len(odd))
    assert [each["index"] for each in found["m0"]] == [0, 1]
    assert found["m2"] == [found["m0"][1] | {"index": 0}]
    assert found["m1"][0]["outputs"][0]["data"] == [3.5, 4.25]
    assert (found["m1"][0]["id"], found["m3"][0]["id"]) == ("q", "own")
    assert found["m3"][0]["prediction"] == found["m0"][0]["prediction"]
    assert ["error" in each for each in found["m3"]] == [False, True, True]
    told = [found[f"m{n}"][0]["error"] for n in range(4, 4 + len(odd))]
    for text, part in zip(
        told,
        (
            "JSON",
            "expected an object",
            "'model' is 7",
            "'instances'",
            "'version'",
            "'signature_name'",
            "nobody",
            "version 9",
            "odd",
        ),
        strict=True,
    ):
        assert part in text
    assert len(found["m10"]) == len(found["m11"]) == 2
    assert sorted(runs) == sorted([3, 1, 1, 1, 1] * 2)


def test_what_could_not_be_done_is_sent_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model that does not load now, a message without a name, a function whose time is over."""
    broken_model(tmp_path / "models")
    output = tmp_path / "out"
    late = SimpleNamespace(get_remaining_time_in_millis=lambda: -60_000, aws_request_id="r")
    with function(monkeypatch, str(output), REPOSITORY=str(tmp_path / "models")) as aws:
        assert failed(aws(queue(IRIS, BROKEN, IRIS), None)) == ["m1"]
        assert [*results(output)] == ["m0", "m2"]
        event = queue(IRIS, IRIS)
        event["Records"][1]["messageId"] = "../m9"
        assert failed(aws(event, None)) == ["../m9"]
        monkeypatch.setattr("handler.edge.function.deadlines.LEAST_SECONDS", -1.0)
        assert failed(aws(queue(IRIS, IRIS), late)) == ["m0", "m1"]
        with pytest.raises(ModelUnavailable, match="no time was left"):
            aws({"batch": IRIS | {"id": "late"}}, late)
        monkeypatch.undo()
        (output / "blocked.jsonl").mkdir()
        with pytest.raises(ModelUnavailable, match="DRAGOMAN_BATCH_OUTPUT cannot be written"):
            aws({"batch": IRIS | {"id": "blocked"}}, None)


@pytest.mark.parametrize(
    ("bodies", "blocked", "again", "written"),
    [
        pytest.param([IRIS, BROKEN, IRIS], "", [1, 2], [0], id="a model that does not load"),
        pytest.param([IRIS, "{", IRIS, BROKEN, "{", IRIS], "", [3, 4, 5], [0, 1, 2], id="malformed messages"),
        pytest.param([IRIS, IRIS, IRIS, HALF], "m1", [1, 2, 3], [0], id="a result of one model cannot be written"),
        pytest.param([IRIS, "{", HALF], "m1", [1, 2], [0], id="a refusal cannot be written"),
        pytest.param([IRIS, NOBODY, NOBODY, IRIS], "m1", [1, 2, 3], [0], id="refusals of one model"),
        pytest.param([IRIS, NOBODY, NOBODY, IRIS], "", [], [0, 1, 2, 3], id="all have a result"),
    ],
)
def test_nothing_is_written_behind_a_message_of_a_fifo_queue_that_is_sent_again(
    bodies: list[Any],
    blocked: str,
    again: list[int],
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The order of the results is that of the messages. The log says which message the others wait for."""
    broken_model(tmp_path / "models")
    if blocked:
        (tmp_path / "out" / f"{blocked}.jsonl" / "x").mkdir(parents=True)
    with function(monkeypatch, str(tmp_path / "out"), REPOSITORY=str(tmp_path / "models")) as aws:
        assert failed(aws(queue(*bodies, fifo=True), None)) == [f"m{n}" for n in again]
    assert sorted(path.stem for path in (tmp_path / "out").iterdir() if path.is_file()) == [f"m{n}" for n in written]
    waits = f"message m{again[0]} is sent again" if again else ""
    told = [line for line in caplog.messages if f"order has to be kept: {waits}" in line]
    assert len(told) == len(again[1:])


def test_messages_behind_one_that_cannot_have_a_result_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its id cannot name one."""
    event = queue(IRIS, IRIS, IRIS, fifo=True)
    event["Records"][1]["messageId"] = "../m9"
    with function(monkeypatch, str(tmp_path)) as aws:
        assert failed(aws(event, None)) == ["../m9", "m2"]
    assert [*results(tmp_path)] == ["m0"]


def test_a_long_message_in_little_time_is_not_half_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The function's time is over with the first inference: those before it are there, and it is run again."""
    time_left = [60_000]
    outputs = BatchRunner._outputs

    def last(self: Any, *share: Any) -> Any:
        found = outputs(self, *share)
        time_left[0] = -60_000
        return found

    monkeypatch.setattr(BatchRunner, "_outputs", last)
    monkeypatch.setattr("handler.edge.batch.function_events.end_of", lambda *_: cast("Deadline", _Left(time_left)))
    with function(monkeypatch, str(tmp_path)) as aws:
        answer = aws(queue(IRIS | {"instances": ROWS * 128}, IRIS | {"instances": ROWS * 1000}), None)
    assert failed(answer) == ["m1"]
    assert [len(found) for found in results(tmp_path).values()] == [256]


def test_an_inference_ends_with_the_functions_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lambda would end the whole function, and the queue would resend messages that have their results already."""
    (tmp_path / "models/slow/1").mkdir(parents=True)
    source = "import time\ndef predict(inputs, parameters):\n    time.sleep(30)\n    return inputs\n"
    (tmp_path / "models/slow/1/model.py").write_text(source)
    shutil.copytree(ROOT / "models" / "iris", tmp_path / "models" / "iris")
    settings = {"REPOSITORY": str(tmp_path / "models"), "ALLOW_CODE": "true", "PRELOAD": "*"}
    with function(monkeypatch, str(tmp_path / "out"), **settings) as aws:
        begun = time.monotonic()
        answer = aws(queue(IRIS, HALF | {"model": "slow", "version": 1}), context(3))
        assert time.monotonic() - begun < 20
    assert failed(answer) == ["m1"]
    assert [*results(tmp_path / "out")] == ["m0"]


class _Left:
    """A deadline as the function has it, which asks its context again and again."""

    at, is_never, init, beside = math.inf, False, False, None

    def __init__(self, milliseconds: list[int]) -> None:
        self._milliseconds = milliseconds

    @property
    def left(self) -> float:
        return self._milliseconds[0] / 1e3

    process_left = left

    def slice(self) -> _Left:
        return self

    def earlier(self, seconds: float) -> float:
        return seconds


def test_a_batch_of_an_asynchronous_invocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its id names the result."""
    with function(monkeypatch, str(tmp_path)) as aws:
        assert aws({"batch": HALF | {"id": "2026-11-22.a"}}, None) == {"result": "2026-11-22.a.jsonl"}
        for wrong in ("../a", "", None, 5, "a" * 129):
            with pytest.raises(InvalidInput, match="the batch has the id"):
                aws({"batch": HALF | {"id": wrong}}, None)
    assert results(tmp_path)["2026-11-22.a"][0]["outputs"][0]["data"] == [3.5, 4.25]


def test_results_are_objects_of_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses them leaves the messages in the queue."""
    with s3_stand_in.running() as store:
        store.settings(monkeypatch)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        with function(monkeypatch, "s3://bucket/out") as aws:
            assert failed(aws(queue(IRIS, HALF), None)) == []
            assert [*store.things] == ["out/m0.jsonl", "out/m1.jsonl"]
            assert [each["index"] for each in lines(store.things["out/m0.jsonl"].content)] == [0, 1]
        with function(monkeypatch, "s3://other/out") as aws:
            monkeypatch.setattr(store.objects, "put", _refuse)
            assert failed(aws(queue(IRIS), None)) == ["m0"]
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with function(monkeypatch, "s3://gone/out") as aws:
            assert failed(aws(queue(IRIS), None)) == ["m0"]


def _refuse(*_: Any) -> str:
    raise s3_stand_in.Refusal(403, "AccessDenied")


def test_a_server_with_threads_for_loads_waits_for_them(tmp_path: Path) -> None:
    """As that of several events at once."""
    with closing(make(BATCH_OUTPUT=str(tmp_path))) as app:
        assert failed(RecordEvents(app.settings, app.registry).messages(queue(IRIS), Background())) == []
    assert len(results(tmp_path)["m0"]) == 2


def created(*keys: str, bucket: str = "bucket") -> dict[str, Any]:
    own = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    return {"Records": [own | {"s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in keys]}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3_stand_in.StandIn]:
    """A bucket, with credentials for it."""
    with s3_stand_in.running() as running:
        running.settings(monkeypatch)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        yield running


def test_a_new_object_has_its_answers_in_parts(
    store: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An invocation without time leaves parts, and the next ones go on behind them: each record is in one part."""
    monkeypatch.setattr("handler.edge.batch.objects.PART_RECORDS", 700)
    texts = ["[1]" if n % 500 == 3 else json.dumps([n % 7, 1, 2, 3.5]) for n in range(9000)]
    store.put("in/iris/day/a.jsonl", "\n".join(texts).encode())
    late = SimpleNamespace(get_remaining_time_in_millis=lambda: -60_000, aws_request_id="r")
    event = created("in/iris/day/a.jsonl")
    with function(monkeypatch, f"file://{tmp_path}", BATCH_INPUT="s3://bucket/in") as aws:
        aws(queue(IRIS), None)  # loads the model
        monkeypatch.setattr("handler.edge.function.deadlines.LEAST_SECONDS", -1.0)
        for number in (1, 2):
            with pytest.raises(ModelUnavailable, match="no time was left for the others"):
                aws(event, late)
            (folder,) = (tmp_path / "iris" / "day" / "a.jsonl").iterdir()
            some = sorted(path.name for path in folder.iterdir())
            assert len(some) == number
        (answer,) = aws(event, None)["batches"]
        assert (answer["records"], answer["errors"], answer["version"]) == (9000, 18, "1")
        assert aws(event, None)["batches"][0]["complete"]
    whole = json.loads((tmp_path / answer["result"] / "complete.json").read_bytes())
    assert whole["parts"][:2] == some
    assert len(whole["parts"]) > 3
    found = [line for name in whole["parts"] for line in lines((folder / name).read_bytes())]
    assert [line["index"] for line in found] == list(range(9000))
    assert [line["index"] for line in found if "error" in line] == list(range(3, 9000, 500))


@pytest.mark.parametrize("kind", ["truncate", "reset"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.npy"])
def test_a_connection_that_ends_keeps_no_other_object_back(
    store: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, name: str
) -> None:
    """The invocation fails once the others are done, and the next one goes on."""
    file = io.BytesIO()
    np.save(file, np.ones((500_000, 4), np.float32))
    rows = {"a.jsonl": b"[5, 3, 1, 0]\n" * 200_000, "a.csv": b"5,3,1,0\n" * 300_000, "a.npy": file.getvalue()}
    store.put(f"in/iris/{name}", rows[name])
    store.put("in/iris/b.jsonl", b"[5, 3, 1, 0]\n")
    with fault_proxy.running(store.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        proxy.only, proxy.faults = name, [Fault(kind, 1_500_000)]
        event = created(f"in/iris/{name}", "in/iris/b.jsonl")
        with function(monkeypatch, f"file://{tmp_path}", BATCH_INPUT="s3://bucket/in") as aws:
            with pytest.raises(ModelUnavailable, match="DRAGOMAN_BATCH_INPUT: the bucket does not answer"):
                aws(event, None)
            assert [path.parts[-3] for path in tmp_path.rglob("complete.json")] == ["b.jsonl"]
            first, second = aws(event, None)["batches"]
            assert (first["errors"], second["complete"]) == (0, True)


def test_objects_of_other_forms_and_those_that_are_wrong(
    store: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What trying again would not change is said in the result; a store that fails is not."""
    file = io.BytesIO()
    np.save(file, np.array(ROWS, np.float32))
    store.put("in/iris/a.npy", file.getvalue())
    file = io.BytesIO()
    parquet.write_table(pa.table({name: [1.0, 2.0, 3.0] for name in "abcd"}), file, compression="none")
    store.put("in/iris/h.parquet", file.getvalue())
    store.put("in/iris/b.csv", b"a,b,c,d\n5.1,3.5,1.4,0.2\n")
    store.put("in/iris/c.csv", b"\xff,1\n")
    store.put("in/nobody/d.jsonl", b"1\n")
    store.put("in/iris/big.npy", bytes(9000))
    forms = ["in/iris/a.npy", "in/iris/h.parquet", "in/iris/b.csv"]
    keys = [*forms, "in/iris/c.csv", "in/nobody/d.jsonl", "in/iris/big.npy"]
    odd = ["in/iris/e.txt", "in/f.jsonl", "in/iris/../../g.jsonl", "in/"]
    sizes = {"MAX_BODY_BYTES": str(len(file.getvalue()))}
    with function(monkeypatch, "s3://bucket/out", BATCH_INPUT="s3://bucket/in", **sizes) as aws:
        told = aws(created(*keys, *odd), None)["batches"]
        assert [each.get("records") for each in told] == [2, 3, 1] + [None] * 7
        parts = ("not CSV", "nobody", "npy or parquet has at most", *["expected MODEL/NAME"] * 4)
        for each, part in zip(told[3:], parts, strict=True):
            assert part in each["error"]
        assert sum(key.endswith("complete.json") for key in store.things) == 6
        assert [each["complete"] for each in aws(created(*keys), None)["batches"]] == [True] * 6
        store.put("in/iris/i.parquet", file.getvalue())
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ModelNotLoadable, match=r"pip install 'dragoman\[parquet\]'"):
            aws(created("in/iris/i.parquet"), None)
        assert aws(created("models/iris/1/model.onnx", "x"), None) == {"checked": []}
        assert aws(created("in/iris/a.npy", bucket="other"), None) == {"checked": []}


def test_an_object_that_is_gone_is_not_tried_again(store: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get their results. If S3 calls it forbidden, because listing is not permitted, it is tried again."""
    store.put("in/iris/a.jsonl", b"[5, 3, 1, 0]\n")
    with function(monkeypatch, "s3://bucket/out", BATCH_INPUT="s3://bucket/in") as aws:
        gone, there = aws(created("in/iris/gone.jsonl", "in/iris/a.jsonl"), None)["batches"]
        assert (gone, there["records"]) == ({"object": "in/iris/gone.jsonl", "error": "the object does not exist"}, 1)
        assert [key for key in store.things if "gone" in key] == []
        store.listable = False
        with pytest.raises(ModelUnavailable, match="AccessDenied"):
            aws(created("in/iris/gone.jsonl"), None)


@pytest.mark.parametrize(("place", "records"), [
    ("s3://bucket/in/out", "s3://bucket/in"), ("s3://bucket", "s3://bucket/in"), ("s3://bucket/out", "s3://bucket"),
])  # fmt: skip
def test_results_below_the_records_would_be_records(place: str, records: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is refused, before anything is written."""
    with function(monkeypatch, place, BATCH_INPUT=records) as aws, pytest.raises(InvalidSettings, match="overlap"):
        aws(created("in/iris/a.jsonl"), None)


def test_parts_that_overlap_count_once() -> None:
    """Two invocations at a time may leave such ones, and parts of another version do not belong here."""
    names = [f"v{version}-{start:012}-{end:012}-{1:012}.jsonl" for version, start, end in (
        (1, 0, 5), (1, 0, 8), (1, 5, 9), (1, 8, 12), (2, 12, 15), (1, 13, 15), (1, 12, 12),
    )]  # fmt: skip
    assert [(part.start, part.end) for part in chain_of([*names, "complete.json"], "1")] == [(0, 8), (8, 12)]
    assert chain_of(names, "3") == []
    assert (version_of(names), version_of([*names, f"v10-{0:012}-{13:012}-{0:012}.jsonl"])) == ("1", "10")
    assert version_of(["complete.json"]) is None


@pytest.mark.parametrize("event", [queue(IRIS), {"batch": IRIS | {"id": "a"}}])
def test_without_a_place_for_results_there_are_no_such_events(event: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may send to a queue needs no key here, so that an operator has to turn it on."""
    with function(monkeypatch, "") as aws, pytest.raises(UnsupportedEvent, match="need DRAGOMAN_BATCH_OUTPUT"):
        aws(event, None)


@pytest.mark.parametrize(("output", "settings", "expected"), [
    ("ftp://host/x", {}, "OUTPUT is 'ftp://host/x'; expected s3://bucket/prefix or a folder"),
    ("gs://bucket/x", {}, "OUTPUT is 'gs://bucket/x'; expected s3://bucket/prefix or a folder"),
    ("s3://", {}, "OUTPUT is 's3://'; expected s3://bucket/prefix"),
    ("s3:///x", {}, "OUTPUT is 's3:///x'; expected s3://bucket/prefix"),
    ("s3://bucket", {"BATCH_INPUT": "in"}, "INPUT is 'in'; expected s3://bucket/prefix"),
    ("s3://bucket", {"BATCH_INPUT": "gs://bucket/in"}, "INPUT is 'gs://bucket/in'; expected s3://bucket/prefix"),
    ("s3://bucket", {"BATCH_INPUT": "s3://"}, "INPUT is 's3://'; expected s3://bucket/prefix"),
])  # fmt: skip
def test_the_start_checks_the_places_of_records(
    output: str,
    settings: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each event would fail otherwise, the first of them perhaps days later."""
    with function(monkeypatch, output, **settings) as aws:
        assert f"DRAGOMAN_BATCH_{expected}" in caplog.messages
        with pytest.raises(UnsupportedEvent, match="not configured"):
            aws(queue(IRIS), None)
