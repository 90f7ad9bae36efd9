"""handler.edge.timing: the header Server-Timing in every protocol's answers."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from handler.edge.app import App
from handler.edge.timing import COLD, WARM, Clock, Timing
from handler.settings import Settings
from tests.handler.edge.client import BODY, INFER, ask
from tests.support.remote import Remote, question, raw

ROOT = Path(__file__).parents[3]
ENTRY = re.compile(r"([a-z]+);(?:dur=(\d+\.\d{3})|desc=([a-z]+))")
INFERRED = ["queue", "decode", "infer", "encode", "start"]
WAITED = ["queue", "fetch", "load", "decode", "infer", "encode", "start"]
SECONDS = 30.0


def read(header: str) -> dict[str, str]:
    """Returns names in their order, with durations or descriptions; the whole header must have that form."""
    entries = header.split(", ")
    found = [ENTRY.fullmatch(entry) for entry in entries]
    assert all(found), header
    return {each[1]: each[2] or each[3] for each in found if each}


@pytest.fixture(params=[True, False], ids=["inline", "threads"])
def app(request: pytest.FixtureRequest) -> Iterator[App]:
    """An application as on Lambda, and one as on a server."""
    made = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}), inline=request.param)
    yield made
    made.close()


def timing(app: App, method: str, path: str, body: bytes = b"") -> dict[str, str]:
    """Returns the header of an answer."""
    return read(ask(app, method, path, body)[1]["server-timing"])


def test_the_answer_that_waited_for_its_model_says_so_and_no_other(app: App) -> None:
    """The first answer and those that waited for a load are cold, and no step of an inference includes the load."""
    first = timing(app, "GET", "/v2/health/live")
    assert (list(first), first["start"]) == (["queue", "total", "start"], "cold")
    second = timing(app, "POST", INFER, BODY)
    assert (list(second), second["start"]) == (WAITED, "cold")
    assert float(second["load"]) > 0
    third = timing(app, "POST", INFER, BODY)
    assert (list(third), third["start"]) == (INFERRED, "warm")
    another = timing(app, "POST", "/v1/models/iris:predict", b'{"instances": [[5.9, 3.0, 5.1, 1.8]]}')
    assert (list(another), another["start"]) == (WAITED, "cold")


def test_the_load_is_part_of_no_step_of_the_models_statistics() -> None:
    """A load in the caller's thread counts as time in the queue."""
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}), inline=True)
    found = timing(app, "POST", INFER, BODY)
    (statistics,) = [version.statistics() for version in app.registry.known()]
    assert statistics.queue.ns / 1e6 == pytest.approx(
        float(found["queue"]) + float(found["fetch"]) + float(found["load"]), abs=0.01
    )
    assert statistics.compute_infer.ns / 1e6 == pytest.approx(float(found["infer"]), abs=0.01)
    assert statistics.compute_input.ns / 1e6 == pytest.approx(float(found["decode"]), abs=0.01)


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("GET", "/v2", b"", 200),
    ("GET", "/v2/nothing/here/at/all", b"", 404),
    ("POST", "/v2/models/none/infer", BODY, 404),
    ("POST", INFER, b"{", 400),
    ("POST", "/v1/models/iris:explain", b'{"instances": [[5.9, 3.0, 5.1, 1.8]]}', 200),
    ("POST", "/inference.GRPCInferenceService/ServerLive", b"", 415),
    ("GET", "/", b"", 200),
    ("HEAD", "/docs", b"", 200),
    ("GET", "/openapi.json", b"", 200),
    ("GET", "/nope", b"", 404),
    ("POST", "/docs", b"", 405),
])  # fmt: skip
def test_every_answer_says_how_long_it_took(app: App, method: str, path: str, body: bytes, status: int) -> None:
    """Refusals, answers over Connect and the site's pages have the header."""
    found, headers, _ = ask(app, method, path, body)
    assert found == status
    assert {"total", "start"} <= set(read(headers["server-timing"]))


def test_a_404_without_a_site_is_timed() -> None:
    """The header has the three entries of an answer that is not an inference."""
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SITE": "false"}
    status, headers, _ = ask(App(Settings.from_env(environ), inline=True), "GET", "/nope")
    assert status == 404
    assert list(read(headers["server-timing"])) == ["queue", "total", "start"]


