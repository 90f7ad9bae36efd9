"""Our own runtime in the deployed artifact: Lambda's own one is the oracle for whatever both do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import rie
from tests.e2e.expected import ANSWERS, EVENTS, gist
from tests.e2e.rie import LAMBDAS
from tests.e2e.runtime_api import OURS, running
from tests.e2e.tools import ROOT, environment
from tests.handler.edge.runtime.conftest import function_url, steps_model
from tests.support.runtime_api import RuntimeStandIn

MODELS = {"DRAGOMAN_REPOSITORY": str(ROOT / "models")}
LIVE = rie.event("GET", "/v2/health/live")
OWN = {"requestId", "stackTrace"}  # Lambda's own runtime sends the stack to whoever invokes; ours is in the log
SENT = ("content-type", "transfer-encoding", "lambda-runtime-invocation-id")
TIMES = re.compile(r"server-timing|x-request-id|date", re.IGNORECASE)
FAILING: list[Any] = [{"Records": [{"eventSource": "aws:sqs"}]}, 5, b"{", None]


@pytest.fixture(scope="module")
def both(artifact: Path) -> Iterator[tuple[RuntimeStandIn, RuntimeStandIn]]:
    """Both runtimes, with the sample models."""
    with running(artifact, OURS, MODELS) as (ours, _), running(artifact, LAMBDAS, MODELS) as (lambdas, _):
        yield ours, lambdas


def said(document: Any) -> Any:
    """Returns a document without what differs from request to request."""
    if isinstance(document, dict):
        return {name: said(each) for name, each in document.items() if not TIMES.fullmatch(name)}
    return document


def test_answers_are_those_of_lambdas_own_runtime(both: tuple[RuntimeStandIn, RuntimeStandIn]) -> None:
    """Every sample event has the same document, member for member, and is sent with the same headers."""
    for path in (path for path in EVENTS if not path.stem.startswith("s3")):
        event = json.loads(path.read_text(encoding="utf-8"))
        ours, lambdas = (api.send(event, Lambda_Runtime_Invocation_Id="i").wait() for api in both)
        if ANSWERS[path.stem] == "warm":  # what is loaded depends on the events before
            assert ours.document["warm"] is lambdas.document["warm"] is True
            continue
        assert gist(ours.document) == gist(lambdas.document) == ANSWERS[path.stem], path.stem
        assert said(ours.document) == said(lambdas.document), path.stem
        assert [ours.headers.get(name) for name in SENT] == [lambdas.headers.get(name) for name in SENT]


def test_errors_are_those_of_lambdas_own_runtime(both: tuple[RuntimeStandIn, RuntimeStandIn]) -> None:
    """Events that are not understood, or not JSON: path, type, text and headers."""
    for event in FAILING:
        ours, lambdas = (api.send(event).wait() for api in both)
        assert ours.kind == lambdas.kind == "error"
        told = [{k: v for k, v in each.document.items() if k not in OWN} for each in (ours, lambdas)]
        for each in told:  # json and simplejson say it differently
            each["errorMessage"] = each["errorMessage"].partition("input:")[0]
        assert told[0] == told[1]
        assert ours.headers["content-type"] == lambdas.headers["content-type"] == "application/json"
        assert (
            ours.headers["lambda-runtime-function-error-type"] == told[0]["errorType"]
        )  # as documented; theirs is for X-Ray
        assert (ours.document["requestId"], lambdas.document["requestId"]) == (ours.id, lambdas.id)


def test_both_refuse_before_the_functions_time_ends(artifact: Path, tmp_path: Path) -> None:
    """A model that does not answer: 504 in the protocol's form, from the deadline of the event."""
    steps_model(tmp_path / "models", tmp_path / "gate")
    variables = {
        "DRAGOMAN_REPOSITORY": str(tmp_path / "models"),
        "DRAGOMAN_ALLOW_CODE": "true",
        "DRAGOMAN_PRELOAD": "*",
    }
    body = json.dumps({"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [2]}]})
    for arguments in (OURS, LAMBDAS):
        with running(artifact, arguments, variables) as (api, process):
            assert api.send(LIVE).document["statusCode"] == 200
            taken = api.send(rie.event("POST", "/v2/models/steps/infer", body), 4)
            assert taken.document["statusCode"] == 504, arguments
            assert process.poll() is None


@pytest.mark.parametrize("streams", ["false", "true"])
def test_aws_own_runtime_api_takes_what_our_runtime_sends(artifact: Path, streams: str) -> None:
    """The emulator has Lambda's code for it. It joins an answer in pieces, and knows no head."""
    variables = {**MODELS, "DRAGOMAN_RESPONSE_STREAMING": streams}
    with rie.running(artifact, variables, OURS) as instance:
        for path in (path for path in EVENTS if path.stem.startswith(("http", "alb", "direct", "schedule"))):
            answer = instance.invoke(json.loads(path.read_text(encoding="utf-8")))
            assert gist(answer) == ANSWERS[path.stem], path.stem
        whole = instance.invoke(rie.event("GET", "/v2/health/live"))
        if streams == "true":
            told, _, body = whole["errorMessage"].partition("\0" * 8)
            whole = json.loads(told) | {"body": body}
        assert (whole["statusCode"], rie.read(whole)) == (200, {"live": True})
        assert instance.invoke(FAILING[0])["errorType"] == "UnsupportedEvent"
        assert instance.inits() == 1


def peak(process: Any) -> int:
    """Returns the most kB that the process has had in memory."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


def test_an_answer_of_a_hundred_megabytes_takes_no_memory(artifact: Path, tmp_path: Path) -> None:
    """The model makes the next piece when the last one was taken."""
    steps_model(tmp_path / "models", tmp_path / "gate")
    variables = {
        "DRAGOMAN_REPOSITORY": str(tmp_path / "models"), "DRAGOMAN_ALLOW_CODE": "true", "DRAGOMAN_PRELOAD": "*",
        "DRAGOMAN_RESPONSE_STREAMING": "true",
    }  # fmt: skip
    with running(artifact, OURS, variables) as (api, process):
        assert len(api.send(function_url("/own/steps", query="megabytes=4")).body) == 4 * 2**20
        before = peak(process)
        taken = api.send(function_url("/own/steps", query="megabytes=100"))
        taken.keep = False
        taken.wait()
        assert (taken.size > 100 * 2**20, taken.error) == (True, None)
        assert peak(process) - before < 16 * 1024


def test_the_process_ends_with_sigterm(artifact: Path, tmp_path: Path) -> None:
    """Lambda ends instances so where an extension wants to know. The file that starts it is that of the page."""
    page = (ROOT / "docs" / "lambda-runtime.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"<!-- tested by tests/e2e/test_lambda_runtime.py -->\n```sh\n(.*?)```", page, re.DOTALL)
    bootstrap = tmp_path / "bootstrap"
    bootstrap.write_text(script.replace("/var/task/python/bin/python3", str(environment("runtime") / "python")))
    bootstrap.chmod(0o755)
    with running(artifact, (), MODELS, bootstrap) as (api, process):
        api.await_polling(1)
        process.terminate()
        assert process.wait(30) == 0
