"""A canary gets its share of the requests, unless it does not load."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lifecycle.test_swap import answered_by
from tests.support.publishing import X, publish, say, weighty
from tests.support.server import Server

REQUESTS = 2000
DEVIATIONS = 6.5
"""A binomial count of this size is so many standard deviations off with a probability below 1e-9."""


def expected(share: float) -> range:
    """Returns how many of the requests a share may get."""
    mean, deviation = REQUESTS * share, math.sqrt(REQUESTS * share * (1 - share))
    return range(math.floor(mean - DEVIATIONS * deviation), math.ceil(mean + DEVIATIONS * deviation) + 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with versions 1 to 3 of one model, the newest a canary of a tenth."""
    made = tmp_path / "repository"
    for version in (1, 2, 3):
        publish(made, "m", version, weighty(version))
    say(made, "m", canary={"3": 0.1})
    return made


def test_a_canary_gets_its_share_and_the_newest_of_the_others_gets_the_rest(
    root: Path, launch: Callable[..., Server]
) -> None:
    """Both protocols share it, a named version is not shared, and the shares follow the settings."""
    server = launch(REPOSITORY=str(root), REPOSITORY_POLL="0")
    with server.wire() as wire:

        def ask(turn: int) -> str | None:
            if turn % 2:
                version = answered_by(wire.infer("m", X))
                assert isinstance(version, str)
                return version
            answer = wire.post("/v1/models/m:predict", {"instances": [0]})
            version = answer.headers["model-version"]
            assert answer.json()["predictions"] == [{"y": int(version), "z": float(version)}]
            return version

        told = Counter(map(ask, range(REQUESTS)))
        assert set(told) == {"2", "3"}
        assert told["3"] in expected(0.1)
        for version in ("2", "3"):
            answers = {answered_by(wire.infer("m", X, version=version)) for _ in range(50)}
            assert answers == {version}
        stats = {s["version"]: s for s in wire.get("/v2/models/m/stats").json()["model_stats"]}
        assert {v: s["inference_count"] for v, s in stats.items()} == {v: n + 50 for v, n in told.items()}
        assert wire.get("/v2/models/m").json()["versions"] == ["2", "3"]
        say(root, "m", canary={"3": 0.5})
        assert wire.post("/v2/repository/models/m/load").status == 200
        assert Counter(map(ask, range(REQUESTS)))["3"] in expected(0.5)
        say(root, "m")
        assert wire.post("/v2/repository/models/m/load").status == 200
        assert set(map(ask, range(50))) == {"3"}
    assert server.log.read_text().count(" loaded in ") == 2


def test_the_share_of_a_canary_that_does_not_load_falls_to_the_stable_version(
    root: Path, launch: Callable[..., Server]
) -> None:
    """No request fails, and the index says why. The same holds for a canary that does not exist."""
    publish(root, "m", 4, b"nonsense")
    say(root, "m", canary={"4": 0.5, "9": 0.1})
    with launch(REPOSITORY=str(root)).wire() as wire:
        assert {answered_by(wire.infer("m", X)) for _ in range(100)} == {"3"}
        index = {entry["version"]: entry for entry in wire.post("/v2/repository/index").json()}
        assert {v: entry["state"] for v, entry in index.items()} == {
            "3": "READY",
            "4": "UNAVAILABLE",
            "9": "UNAVAILABLE",
        }
        assert "version 4 cannot be loaded" in index["4"]["reason"]
        assert index["9"]["reason"] == "a canary in its settings, which the repository does not have"
        assert wire.get("/v2/models/m/ready").status == 200
