"""handler.edge.batch.versions: a batch on Lambda is answered by one version, which no chance chooses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelUnavailable, VersionNotFound
from handler.lifecycle.registry import Registry
from tests.handler.calling import context
from tests.handler.edge.batch.test_events import HALF, created, failed, function, lines, queue, results, store
from tests.support import s3_stand_in
from tests.support.server import ROOT

__all__ = ["store"]
ASKED = {name: value for name, value in HALF.items() if name != "version"} | {"model": "m"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two versions, the newer of which is a canary for nearly all requests."""
    for version in "12":
        shutil.copytree(ROOT / "models" / "half_plus_three" / "123", tmp_path / "models" / "m" / version)
    settings(tmp_path / "models", canary={"2": 0.99})
    return tmp_path / "models"


def settings(repository: Path, **keys: Any) -> None:
    (repository / "m" / "model-settings.json").write_text(json.dumps(keys), "utf-8")


def versions(found: list[dict[str, Any]]) -> set[str]:
    return {line["model_version"] for line in found}


def test_a_canary_answers_no_messages(monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path) -> None:
    """A message that comes twice gets the same answers. One that names the canary's version gets that one."""
    output = tmp_path / "out"
    with function(monkeypatch, str(output), REPOSITORY=str(repository)) as aws:
        for _ in range(4):
            assert failed(aws(queue(ASKED, ASKED | {"version": 2}), None)) == []
            assert [versions(found) for found in results(output).values()] == [{"1"}, {"2"}]
            aws({"batch": ASKED | {"id": "own"}}, None)
            assert versions(results(output).pop("own")) == {"1"}
            (output / "own.jsonl").unlink()


def test_a_version_that_is_replaced_meanwhile_is_not_the_messages_failure(
    monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path
) -> None:
    """The next attempt finds its successor."""

    def gone(_: Registry, ref: Any, __: Any) -> Any:
        raise VersionNotFound(f"model {ref.name!r} has no version {ref.version}")

    with function(monkeypatch, str(tmp_path / "out"), REPOSITORY=str(repository)) as aws:
        monkeypatch.setattr(Registry, "use", gone)
        assert failed(aws(queue(ASKED, ASKED | {"version": 1}), None)) == ["m0"]
        with pytest.raises(ModelUnavailable, match="it was replaced while the batch began"):
            aws({"batch": ASKED | {"id": "own"}}, None)


def test_an_object_is_continued_by_the_version_that_began_it(
    store: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path
) -> None:
    """A newer version begins the object again only if the first one has been removed."""
    monkeypatch.setattr("handler.edge.batch.objects.PART_RECORDS", 300)
    record = json.dumps({key: value for key, value in ASKED.items() if key not in ("model", "id")})
    texts = "\n".join([record] * 2000).encode()
    store.put("in/m/a.jsonl", texts)
    store.put("in/m/b.jsonl", texts + b"\n")
    output, late = tmp_path / "out", context(-60)
    places = {"BATCH_INPUT": "s3://bucket/in", "REPOSITORY": str(repository)}

    def begun() -> None:
        with function(monkeypatch, str(output), **places) as aws:
            aws(queue(ASKED), None)  # loads the model
            with monkeypatch.context() as patched:
                patched.setattr("handler.edge.function.deadlines.LEAST_SECONDS", -1.0)
                for key in "ab":
                    with pytest.raises(ModelUnavailable, match="no time was left for the others"):
                        aws(created(f"in/m/{key}.jsonl"), late)

    def told(key: str) -> tuple[str, set[str], int]:
        with function(monkeypatch, str(output), **places) as aws:
            (answer,) = aws(created(f"in/m/{key}.jsonl"), None)["batches"]
        folder = output / answer["result"]
        parts = json.loads((folder / "complete.json").read_bytes())["parts"]
        found = [line for name in parts for line in lines((folder / name).read_bytes())]
        assert [line["index"] for line in found] == list(range(2000))
        return answer["version"], versions(found), len({name.partition("-")[0] for name in parts})

    begun()
    settings(repository, version_policy={"all": {}})
    assert told("a") == ("1", {"1"}, 1)
    settings(repository, version_policy={"latest": {}})
    shutil.rmtree(repository / "m" / "1")
    assert told("b") == ("2", {"2"}, 1)
