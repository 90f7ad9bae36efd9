"""handler.edge.timing: the Server-Timing header, of every protocol's answers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from handler.edge.app import App
from handler.edge.timing import COLD, WARM, Clock, Timing
from handler.settings import Settings
from tests.handler.test_app import BODY, INFER, ask
from tests.support.remote import Remote, question, raw

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"([a-z]+);(?:dur=(\d+\.\d{3})|desc=([a-z]+))")
INFERRED = ["queue", "decode", "infer", "encode", "start"]
WAITED = ["queue", "fetch", "load", "decode", "infer", "encode", "start"]
SECONDS = 30.0


def read(header: str) -> dict[str, str]:
    """Names in their order, with durations or descriptions; the whole header must be so."""
    entries = header.split(", ")
    found = [ENTRY.fullmatch(entry) for entry in entries]
    assert all(found), header
    return {each[1]: each[2] or each[3] for each in found if each}


@pytest.fixture(params=[True, False], ids=["inline", "threads"])
def app(request: pytest.FixtureRequest) -> Iterator[App]:
    """As on Lambda, and as on a server."""
    made = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}), inline=request.param)
    yield made
    made.close()


def timing(app: App, method: str, path: str, body: bytes = b"") -> dict[str, str]:
    """The header of an answer."""
    return read(ask(app, method, path, body)[1]["server-timing"])


def test_the_answer_that_waited_for_its_model_says_so_and_no_other(app: App) -> None:
    """Cold is who was the first, or waited; the steps of an inference never include the load."""
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
    """On the spot as in threads it is time in the queue."""
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}), inline=True)
    found = timing(app, "POST", INFER, BODY)
    (statistics,) = [slot.statistics for slot in app.registry.known()]
    assert statistics.queue.ns / 1e6 == pytest.approx(
        float(found["queue"]) + float(found["fetch"]) + float(found["load"]), abs=0.01
    )
    assert statistics.compute_infer.ns / 1e6 == pytest.approx(float(found["infer"]), abs=0.01)
    assert statistics.compute_input.ns / 1e6 == pytest.approx(float(found["decode"]), abs=0.01)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
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
    ],
)
def test_every_answer_says_how_long_it_took(app: App, method: str, path: str, body: bytes, status: int) -> None:
    """Refusals, too, what came over Connect, and the site's."""
    found, headers, _ = ask(app, method, path, body)
    assert found == status
    assert {"total", "start"} <= set(read(headers["server-timing"]))


def test_where_there_is_no_site_what_says_so_is_timed() -> None:
    """As anything else."""
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SITE": "false"}
    status, headers, _ = ask(App(Settings.from_env(environ), inline=True), "GET", "/nope")
    assert status == 404
    assert list(read(headers["server-timing"])) == ["queue", "total", "start"]


def test_it_can_be_switched_off() -> None:
    """For those whose clients are not to know."""
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "DRAGOMAN_SERVER_TIMING": "false"}
    app = App(Settings.from_env(environ), inline=True)
    for path in ("/v2", "/inference.GRPCInferenceService/ServerLive", "/v2/models/half_plus_three", "/", "/docs"):
        assert "server-timing" not in ask(app, "GET", path)[1]


def test_durations_are_milliseconds_and_waiting_is_taken_off_the_queue() -> None:
    """Who comes late to a load has waited for no more than the rest of it."""
    known = Timing()
    known.durations = (7_000_000, 250_000, 1_000_500, 40)
    assert known.text(WARM) == b"queue;dur=7.000, decode;dur=0.250, infer;dur=1.000, encode;dur=0.000, start;desc=warm"
    flight: Any = SimpleNamespace(load_ns=2_000_000, slot=None)
    known.wait(5_000_000, flight)
    known.wait(500_000, flight)
    waits = b"queue;dur=1.500, fetch;dur=3.000, load;dur=2.500, decode;dur=0.250, "
    assert known.text(COLD).startswith(waits)


def test_a_process_is_cold_once() -> None:
    """And again for whoever waits for a load, and not for who waited for a look alone."""
    clock, quick, looked, fetched, loaded = Clock(on=True), Timing(), Timing(), Timing(), Timing()
    look: Any = SimpleNamespace(load_ns=0, slot=None)
    looked.wait(1, look)
    fetch: Any = SimpleNamespace(load_ns=0, slot="what is still fetched")
    ahead: Any = SimpleNamespace(load_ns=1, slot=None)  # loaded by the flight ahead of it
    for flight in (look, fetch, look):
        fetched.wait(1, flight)
    loaded.wait(1, ahead)
    said = [clock.text(each).rpartition(b"=")[2] for each in (quick, looked, fetched, quick, loaded, quick)]
    assert said == [b"cold", b"warm", b"cold", b"warm", b"cold", b"warm"]
    assert Clock(on=False).text(quick) == b""


def test_a_look_that_finds_nothing_new_is_no_cold_start(tmp_path: Path) -> None:
    """Though a request on the spot waits for it; a new version that it finds is waited for as any load."""
    shutil.copytree(ROOT / "models" / "half_plus_three", tmp_path / "half_plus_three")
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}), inline=True)

    def found() -> dict[str, str]:
        for slot in app.registry.known():
            slot.due = float("-inf")  # a minute has passed
        return timing(app, "POST", INFER, BODY)

    first, second = found(), found()
    assert first["start"] == "cold"
    assert (list(second), second["load"], second["start"]) == (WAITED, "0.000", "warm")
    shutil.copytree(tmp_path / "half_plus_three" / "123", tmp_path / "half_plus_three" / "124")
    third = found()
    assert (list(third), third["start"]) == (WAITED, "cold")
    assert float(third["load"]) > 0


def test_over_connect_it_has_the_steps_of_an_inference(app: App) -> None:
    """As any other answer over HTTP."""
    message = question("half_plus_three", raw("x", "FP32", np.array([1], np.float32))).SerializeToString()
    path, kind = "/inference.GRPCInferenceService/ModelInfer", [(b"content-type", b"application/proto")]
    answers = [ask(app, "POST", path, message, headers=kind) for _ in range(2)]
    assert [status for status, _, _ in answers] == [200, 200]
    assert [list(read(headers["server-timing"])) for _, headers, _ in answers] == [WAITED, INFERRED]


def test_over_grpc_it_is_in_the_trailing_metadata(tmp_path: Path) -> None:
    """Of an inference as of anything else."""
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
