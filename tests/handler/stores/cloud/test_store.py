"""handler.stores.cloud: reading gs:// by obstore, against a stand-in whose answers no emulator can be made to send.

The XML API of Google Cloud Storage is that of S3 with other headers, so S3's stand-in serves it.
tests/e2e/test_clouds.py runs the cycle on real emulators of both clouds.
"""

import hashlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.deadline import within
from core.errors import ModelNotLoadable, ModelUnavailable, ServingError, StillLoading
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Forbidden, Gone, open_store
from handler.stores.cloud import client
from handler.stores.cloud import store as cloud
from handler.stores.cloud.store import CloudStore
from handler.stores.journal import JOURNAL
from handler.stores.progress import Progress
from handler.stores.transfer import answers
from tests.support import fault_proxy, s3_stand_in
from tests.support.fault_proxy import Fault

ROOT = Path(__file__).parents[4]
CONTENT = np.random.default_rng(7).bytes(600_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DATE = {"Last-Modified": "Sun, 22 Nov 2026 15:00:00 GMT"}


@pytest.fixture
def proxy(stand_in: s3_stand_in.StandIn) -> Iterator[fault_proxy.Proxy]:
    """A proxy in front of the stand-in, which passes listings on."""
    with fault_proxy.running(stand_in.url) as between:
        between.only = "model%2Ebin"
        yield between


@pytest.fixture
def store(proxy: fault_proxy.Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> CloudStore:
    """A store that asks the stand-in through the proxy."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
    return CloudStore(settings(tmp_path))


def settings(tmp_path: Path, uri: str = "gs://bucket/p") -> Settings:
    environ = {"DRAGOMAN_REPOSITORY": uri, "DRAGOMAN_CACHE": str(tmp_path / "cache")}
    return Settings.from_env(environ)._replace(cpus=1.0)


def put(stand_in: s3_stand_in.StandIn, key: str, content: bytes = CONTENT, sha256: str | None = None) -> None:
    """Stores an object with what Google's answers have."""
    stand_in.put(key, content)
    stand_in.things[key].meta.update(DATE | ({} if sha256 is None else {"x-goog-meta-sha256": sha256}))


def fetched(store: CloudStore, progress: Progress | None = None) -> bytes:
    """Returns the one file of model m."""
    folder = store.fetch("m", "1", store.files("m"), progress or Progress())
    return (folder.path / "model.bin").read_bytes()


def test_a_repository_is_listed(store: CloudStore, stand_in: s3_stand_in.StandIn) -> None:
    """A folder's own object is not listed as a file, nor are the files of a model whose name begins the same way."""
    for key in ("p/m/1/model.bin", "p/m-2/1/a/c/b.txt", "p/loose", "q/n/1/model.bin"):
        put(stand_in, key, b"content")
    for key in ("p/m/", "p/m-2/1/a/", "p/m-2/1/"):
        put(stand_in, key, b"")
    etag = stand_in.things["p/m/1/model.bin"].etag
    files = {"m": [File("1/model.bin", 7, etag)], "m-2": [File("1/a/c/b.txt", 7, etag)]}
    assert store.glance() == store.everything() == files
    assert store.models() == ["m", "m-2"]
    assert store.files("m") == files["m"]
    assert store.files("nobody") == []
    assert store.read("m", "1/model.bin") == b"content"
    assert store.read("m", "none") is None
    store.check()


def test_a_large_repository_is_not_glanced_at(
    store: CloudStore, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more objects than a page."""
    monkeypatch.setattr(cloud, "PAGE", 2)
    for number in range(3):
        put(stand_in, f"p/m{number}/1/model.bin", b"")
    assert store.glance() is None
    assert len(store.everything()) == 3


@pytest.mark.parametrize("kind", ["truncate", "reset", "refuse", "error", "slow"])
def test_a_broken_fetch_goes_on_where_it_broke(
    store: CloudStore, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy, kind: str
) -> None:
    """Every byte is right at the end, and no stream begins the file again."""
    put(stand_in, "p/m/1/model.bin", sha256=SHA256)
    proxy.faults = [Fault(kind, 40_000)] * 4
    assert fetched(store) == CONTENT
    assert not proxy.faults


def test_a_fetch_that_runs_out_of_time_is_resumed_and_never_half_visible(
    store: CloudStore, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy, tmp_path: Path
) -> None:
    """The store falls silent in the middle; the deadline ends the request, and the next fetch asks for the rest."""
    put(stand_in, "p/m/1/model.bin", sha256=SHA256)
    proxy.always = Fault("stall", 40_000)
    files = store.files("m")
    with pytest.raises(StillLoading, match="0 of 1 MB loaded"):
        store.fetch("m", "1", files, Progress(within(2)))
    assert not list((tmp_path / "cache").rglob("model.bin"))
    assert list((tmp_path / "cache").rglob(JOURNAL))
    proxy.always, progress = None, Progress()
    assert fetched(store, progress) == CONTENT
    assert 0 < progress.fetched < len(CONTENT)


def test_a_file_that_is_too_long_is_named(store: CloudStore) -> None:
    found = store.remote.failure(answers.StoreRefused(200, answers.TOO_LONG), "model-settings.json of model 'm'")
    assert (type(found), found.message) == (
        ModelNotLoadable,
        "model-settings.json of model 'm' has more than 16777216 bytes",
    )


def test_another_content_than_the_publishers_is_refused(
    store: CloudStore, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy
) -> None:
    """A bit that has changed on the way is fetched again; a wrong object is refused."""
    put(stand_in, "p/m/1/model.bin", sha256=SHA256)
    proxy.faults = [Fault("flip", 10)]
    assert fetched(store) == CONTENT
    put(stand_in, "p/m/1/model.bin", CONTENT[::-1], sha256=SHA256)
    with pytest.raises(ModelUnavailable, match="arrived twice, and differs from the store's sha256"):
        fetched(store)
    put(stand_in, "p/m/model-settings.json", b"{}", sha256=SHA256)
    with pytest.raises(ModelUnavailable, match="the content differs from its SHA-256"):
        store.read("m", "model-settings.json")


@pytest.mark.parametrize("coding", ["gzip", "utf-8"])
def test_an_object_that_is_stored_compressed_is_named(
    store: CloudStore, stand_in: s3_stand_in.StandIn, coding: str
) -> None:
    """`az storage blob upload --content-encoding gzip` stores it so; it was a file that is not a model."""
    for path in ("model-settings.json", "1/model.bin"):
        put(stand_in, f"p/m/{path}")
        stand_in.things[f"p/m/{path}"].meta["Content-Encoding"] = coding
    files = [file for file in store.files("m") if file.path == "1/model.bin"]
    if coding == "utf-8":  # the content is the file's
        assert store.read("m", "model-settings.json") == CONTENT
        assert (store.fetch("m", "1", files, Progress()).path / "model.bin").read_bytes() == CONTENT
        return
    with pytest.raises(ModelNotLoadable, match="^model-settings.json of model 'm' is stored with a Content-Encoding"):
        store.read("m", "model-settings.json")
    with pytest.raises(ModelNotLoadable, match="^1/model.bin of model 'm' is stored with a Content-Encoding"):
        store.fetch("m", "1", files, Progress())


def test_a_version_that_is_replaced_meanwhile_is_not_mixed(
    store: CloudStore, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy
) -> None:
    """The other ranges have the ETag of the listing as their condition."""
    put(stand_in, "p/m/1/model.bin")
    proxy.faults = [Fault("swap", 10_000, then=lambda: put(stand_in, "p/m/1/model.bin", CONTENT[::-1]))]
    assert fetched(store) == CONTENT[::-1]


def test_without_the_permission_to_list_a_named_version_is_read(
    store: CloudStore, stand_in: s3_stand_in.StandIn
) -> None:
    """Sizes come from the answers; what is missing is refused like what is forbidden."""
    put(stand_in, "p/m/1/model.bin")
    stand_in.listable = False
    store.check()
    for look in (store.glance, store.everything, lambda: store.files("m")):
        with pytest.raises(Forbidden):
            look()
    with pytest.raises(ModelUnavailable, match="grant storage.objects.list to see its models"):
        store.models()
    folder = store.fetch("m", "1", [File("1/model.bin")], Progress())
    assert (folder.path / "model.bin").read_bytes() == CONTENT
    assert store.read("m", "model-settings.json") is None
    with pytest.raises(Gone):
        store.fetch("m", "2", [File("2/model.bin")], Progress())


REFUSALS: list[tuple[int, str, type[ServingError], str]] = [
    (404, "NoSuchBucket", ModelNotLoadable, "bucket 'bucket' does not exist: check DRAGOMAN_REPOSITORY"),
    (401, "AuthenticationRequired", ModelNotLoadable, "the store refuses the credentials: check GOOGLE_APPLICATION_"),
    (403, "AccountProblem", ModelNotLoadable, "the store answered 403 AccountProblem for gs://bucket/p"),
    (503, "ServiceUnavailable", ModelUnavailable, "the store answered 503 ServiceUnavailable for gs://bucket/p"),
]


@pytest.mark.parametrize(("status", "code", "kind", "message"), REFUSALS)
def test_a_refusal_has_its_cure(
    store: CloudStore, stand_in: s3_stand_in.StandIn, status: int, code: str, kind: type[ServingError], message: str
) -> None:
    """It is the same for a listing and for readiness."""
    stand_in.refusal = status, code, {}
    for look in (store.check, store.glance, store.models):
        with pytest.raises(kind, match=message):
            look()


@pytest.mark.parametrize("key", ["p//1/model.bin", "p/m/1/./model.bin"])
def test_a_key_that_the_client_cannot_list_is_named(store: CloudStore, stand_in: s3_stand_in.StandIn, key: str) -> None:
    """A retry cannot help, so one request is sent. The message names the key."""
    put(stand_in, key)
    with pytest.raises(ModelNotLoadable, match=f"^gs://bucket/p cannot be listed: .*: rename or delete '{key}'$"):
        store.check()
    assert len(stand_in.asked) == 1


def test_a_store_that_does_not_answer_is_reported_in_time(
    store: CloudStore, stand_in: s3_stand_in.StandIn, proxy: fault_proxy.Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent store ends at the deadline, or as a stall; a closed port is named at once."""
    proxy.only, proxy.always = "", Fault("latency", seconds=3)
    with pytest.raises(StillLoading, match="the repository has not answered in time"):
        store.files("m", Progress(within(0.3)))
    monkeypatch.setattr(answers, "STALL", 0.1)
    with pytest.raises(
        ModelUnavailable, match=r"the store at 127.0.0.1 does not answer \(timeout\): check the network"
    ):
        store.files("m")
    store.disconnect()
    put(stand_in, "p/m/1/model.bin")
    proxy.only, proxy.always = "model%2Ebin", Fault("stall", 40_000)
    monkeypatch.setattr(answers, "STALL", 0.5)  # the heads of answers come within it on a busy machine, too
    with pytest.raises(ModelUnavailable, match=r"1/model.bin of model 'm' broke off again and again \(timeout\)"):
        fetched(store)
    proxy.always = None
    proxy.down()
    with pytest.raises(ModelUnavailable, match=r"does not answer \(connection refused\)"):
        store.files("m")


def test_a_machine_without_credentials_says_which_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: s3_stand_in.StandIn, small: None
) -> None:
    """The client asks the metadata server of Google's machines, which is elsewhere here."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GOOGLE_BASE_URL", stand_in.url)
    stand_in.refusal = 404, "NotFound", {}
    for variable in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(variable, stand_in.url.removeprefix("http://"))
    with pytest.raises(
        ModelNotLoadable, match="no credentials for gs:// are found: set GOOGLE_APPLICATION_CREDENTIALS"
    ):
        CloudStore(settings(tmp_path)).files("m")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "secret-path.json"))
    with pytest.raises(ModelNotLoadable, match="gs://bucket/p: the credentials cannot be used") as refusal:
        CloudStore(settings(tmp_path)).files("m")
    assert "secret-path" not in refusal.value.message


@pytest.mark.parametrize(
    ("variable", "value", "authorization"),
    [
        ("AZURE_STORAGE_KEY", "a2V5", "SharedKey account:"),
        ("AZURE_STORAGE_TOKEN", "token", "Bearer token"),
        ("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x", "unsigned"),
        ("AZURE_SKIP_SIGNATURE", "true", "unsigned"),
    ],
)
def test_azure_is_asked_with_the_credentials_of_the_environment(
    stand_in: s3_stand_in.StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    authorization: str,
) -> None:
    """A shared access signature is part of the URL."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", stand_in.url)
    monkeypatch.setenv(variable, value)
    stand_in.refusal = 404, "ContainerNotFound", {}
    with pytest.raises(ModelNotLoadable, match="container 'bucket' does not exist"):
        CloudStore(settings(tmp_path, "az://bucket/p")).files("m")
    assert stand_in.signed[-1].startswith(authorization)


def test_no_secret_is_logged_or_told(
    stand_in: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, small: None
) -> None:
    """A shared access signature is part of each URL, which the client's error texts hold."""
    place = f"BlobEndpoint={stand_in.url}/account;AccountName=account;SharedAccessSignature=sv=1&sig=c2VjcmV0"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", place)
    stand_in.refusal = 500, "InternalError", {}
    with caplog.at_level(logging.DEBUG), pytest.raises(ModelUnavailable) as refusal:
        CloudStore(settings(tmp_path, "az://bucket/p")).files("m")
    assert "c2VjcmV0" not in refusal.value.message + caplog.text
    assert "500 InternalError" in caplog.text


def test_a_missing_client_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is that of the scheme."""
    monkeypatch.setattr(cloud, "find_spec", lambda _: None)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "a")
    for uri, extra in (("gs://b", "gcs"), ("az://b", "azure")):
        with pytest.raises(InvalidSettings, match=rf"needs obstore: pip install 'dragoman\[{extra}\]'"):
            open_store(settings(tmp_path, uri))


def test_opening_a_store_imports_no_client() -> None:
    """The first request does. A repository of another kind imports nothing of this one."""
    script = "import sys; from handler.settings import *; from handler.stores import *\n"
    script += "open_store(Settings.from_env({'DRAGOMAN_REPOSITORY': sys.argv[1]})); print(*sys.modules)"
    found = {}
    for uri in ("gs://b", "s3://b"):
        command = [sys.executable, "-c", script, uri]
        found[uri] = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "obstore" not in found["gs://b"]
    assert "handler.stores.cloud.client" in found["gs://b"]
    assert not any(name.startswith(("handler.stores.cloud", "handler.stores.web")) for name in found["s3://b"])


def test_connections_are_made_anew_after_a_snapshot(store: CloudStore) -> None:
    """What was open when the snapshot was taken is not used again."""
    first = store._client.bucket
    store.disconnect()
    assert store._client.bucket is not first
    assert store.models() == []


def test_readiness_follows_the_store(
    store: CloudStore, stand_in: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server on a bucket that is denied for another reason than listing is not ready."""
    monkeypatch.setattr(client, "TRIES", 1)
    stand_in.refusal = 401, "AuthenticationRequired", {}
    assert not Registry(settings(tmp_path)).ready(Background()).ready
    stand_in.refusal = None
    assert Registry(settings(tmp_path)).ready(Background()).ready
