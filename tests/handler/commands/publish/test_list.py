"""`dragoman list`: the content of a repository, and what a server makes of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from handler.stores.s3.client import Client
from handler.stores.s3.store import S3Store
from tests.handler.commands.publish.conftest import adds, around

if TYPE_CHECKING:
    from pathlib import Path

    from tests.handler.commands.publish.conftest import Bucket

MODEL = b"\x08\x08"
FILES = {
    "a/1/model.onnx": MODEL, "a/2/model.onnx": MODEL, "a/2/vocabulary.txt": b"a b c", "a/10/weights.bin": b"unfinished",
    "broken/1/model.onnx": MODEL, "broken/model-settings.json": b"{", "own/1/model.onnx": MODEL,
    "own/2/model.onnx": MODEL, "own/2/model-settings.json": b"[]",
    "own/model-settings.json": b'{"version_policy": {"all": {}}}', "padded/1/model.onnx": MODEL,
    "padded/001/model.onnx": MODEL, "none/1/model.onnx": MODEL,
    "none/model-settings.json": b'{"version_policy": {"specific": {"versions": [7]}}}', "notes/readme.txt": b"no model",
    "readme.txt": b"at the top",
}  # fmt: skip
BROKEN = (
    "model-settings.json of model 'broken': the file is not JSON: line 1, column 2: expected property name enclosed in "
    "double quotes"
)
STATES = [
    ("a", "1", "not served", "by the version policy"), ("a", "2", "served", ""),
    ("a", "10", "incomplete", "no model.onnx, model.py or pipeline.json yet"),
    ("broken", "1", "broken", BROKEN),
    ("none", "1", "not served", "by the version policy"),
    ("notes", "", "incomplete", "no numbered folder with a model"), ("own", "1", "served", ""),
    ("own", "2", "broken", "2/model-settings.json of model 'own': the file is []; expected an object"),
    ("padded", "001", "not served", "1 is"), ("padded", "1", "served", ""),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with every kind of content; its files have a known time."""
    for path, content in FILES.items():
        file = tmp_path / "repository" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (1_700_000_000, 1_700_000_000))
    (tmp_path / "repository" / ".push-x").mkdir()
    return tmp_path / "repository"


def states(text: str) -> list[tuple[str, ...]]:
    """Returns model, version, state and the beginning of the reason."""
    return [(row["model"], row["version"], row["state"], row["reason"].partition(" (")[0]) for row in json.loads(text)]


