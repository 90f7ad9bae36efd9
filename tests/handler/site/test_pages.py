"""The tests ask for the status page and the pages of models through the whole application."""

import importlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from handler.edge.app import App
from handler.lifecycle.single_flight import Background
from tests.handler.site.asking import ROOT, Answer, ask, infer, serving
from tests.support.gated import KEYS, line

HOSTILE = "<script>alert(1)<b>"
PAGES = ("/", "/docs", "/models/iris", "/nothing")


@pytest.fixture
def app() -> App:
    """The application over the sample models."""
    return serving()


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[App]:
    """A repository with a model that cannot be loaded and has an unpleasant name."""
    folder = tmp_path / HOSTILE / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"no model at all")
    yield serving(tmp_path)
    (folder / "model.onnx").unlink()
    folder.rmdir()
    folder.parent.rmdir()


def said(page: str, part: str) -> Any:
    """Returns what a page says to its script."""
    found = re.search(rf'id="{part}"[^>]* data-json="([^"]*)"', page)
    assert found
    return json.loads(unescape(found[1]))


def text(page: str) -> str:
    """Returns the page's text, with a blank for each tag."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page)).split())


# -- the status ------------------------------------------------------------------------------------------------------


def test_the_status_page_shows_server_models_versions_and_states(app: App) -> None:
    """They are the version, the uptime, the platform, and one row for each version, which is calm if not loaded."""
    answer = ask(app, "/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    shown = text(answer.text)
    for each in ("0 of 7", app.registry.server().version, platform.machine(), "half_plus_three 123 Not loaded"):
        assert each in shown
    assert re.search(r"Up \d+ (s|min|h|d)", shown)
    assert '<a href="./models/iris">iris</a>' in answer.text
    assert "UNAVAILABLE" not in answer.text


def test_programs_get_the_status_as_json(app: App) -> None:
    """It has what the page shows."""
    infer(app)
    infer(app, body=b'{"inputs": []}')
    status = ask(app, "/status", accept="*/*").value
    assert (status["trouble"], status["platform"]) == ("", f"{platform.system()} {platform.machine()}")
    entry = next(each for each in status["models"] if each["model"] == "iris")
    assert (entry["tone"], entry["requests"], entry["failures"]) == ("ready", 1, 1)
    assert entry["p50"] > 0


def test_the_uptime_is_that_of_the_process(tmp_path: Path) -> None:
    """It is read from /proc if that exists, whatever the command is called; else it counts from the module's import."""
    site = importlib.import_module("handler.site.instance")  # not above: this file is imported to see what imports it
    (tmp_path / "self").mkdir()
    began = 100 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "self" / "stat").write_text(f"7 (a b) c) S {' '.join('0' * 18)} {began} 0\n")
    (tmp_path / "uptime").write_text("142.50 80.00\n")
    assert site.age(tmp_path) == 42.5
    assert 0 <= site.age(tmp_path / "missing") < site.age() < 3600


@pytest.mark.parametrize(
    "path", ["/", "/models/iris", "/docs", "/openapi.json", "/status", "/models/broken", "/nothing"]
)
def test_no_page_loads_a_model(app: App, path: str) -> None:
    """A look does not change the state."""
    for accept in ("text/html", "application/json"):
        ask(app, path, accept=accept)
    assert {entry.reason for entry in app.registry.index(Background())} == {"not loaded yet"}


def test_pages_escape_what_they_did_not_write(hostile: App) -> None:
    """A name and a reason with markup arrive as text, in the table, on the model's page and in its data."""
    assert ask(hostile, f"/v2/models/{HOSTILE}/infer", "POST", b'{"inputs": []}').status == 503
    for path in ("/", f"/models/{HOSTILE}", "/docs", f"/{HOSTILE}"):
        page = ask(hostile, path).text
        assert "<script>" not in page
        assert "alert(1)<b>" not in page
    page = ask(hostile, f"/models/{HOSTILE}").text
    assert f"{HOSTILE} Load Unload" in text(page)
    assert "cannot be loaded" in text(ask(hostile, "/").text)
    assert "state failed" in page
    assert said(page, "trial")["name"] == HOSTILE


