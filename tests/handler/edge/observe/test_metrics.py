"""handler.edge.observe: metrics as Prometheus and CloudWatch read them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from core.errors import ModelFailed, ServerBusy, TimedOut
from handler.edge.observe import exposition
from handler.edge.observe.families import FAMILIES, OWN
from handler.edge.observe.observer import Observer
from handler.edge.observe.workers import Shared, begun, folder_of
from handler.lifecycle.registry import Registry
from handler.settings.parsers import METRICS
from tests.handler.calling import http
from tests.handler.edge.calls.connect.client import until
from tests.handler.edge.client import BODY, INFER, ask, exchange, make
from tests.handler.edge.observe.test_access import Context, function
from tests.protocols import test_waiting as waiting
from tests.support.server import HOST, running

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[4]
LINUX_ONLY = pytest.mark.skipif(
    sys.platform != "linux", reason="reads the start of a process from /proc, which only Linux has"
)
SERVERS = tuple(name for name in METRICS if name != "emf")  # which is a form of the log
TFS = "/monitoring/prometheus/metrics"
OPEN = b"application/openmetrics-text;version=1.0.0;escaping=values;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
ODD_ACCEPT = b"text/plain;version=a,\xff;;=,application/openmetrics-text;version="


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus' own parser reads; no sample may stand there twice."""
    written = frozenset(re.findall(r"^([\w:]+)", text, re.MULTILINE))
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown", family
        for sample in family.samples:
            # The parser calls every counter _total.
            name = sample.name if sample.name in written else sample.name.removesuffix("_total")
            key = name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def scraped(app: Any, path: str = "/metrics") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, headers, body = ask(app, "GET", path, headers=[(b"accept", ODD_ACCEPT)])
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return samples(body.decode())


