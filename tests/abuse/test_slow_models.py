"""Inferences without an end are each answered at their time limit, and other models are answered meanwhile."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.abuse.asking import CUSTOM, OVER_HTTP, ask, entered, failures, leave, post, v2
from tests.protocols.test_waiting import until
from tests.support.asgi import Local, application
from tests.support.publishing import say
from tests.support.remote import Remote, question, raw
from tests.support.server import serve_rpc
from tests.support.zoo import slow
from tests.support.zoo.slow import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.server import Server

LATE = {"grpc": "DEADLINE_EXCEEDED"}
LIMIT = "did not answer within 0.3 s, the time limit of an inference"


WAITS = "/v2/models/waits/ready"
SETTINGS = {"ALLOW_CODE": "true", "THREADS": "2", "PRELOAD": "*"}


def ready(server: Server, path: str = "/v2/health/ready") -> bool:
    """Returns whether the server, or a model, says that it is ready."""
    return post(server, path, method="GET").status == 200


@pytest.fixture
def start(launch: Callable[..., Server], tmp_path: Path) -> Callable[..., Server]:
    """Starts a server of the slow models."""

    def started(said: Any = None, **settings: str) -> Server:
        slow.write(tmp_path / "models", tmp_path / "gate", **(said or {}))
        server = launch(**{"REPOSITORY": str(tmp_path / "models")} | SETTINGS | settings)
        until(lambda: ready(server))
        return server

    return started


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose inferences have 0.3 s, and the folder of its gate."""
    root = tmp_path_factory.mktemp("limited")
    slow.write(root / "models", root / "gate")
    settings = {"REPOSITORY": str(root / "models"), "TIMEOUT": "0.3"} | SETTINGS
    with serve_rpc(root / "log", **settings) as server:
        until(lambda: ready(server))
        yield server, root / "gate"


def free(server: Server, gate: Path) -> None:
    """Lets the thread that the model has lost return, and waits until it has."""
    until(lambda: not ready(server, WAITS))
    (gate / "open").touch()
    until(lambda: ready(server, WAITS))
    (gate / "open").unlink()


@pytest.mark.parametrize("protocol", [*OVER_HTTP, "grpc"])
def test_an_endless_graph_is_ended_at_the_time_limit(limited: tuple[Server, Path], protocol: str) -> None:
    """The client gets 504 in its protocol's form. The model counts a failure, and answers the next request."""
    server, _ = limited
    before = failures(server, "loop")
    told = ask(server, "loop", ENDLESS, protocol)
    assert told.status == LATE.get(protocol, 504)
    assert f"version 1 {LIMIT} (DRAGOMAN_TIMEOUT)" in told.text
    assert failures(server, "loop") == before + 1
    assert ask(server, "loop", 3, protocol).status == 200


@pytest.mark.parametrize("protocol", [*CUSTOM, "grpc"])
def test_code_that_hangs_is_answered_and_its_thread_is_lost(limited: tuple[Server, Path], protocol: str) -> None:
    """The model is not ready until the thread returns, and says why. The server is ready; other models answer."""
    server, gate = limited
    before = failures(server, "waits")
    told = ask(server, "waits", 7, protocol)
    assert (told.status, LIMIT in told.text) == (LATE.get(protocol, 504), True)
    until(lambda: not ready(server, WAITS))
    stuck = ask(server, "waits", 0, protocol)
    assert stuck.status == ("UNAVAILABLE" if protocol == "grpc" else 503)
    assert "refuses requests: an inference exceeded the time limit" in stuck.text
    assert ask(server, "other", 1).status == 200
    assert ready(server)
    free(server, gate)
    assert ask(server, "waits", 0, protocol).status == 200
    assert failures(server, "waits") == before + 1


def test_the_limit_holds_for_each_answer_of_a_stream(limited: tuple[Server, Path]) -> None:
    """The first answer arrives, the second one is an error in the stream, and the model counts a failure."""
    server, gate = limited
    before = failures(server, "waits")
    with closing(Remote(server.rpc_netloc)) as remote:
        first, second = remote.stream(iter([question("waits", raw("n", "INT64", np.array([5])))]))
    assert first.infer_response.model_name == "waits"
    assert LIMIT in second.error_message
    assert failures(server, "waits") == before + 1
    free(server, gate)


@pytest.mark.parametrize(("path", "body", "parts"), [
    ("/v2/models/waits/generate_stream", {"n": 5}, ["data: ", "data: "]),
    ("/grps/v1/infer/predict?model=waits&streaming=true", {"gtensors": {"tensors": [
        {"name": "n", "dtype": "DT_INT64", "shape": [1], "flat_int64": [5]}]}}, ["{", "}{"]),
])  # fmt: skip
def test_the_limit_ends_a_stream_over_rest_with_its_reason(
    limited: tuple[Server, Path], path: str, body: Any, parts: list[str]
) -> None:
    """As a model's own error does: the answer is whole, and the client learns why."""
    server, gate = limited
    told = post(server, path, json.dumps(body).encode())
    assert (told.status, LIMIT in told.text) == (200, True)
    assert all(part in told.text for part in parts)
    free(server, gate)