def test_the_status_page_says_when_the_repository_does_not_answer(tmp_path: Path) -> None:
    """It is there to show problems, so it answers when there is one; an empty repository is none."""
    answer = ask(serving(tmp_path / "missing"), "/")
    assert (answer.status, 'class="bad" id="trouble"' in answer.text) == (200, True)
    assert ask(serving(tmp_path / "missing"), "/docs").status == 200
    assert "The repository has no models." in ask(serving(tmp_path), "/").text


# -- a model ---------------------------------------------------------------------------------------------------------


def test_a_models_page_shows_its_versions_signature_and_numbers(app: App) -> None:
    """Labels, files, load time, inputs, outputs, signatures, requests, failures, times."""
    page = text(ask(app, "/models/iris").text)
    assert "1 Not loaded" in page
    assert "Only a model in memory knows its inputs and outputs." in page
    for _ in range(3):
        assert infer(app).status == 200
    assert infer(app, body=b'{"inputs": []}').status == 400
    answer = ask(app, "/models/iris").text
    page = text(answer)
    for each in ("1 Ready", "Labels stable", "Files 471 B", "x FP32 [any, 4] sepal length", "scores = probabilities",
                 "probabilities FP32 [any, 3] setosa, versicolor, virginica"):  # fmt: skip
        assert each in page
    assert re.search(r"Loaded in [\d,]+ ms", page)
    assert re.search(r"p99 ms 1 V2 3 1 [\d.,]+ [\d.,]+ [\d.,]+", page)
    (spans,) = (each["spans"] for each in said(answer, "charts"))
    assert (sum(each["count"] for each in spans), sum(each["failures"] for each in spans)) == (3, 1)
    assert said(answer, "trial")["example"]["inputs"][0]["data"] == [5.1, 3.5, 1.4, 0.2]


@pytest.mark.parametrize(("port", "said_port"), [(None, ""), (15909, "15909"), (0, "0")])
def test_a_models_page_knows_the_port_of_grpc(tmp_path: Path, port: int | None, said_port: str) -> None:
    """The script writes it into programs: 0 is the port of HTTP, no number is a server without gRPC."""
    app = serving(ROOT / "models")
    if port is not None:
        app.speaks_grpc(port)
    assert f'id="trial" data-live="attributes" data-grpc="{said_port}"' in ask(app, "/models/iris").text


def test_numbers_are_counted_by_version_and_protocol(tmp_path: Path) -> None:
    """Explanations and a model's own route are apart; all are in the sums. The statistics have inferences alone."""
    copied(tmp_path, "12")
    app, row = serving(tmp_path, ALLOW_CODE="true"), [[5.1, 3.5, 1.4, 0.2]]
    settings = {"version_policy": {"all": {}}, "explainer": {"background": row}}
    (tmp_path / "wine" / "model-settings.json").write_text(json.dumps(settings))
    (tmp_path / "own" / "1").mkdir(parents=True)
    (tmp_path / "own" / "1" / "model.py").write_text("def predict(*_): ...\ndef http(request): return 200, {}, b''")
    (tmp_path / "own" / "model-settings.json").write_text('{"http": {"path": "/own"}}')
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": row[0]}
    asked = {
        ("/v1/models/wine/versions/2:predict", 200): {"instances": row},
        ("/v2/models/wine/versions/2/infer", 200): {"inputs": [tensor]},
        ("/inference.GRPCInferenceService/ModelInfer", 400): {"modelName": "wine", "modelVersion": "1"},
    }
    asked[("/v1/models/wine/versions/2:predict", 400)] = asked[("/v1/models/wine/versions/2:explain", 400)] = {
        "instances": [[1]]
    }
    asked |= {("/v1/models/wine/versions/2:explain", 200): {"instances": row}, ("/own", 200): {}}
    for (path, status), body in asked.items():
        for _ in range(2):
            assert ask(app, path, "POST", json.dumps(body).encode(), media="application/json").status == status, path
    first, second = ask(app, "/models/wine", accept="*/*").value["versions"]
    assert [(each["name"], each["requests"], each["failures"]) for each in second["protocols"]] == [
        ("V1", 2, 2), ("V2", 2, 0), ("Explanations", 2, 2)]  # fmt: skip
    assert [(each["name"], each["requests"], each["failures"]) for each in first["protocols"]] == [("Connect", 0, 2)]
    assert (second["requests"], second["failures"], second["times"]["p50"] > 0) == (6, 4, True)
    assert all(sum(span["count"] for span in each["spans"]) == each["requests"] for each in second["protocols"])
    assert "1 The model's own route 2 0 " in text(ask(app, "/models/own").text)
    statistics = ask(app, "/v2/models/wine/versions/2/stats", accept="*/*").value["model_stats"][0]
    assert [statistics["inference_stats"][each]["count"] for each in ("success", "fail")] == [4, 2]
    page = text(ask(app, "/models/wine").text)
    assert re.search(
        r"1 Connect 0 2 +2 All 6 4 [\d., ]+ 2 V1 2 2 [\d., ]+ 2 V2 2 0 [\d., ]+ 2 Explanations 2 2 ", page
    ), page


