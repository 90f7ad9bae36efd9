"""The cycle of publishing and loading on Azurite (az://) and on fake-gcs-server (gs://)."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.deadline import within
from core.errors import StillLoading
from handler.cli import main
from handler.commands.publish import upload
from handler.commands.publish.buckets import opened
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores import open_store
from handler.stores.progress import Progress
from tests.e2e import clouds
from tests.e2e.clouds import Cloud
from tests.handler.commands.publish.conftest import adds, answer, large
from tests.support import fault_proxy, signing
from tests.support.fault_proxy import Fault
from tests.support.server import ROOT, serve
from tests.support.walks import walk

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["gs", "az"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """Offer each server, for all tests of this module."""
    with clouds.running(request.param) as running:
        yield running


@pytest.fixture
def uri(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository in a bucket of the test's own, with the environment that the commands read."""
    for name, value in {**cloud.variables(), "DRAGOMAN_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return f"{cloud.scheme}://{cloud.bucket()}/models"


def settings(uri: str, tmp_path: Path) -> Settings:
    return Settings.from_env({"DRAGOMAN_REPOSITORY": uri, "DRAGOMAN_CACHE": str(tmp_path / "cache")})


def push(run: Run, uri: str, folder: Path, version: int, *more: str) -> None:
    code, out, err = run("push", folder, f"{uri}/m", "--version", version, *more)
    assert code == 0, (out, err)


def keys(uri: str) -> list[str]:
    return sorted(item.path for item in opened(Settings.from_env({}), uri).items(""))


def test_the_page_of_stores_does_what_it_says(cloud: Cloud, uri: str, tmp_path: Path) -> None:
    """The bucket's name, and the emulator's address, are all that differs."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    named = {"gs": "gs://example-models/models", "az": "az://models/prod"}[cloud.scheme]
    assert walk("docs/stores.md", f"tests/e2e/test_clouds.py[{cloud.scheme}]", tmp_path, {named: uri}) >= 4


def test_a_version_is_pushed_listed_served_and_pulled(run: Run, uri: str, tmp_path: Path) -> None:
    """A server in a process of its own answers with it, and is ready; the pulled bytes are the pushed ones."""
    pushed = adds(1, tmp_path / "m").read_bytes()
    push(run, uri, tmp_path / "m", 1)
    (row,) = json.loads(run("list", uri, "--json")[1])
    assert (row["model"], row["version"], row["state"]) == ("m", "1", "served")
    with serve(tmp_path / "log", REPOSITORY=uri, CACHE=str(tmp_path / "cache")) as server:
        url = f"http://{server.netloc}/v2"
        assert httpx.get(f"{url}/health/ready", timeout=60).status_code == 200
        asked = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [4]}]}
        assert httpx.post(f"{url}/models/m/infer", json=asked, timeout=60).json()["outputs"][0]["data"] == [5]
        assert [each["name"] for each in httpx.post(f"{url}/repository/index", timeout=60).json()] == ["m"]
    assert run("pull", f"{uri}/m", tmp_path / "out", "--quiet")[0] == 0
    assert (tmp_path / "out" / "1" / "model.onnx").read_bytes() == pushed
    assert run("doctor", uri, "--no-load")[0] == 0


@pytest.mark.parametrize("megabytes", [1, 30])
def test_a_version_of_several_files_is_replaced(run: Run, uri: str, tmp_path: Path, megabytes: int) -> None:
    """Servers get the new one, and nothing of the push is left."""
    push(run, uri, large(1, tmp_path / "old", megabytes), 1)
    models = Registry(settings(uri, tmp_path))
    assert answer(models, "m") == 1
    push(run, uri, large(2, tmp_path / "new", megabytes), 1, "--force")
    models.load("m", Background())
    assert answer(models, "m") == 2
    assert keys(uri) == ["m/1/model.onnx", "m/1/weights.bin"]


def test_a_version_of_one_file_is_replaced_in_one_request(run: Run, uri: str, tmp_path: Path) -> None:
    """A push without --force is refused."""
    for number in (1, 2):
        push(run, uri, adds(number, tmp_path / "m").parent, 1, "--force")
    assert run("push", tmp_path / "m", f"{uri}/m", "--version", 1, "--quiet")[0] == 1
    assert (answer(Registry(settings(uri, tmp_path)), "m"), keys(uri)) == (2, ["m/1/model.onnx"])


@pytest.mark.parametrize("force", [False, True])
def test_of_two_pushes_at_a_time_one_succeeds(
    run: Run, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    """Both have seen the same repository; the store's conditions decide."""
    if force:
        push(run, uri, large(3, tmp_path / "3", 1), 1)
    both, publish, codes = threading.Barrier(2), upload.publish, {}

    def together(*arguments: Any) -> None:
        both.wait(60)
        publish(*arguments)

    monkeypatch.setattr(upload, "publish", together)

    def one(number: int) -> None:
        folder = str(large(number, tmp_path / str(number), 1))
        codes[number] = main(["push", folder, f"{uri}/m", "--version", "1", "--quiet", *["--force"] * force])

    threads = [threading.Thread(target=one, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, code in codes.items() if code == 0]
    assert len(winners) <= 1
    assert keys(uri) == ["m/1/model.onnx", "m/1/weights.bin"] or not (winners or force)
    if winners or force:
        assert answer(Registry(settings(uri, tmp_path)), "m") == next(iter(winners), 3)


def test_an_interrupted_fetch_is_resumed(run: Run, cloud: Cloud, uri: str, tmp_path: Path) -> None:
    """The connection ends again and again, then the store falls silent until the deadline. The next fetch goes on."""
    push(run, uri, large(1, tmp_path / "m", 40), 1)
    with fault_proxy.running(cloud.url) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.variables(proxy.url).items():
            patch.setenv(name, value)
        store = open_store(settings(uri, tmp_path))
        files = store.files("m")
        proxy.only, proxy.faults, proxy.always = (
            "weights",
            [Fault("truncate", 3_000_000)] * 3,
            Fault("stall", 4_000_000),
        )
        progress = Progress(within(8))
        with pytest.raises(StillLoading, match="of 41 MB loaded: try again"):
            store.fetch("m", "1", files, progress)
        assert 0 < progress.fetched < 40_000_000
        proxy.always, rest = None, Progress()
        folder = store.fetch("m", "1", files, rest)
    assert (folder.path / "weights.bin").read_bytes() == (tmp_path / "m" / "weights.bin").read_bytes()
    assert rest.fetched < rest.total


def test_a_signed_version_is_verified(run: Run, uri: str, tmp_path: Path) -> None:
    """A server that verifies refuses another one."""
    (tmp_path / "key").write_bytes(signing.private(signing.key()))
    (tmp_path / "public").write_text(signing.public(signing.key()))
    push(run, uri, adds(1, tmp_path / "m").parent, 1, "--sign-key", str(tmp_path / "key"))
    assert run("verify", f"{uri}/m", "--key", tmp_path / "public")[0] == 0
    verifying = settings(uri, tmp_path)._replace(verify="signature", verify_key=str(tmp_path / "public"))
    assert answer(Registry(verifying), "m") == 1
    push(run, uri, adds(2, tmp_path / "m").parent, 2)
    assert "is not verified: it has no model.sig" in run("verify", f"{uri}/m", "--key", tmp_path / "public")[2]


def test_names_of_any_characters_are_loaded(uri: str, run: Run, tmp_path: Path) -> None:
    """They come back as they were pushed."""
    (adds(1, tmp_path / "m").parent / "é+ü%2B x.txt").write_text("found")
    push(run, uri, tmp_path / "m", 1)
    store = open_store(settings(uri, tmp_path))
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / "é+ü%2B x.txt").read_text() == "found"


def test_what_is_wrong_is_said(
    run: Run, cloud: Cloud, uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bucket that is not there, and a key that is not the account's, for commands and for readiness."""
    assert run("list", uri)[1] == f"there is no model at {uri}\n"
    if cloud.scheme == "az":
        message = "container 'nowhere' does not exist: check its name and the account"
        assert message in run("list", "az://nowhere/models")[2]
        adds(1, tmp_path / "m")
        assert message in run("push", tmp_path / "m", "az://nowhere/models/m", "--quiet")[2]
        for name, value in cloud.variables(key="d3Jvbmc=").items():
            monkeypatch.setenv(name, value)
        assert "the store refuses the request: check AZURE_STORAGE_CONNECTION_STRING" in run("list", uri)[2]
    else:  # the emulator knows no accounts, and answers 500 for a bucket that is not there
        uri = "gs://nowhere/models"
        assert "the store answered 500 for gs://nowhere/models" in run("list", uri)[2]
    ready = Registry(settings(uri, tmp_path)).ready(Background())
    assert not ready.ready
    assert run("doctor", uri, "--no-load")[0] == 1