def test_an_explanation_has_the_same_limit(limited: tuple[Server, Path]) -> None:
    """The model's own function hangs."""
    server, gate = limited
    told = post(server, "/v1/models/waits:explain", json.dumps({"inputs": {"n": [6]}}).encode())
    assert (told.status, LIMIT in told.text) == (504, True)
    free(server, gate)


def test_the_server_is_not_ready_once_no_thread_is_left(start: Any, tmp_path: Path) -> None:
    """Two models hold the one thread and its replacement."""
    slow.write(tmp_path / "second", tmp_path / "gate2", timeout=0.3)
    (tmp_path / "models").mkdir()
    (tmp_path / "second" / "waits").rename(tmp_path / "models" / "hangs")
    say(tmp_path / "models", "hangs", timeout=0.3)
    server = start({"timeout": 0.3}, THREADS="1")
    for number, model in enumerate(("waits", "hangs")):
        assert ask(server, model, 7).status == 504
        until(lambda: not ready(server, f"/v2/models/{model}/ready"))  # noqa: B023 - at once
        assert ready(server) == (number == 0)
    (tmp_path / "gate" / "open").touch()
    until(lambda: ready(server))
    assert ask(server, "other", 1).status == 200


@pytest.mark.parametrize("model", ["loop", "waits"])
def test_one_model_never_takes_all_threads(start: Any, model: str) -> None:
    """Endless inferences, as many as threads or more, leave the other models one thread, without a time limit."""
    server = start(TIMEOUT="0")
    leaving = [leave(server, model, ENDLESS) for _ in range(4)]
    assert [ask(server, "other", n).status for n in range(1, 20)] == [200] * 19
    for close in leaving:
        close()


def test_a_model_that_was_quick_holds_neither_the_loop_nor_all_threads(start: Any) -> None:
    """After twenty quick answers, an endless graph does not block the event loop for good, nor every thread."""
    server = start(TIMEOUT="0")
    for _ in range(20):
        assert ask(server, "loop", 1).status == 200
    leaving = [leave(server, "loop", n) for n in (ENDLESS, ENDLESS + 1, ENDLESS + 2, ENDLESS + 3)]
    assert post(server, "/v2/health/live", method="GET").status == 200
    assert ask(server, "other", 1).status == 200
    for close in leaving:
        close()
    until(lambda: ask(server, "loop", 2).status == 200)


def test_a_model_runs_as_often_at_once_as_its_settings_say(start: Any, tmp_path: Path) -> None:
    """A model of two inferences at a time gets three requests on four threads: the third one waits."""
    server, gate = start({"max_concurrency": 2}, THREADS="4"), tmp_path / "gate"
    with ThreadPoolExecutor(3) as clients:
        answers = [clients.submit(ask, server, "waits", n) for n in (1, 2, 3)]
        until(lambda: len(list(gate.iterdir())) == 2)
        assert [ask(server, "other", n).status for n in range(1, 20)] == [200] * 19
        assert len(list(gate.iterdir())) == 2
        (gate / "open").touch()
        assert [answer.result().status for answer in answers] == [200] * 3
    assert sum(entered(gate, n) for n in (1, 2, 3)) == 3


def test_a_clients_deadline_ends_its_graph(launch: Callable[..., Server], tmp_path: Path) -> None:
    """The one thread is free again, without a time limit of the server."""
    slow.write(tmp_path / "models", tmp_path / "gate")
    server = launch(rpc=True, REPOSITORY=str(tmp_path / "models"), THREADS="1", TIMEOUT="0")
    assert ask(server, "loop", 1).status == 200
    assert ask(server, "loop", ENDLESS, "grpc", seconds=0.3).status == "DEADLINE_EXCEEDED"
    assert ask(server, "other", 1).status == 200


@pytest.mark.parametrize("model", ["loop", "waits"])
def test_a_warm_up_without_an_end_is_a_load_that_failed(start: Any, tmp_path: Path, model: str) -> None:
    """It frees the thread that loads models."""
    server = start({"timeout": 0.3})
    n = {"name": "n", "datatype": "INT64", "shape": [1], "data": [ENDLESS]}
    (tmp_path / "models" / model / "1" / "endless.json").write_text(json.dumps({"inputs": [n]}))
    say(tmp_path / "models", model, timeout=0.3, warmup=[{"file": "endless.json", "count": 1000}])
    told = post(server, f"/v2/repository/models/{model}/load", b"{}")
    assert told.status >= 400
    assert "failed its warm-up: it took longer than 0.3 s" in told.text


@pytest.mark.parametrize("model", ["loop", "waits"])
def test_a_function_answers_before_its_time_is_over(tmp_path: Path, model: str) -> None:
    """An inference in the caller's thread also ends at its limit, and the next one is answered."""
    slow.write(tmp_path / "models", tmp_path / "gate")
    local = Local(application(tmp_path / "models", inline=True, ALLOW_CODE="true", TIMEOUT="0.3"))
    target, body = v2(model, ENDLESS)
    answer = local.call("POST", target, body)
    assert (answer.status, LIMIT in answer.body.decode()) == (504, True)
    assert local.call("POST", *v2("other", 1)).status == 200
    (tmp_path / "gate" / "open").touch()
    assert local.call("POST", *v2(model, 2)).status == 200
    local.close()