@pytest.mark.parametrize(("more", "shown"), [([[1.5, 2, 3, 4]], [1.5, 2, 3, 4]), ([], [1, 1, 1, 1])])
def test_examples_have_no_numbers_that_json_does_not_have(more: Any, shown: list[float], tmp_path: Path) -> None:
    """A background may have them. Its first finite row is the example, or ones, which V1 and V2 answer."""
    app, rows = serving(copied(tmp_path, "1").parent), [["NaN", 1, 2, 3], [4, "Infinity", 5, 6], *more]
    (tmp_path / "wine" / "model-settings.json").write_text(json.dumps({"explainer": {"background": rows}}))
    assert ask(app, "/v2/repository/models/wine/load", "POST").status == 200
    example = ask(app, "/models/wine", accept="*/*").value["example"]
    assert example["inputs"][0]["data"] == shown
    assert json.dumps(shown) in json.dumps(ask(app, "/openapi.json").value).replace(".0", "")
    for path, body in (("/v2/models/wine/infer", example), ("/v1/models/wine:predict", {"instances": [shown]})):
        assert ask(app, path, "POST", json.dumps(body).encode(), media="application/json").status == 200


def copied(root: Path, numbers: str, model: str = "iris") -> Path:
    """Makes a model named wine, with versions, of a sample's file. Returns its folder."""
    for number in numbers:
        (root / "wine" / number).mkdir(parents=True)
        (root / "wine" / number / "model.onnx").symlink_to(ROOT / "models" / model / "1" / "model.onnx")
    return root / "wine"


def test_programs_get_a_model_as_json(app: App) -> None:
    """It has what the page shows, and the gate's reason if the caller may not load it."""
    infer(app)
    view = ask(app, "/models/iris", accept="*/*").value
    assert (view["loaded"], view["explains"], view["barred"]) == ("1", True, "")
    assert view["outputs"][1]["labels"] == ["setosa", "versicolor", "virginica"]
    assert view["versions"][0]["requests"] == 1
    assert "DRAGOMAN_CONTROL=off" in ask(serving(CONTROL="off"), "/models/iris", accept="*/*").value["barred"]
    assert 'disabled aria-describedby="barred"' in ask(serving(CONTROL="off"), "/models/iris").text


def test_a_canary_has_its_share(tmp_path: Path) -> None:
    """It stands beside the version that it may replace."""
    copied(tmp_path, "12")
    settings = {"canary": {"2": 0.25}, "version_policy": {"all": {}}}
    (tmp_path / "wine" / "model-settings.json").write_text(json.dumps(settings))
    page = text(ask(serving(tmp_path), "/models/wine").text)
    assert "2 Not loaded Canary 25% of the requests without a version" in page


def test_a_converted_model_shows_what_was_compared(tmp_path: Path) -> None:
    """The report beside a loaded version is shown, as `dragoman list --verbose` does; other content is ignored."""
    report = {
        "source": {"file": "wine<b>.skops"}, "library": "scikit-learn 1.9.1", "converter": "skl2onnx 1.20.0",
        "data": {"rows": 178, "kind": "given"}, "outputs": [{"name": "p", "largest_absolute": 1.2e-7}],
        "notes": ["the original reads FP64"], "load_seconds": 0.004,
    }  # fmt: skip
    file = copied(tmp_path, "1") / "1" / "parity.json"
    file.write_text(json.dumps(report), "utf-8")
    app = serving(tmp_path)
    assert "skl2onnx" not in ask(app, "/models/wine").text
    assert ask(app, "/v2/models/wine").status == 200
    sentence = ("wine<b>.skops (scikit-learn 1.9.1) by skl2onnx 1.20.0: 178 rows given, "
                "numbers differ by at most 1.2e-07, loads in 4 ms")  # fmt: skip
    assert ask(app, "/models/wine", accept="*/*").value["versions"][0]["parity"] == [sentence, *report["notes"]]
    assert f"Converted from {sentence} the original reads FP64" in text(ask(app, "/models/wine").text)
    for other in ("[]", " " * 70_000 + json.dumps(report)):
        file.write_text(other, "utf-8")
        assert ask(app, "/models/wine", accept="*/*").value["versions"][0]["parity"] == []
    file.unlink()
    file.mkdir()
    assert ask(app, "/models/wine").status == 200


