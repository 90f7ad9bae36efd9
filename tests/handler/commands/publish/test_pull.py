"""`dragoman pull`: what it takes out of a bucket, and that it never leaves a part."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from handler.cli import main
from handler.commands import meter
from handler.stores import Forbidden
from handler.stores.s3.store import S3Store
from tests.handler.commands.publish.conftest import adds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.handler.commands.publish.conftest import Bucket

SETTINGS = b'{"version_policy": {"all": {}}}'


@pytest.fixture
def published(run: Any, bucket: Bucket, tmp_path: Path) -> str:
    """Publishes versions 1 and 2 of a model with settings, and a third that is not complete."""
    for number in (1, 2):
        adds(number, tmp_path / "m" / str(number))
        (tmp_path / "m" / str(number) / "sub").mkdir()
        (tmp_path / "m" / str(number) / "sub" / "x.txt").write_text(f"{number}")
    (tmp_path / "m" / "model-settings.json").write_bytes(SETTINGS)
    assert run("push", tmp_path / "m", f"{bucket.uri}/m")[0] == 0
    bucket.put("m/3/weights.bin", b"w")
    return f"{bucket.uri}/m"


def files(folder: Path) -> list[str]:
    """Returns every file below, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_newest_complete_version_comes_with_the_models_settings(run: Any, published: str, tmp_path: Path) -> None:
    """They are a model's folder, whose files and folders have the usual modes."""
    code, out, err = run("pull", published, tmp_path / "out" / "m")
    assert (code, out, err) == (0, f"{tmp_path}/out/m/2: 97 B\n", f"fetching {published}/2: 97 B\n")
    assert files(tmp_path / "out") == ["m/2/model.onnx", "m/2/sub/x.txt", "m/model-settings.json"]
    assert (tmp_path / "out/m/2/sub/x.txt").read_text() == "2"
    (tmp_path / "reference").mkdir()
    assert (tmp_path / "out/m/2").stat().st_mode == (tmp_path / "reference").stat().st_mode
    assert (tmp_path / "out/m/2/model.onnx").stat().st_mode == (tmp_path / "m/2/model.onnx").stat().st_mode