def test_a_default_repository_that_is_not_there_is_named(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a model of that name in itself: models/models."""
    monkeypatch.chdir(tmp_path)
    assert run("list") == (1, "", "dragoman: the folder models does not exist\n")
    assert run("list", "iris") == (1, "", "dragoman: the folder models/iris does not exist\n")


def test_a_folder_is_listed_with_what_a_server_makes_of_it(run: Any, folder: Path) -> None:
    """The list has every version, served or not, and the reason if it is not."""
    code, out, err = run("list", folder, "--json")
    assert (code, err) == (0, "")
    assert states(out) == STATES


def test_a_bucket_is_listed_with_one_request_and_its_settings_files(
    run: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of models does not matter."""
    for path, content in FILES.items():
        bucket.put(path, content)
    bucket.put("a/1/")
    asked: list[tuple[str, str | None]] = []

    read, page = S3Store.read, Client.page

    def read_one(self: S3Store, model: str, path: str, *more: Any) -> Any:
        asked.append(("get_object", f"models/{model}/{path}"))
        return read(self, model, path, *more)

    def list_one(self: Client, *query: Any) -> Any:
        asked.append(("list_objects_v2", None))
        return page(self, *query)

    around(monkeypatch, before=lambda method, key, _: asked.append((method, key)))
    monkeypatch.setattr(S3Store, "read", read_one)
    monkeypatch.setattr(Client, "page", list_one)
    code, out, err = run("list", bucket.uri, "--json")
    assert (code, err) == (0, "")
    assert states(out) == STATES
    settings = {("get_object", f"models/{path}") for path in FILES if path.endswith("model-settings.json")}
    assert sorted(asked, key=str) == sorted([("list_objects_v2", None), *settings], key=str)


def test_the_table_is_for_people(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows one model, or the repository that the environment names."""
    code, out, _ = run("list", folder / "a")
    assert code == 0
    assert out == (
        "MODEL  VERSION  FILES  SIZE  MODIFIED             STATE\n"
        "a      1            1   2 B  2023-11-14 22:13:20  not served: by the version policy\n"
        "a      2            2   7 B  2023-11-14 22:13:20  served\n"
        "a      10           1  10 B  2023-11-14 22:13:20  incomplete: no model.onnx, model.py or pipeline.json yet\n"
    )
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(folder))
    lines = run("list")[1].splitlines()
    assert len(lines) == 1 + len(STATES)
    assert lines[6].startswith("notes   -            1   8 B  2023-11-14 22:13:20  incomplete: no numbered folder")


def test_one_model_of_a_bucket_is_listed_alone(run: Any, bucket: Bucket) -> None:
    """Its settings or a version identify it."""
    for path, content in FILES.items():
        bucket.put(path, content)
    for name in ("own", "a", "padded"):
        assert states(run("list", f"{bucket.uri}/{name}/", "--json")[1]) == [row for row in STATES if row[0] == name]


def test_a_name_is_the_repositorys_model_before_a_folder_here(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pull` makes such a folder. One of another name is listed."""
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(folder))
    monkeypatch.chdir(folder.parent)
    for name, versions in (("padded", "12"), ("other", "7")):
        for version in versions:
            adds(1, folder.parent / name / version)
    (folder.parent / "padded" / "9").mkdir()
    assert states(run("list", "padded", "--json")[1]) == [row for row in STATES if row[0] == "padded"]
    assert states(run("list", "other", "--json")[1]) == [("other", "7", "served", "")]


def test_where_nothing_is_nothing_is_listed(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """A prefix without objects is empty; a folder that does not exist is a typing error."""
    assert run("list", bucket.uri) == (0, f"there is no model at {bucket.uri}\n", "")
    assert run("list", bucket.uri, "--json") == (0, "[]\n", "")
    assert run("list", tmp_path / "x") == (1, "", f"dragoman: the folder {tmp_path / 'x'} does not exist\n")
    assert run("list", "ftp://b")[2].startswith("dragoman: 'ftp://b' is neither a folder nor the address")
    assert run("list", "s3://") == (1, "", "dragoman: 's3://' names no bucket; expected s3://bucket/prefix\n")


def test_a_bucket_is_also_named_as_triton_does(run: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name contains the endpoint."""
    bucket.put("a/1/model.onnx")
    place = bucket.variables["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    for uri in (f"s3://{place}/{bucket.name}/models", f"s3://http://{place}/{bucket.name}/models/a"):
        assert states(run("list", uri, "--json")[1]) == [("a", "1", "served", "")]


def test_a_repository_of_many_pages_is_listed_to_its_end(
    run: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page has a thousand keys."""
    for number in range(7):
        bucket.put(f"m/{number}/model.onnx")
    page = Client.page
    monkeypatch.setattr(Client, "page", lambda self, query, *more: page(self, query | {"max-keys": "3"}, *more))
    assert len(json.loads(run("list", bucket.uri, "--json")[1])) == 7


def test_a_wrong_setting_is_a_wrong_use(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The exit code is 2, as for `dragoman serve`."""
    monkeypatch.setenv("DRAGOMAN_S3_ADDRESSING", "x")
    code, _, err = run("push", adds(1, tmp_path), tmp_path / "r" / "m")
    assert code == 2
    assert err.startswith("dragoman: DRAGOMAN_S3_ADDRESSING is 'x'")


def test_unknown_keys_of_the_settings_are_listed(run: Any, folder: Path) -> None:
    """Those of the model, and those of the version; it is served all the same."""
    (folder / "a" / "model-settings.json").write_text('{"canry": {}}')
    (folder / "a" / "2" / "model-settings.json").write_text('{"timout": 3}')
    rows = {row["version"]: row for row in json.loads(run("list", folder, "--json")[1]) if row["model"] == "a"}
    told = (
        "model-settings.json has the unknown keys 'canry' (did you mean 'canary'?), 'timout' (did you mean 'timeout'?)"
    )
    assert (rows["2"]["state"], rows["2"]["reason"]) == ("served", told)


def test_what_convert_has_measured_is_listed(run: Any, folder: Path) -> None:
    """A file that is not a report is left out, as is one that is too large."""
    report = {
        "source": {"file": "wine.skops"},
        "library": "scikit-learn 1.9.1",
        "converter": "skl2onnx 1.20.0",
        "data": {"rows": 178, "kind": "given"},
        "outputs": [{"name": "label", "flips": 2, "ties": 1}, {"name": "scores", "largest_absolute": 1.24e-7}],
        "notes": ["a note"],
        "load_seconds": 0.0042,
    }
    versions = sorted(path.parent for path in folder.glob("*/*/model.onnx"))
    (versions[0] / "parity.json").write_text(json.dumps(report), encoding="utf-8")
    for version, text in zip(versions[1:], ["[]", "{}", " " * 70_000, json.dumps(report | {"notes": 5})], strict=False):
        (version / "parity.json").write_text(text, encoding="utf-8")
    _, out, _ = run("list", folder, "--verbose")
    lines = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    found = "178 rows given, numbers differ by at most 1.2e-07, 2 labels differ (1 of them ties), loads in 4 ms"
    assert lines == [f"wine.skops (scikit-learn 1.9.1) by skl2onnx 1.20.0: {found}", "a note"]
    listed = json.loads(run("list", folder, "--verbose", "--json")[1])
    assert [row["parity"] for row in listed if "parity" in row] == [report]
    assert "wine.skops" not in run("list", folder)[1]