@pytest.mark.parametrize(("model", "example"), [
    ("strings", {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["1"]}]}),
    ("half_plus_three", {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}),
])  # fmt: skip
def test_every_model_has_an_example_that_works(app: App, model: str, example: Any) -> None:
    """It is made of the model's own description."""
    assert ask(app, f"/v2/models/{model}").status == 200
    found = said(ask(app, f"/models/{model}").text, "trial")["example"]
    assert found == example
    assert infer(app, model, json.dumps(found).encode()).status == 200


@pytest.mark.parametrize(("accept", "kind"), [("text/html", "text/html; charset=utf-8"), ("*/*", "application/json")])
@pytest.mark.parametrize(("path", "word"), [
    ("/nothing", "there is nothing at '/nothing'"), ("/models/nobody", "model 'nobody' does not exist"),
    ("/models/", "there is nothing at '/models/'"), ("/" + "x" * 5000, "there is nothing at '/xxx"),
])  # fmt: skip
def test_a_wrong_path_is_answered_in_the_clients_form(app: App, accept: str, kind: str, path: str, word: str) -> None:
    """A browser gets a page, a program an error object. The path is bounded."""
    answer = ask(app, path, accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (404, kind)
    found = text(answer.text) if accept == "text/html" else answer.value["error"]
    assert word in found
    assert len(found) < 700


def test_a_wrong_method_is_405_with_allow(app: App) -> None:
    """RFC 9110 15.5.6 requires that."""
    answer = ask(app, "/docs", "DELETE")
    assert answer.status == 405
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD"]
    assert "DELETE" in answer.value["error"]


# -- the frame -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_pages_ask_this_server_only(app: App, path: str) -> None:
    """The policy permits the package's own files, nothing inline and nothing foreign; every file exists."""
    answer = ask(app, path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy["script-src"], policy["style-src"], policy["connect-src"]} == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r" style=| on\w+=|<style|<script>", answer.text)
    links = re.findall(r'(?:href|src)="([^"#]*)"', answer.text)
    assert all(re.match(r"\.{1,2}/", link) for link in links), links
    files = {link for link in links if "/assets/" in link}
    assert len(files) == 3
    for file in files:
        found = ask(app, "/" + file.lstrip("./"))
        assert found.status == 200
        assert "immutable" in found.headers["cache-control"]
        assert ask(app, "/" + file.lstrip("./"), "HEAD").text == ""


@pytest.mark.parametrize("path", PAGES)
def test_links_stay_below_a_known_prefix(app: App, path: str) -> None:
    """The prefix is an API Gateway stage, also for /Prod without a slash at its end."""
    page = ask(app, path, root="/Prod").text
    links = set(re.findall(r'<a [^>]*href="([^"#]+)"', page))
    assert {"/Prod/", "/Prod/docs"} <= links
    assert all(link.startswith("/Prod/") for link in links)
    assert all(link.startswith("/Prod/assets/") for link in re.findall(r'(?:src|link [^>]*href)="([^"]*)"', page))


def test_relative_links_lead_back_from_deeper_pages(app: App) -> None:
    """A proxy that has cut a prefix off leaves no other way."""
    assert 'href="../docs"' in ask(app, "/models/iris").text
    assert 'href="../../docs"' in ask(app, "/not/a/page").text


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/models/iris", "/status", "/favicon.ico"])
def test_head_is_answered_as_get(app: App, path: str) -> None:
    """Status and headers are those of GET; servers leave the body out."""
    head, get = ask(app, path, "HEAD"), ask(app, path)
    assert (head.status, head.headers.keys()) == (200, get.headers.keys())