def test_a_version_or_all_of_them_come_when_they_are_asked_for(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written into a folder of the model's name, if none is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").rename(tmp_path / "pushed")
    assert run("pull", published, "--version", "1", "--quiet") == (0, "m/1: 97 B\n", "")
    assert files(tmp_path / "m") == ["1/model.onnx", "1/sub/x.txt", "model-settings.json"]
    assert run("pull", published, "--all") == (1, "", "dragoman: m/1 exists already: --force replaces it\n")
    assert run("pull", published, "--all", "--force", "--quiet")[1] == "m/1: 97 B\nm/2: 97 B\n"
    for name in files(tmp_path / "pushed"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "pushed" / name).read_bytes()


def test_a_fetch_shows_how_far_it_is(run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that arrive move its line."""
    monkeypatch.setattr(meter.Meter, "add", lambda self, count: told.append(count))
    told: list[int] = []
    assert run("pull", published, tmp_path / "out")[0] == 0
    assert sum(told) == 97


@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_results_are_json_when_that_is_asked_for(
    run: Any, bucket: Bucket, published: str, tmp_path: Path, place: str
) -> None:
    """A line for each, with the same facts as the text. Progress stays on stderr."""
    there = bucket.uri if place == "bucket" else str(tmp_path / "r")

    def said(*words: Any) -> list[dict[str, Any]]:
        code, out, _ = run(*words, "--json")
        assert code == 0
        return [json.loads(line) for line in out.splitlines()]

    signed = said("sign", tmp_path / "m", "--unsigned")
    assert [(each["place"], each["signer"]) for each in signed] == [(f"{tmp_path}/m/{n}", None) for n in (1, 2)]
    pushed = said("push", tmp_path / "m", f"{there}/n")
    facts = {"model": "n", "files": 3, "served": True, "signer": None, "optimized": None}
    assert [each | facts for each in pushed] == pushed
    assert [(each["version"], each["place"]) for each in pushed] == [(n, f"{there}/n/{n}") for n in (1, 2)]
    verified = said("verify", "--digest", tmp_path / "m")
    assert [each["sha256"] for each in verified] == [each["sha256"] for each in signed]
    if place == "bucket":
        pulled = said("pull", f"{there}/n", tmp_path / "out")
        assert pulled == [{"model": "n", "version": 2, "place": f"{tmp_path}/out/2"} | sized(pushed[1])]
    else:
        (written,) = said("index", there)
        assert (written["models"], written["files"]) == (1, 7)
    (key,) = said("keys", "new", "--name", "a")
    assert key["line"].startswith("a sha256:")
    assert key["key"].startswith("dgm_")


def sized(result: dict[str, Any]) -> dict[str, Any]:
    return {"files": result["files"], "size": result["size"]}


def test_settings_that_were_changed_here_are_kept_unless_forced(run: Any, published: str, tmp_path: Path) -> None:
    """The output says so. Other white space does not count as a change."""
    own = tmp_path / "out" / "model-settings.json"
    own.parent.mkdir()
    own.write_bytes(SETTINGS.replace(b" ", b"\n"))
    assert "kept" not in run("pull", published, tmp_path / "out", "--version", "1")[2]
    for mine in ("{}", "{"):
        own.write_text(mine)
        code, _, err = run("pull", published, tmp_path / "out", "--version", "2", "--force")[:3]
        assert (code, own.read_bytes()) == (0, SETTINGS)
        own.write_text(mine)
        (tmp_path / "out" / "2").rename(tmp_path / f"was-{mine}")
        code, _, err = run("pull", published, tmp_path / "out", "--version", "2")
        assert (code, own.read_text()) == (0, mine)
        assert err.endswith(f"{own} differs from the bucket's, and is kept: --force replaces it\n")


@pytest.mark.parametrize(("source", "options", "message"), [
    ("{uri}/m", ("--version", "3"), "{uri}/m has no version 3; it has 1, 2"),
    ("{uri}/m", ("--version", "v1"), "--version is 'v1'; expected a whole number below 9 * 10**18"),
    ("{uri}/q", (), "there is no version of a model at {uri}/q"),
    ("here/m", (), "'here/m' is on this machine already; expected s3://bucket/prefix/NAME"),
])  # fmt: skip
def test_what_is_not_there_is_refused(
    run: Any, published: str, tmp_path: Path, source: str, options: tuple[str, ...], message: str
) -> None:
    """The refusal has one line, and comes before anything is written. A wrong flag has a code of its own."""
    uri = published.rpartition("/")[0]
    told = run("pull", source.format(uri=uri), tmp_path / "out", *options)
    code = 2 if message.startswith("--") else 1
    assert told == (code, "", f"dragoman: {message.format(uri=uri)}\n")
    assert not (tmp_path / "out").exists()


def test_other_bytes_than_the_publishers_are_refused(run: Any, published: str, bucket: Bucket, tmp_path: Path) -> None:
    """The object has kept its metadata and not its content; no file is left here."""
    sha256 = bucket.client.head_object(Bucket=bucket.name, Key="models/m/2/sub/x.txt")["Metadata"]
    bucket.client.put_object(Bucket=bucket.name, Key="models/m/2/sub/x.txt", Body=b"3", Metadata=sha256)
    code, _, err = run("pull", published, tmp_path / "out", "--quiet")
    assert code == 1
    assert err.startswith(f"dragoman: {published}/2/sub/x.txt differs from its publisher's file: sha256 4e07")
    assert list(tmp_path.glob("out/*")) == []
    assert list(tmp_path.glob(".pull-*")) == []


def test_what_somebody_else_has_uploaded_is_pulled_too(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """It has no checksum, and its folder may have any name."""
    bucket.put("m/007/model.onnx", b"model")
    assert run("pull", f"{bucket.uri}/m", tmp_path / "out", "--quiet")[0] == 0
    assert files(tmp_path / "out") == ["7/model.onnx"]


def test_the_complete_folder_of_a_number_is_pulled_and_verified(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """A push that was killed has left the version in another folder, as servers take it, and files in the plain one."""
    bucket.put("m/01/model.onnx", b"model")
    bucket.put("m/1/weights.bin", b"other")
    assert run("pull", f"{bucket.uri}/m", tmp_path / "out", "--quiet")[0] == 0
    assert files(tmp_path / "out") == ["1/model.onnx"]
    assert (
        "model 'm' version 01 is not verified: it has no model.sig" in run("verify", f"{bucket.uri}/m", "--digest")[2]
    )


def test_a_version_that_is_replaced_before_it_is_fetched_comes_as_it_is_now(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is the new one, whatever was listed before; its size is reported."""
    other = adds(9, tmp_path / "other").parent
    for name, text in (("sub/x.txt", "9"), ("words.txt", "new")):
        (other / name).parent.mkdir(exist_ok=True)
        (other / name).write_text(text)
    fetch = S3Store.fetch

    def replaced(self: Any, *asked: Any) -> Any:
        monkeypatch.setattr(S3Store, "fetch", fetch)
        assert main(["push", str(other), published, "--version", "2", "--force", "--quiet"]) == 0
        return fetch(self, *asked)

    monkeypatch.setattr(S3Store, "fetch", replaced)
    code, out, _ = run("pull", published, tmp_path / "out", "--quiet")
    assert (code, out.splitlines()[-1]) == (0, f"{tmp_path}/out/2: 100 B")
    assert files(tmp_path / "out") == ["2/model.onnx", "2/sub/x.txt", "2/words.txt", "model-settings.json"]
    for name in files(other):
        assert (tmp_path / "out" / "2" / name).read_bytes() == (other / name).read_bytes()


def test_a_version_that_is_half_replaced_is_not_pulled(
    run: Any, published: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that finds it changed lists it again; if the marker is away then, it is not pulled."""
    fetch = S3Store.fetch

    def half(self: Any, model: str, version: str, files: Any, progress: Any) -> Any:
        bucket.client.delete_object(Bucket=bucket.name, Key="models/m/2/model.onnx")
        return fetch(self, model, version, [file for file in self.files(model) if file.path[:2] == "2/"], progress)

    monkeypatch.setattr(S3Store, "fetch", half)
    told = f"dragoman: {published}/2 is being replaced: pull it when it is complete\n"
    assert run("pull", published, tmp_path / "out", "--quiet") == (1, "", told)
    assert list(tmp_path.glob("out/*")) == []
    assert list(tmp_path.glob(".pull-*")) == []


def test_a_servers_cap_of_its_cache_does_not_bind_a_pull(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull writes to a folder, not to a cache."""
    monkeypatch.setenv("DRAGOMAN_CACHE_BYTES", "5")
    assert run("pull", published, tmp_path / "out", "--quiet")[0] == 0


def test_a_disk_without_room_is_the_targets(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal told to enlarge DRAGOMAN_CACHE, which a pull does not use."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=96))
    told = f"dragoman: {tmp_path}/out cannot be written: 97 B are needed, 96 B are free\n"
    assert run("pull", published, tmp_path / "out", "--quiet") == (1, "", told)


def test_a_target_that_is_a_file_is_named(run: Any, published: str, tmp_path: Path) -> None:
    """Before anything is fetched. It was the folder above that could not be written, because the file exists."""
    (tmp_path / "out").touch()
    assert run("pull", published, tmp_path / "out") == (1, "", f"dragoman: {tmp_path}/out is not a folder\n")


def test_a_pull_that_breaks_off_leaves_nothing(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stays under the version's name or beside it."""
    fetch = S3Store.fetch

    def broken(self: Any, *asked: Any) -> Any:
        fetch(self, *asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(S3Store, "fetch", broken)
    assert run("pull", published, tmp_path / "out", "--quiet") == (130, "", "\n")
    assert list(tmp_path.glob("out/*")) == []
    assert list(tmp_path.glob(".pull-*")) == []


def test_a_bucket_that_may_not_be_listed_is_no_place_to_pull_from(
    run: Any, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in plays the policy: the real server does not have one."""

    def forbidden(*_: Any) -> Any:
        raise Forbidden

    monkeypatch.setattr(S3Store, "files", forbidden)
    told = f"dragoman: listing {published.rpartition('/')[0]} is not permitted: grant s3:ListBucket\n"
    assert run("pull", published, tmp_path / "out") == (1, "", told)