def of(found: Mapping[Any, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


MODEL = {"model": "half_plus_three", "version": "123"}


def test_a_run_for_several_requests_is_one_execution() -> None:
    """Triton counts runs of the model beside the inferences in them."""
    with closing(make()) as app:
        for _ in range(3):
            ask(app, "POST", INFER, BODY)
        (version,) = (each for each in app.registry.known() if each.name == "half_plus_three")
        for _ in range(3):
            version.traffic.share()
        version.traffic.executed(3, 1, 1, 1)
        found = scraped(app)
        counts = [of(found, f"nv_inference_{name}", **MODEL) for name in ("count", "exec_count")]
        assert counts == [3, 1]


def test_the_counts_are_those_of_the_requests() -> None:
    """Inferences, failures, requests, refusals and loads, under Triton's names and our own."""
    with closing(make()) as app:
        for body in (BODY, BODY, b"{}"):
            ask(app, "POST", INFER, body)
        found = scraped(app)
        assert of(found, "nv_inference_request_success", **MODEL) == 2
        assert of(found, "nv_inference_count", **MODEL) == 2
        assert of(found, "nv_inference_request_failure", **MODEL, reason="OTHER") == 1
        parts = ("queue", "compute_input", "compute_infer", "compute_output")
        whole = sum(of(found, f"nv_inference_{part}_duration_us", **MODEL) for part in parts)
        assert of(found, "nv_inference_request_duration_us", **MODEL) == pytest.approx(whole)
        assert of(found, "dragoman_requests_total", protocol="v2", status="200") == 2
        assert of(found, "dragoman_refusals_total", protocol="v2", reason="INVALID_ARGUMENT") == 1
        assert of(found, "dragoman_request_duration_seconds_count", protocol="v2") == 3
        assert of(found, "dragoman_received_bytes_total", protocol="v2") == 2 * len(BODY) + 2
        assert of(found, "dragoman_models") == 1
        assert of(found, "dragoman_cold_starts_total") == 1


@pytest.mark.parametrize(("error", "reason"), [
    (ServerBusy, "REJECTED"), (ModelFailed, "BACKEND"), (TimedOut, "BACKEND"),
])  # fmt: skip
def test_a_failure_has_tritons_reason(error: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a model that is in memory or is not."""
    with closing(make()) as app:
        ask(app, "POST", INFER, BODY)

        def fail(*_: Any) -> Any:
            raise error("no")

        monkeypatch.setattr(Registry, "use", fail)
        ask(app, "POST", INFER, BODY)
        ask(app, "POST", INFER.replace("infer", "versions/123/infer"), BODY)
        found = scraped(app)
        failures = [
            of(found, "nv_inference_request_failure", model="half_plus_three", reason=reason, version=version)
            for version in ("", "123")
        ]
        assert failures == [1, 1]


def test_a_model_that_is_gone_takes_its_failures_with_it(tmp_path: Path) -> None:
    """Its successes are gone, too: a ratio of the two would be wrong. Otherwise each version would leave a series."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    with closing(make(tmp_path, REPOSITORY_POLL="0.01")) as app:
        assert [ask(app, "POST", INFER, body)[0] for body in (BODY, b"{}")] == [200, 400]
        failures = "nv_inference_request_failure"
        assert of(scraped(app), failures, **MODEL, reason="OTHER") == 1
        assert ask(app, "POST", "/v2/repository/models/half_plus_three/unload")[0] == 200
        shutil.rmtree(tmp_path / "half_plus_three")
        waiting.until(lambda: ask(app, "POST", INFER, BODY)[0] == 404 and not app.registry.known())
        found = scraped(app)
        told = {name for name, labels in found if dict(labels).get("model") == "half_plus_three"}
        assert not told & {failures, "nv_inference_request_success", "nv_inference_count"}
        assert of(found, failures, model="", reason="OTHER", version="") >= 1  # the 404s


@pytest.mark.parametrize("path", ["/metrics", TFS])
def test_every_name_of_the_table_is_there(path: str) -> None:
    """Under the path of its server, with its kind."""
    with closing(make(METRICS=",".join(SERVERS))) as app:
        ask(app, "POST", INFER, BODY)
        text = ask(app, "GET", path)[2].decode()
        samples(text)
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        assert kinds == {each.name: each.kind for each in FAMILIES if (each.server == "tfserving") is (path == TFS)}


@pytest.mark.parametrize("servers", ["kserve,mlserver", "triton", "kserve,triton"])
def test_open_metrics_is_for_names_that_it_has_types_for(servers: str) -> None:
    """It has no counter without _total: with Triton's, the client gets text, where their type is known."""
    is_open = "triton" not in servers
    with closing(make(METRICS=servers)) as app:
        ask(app, "POST", INFER, BODY)
        ask(app, "POST", INFER, b"{}")
        _, headers, body = ask(app, "GET", "/metrics", headers=[(b"accept", OPEN)])
        assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0") is is_open
        if is_open:
            read = {family.name: family for family in open_metrics(body.decode())}
            assert read.keys() == {
                each.name.removesuffix("_total") for each in FAMILIES if each.server in (OWN, *servers.split(","))
            }
            assert [each.value for each in read["request_predict_seconds"].samples if each.name.endswith("_count")] == [
                1
            ]
        else:
            samples(body.decode())


@pytest.mark.parametrize(("accept", "is_open"), [
    ("application/openmetrics-text", True), ("text/plain,application/openmetrics-text", False),
    ("text/plain;q=0.2, Application/OpenMetrics-Text;version=1.0.0;Q=0.7", True),
    ("application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.9", False),
    ("application/openmetrics-text;version=2.0.0;q=0.6,application/openmetrics-text;q=0.1,text/plain;q=0.4", True),
    ("application/openmetrics-text;q=0", False), ("application/openmetrics-text;q=0.000,*/*", False),
    ("application/openmetrics-text;q=", False), ("application/openmetrics-text;q=nan,text/plain", False),
])  # fmt: skip
def test_the_format_is_the_one_that_a_client_prefers(accept: str, *, is_open: bool) -> None:
    """By its weights, and not by the order alone. A weight of 0 refuses the format."""
    assert (b"openmetrics" in exposition.written({}, (OWN,), accept)[0][1]) is is_open


@pytest.mark.parametrize(("server", "path", "name", "labels"), [
    ("kserve", "/metrics", "request_predict_seconds_count", {"model_name": "half_plus_three"}),
    ("mlserver", "/metrics", "model_infer_request_success_total", MODEL),
    ("mlserver", "/metrics", "model_infer_request_duration_count", MODEL),
    ("tfserving", TFS, ":tensorflow:serving:request_count", {"model_name": "half_plus_three", "status": "OK"}),
    ("tfserving", TFS, ":tensorflow:serving:request_latency_count",
     {"model_name": "half_plus_three", "API": "Predict", "entrypoint": "REST"}),
])  # fmt: skip
def test_other_servers_names_count_the_same(server: str, path: str, name: str, labels: dict[str, str]) -> None:
    """Chosen by the setting, and without it not there."""
    with closing(make(METRICS=server)) as app:
        for _ in range(3):
            ask(app, "POST", INFER, BODY)
        found = scraped(app, path)
        assert of(found, name, **labels) == 3
        assert not [each for each, _ in found if each.startswith("nv_")]


def test_counters_without_a_version_keep_those_that_are_gone(tmp_path: Path) -> None:
    """TensorFlow Serving's names have no label for a version: the sum must not fall when one replaces another."""
    folder = tmp_path / "half_plus_three"
    shutil.copytree(ROOT / "models" / "half_plus_three", folder)
    with closing(make(METRICS="tfserving", REPOSITORY=str(tmp_path), CONTROL="open")) as app:
        for _ in range(3):
            ask(app, "POST", INFER, BODY)
        (folder / "123").rename(folder / "124")
        assert ask(app, "POST", "/v2/repository/models/half_plus_three/load")[0] == 200
        ask(app, "POST", INFER, BODY)
        assert [version.version.number for version in app.registry.known()] == [124]
        found = scraped(app, TFS)
        for name, labels in (
            ("request_count", {"status": "OK"}),
            ("request_latency_count", {"API": "Predict", "entrypoint": "REST"}),
        ):
            assert of(found, f":tensorflow:serving:{name}", model_name="half_plus_three", **labels) == 4


def test_clients_make_no_series() -> None:
    """Names, versions, paths and methods that a client makes up count under the same few series."""
    with closing(make()) as app:
        ask(app, "POST", INFER, BODY)
        ask(app, "POST", "/v2/models/nobody/infer", BODY)
        ask(app, "POST", "/v2/models/half_plus_three/versions/99/infer", BODY)
        ask(app, "ODD", "/v2/odd")
        before = scraped(app).keys()
        for index in range(50):
            ask(app, "POST", f'/v2/models/no"\n{index}/infer', BODY)
            ask(app, "POST", f"/v2/models/half_plus_three/versions/{index}/infer", BODY)
            ask(app, f"ODD{index}", f"/v2/{index}")
        assert {key for key in scraped(app).keys() ^ before if not key[0].endswith("_bucket")} <= {
            ("dragoman_requests_total", (("protocol", "site"), ("status", "200")))
        } | {key for key in scraped(app) if ("protocol", "site") in key[1]}


@pytest.mark.parametrize("name", ['a "b"', "a\\", "a\\n", "a\nb", "\u202e", "é{}", "", "\n# TYPE x untyped\n"])
def test_a_labels_odd_value_is_read_as_it_is(name: str) -> None:
    """Quotes, backslashes, line ends: the format has an escape for each."""
    _, body = exposition.written({("inferences", (name, "1")): 7}, ["triton"])
    found = samples(body.decode())
    assert of(found, "nv_inference_count", model=name, version="1") == 7


def test_metrics_may_be_off_and_are_for_readers_alone() -> None:
    """The right is READ, the method GET; a key of some models does not see the others' numbers."""
    with closing(make(METRICS="off")) as app:
        assert ask(app, "GET", "/metrics")[0] == 404
    for setting, status, text in (("", 404, "there is nothing at"), ("triton", 200, "nv_inference_count")):
        with closing(function(DRAGOMAN_METRICS=setting)) as made:
            answer = made(http("GET", "/metrics"), Context())
            assert (answer["statusCode"], text in answer["body"]) == (status, True)
    with closing(make()) as app:
        assert ask(app, "POST", "/metrics")[0] == 405
        assert ask(app, "GET", TFS)[0] == 404
    keys = {"reader": "read", "some": "read iris", "inferring": "infer"}
    lines = (f"{name} sha256:{sha256(name.encode()).hexdigest()} {rights}" for name, rights in keys.items())
    with closing(make(AUTH="keys", KEYS=";".join(lines))) as app:
        statuses = [ask(app, "GET", "/metrics", headers=[(b"x-api-key", name.encode())])[0] for name in (*keys, "no")]
        assert statuses == [200, 403, 403, 401]


def fetched(port: int, path: str) -> str:
    """An answer over a connection of its own, which any of the processes may accept."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def test_all_processes_of_a_server_count_together(tmp_path: Path) -> None:
    """A scrape of one of two workers has the requests of both."""

    def arguments(port: int) -> list[str]:
        return ["-m", "uvicorn", "handler.asgi:app", "--host", HOST, "--port", str(port), "--workers", "2"]

    settings = {"REPOSITORY": str(ROOT / "models"), "CACHE": str(tmp_path / "cache")}
    with running(arguments, 1, tmp_path / "log", settings) as (_, (port,)):
        last = time.monotonic() + 60
        for _ in range(20):
            assert fetched(port, "/v2")
        found: dict[Any, float] = {}
        key = "dragoman_requests_total", (("protocol", "v2"), ("status", "200"))
        while (found.get(key), found.get(("dragoman_processes", ()))) != (20, 2) and time.monotonic() < last:
            found = samples(fetched(port, "/metrics"))
        assert (found[key], found["dragoman_processes", ()]) == (20, 2)


def test_a_process_shares_its_numbers_in_a_later_event_loop(tmp_path: Path) -> None:
    """The loop of its first request has ended before it was time to write."""

    async def main(app: Any) -> None:
        await exchange(app, "GET", "/v2")
        await asyncio.wait_for(until(lambda: bool(list(tmp_path.glob("*/*.json")))), 60)

    with closing(make(METRICS_FOLDER=str(tmp_path))) as app:
        ask(app, "GET", "/v2")
        asyncio.run(main(app))


def test_a_process_has_one_file_whichever_of_its_threads_is_first(tmp_path: Path) -> None:
    """The event loop and the thread of a scrape can begin together. A second file would count as another process."""
    for number in range(20):
        folder, together = tmp_path / f"{number}", threading.Barrier(8)
        with closing(make(METRICS_FOLDER=str(folder))) as app, ThreadPoolExecutor(8) as threads:

            def publish(observer: Observer = app.observer, together: threading.Barrier = together) -> None:
                together.wait()
                observer.publish()

            for done in [threads.submit(publish) for _ in range(8)]:
                done.result()
            assert len(list(folder.glob("*/*.json"))) == 1


def test_what_a_scrape_has_shown_outlives_its_process(tmp_path: Path) -> None:
    """It is in the process's file before the answer: counters must not fall where the process is killed."""
    with closing(make(METRICS_FOLDER=str(tmp_path))) as app:
        ask(app, "GET", "/v2")
        assert of(scraped(app), "dragoman_requests_total", protocol="v2", status="200") == 1
        (file,) = tmp_path.glob("*/*.json")
        assert ["requests", ["v2", "200"], 1] in json.loads(file.read_bytes())


def test_an_ended_process_leaves_its_counts(tmp_path: Path) -> None:
    """What it has no longer, such as models in memory, does not count; files that are broken are passed over."""
    shared = Shared(tmp_path)
    (folder,) = tmp_path.iterdir()
    rows = [["success", ["m", "1"], 5], ["models", [], 2], ["times", ["v2"], [*[0] * 16, 3, 7]]]
    (folder / "999999999-1.json").write_text(json.dumps(rows), "utf-8")
    (folder / "1-1.json").write_text("{", "utf-8")
    with closing(make()) as app:
        app.observer._shared, app.observer._is_alone = shared, False
        found = app.observer._facts()
        ((is_alive, others),) = shared.others()
        assert (is_alive, others[0]) == (False, (("success", ("m", "1")), 5))
        text = app.observer.scrape("/metrics")[1].decode()
        assert 'nv_inference_request_success{model="m",version="1"} 5' in text
        assert "dragoman_models 0" in text
        assert found["models", ()] == 0


def test_the_folders_of_ended_servers_are_removed(tmp_path: Path) -> None:
    """The folder of a running server stays, and so does a folder whose name is not a number."""
    for name in ("999999999", "1", "other"):
        (tmp_path / name).mkdir()
    Shared(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} >= {"1", "other"}
    assert not (tmp_path / "999999999").exists()


@LINUX_ONLY
def test_an_earlier_server_with_the_same_number_does_not_count(tmp_path: Path) -> None:
    """In a container every server is process 1, and its processes reuse the numbers of earlier ones."""
    parent, own = os.getppid(), f"{os.getpid()}-1.json"
    earlier = [tmp_path / name for name in (f"{parent}-1-00000000", f"{parent}-{begun(os.getpid())}")]
    for folder in earlier:
        folder.mkdir()
        (folder / own).write_text('[["models", [], 2]]', "utf-8")
    mine = tmp_path / f"{parent}-{begun(parent)}"
    mine.mkdir()
    shared = Shared(tmp_path)
    assert ([*tmp_path.iterdir()], [*shared.others()]) == ([mine], [])


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Each of two containers that share a cache removes the other one's folder: its server seems to have ended."""
    shared = Shared(tmp_path)
    (folder,) = tmp_path.iterdir()
    folder.rmdir()
    shared.write({})
    assert len(list(folder.iterdir())) == 1


@LINUX_ONLY
def test_the_start_of_a_process_is_found_behind_any_name(tmp_path: Path) -> None:
    """The program's name has a parenthesis. Another process has another start, and an ended one does not have any."""
    program = tmp_path / ") 1 (2) 3"
    shutil.copy(Path("/bin/sleep").resolve(), program)
    with subprocess.Popen([program, "60"]) as process:
        started = begun(process.pid)
        process.kill()
    ticks, boot = started.split("-")
    own, same = begun(os.getpid()).split("-")
    assert (int(ticks) > int(own), boot) == (True, same)
    assert begun(process.pid) == ""


def test_a_process_alone_shares_nothing(tmp_path: Path) -> None:
    assert folder_of("", tmp_path) is None
    assert folder_of("/some", tmp_path) == Path("/some")


def test_a_line_for_cloudwatch_keeps_its_rules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published rules of the embedded metric format, with the dimensions that Powertools has."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    with closing(function(DRAGOMAN_METRICS="emf", DRAGOMAN_METRICS_NAMESPACE="Mine", DRAGOMAN_NAME="s")) as made:
        for body in (BODY.decode(), "{}"):
            made(http("POST", INFER, body), Context())
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    for found in (first, second):
        emf_rules(found)
        assert (found["service"], found["function_name"], found["function_request_id"]) == ("s", "f", "invocation-1")
        assert found["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Mine"
    assert [(each["ColdStart"], each["Refusals"], each["status"]) for each in (first, second)] == [
        (1, 0, "200"),
        (0, 1, "400"),
    ]
    assert "InferDuration" in first


UNITS = {"Count", "Milliseconds", "Bytes"}


def emf_rules(found: dict[str, Any]) -> None:
    """AWS documentation, "Specification: Embedded metric format"."""
    metadata = found["_aws"]
    assert metadata.keys() == {"Timestamp", "CloudWatchMetrics"}
    assert isinstance(metadata["Timestamp"], int)
    assert abs(metadata["Timestamp"] / 1e3 - time.time()) < 14 * 24 * 3600
    (directive,) = metadata["CloudWatchMetrics"]
    assert directive.keys() == {"Namespace", "Dimensions", "Metrics"}
    assert 1 <= len(directive["Namespace"]) <= 1024
    for dimensions in directive["Dimensions"]:
        assert len(dimensions) <= 30
        assert all(isinstance(found[name], str) and 1 <= len(found[name]) <= 1024 for name in dimensions)
    assert 1 <= len(directive["Metrics"]) <= 100
    for metric in directive["Metrics"]:
        assert metric.keys() == {"Name", "Unit"}
        assert metric["Unit"] in UNITS
        assert isinstance(found[metric["Name"]], int | float)
    assert len(json.dumps(found)) < 256 * 1024


def test_the_page_of_metrics_has_every_name() -> None:
    """One table in the code, the same in docs/metrics.md."""
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| `(\S+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    labels = {each.name: ", ".join(f"`{label}`" for label in each.labels) for each in FAMILIES}
    assert rows == [(each.server, each.name, each.kind, labels[each.name], each.about) for each in FAMILIES]
    assert {each.server for each in FAMILIES} == {*SERVERS, OWN}


SCRIPT = """import sys
from handler.aws import lambda_handler
print([m for m in sys.modules if m.startswith("handler.edge.observe.")])
from tests.handler.edge.client import BODY, INFER, ask, make
from handler import asgi
app = make()
for method, path, body in (("POST", INFER, BODY), ("GET", "/metrics", b"")):
    print(ask(app, method, path, body)[0], "prometheus_client" in sys.modules)
app.close()
"""


def test_a_scrape_imports_what_it_needs_and_a_start_does_not() -> None:
    """A cold start has no module of metrics, and a first inference none of Prometheus' library."""

    async def main() -> bytes:
        made = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SCRIPT),
            cwd=ROOT,
            env={"AWS_LAMBDA_FUNCTION_NAME": "f", "DRAGOMAN_REPOSITORY": "models", "PATH": ""},
            stdout=asyncio.subprocess.PIPE,
        )
        return (await made.communicate())[0]

    loaded, infer, scrape = asyncio.run(main()).decode().splitlines()
    assert not [
        name for name in ("access", "exposition", "facts", "families", "workers", "emf", "calls") if name in loaded
    ]
    assert (infer, scrape) == ("200 False", "200 True")