def test_browsers_find_an_icon(app: App) -> None:
    """Some ask for it before they have read a page. An old address of a file is not found."""
    assert ask(app, "/favicon.ico").headers["content-type"] == "image/svg+xml"
    assert ask(app, "/assets/0123456789abcdef/console.js").status == 404
    assert ask(app, "/assets/../pages.py").status == 404


# -- the gate --------------------------------------------------------------------------------------------------------

GATED = {"AUTH": "keys", "KEYS": ";".join((line("r", KEYS["read"], "read", "iris"), line("i", KEYS["infer"], "infer"),
                                           line("a", KEYS["admin"], "admin,read")))}  # fmt: skip


@pytest.mark.parametrize(("key", "path", "status", "word"), [
    ({}, "/", 401, "a key or a token is required"), ({"key": "dgm_wrong"}, "/models/iris", 401, "the key is not valid"),
    ({"key": KEYS["infer"]}, "/docs", 403, "does not have the right 'read'"),
    ({}, "/nothing", 401, "a key or a token is required"),
])  # fmt: skip
def test_a_browser_without_a_key_is_asked_for_one(key: dict[str, str], path: str, status: int, word: str) -> None:
    """The page holds nothing of the server's. A program gets the error, and the files of pages need no key."""
    app = serving(**GATED)
    answer = ask(app, path, **key)
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert word in text(answer.text)
    assert "iris" not in answer.text.replace("/models/iris", "")
    assert (status == 401) is ("www-authenticate" in answer.headers)
    assert word in ask(app, path.replace("/", "/status") if path == "/" else path, accept="*/*", **key).value["error"]
    for file in re.findall(r'"\.*/((?:\.\./)*assets/[^"]*)"', answer.text):
        assert ask(app, "/" + file.replace("../", "")).status == 200


def test_a_caller_sees_its_models_only() -> None:
    """Neither the table nor the documents name another one, and its page is refused whether it exists or not."""
    app = serving(**GATED)
    everything, mine = {"key": KEYS["admin"]}, {"key": KEYS["read"]}
    assert ask(app, "/v2/models/strings", **everything).status == 200
    for path in ("/", "/status", "/docs", "/openapi.json"):
        other = re.compile(
            r"models/strings|model strings|strings_Infer|\"model\":\"strings\",\"version\":\"1\",\"state"
        )
        assert other.search(ask(app, path, **everything).text)
        assert not other.search(ask(app, path, **mine).text)
    answers = [ask(app, f"/models/{name}", **mine) for name in ("strings", "nobody")]
    assert [answer.status for answer in answers] == [403, 403]
    assert [text(answer.text).replace("strings", "nobody") for answer in answers] == [text(answers[1].text)] * 2
    view = ask(app, "/models/iris", accept="*/*", **mine).value
    assert "'admin'" in view["barred"]
    assert ask(app, "/models/iris", accept="*/*", **everything).value["barred"] == ""


def test_the_site_can_be_turned_off() -> None:
    """DRAGOMAN_SITE=false leaves the protocol's own 404, and no files."""
    app = serving(SITE="false")
    for path in ("/", "/models/iris", "/assets/x", "/favicon.ico"):
        answer: Answer = ask(app, path)
        assert answer.status == 404
        assert "error" in answer.value


IMPORTS = """
import sys
sys.path[:0] = {path!r}
from tests.handler.site.asking import ask, serving
app, closed = serving(), serving(AUTH="keys", KEYS={keys!r})
before = "fastapi" in sys.modules, "starlette" in sys.modules
for method in ("GET", "POST", "DELETE"):
    for path in ("", "/health/ready", "/nothing", "/repository/index", "/models/iris", "/models/iris/infer"):
        ask(app, "/v2" + path, method)
for path in ("/", "/docs", "/assets/x", "/models/iris"):
    assert ask(closed, path).status == 401
for method in ("GET", "POST"):
    refusal = ask(app, "/wp-login.php", method, accept="*/*")
    assert (refusal.status, refusal.value) == (404, {{"error": "there is nothing at '/wp-login.php'"}})
after = "fastapi" in sys.modules, "starlette" in sys.modules
ask(app, "/")
print(before, after, "fastapi" in sys.modules)
"""


def test_no_protocol_request_imports_fastapi() -> None:
    """The rule holds for answers and refusals, for a browser without a key, and for a scanner; a page imports it."""
    code = IMPORTS.format(path=[str(ROOT)], keys=GATED["KEYS"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "(False, False) (False, False) True", done.stderr