def test_it_can_be_switched_off() -> None:
    """No answer has the header with DRAGOMAN_SERVER_TIMING=false."""
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SERVER_TIMING": "false"}
    app = App(Settings.from_env(environ), inline=True)
    for path in ("/v2", "/inference.GRPCInferenceService/ServerLive", "/v2/models/half_plus_three", "/", "/docs"):
        assert "server-timing" not in ask(app, "GET", path)[1]


def test_durations_are_milliseconds_and_waiting_is_taken_off_the_queue() -> None:
    """A request that joined a load late has waited for the rest of it only."""
    known = Timing()
    known.durations = (7_000_000, 250_000, 1_000_500, 40)
    assert known.text(WARM) == b"queue;dur=7.000, decode;dur=0.250, infer;dur=1.000, encode;dur=0.000, start;desc=warm"
    load: Any = SimpleNamespace(load_ns=2_000_000, version=None)
    known.waited(5_000_000, load)
    known.waited(500_000, load)
    waits = b"queue;dur=1.500, fetch;dur=3.000, load;dur=2.500, decode;dur=0.250, "
    assert known.text(COLD).startswith(waits)


def test_a_process_is_cold_once() -> None:
    """Later answers are cold if they waited for a load, and warm if they only waited for a look."""
    clock, quick, looked, fetched, loaded = Clock(on=True), Timing(), Timing(), Timing(), Timing()
    look: Any = SimpleNamespace(load_ns=0, version=None)
    looked.waited(1, look)
    fetch: Any = SimpleNamespace(load_ns=0, version="what is still fetched")
    ahead: Any = SimpleNamespace(load_ns=1, version=None)  # its version was loaded by the load ahead of it
    for load in (look, fetch, look):
        fetched.waited(1, load)
    loaded.waited(1, ahead)
    answers = [clock.headers(each) for each in (quick, looked, fetched, quick, loaded, quick)]
    starts = [text.rpartition(b"=")[2] for ((_, text),) in answers]
    assert starts == [b"cold", b"warm", b"cold", b"warm", b"cold", b"warm"]
    assert Clock(on=False).headers(quick) == ()


def test_a_look_that_finds_nothing_new_is_no_cold_start(tmp_path: Path) -> None:
    """Waiting for a look that finds a new version counts as a load."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}), inline=True)

    def found() -> dict[str, str]:
        for version in app.registry.known():
            version.look_again(float("-inf"))  # a minute has passed
        return timing(app, "POST", INFER, BODY)

    first, second = found(), found()
    assert first["start"] == "cold"
    assert (list(second), second["load"], second["start"]) == (WAITED, "0.000", "warm")
    shutil.copytree(tmp_path / "half_plus_three" / "123", tmp_path / "half_plus_three" / "124")
    third = found()
    assert (list(third), third["start"]) == (WAITED, "cold")
    assert float(third["load"]) > 0


def test_over_connect_it_has_the_steps_of_an_inference(app: App) -> None:
    """The entries are those of an inference over REST."""
    message = question("half_plus_three", raw("x", "FP32", np.array([1], np.float32))).SerializeToString()
    path, kind = "/inference.GRPCInferenceService/ModelInfer", [(b"content-type", b"application/proto")]
    answers = [ask(app, "POST", path, message, headers=kind) for _ in range(2)]
    assert [status for status, _, _ in answers] == [200, 200]
    assert [list(read(headers["server-timing"])) for _, headers, _ in answers] == [WAITED, INFERRED]


def test_over_grpc_it_is_in_the_trailing_metadata(tmp_path: Path) -> None:
    """An inference and a refusal have it."""
    from tests.support import remote  # noqa: PLC0415 - a server of its own

    with remote.serve(tmp_path / "log", REPOSITORY=str(ROOT / "models")) as server:
        connection = Remote(server.netloc)
        x = raw("x", "FP32", np.array([1], np.float32))
        message = question("half_plus_three", x).SerializeToString()
        _, call = connection.call("ModelInfer").with_call(message, timeout=SECONDS)
        assert isinstance(call, grpc.Call)
        trailers = {pair[0]: pair[1] for pair in call.trailing_metadata()}
        assert list(read(trailers["server-timing"])) == WAITED
        with pytest.raises(grpc.RpcError) as refused:
            connection.ask("ModelInfer", question("none", x), timeout=SECONDS)
        refusal: Any = refused.value
        trailers = {pair[0]: pair[1] for pair in refusal.trailing_metadata()}
        assert list(read(trailers["server-timing"])) == ["queue", "fetch", "load", "total", "start"]
        connection.close()
