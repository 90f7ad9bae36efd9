"""Many models in little memory: which are loaded, unloaded and refused, as the clients and the kernel see it."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.checks import refusal
from tests.support.publishing import X, publish, weighty
from tests.support.server import Server, serve
from tests.support.watching import crowd, events, loads, resident, sampled, waited

MODELS = 20
ROOM = 5
MEGABYTES = 30
CLIENTS = 200
REQUESTS = 5
MB = 10**6
EVICTED = "unloaded to make room for other models"
WAITS = ("waiting for memory that other models use", "waiting for the loads of other models")
REASONS = ("not loaded yet", "loading", *WAITS, EVICTED)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty models of 30 MB (one file under many names), one of 400 MB, and a tiny one."""
    made = tmp_path_factory.mktemp("lifecycle") / "repository"
    publish(made, "m0", 1, weighty(0, MEGABYTES))
    for number in range(1, MODELS):
        publish(made, f"m{number}", 1, b"")
        file = made / f"m{number}" / "1" / "model.onnx"
        file.unlink()
        file.hardlink_to(made / "m0" / "1" / "model.onnx")
    publish(made, "tiny", 1, weighty(0))
    publish(made, "huge", 1, b"")
    os.truncate(made / "huge" / "1" / "model.onnx", 400 * MB)
    return made


@pytest.fixture(scope="module")
def limit(root: Path) -> int:
    """Returns the memory for a server and five of the models, the fifth while it is being loaded."""
    with serve(root.with_name("log"), REPOSITORY=str(root)) as server, server.wire() as wire:
        assert wire.infer("tiny", X).status == 200
        return resident(server.process.pid) + ((ROOM + 1) * MEGABYTES + 20) * MB


def test_a_crowd_asks_for_more_models_than_fit(root: Path, limit: int, launch: Callable[..., Server]) -> None:
    """No request fails, none is loaded twice at a time, memory stays under the limit, and ready means loaded."""
    server = launch(REPOSITORY=str(root), MEMORY_LIMIT=str(limit))
    over = threading.Event()
    untrue: list[Any] = []

    def check() -> None:
        with server.wire() as wire:
            while not over.is_set():
                model = f"m{random.randrange(MODELS)}"  # noqa: S311 - no secret
                begun = server.log.stat().st_size
                ready = wire.get(f"/v2/models/{model}/ready")
                answer = wire.infer(model, X)
                # In between, another client's request may have loaded or unloaded it, which the log then shows.
                right = (
                    not waited(answer) or (f"{model}/1", "unloaded") in events(server, begun)
                    if ready.status == 200
                    else (ready.status, ready.json()["ready"]) == (503, False) and ready.json()["reason"] in REASONS
                )
                if not right or answer.status != 200 or wire.get("/v2/health/ready").status != 200:
                    untrue.append((ready.json(), answer.status, answer.headers, answer.content))

    def ask(client: int) -> list[Any]:
        draw = random.Random(client)  # noqa: S311 - to be had again
        with server.wire() as wire:
            told = []
            for _ in range(REQUESTS):
                number = draw.randrange(MODELS)
                answer = wire.infer(f"m{number}", X)
                right = (
                    answer.status == 200
                    and answer.json()["model_name"] == f"m{number}"
                    and answer.tensors()["y"].tolist() == X["data"]
                )
                told.append(right or (number, answer.status, answer.content))
            return told

    checker = threading.Thread(target=check)
    with sampled(server.process.pid) as samples:
        checker.start()
        told = crowd(CLIENTS, ask)
        over.set()
        checker.join()
    assert [answer for answers in told for answer in answers if answer is not True] == []
    assert untrue == []
    with server.wire() as wire:  # now no other client is between the two
        for model in (f"m{number}" for number in range(MODELS)):
            ready, answer = wire.get(f"/v2/models/{model}/ready"), wire.infer(model, X)
            reason = ready.json().get("reason")
            assert (ready.status, reason) == ((503, EVICTED) if waited(answer) else (200, None))
            assert answer.status == wire.get(f"/v2/models/{model}/ready").status == 200
    counted = loads(server)
    assert set(counted) == {f"m{number}/1" for number in range(MODELS)}
    assert sum(counted.values()) > MODELS  # some had to be loaded again
    assert max(samples) <= limit, (max(samples) / MB, limit / MB)


def test_a_model_that_can_never_fit_is_refused_with_the_numbers(
    root: Path, limit: int, launch: Callable[..., Server]
) -> None:
    """The refusal is immediate each time, and loaded models stay."""
    server = launch(REPOSITORY=str(root), MEMORY_LIMIT=str(limit))
    with server.wire() as wire:
        assert wire.infer("m0", X).status == 200
        for _ in range(3):
            text = refusal(wire.infer("huge", X), 503)
            assert "model 'huge' version 1 needs 400 MB; at most " in text
            assert f"MB fit beside the server itself (DRAGOMAN_MEMORY_LIMIT {limit / MB:.0f} MB)" in text
        ready = wire.get("/v2/models/huge/ready")
        assert ready.status == 503
        assert "needs 400 MB" in ready.json()["reason"]
        assert wire.get("/v2/models/m0/ready").status == 200
    assert +loads(server) == {"m0/1": 1}
    assert resident(server.process.pid) < limit


def test_the_least_recently_used_goes_first_and_calls_count_as_well(
    root: Path, limit: int, launch: Callable[..., Server]
) -> None:
    """A load call makes room as a request does; an unload call frees it."""
    with launch(REPOSITORY=str(root), MEMORY_LIMIT=str(limit)).wire() as wire:

        def ready() -> list[int]:
            told = wire.post("/v2/repository/index", {"ready": True}).json()
            return sorted(int(entry["name"][1:]) for entry in told)

        for number in range(ROOM):
            assert wire.infer(f"m{number}", X).status == 200
        assert ready() == [0, 1, 2, 3, 4]
        assert wire.infer("m0", X).status == 200
        assert wire.post("/v2/repository/models/m5/load").status == 200
        assert ready() == [0, 2, 3, 4, 5]
        index = {entry["name"]: entry for entry in wire.post("/v2/repository/index").json()}
        assert index["m1"]["reason"] == EVICTED
        assert wire.post("/v2/repository/models/m5/unload").status == 200
        assert wire.infer("m6", X).status == 200
        assert ready() == [0, 2, 3, 4, 6]
