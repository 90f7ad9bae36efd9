"""Under a running server, serving moves to new versions without losing a request, or stays as it is."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.checks import refusal
from tests.support.publishing import X, publish, say, weighty
from tests.support.server import Server
from tests.support.watching import asking
from tests.support.wire import Answer, Wire

CLIENTS = 50
POLL = "0.2"
PATIENCE = 30.0
SLOW = """
import time
metadata = {{
    "inputs": [{{"name": "x", "datatype": "INT64", "shape": [-1]}}],
    "outputs": [{{"name": "y", "datatype": "INT64", "shape": [-1]}}],
}}
def predict(inputs, parameters):
    time.sleep(0.05)
    return {{"y": inputs["x"] + NUMBER}}
NUMBER = {number}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of version 1 of one model."""
    made = tmp_path / "repository"
    publish(made, "m", 1, weighty(1))
    return made


def answered_by(answer: Answer) -> Any:
    """Returns the version that answered, if all parts of the answer agree about it; else the whole answer."""
    if answer.status != 200:
        return answer.status, answer.content
    version = answer.json()["model_version"]
    values = answer.tensors()["y"].tolist()
    agree = values == [int(version) + x for x in X["data"]] and answer.headers["model-version"] == version
    return version if agree else (version, answer.headers["model-version"], values)


def until(wire: Wire, version: str) -> None:
    """Ask until this version answers."""
    end = time.monotonic() + PATIENCE
    while (told := answered_by(wire.infer("m", X))) != version:
        assert time.monotonic() < end, told


def index(wire: Wire) -> dict[str, tuple[str, str]]:
    """Returns state and reason of the model's versions."""
    told = wire.post("/v2/repository/index").json()
    return {entry["version"]: (entry["state"], entry["reason"]) for entry in told}


def until_told(wire: Wire, version: str) -> tuple[str, str]:
    """Ask until the index knows a version."""
    end = time.monotonic() + PATIENCE
    while version not in (told := index(wire)) or told[version][1] in ("loading", "not loaded yet"):
        assert time.monotonic() < end, told
        wire.infer("m", X)
    return told[version]


def test_a_new_version_takes_over_while_fifty_ask(root: Path, launch: Callable[..., Server]) -> None:
    """Five versions come, then a broken one: no request fails, no answer mixes versions, none goes back."""
    server = launch(REPOSITORY=str(root), REPOSITORY_POLL=POLL)

    def ask() -> list[Any]:
        with server.wire() as wire:
            return [answered_by(wire.infer("m", X)) for _ in range(20)]

    with server.wire() as wire:
        until(wire, "1")
        with asking(CLIENTS, ask) as told:
            for version in range(2, 7):
                publish(root, "m", version, weighty(version))
                until(wire, str(version))
            publish(root, "m", 7, b"nonsense")
            state, reason = until_told(wire, "7")
            asked = len(told)
            while len(told) < asked + 200:
                until(wire, "6")
        assert (state, index(wire)["6"]) == ("UNAVAILABLE", ("READY", ""))
        assert "version 7 cannot be loaded" in reason
        assert wire.get("/v2/models/m/ready").status == 200
        assert wire.get("/v2/models/m").json()["versions"] == ["6"]
    assert set(told) == {"1", "2", "3", "4", "5", "6"}


def test_requests_that_a_slow_version_is_answering_are_answered_by_it(
    root: Path, launch: Callable[..., Server]
) -> None:
    """The next one answers others meanwhile. The same holds under /v1, whose requests the version's spec decodes."""
    publish(root, "slow", 1, SLOW.format(number=1).encode(), "model.py")
    server = launch(REPOSITORY=str(root), REPOSITORY_POLL=POLL, ALLOW_CODE="true", THREADS="8")

    def ask() -> list[Any]:
        with server.wire() as wire:
            answer = wire.post("/v1/models/slow:predict", {"instances": [0, 1]})
            version = answer.headers.get("model-version", "")
            right = answer.status == 200 and answer.json() == {"predictions": [int(version), int(version) + 1]}
            return [version if right else (answer.status, answer.headers, answer.content)]

    with server.wire() as wire, asking(16, ask) as told:
        for version in range(1, 5):
            if version > 1:
                publish(root, "slow", version, SLOW.format(number=version).encode(), "model.py")
            end = time.monotonic() + PATIENCE
            while str(version) not in told:
                assert time.monotonic() < end
                wire.get("/v2/health/live")
    assert set(told) == {"1", "2", "3", "4"}


