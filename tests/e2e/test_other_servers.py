"""The cycle of publishing and loading runs on moto, rclone and LocalStack; the other tests run it on Swift."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.errors import ModelNotFound, ServingError
from core.operations import ModelRef
from handler.lifecycle import models as listed_models
from handler.lifecycle.single_flight import Background
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store
from tests.e2e import other_servers, s3
from tests.e2e.other_servers import OTHERS, OtherServer
from tests.handler.commands.publish.conftest import Bucket, adds, answer, large, new_bucket
from tests.support import fault_proxy
from tests.support.fault_proxy import Fault

Run = Callable[..., tuple[int, str, str]]
KEY = "models/m/1/model.onnx"


@pytest.fixture(scope="module", params=OTHERS)
def name(request: pytest.FixtureRequest) -> str:
    """Offer the name of each server."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(name: str) -> Iterator[s3.Store]:
    """Offer the server, for all tests of this module."""
    with other_servers.running(name) as running:
        yield running


@pytest.fixture
def kind(name: str) -> OtherServer:
    """Return what is known of the server."""
    return OTHERS[name]


@pytest.fixture
def bucket(server: s3.Store, no_aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """A bucket of the test's own, with the environment that the commands read."""
    return new_bucket(server, monkeypatch, tmp_path)


def push(run: Run, bucket: Bucket, folder: Path, version: int, *more: str) -> None:
    code, out, err = run("push", folder, f"{bucket.uri}/m", "--version", version, *more)
    assert code == 0, (out, err)


def test_a_version_is_pushed_listed_served_and_pulled(run: Run, bucket: Bucket, tmp_path: Path) -> None:
    """The server loads it with the first request, and the pulled bytes are the pushed ones."""
    pushed = adds(1, tmp_path / "m").read_bytes()
    push(run, bucket, tmp_path / "m", 1)
    (row,) = json.loads(run("list", bucket.uri, "--json")[1])
    assert (row["model"], row["version"], row["state"]) == ("m", "1", "served")
    models = bucket.registry()
    assert [entry.state for entry in models.index(Background())] == ["UNAVAILABLE"]
    assert answer(models, "m") == 1
    assert models.ready(Background()).ready
    assert run("pull", f"{bucket.uri}/m", tmp_path / "out", "--quiet")[0] == 0
    assert (tmp_path / "out" / "1" / "model.onnx").read_bytes() == pushed


@pytest.mark.parametrize("megabytes", [1, 30], ids=["small", "in parts"])
def test_a_version_of_several_files_is_replaced(
    run: Run, bucket: Bucket, tmp_path: Path, kind: OtherServer, megabytes: int
) -> None:
    """Servers get the new one, and no part of the push is left."""
    push(run, bucket, large(1, tmp_path / "old", megabytes), 1)
    models = bucket.registry()
    assert answer(models, "m") == 1
    push(run, bucket, large(2, tmp_path / "new", megabytes), 1, "--force")
    models.load("m", Background())
    assert answer(models, "m") == 2
    assert sorted(bucket.keys()) == ["m/1/model.onnx", "m/1/weights.bin"]
    if kind.lists_uploads:
        assert bucket.uploads() == []


def test_a_version_of_one_large_file_is_replaced(run: Run, bucket: Bucket, tmp_path: Path) -> None:
    """It is sent in parts, and the old one stays until the new one is there."""
    for number in (1, 2):
        adds(1, tmp_path / "m")
        (tmp_path / "m" / "weights.bin").write_bytes(bytes([number]) * 20_000_000)
        push(run, bucket, tmp_path / "m", 1, "--force")
    assert bucket.get("m/1/weights.bin") == bytes([2]) * 20_000_000
    assert run("pull", f"{bucket.uri}/m", tmp_path / "out", "--quiet")[0] == 0


def test_a_push_onto_another_one_is_refused(run: Run, bucket: Bucket, tmp_path: Path, kind: OtherServer) -> None:
    """The look before it refuses it, and so does a store with conditions."""
    adds(1, tmp_path / "m")
    push(run, bucket, tmp_path / "m", 1)
    adds(2, tmp_path / "m")
    assert run("push", tmp_path / "m", f"{bucket.uri}/m", "--version", 1, "--quiet")[0] == 1
    refused = False
    try:
        bucket.client.put_object(Bucket=bucket.name, Key=KEY, Body=b"", IfNoneMatch="*")
    except ClientError:
        refused = True
    assert refused is kind.conditions


def test_a_new_version_takes_over_and_a_canary_shares(
    run: Run, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come with a load; the settings give the canary its share."""
    models = bucket.registry()
    for number in (1, 2, 3):
        adds(number, tmp_path / f"v{number}")
    push(run, bucket, tmp_path / "v1", 1)
    assert answer(models, "m") == 1
    push(run, bucket, tmp_path / "v2", 2)
    models.load("m", Background())
    assert answer(models, "m") == 2
    bucket.put("m/model-settings.json", b'{"canary": {"3": 0.5}}')
    push(run, bucket, tmp_path / "v3", 3)
    models.load("m", Background())
    drawn = []
    for share in (0.1, 0.9):
        monkeypatch.setattr(listed_models, "draw", lambda share=share: share)
        drawn.append(answer(models, "m"))
    assert drawn == [3, 2]


def test_a_deleted_model_serves_on_until_it_is_unloaded(run: Run, bucket: Bucket, tmp_path: Path) -> None:
    """After that it is not found."""
    adds(1, tmp_path / "m")
    push(run, bucket, tmp_path / "m", 1)
    models = bucket.registry()
    assert answer(models, "m") == 1
    bucket.client.delete_object(Bucket=bucket.name, Key=KEY)
    assert answer(models, "m") == 1
    models.unload("m", Background())
    with pytest.raises(ModelNotFound):
        answer(models, "m")


def test_a_tampered_object_is_not_pulled(run: Run, bucket: Bucket, tmp_path: Path, kind: OtherServer) -> None:
    """Its metadata is still the publisher's, in whatever case the server sends its names."""
    adds(1, tmp_path / "m")
    push(run, bucket, tmp_path / "m", 1)
    metadata = bucket.client.head_object(Bucket=bucket.name, Key=KEY)["Metadata"]
    assert ("sha256" in metadata) is kind.keeps_names
    lower = {key.lower(): value for key, value in metadata.items()}
    bucket.client.put_object(Bucket=bucket.name, Key=KEY, Body=adds(2, tmp_path / "t").read_bytes(), Metadata=lower)
    code, _, err = run("pull", f"{bucket.uri}/m", tmp_path / "out", "--quiet")
    assert code == 1
    assert "differs from its publisher's file" in err


def test_a_broken_download_is_resumed(server: s3.Store, bucket: Bucket, tmp_path: Path) -> None:
    """It has all bytes at the end, although the connection ends again and again."""
    content = b"0123456789abcdef" * 1_000_000
    bucket.put("m/1/model.bin", content)
    with fault_proxy.running(server.endpoint) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        proxy.only, proxy.faults = "model.bin", [Fault("truncate", 5_000_000)] * 3
        store = S3Store(bucket.settings())
        folder = store.fetch("m", "1", store.files("m"), Progress())
        assert not proxy.faults
    assert (folder.path / "model.bin").read_bytes() == content


def test_wrong_keys_and_no_keys(
    run: Run, bucket: Bucket, tmp_path: Path, kind: OtherServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that checks keys refuses both with the reason; a server that does not serves both."""
    adds(1, tmp_path / "m")
    push(run, bucket, tmp_path / "m", 1)
    told: list[Any] = []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    wrong = bucket.registry()
    monkeypatch.setenv("DRAGOMAN_S3_ANONYMOUS", "true")
    bucket.variables["DRAGOMAN_S3_ANONYMOUS"] = "true"
    for models in (wrong, bucket.registry()):
        try:
            told.append(answer(models, "m"))
        except ServingError as error:
            told.append(error.fault)
            assert not models.ready(Background()).ready
    assert told == [1, 1] if not kind.checks_keys else 1 not in told


def test_names_of_any_characters_are_loaded(server: s3.Store, bucket: Bucket, tmp_path: Path) -> None:
    """Listings are decoded if the server says that it has encoded them."""
    path = "1/é+ü%2B x.txt"
    bucket.put(f"m/{path}", b"found")
    store = S3Store(bucket.settings())
    assert [file.path for file in store.files("m")] == [path]
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / path.removeprefix("1/")).read_bytes() == b"found"


def test_a_repository_of_several_pages_is_indexed_by_one_listing(bucket: Bucket) -> None:
    """It takes one request for each thousand keys, and none for a model by itself."""
    for number in range(40):
        bucket.put(f"m{number:02}/1/model.onnx")
    models = bucket.registry()
    assert len(models.index(Background())) == 40
    assert list(models.names(Background())) == [f"m{number:02}" for number in range(40)]
    with pytest.raises(ModelNotFound):
        models.use(ModelRef("nobody"), Background())