def test_a_model_that_loads_slowly_keeps_no_other_waiting(root: Path, launch: Callable[..., Server]) -> None:
    """Whatever the number and the aliases of its requests, other models' first requests are answered meanwhile."""
    quick = [f"quick{number}" for number in range(10)]
    for name in quick:
        publish(root, name, 1, weighty(1))
    gate = root.with_name("gate")
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.01)\n"
    publish(root, "slow", 1, (waits + SLOW.format(number=1)).encode(), "model.py")
    server = launch(REPOSITORY=str(root), ALLOW_CODE="true")

    def asked(ask: Callable[[Wire], Answer]) -> int:
        with server.wire() as wire:
            return ask(wire).status

    with ThreadPoolExecutor(8) as crowd, server.wire() as wire:
        try:
            asking = [
                crowd.submit(asked, ask)
                for ask in (
                    lambda each: each.infer("slow", X),
                    lambda each: each.infer("slow", X, version="1"),
                    lambda each: each.post("/v1/models/slow/versions/0:predict", {"instances": [0]}),
                    lambda each: each.post("/v2/repository/models/slow/load"),
                )
            ]
            while "model slow version 1 is being loaded" not in server.log.read_text():
                wire.get("/v2/health/live")
            asking.append(crowd.submit(asked, lambda each: each.post("/v2/repository/models/slow/unload")))
            assert [answered_by(wire.infer(name, X)) for name in quick] == ["1"] * 10
            assert not any(each.done() for each in asking)
        finally:
            gate.touch()
        assert [each.result(PATIENCE) for each in asking] == [200] * 5


def test_other_files_under_the_same_version_take_over_as_well(root: Path, launch: Callable[..., Server]) -> None:
    """Broken files do not, and the index says so beside the version that serves."""
    file = root / "m" / "1" / "model.onnx"

    def replace(content: bytes) -> None:
        staged = root / "staged"
        staged.write_bytes(content)
        staged.rename(file)

    with launch(REPOSITORY=str(root), REPOSITORY_POLL=POLL).wire() as wire:

        def until_adds(number: int) -> None:
            end = time.monotonic() + PATIENCE
            while wire.infer("m", X).tensors()["y"].tolist() != [number, number + 1, number + 2]:
                assert time.monotonic() < end

        until_adds(1)
        replace(weighty(5))
        until_adds(5)
        replace(b"nonsense")
        end = time.monotonic() + PATIENCE
        while (told := index(wire)["1"])[1] == "":
            assert time.monotonic() < end
            until_adds(5)
        assert told[0] == "READY"
        assert "version 1 cannot be loaded" in told[1]
        replace(weighty(6))
        until_adds(6)
        assert index(wire)["1"] == ("READY", "")


def test_a_version_that_is_taken_back_hands_over_to_the_one_before(root: Path, launch: Callable[..., Server]) -> None:
    """Deleting rolls a repository back; a model that is deleted wholly continues to serve."""
    publish(root, "m", 2, weighty(2))
    with launch(REPOSITORY=str(root), REPOSITORY_POLL=POLL).wire() as wire:
        until(wire, "2")
        (root / "m" / "2").rename(root.with_name("taken"))
        until(wire, "1")
        refusal(wire.infer("m", X, version="2"), 404)
        (root / "m" / "1").rename(root.with_name("gone"))
        for _ in range(20):
            assert answered_by(wire.infer("m", X)) == "1"


def test_settings_that_change_who_answers_load_nothing_again(root: Path, launch: Callable[..., Server]) -> None:
    """Only the label moves."""
    publish(root, "m", 2, weighty(2))
    say(root, "m", version_policy={"all": {}}, version_labels={"stable": 1})
    server = launch(REPOSITORY=str(root), REPOSITORY_POLL=POLL)
    with server.wire() as wire:

        def labelled() -> Any:
            answer = wire.post("/v1/models/m/labels/stable:predict", {"instances": [0]})
            return answer.headers.get("model-version"), answer.json()

        until(wire, "2")
        assert labelled()[0] == "1"
        say(root, "m", version_policy={"all": {}}, version_labels={"stable": 2})
        end = time.monotonic() + PATIENCE
        while labelled()[0] != "2":
            assert time.monotonic() < end
    assert server.log.read_text().count(" loaded in ") == 2


def test_without_a_poll_nothing_moves_until_a_call(root: Path, launch: Callable[..., Server]) -> None:
    """The call says why it failed, and keeps the version that serves."""
    with launch(REPOSITORY=str(root), REPOSITORY_POLL="0").wire() as wire:
        until(wire, "1")
        publish(root, "m", 2, weighty(2))
        for _ in range(50):
            assert answered_by(wire.infer("m", X)) == "1"
        assert wire.post("/v2/repository/models/m/load").status == 200
        assert answered_by(wire.infer("m", X)) == "2"
        publish(root, "m", 3, b"nonsense")
        assert "version 3 cannot be loaded" in refusal(wire.post("/v2/repository/models/m/load"), 503)
        assert answered_by(wire.infer("m", X)) == "2"
        assert index(wire)["3"][0] == "UNAVAILABLE"
