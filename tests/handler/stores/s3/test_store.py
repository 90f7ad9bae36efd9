"""handler.stores.s3.store against a real S3 server: OpenStack Swift's.

A proxy of faults stands in front of it if a test needs them. A stand-in (tests/support/s3_stand_in.py) sends the
answers that no real server here can be made to send; those tests say so.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.deadline import within
from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, ServingError, StillLoading
from core.operations import ModelRef
from handler.aws import Function
from handler.edge.runtime.carrier import LoopCarrier
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores import SMALL, File, Forbidden
from handler.stores.progress import Progress
from handler.stores.s3.client import Client
from handler.stores.s3.location import locate
from handler.stores.s3.store import S3Store
from handler.stores.transfer import answers, retries
from tests.e2e import s3 as servers
from tests.support import fault_proxy, s3_stand_in
from tests.support.fault_proxy import Fault
from tests.support.registries import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("no_aws")

ROOT = Path(__file__).parents[4]
BUCKET, PREFIX = servers.BUCKET, servers.PREFIX
X = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Store]:
    """The sample models in a bucket."""
    with servers.running() as running:
        running.fill()
        yield running


@pytest.fixture
def proxy(server: servers.Store) -> Iterator[fault_proxy.Proxy]:
    """A proxy in front of the server."""
    with fault_proxy.running(server.endpoint) as between:
        yield between


@pytest.fixture
def _small(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens waits, too."""
    monkeypatch.setattr(answers, "STALL", 0.5)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pauses between tries, which are meant for real stores."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)


class Env:
    """Sets the settings of a store, and the variables that botocore reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self._patch = monkeypatch
        self._cache = cache

    def settings(self, variables: dict[str, str], **more: str) -> Settings:
        """Returns settings like a function's."""
        environ = {**variables, "DRAGOMAN_CACHE": str(self._cache / "cache"), **more}
        for name, value in environ.items():
            if not name.startswith("DRAGOMAN_"):
                self._patch.setenv(name, value)
        return Settings.from_env({k: v for k, v in environ.items() if k.startswith("DRAGOMAN_")})


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Env:
    """An environment with a separate cache."""
    return Env(monkeypatch, tmp_path)


@pytest.mark.parametrize("more", [{}, {"DRAGOMAN_MODEL_NAME": "iris"}])
def test_a_server_that_cannot_keep_files_is_not_ready(
    server: servers.Store, env: Env, tmp_path: Path, more: dict[str, str]
) -> None:
    """Loads and readiness have the same reason. Once the folder is fit, the server is ready without a restart."""
    models = Registry(env.settings(server.variables(), **more))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    unready = models.ready(Background())
    assert not unready.ready
    assert unready.reason.startswith("DRAGOMAN_CACHE can be written by other users")
    with pytest.raises(ModelNotLoadable) as refused:
        get(models, ModelRef("iris"))
    assert refused.value.message == unready.reason
    (tmp_path / "cache").chmod(0o700)
    assert models.ready(Background()).ready


def test_a_model_in_a_bucket_is_found_loaded_and_its_files_stay_for_the_next_time(
    server: servers.Store, env: Env, tmp_path: Path
) -> None:
    """It takes one listing and one object; an unloaded model is not fetched again."""
    models = Registry(env.settings(server.variables()))
    assert list(models.names(Background())) == sorted(path.name for path in (ROOT / "models").glob("[a-z]*/"))
    assert models.ready(Background()).ready
    model = get(models, ModelRef("half_plus_three"))
    assert model.spec.version == "123"
    assert get(models, ModelRef("iris")).spec.outputs[1].labels == ("setosa", "versicolor", "virginica")
    assert len(list((tmp_path / "cache").glob("*/*/model.onnx"))) == 2
    del model
    models.unload("half_plus_three", Background())
    assert len(list((tmp_path / "cache").glob("*/*/model.onnx"))) == 2
    with pytest.raises(ModelNotFound):
        get(models, ModelRef("half"))


def test_only_whole_folders_of_a_models_own_name_are_listed(server: servers.Store, env: Env) -> None:
    """The cases are a sibling with a similar name, folder markers, empty files, and keys that leave the folder."""
    bucket = "listing"
    server.client.create_bucket(Bucket=bucket)
    for key in ("m/1/model.onnx", "m/1/", "m-2/1/model.onnx", "m/1/../../x", "m/1/empty"):
        server.client.put_object(Bucket=bucket, Key=f"{PREFIX}/{key}", Body=b"")
    store = S3Store(env.settings(server.variables(bucket)))
    assert [file.path for file in store.files("m")] == ["1/empty", "1/model.onnx"]
    assert store.files("q") == []
    assert list(store.models()) == ["m", "m-2"]


def test_listings_of_many_pages_are_read_to_their_end(server: servers.Store, env: Env) -> None:
    """A page has a thousand keys, unless fewer are asked for."""
    bucket = "pages"
    server.client.create_bucket(Bucket=bucket)
    for number in range(12):
        server.client.put_object(Bucket=bucket, Key=f"{PREFIX}/m/{number}/model.onnx", Body=b"")
    settings = env.settings(server.variables(bucket))
    pages = list(Client(settings, locate(settings.repository, os.environ), page=5).pages({}, Progress()))
    assert [len(page.objects) for page in pages] == [5, 5, 2]
    assert [each.key for each in pages[0].objects] == [f"{PREFIX}/m/{each}/model.onnx" for each in (0, 1, 10, 11, 2)]


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, ModelNotLoadable, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "no:body"}, ModelNotLoadable, "AWS_ACCESS_KEY_ID|AWS_SECRET_ACCESS_KEY"),
        ({"DRAGOMAN_REPOSITORY": "s3://no-such-bucket/m"}, ModelNotLoadable, "bucket 'no-such-bucket' does not exist"),
        (
            {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
            ModelUnavailable,
            "127.0.0.1 does not answer .ConnectionRefusedError.: check AWS_ENDPOINT_URL_S3",
        ),
        ({"AWS_ENDPOINT_URL_S3": "http://"}, ServingError, "does not answer"),
    ],
)
def test_what_is_wrong_with_a_store_is_said_with_its_cure(
    server: servers.Store, env: Env, wrong: dict[str, str], kind: type[ServingError], message: str
) -> None:
    """Readiness and every answer have it, without the secret."""
    models = Registry(env.settings({**server.variables(), **wrong}))
    with pytest.raises(kind, match=message) as refusal:
        get(models, ModelRef("half_plus_three"))
    assert "testing" not in refusal.value.message
    told = models.ready(Background())
    assert not told.ready
    assert told.reason == refusal.value.message


def test_no_credentials_at_all_are_said_so(server: servers.Store, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the setting for public buckets."""
    settings = env.settings(server.variables())
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ModelNotLoadable, match="AWS credentials are missing.*DRAGOMAN_S3_ANONYMOUS=true"):
        S3Store(settings).check()


def test_an_object_that_goes_between_listing_and_loading_is_missing(server: servers.Store, env: Env) -> None:
    """It may also be forbidden: S3 does not distinguish them."""
    store = S3Store(env.settings(server.variables()))
    with pytest.raises(ModelUnavailable, match="1/gone of model 'iris' is missing or forbidden"):
        store.fetch("iris", "1", [File("1/gone", 1, "etag")], Progress())


def test_settings_that_are_not_there_are_none(server: servers.Store, env: Env) -> None:
    """A model does not need settings."""
    assert S3Store(env.settings(server.variables())).read("strings", "model-settings.json") is None


def test_a_model_larger_than_the_disk_is_refused_before_it_is_fetched(server: servers.Store, env: Env) -> None:
    """The refusal has both numbers."""
    store = S3Store(env.settings(server.variables()))
    with pytest.raises(ModelNotLoadable, match=rf"'m' has {2**60} bytes, \d+ are free: enlarge DRAGOMAN_CACHE"):
        store.fetch("m", "1", [File("1/model.onnx", 2**60, "etag")], Progress())


def test_a_cache_that_cannot_be_written_is_refused(server: servers.Store, env: Env, tmp_path: Path) -> None:
    """The refusal has the name of its setting."""
    (tmp_path / "file").touch()
    store = S3Store(env.settings(server.variables(), DRAGOMAN_CACHE=str(tmp_path / "file" / "x")))
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE cannot be written"):
        store.fetch("m", "1", [File("1/model.onnx", 1, "etag")], Progress())


def created(*keys: str, bucket: str = BUCKET) -> dict[str, Any]:
    """Returns S3's notification."""
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    return {"Records": [record | {"s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in keys]}


@pytest.mark.parametrize("is_carried", [False, True], ids=["lambda's runtime", "our own"])
def test_objects_created_in_the_bucket_load_the_models_they_belong_to(
    server: servers.Store, env: Env, *, is_carried: bool
) -> None:
    """Each is loaded once, errors are reported, and objects of other buckets and prefixes are ignored."""
    loop = asyncio.new_event_loop()
    function = Function(env.settings(server.variables()), carrier=LoopCarrier(loop) if is_carried else None)
    sample = json.loads((ROOT / "events" / "s3-object-created.json").read_text(encoding="utf-8"))
    assert function(sample, None) == {"checked": [{"model": "half_plus_three", "ready": True}]}
    keys = (f"{PREFIX}/iris/1/model.onnx", f"{PREFIX}/iris/model-settings.json", f"{PREFIX}/nobody/1/model.onnx")
    iris, nobody = function(created(*keys, f"{PREFIX}/readme.txt", "other/m/1/model.onnx"), None)["checked"]
    assert iris == {"model": "iris", "ready": True}
    assert nobody["model"] == "nobody"
    assert "model 'nobody' is not in the repository" in nobody["error"]
    assert function(created(keys[0], bucket="elsewhere"), None) == {"checked": []}
    assert function({}, None)["models"] == {"half_plus_three": "READY", "iris": "READY"}
    function.close()
    loop.close()
    if function.app is not None:
        function.app.close()


def store_at(env: Env, stand_in: s3_stand_in.StandIn, url: str | None = None, **more: str) -> S3Store:
    """Returns a store that asks the stand-in."""
    return S3Store(env.settings(stand_in.variables(url), **more))


@pytest.mark.parametrize(
    ("code", "status", "kind", "message"),
    [
        ("ExpiredToken", 400, ModelNotLoadable, "credentials have expired"),
        ("InvalidToken", 400, ModelNotLoadable, "AWS_SESSION_TOKEN"),
        ("RequestTimeTooSkewed", 403, ModelNotLoadable, "clock"),
        ("InvalidObjectState", 403, ModelNotLoadable, "archived .*: restore it"),
        ("PermanentRedirect", 301, ModelNotLoadable, "another region: set AWS_REGION"),
        (
            "SlowDown",
            503,
            ModelUnavailable,
            "503 SlowDown for s3://bucket/p: it has too many requests, so try again",
        ),
        ("InternalError", 500, ModelUnavailable, "answered 500 InternalError for s3://bucket/p: check AWS_ENDPOINT"),
        ("Strange", 418, ModelNotLoadable, "answered 418 Strange"),
        ("404", 404, ModelNotLoadable, "answered 404 for s3://bucket/p: check AWS_ENDPOINT_URL_S3"),
    ],
)
def test_every_refusal_of_a_store_has_its_message(
    stand_in: s3_stand_in.StandIn, env: Env, code: str, status: int, kind: type[ServingError], message: str
) -> None:
    """The stand-in refuses, since no real server here can be made to: a listing, a small file, and a model's file."""
    stand_in.refusal = (status, code, {})
    store = store_at(env, stand_in)
    with pytest.raises(kind, match=message):
        store.check()
    if code != "404":  # a refusal for an object that exists: 404 would mean that it does not
        with pytest.raises(kind, match=message):
            store.read("m", "model-settings.json")
        with pytest.raises(kind, match=message):
            store.fetch("m", "1", [File("1/model.onnx", 5, "etag")], Progress())


@pytest.mark.parametrize("coding", ["gzip", "BR", "aws-chunked", "utf-8"])
def test_an_object_that_is_stored_compressed_is_named(stand_in: s3_stand_in.StandIn, env: Env, coding: str) -> None:
    """`aws s3 cp --content-encoding gzip` stores it so; it was a file of settings that is not JSON."""
    store = store_at(env, stand_in)
    for path in ("model-settings.json", "1/model.onnx"):
        key = f"p/m/{path}"
        stand_in.put(key, b"{}")
        stand_in.things[key].meta["Content-Encoding"] = coding
    files = store.files("m")
    if coding in ("aws-chunked", "utf-8"):  # the content is the file's
        assert store.read("m", "model-settings.json") == b"{}"
        assert (store.fetch("m", "1", files[:1], Progress()).path / "model.onnx").read_bytes() == b"{}"
        return
    with pytest.raises(ModelNotLoadable, match="^model-settings.json of model 'm' is stored with a Content-Encoding"):
        store.read("m", "model-settings.json")
    with pytest.raises(ModelNotLoadable, match="^1/model.onnx of model 'm' is stored with a Content-Encoding"):
        store.fetch("m", "1", files[:1], Progress())


def test_settings_that_have_changed_on_the_way_are_read_again(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env
) -> None:
    """A server keeps what it has read until the store has another ETag: one wrong bit would stay in its settings."""
    (bucket, text), key = ("flipped", b'{"canary": {"2": 0.1}}'), f"{PREFIX}/m/model-settings.json"
    server.client.create_bucket(Bucket=bucket)
    server.client.put_object(Bucket=bucket, Key=key, Body=text)
    store = S3Store(env.settings({**server.variables(bucket), "AWS_ENDPOINT_URL_S3": proxy.url}))
    proxy.faults = [Fault("flip", text.index(b"0.1") + 2)]
    assert store.read("m", "model-settings.json") == text
    proxy.always = Fault("flip", 0)
    with pytest.raises(ModelUnavailable, match="the content differs from its MD5"):
        store.read("m", "model-settings.json")


def test_settings_that_are_too_long_are_named(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    stand_in.put("p/m/model-settings.json", b" " * (SMALL + 1))
    with pytest.raises(ModelNotLoadable, match="^model-settings.json of model 'm' has more than 16777216 bytes$"):
        store_at(env, stand_in).read("m", "model-settings.json")


@pytest.mark.parametrize(
    ("status", "code", "asked"), [(503, "SlowDown", 6), (429, "429", 6), (500, "InternalError", 3)]
)
def test_a_store_with_too_many_requests_is_asked_longer(
    stand_in: s3_stand_in.StandIn, env: Env, status: int, code: str, asked: int
) -> None:
    """Many functions that start together are what a store throttles, and each of them has its time to wait."""
    stand_in.refusal = (status, code, {})
    with pytest.raises(ModelUnavailable, match="answered"):
        store_at(env, stand_in).check()
    assert len(stand_in.asked) == asked


IN_THE_DOCUMENT = "AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region><Code>"


@pytest.mark.parametrize(
    "refusal",
    [(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-central-1"}), (400, IN_THE_DOCUMENT, {})],
    ids=["header", "document"],
)
def test_a_bucket_in_another_region_is_asked_there(
    stand_in: s3_stand_in.StandIn, env: Env, refusal: tuple[int, str, dict[str, str]]
) -> None:
    """The stand-in is used: the region stands in the signature's scope."""
    stand_in.put("p/m/1/x", b"x")
    store = store_at(env, stand_in, AWS_REGION="eu-west-1")
    stand_in.refusal = refusal
    with pytest.raises(ModelNotLoadable, match="another region"):
        store.check()
    stand_in.refusal = None
    assert [file.path for file in store.files("m")] == ["1/x"]
    assert "/eu-west-1/s3/" in stand_in.signed[0]
    assert "/eu-central-1/s3/" in stand_in.signed[-1]


def elsewhere(stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """The bucket is in eu-central-1. So many requests that are signed for another region are refused together."""
    answer, waiting = s3_stand_in.Handler.do_GET, threading.Barrier(together)

    def asked(handler: s3_stand_in.Handler) -> None:
        if "/eu-central-1/s3/" in handler.headers["Authorization"]:
            answer(handler)
            return
        waiting.wait(10)
        handler._error(400, "AuthorizationHeaderMalformed", {"x-amz-bucket-region": "eu-central-1"})

    monkeypatch.setattr(s3_stand_in.Handler, "do_GET", asked)
    for model in ("m", "n"):
        stand_in.put(f"p/{model}/1/x", b"x")


def test_requests_that_learn_a_buckets_region_at_the_same_time_are_all_answered(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is used: the second request finds that the region is known."""
    elsewhere(stand_in, monkeypatch, together=2)
    store = store_at(env, stand_in, AWS_REGION="eu-west-1")
    with ThreadPoolExecutor(2) as pool:
        listed = list(pool.map(store.files, ("m", "n")))
    assert [[file.path for file in files] for files in listed] == [["1/x"], ["1/x"]]


def test_regions_that_name_each_other_are_not_asked_in_turn(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is used: a second redirect of one request is a refusal."""
    signed: list[str] = []

    def asked(handler: s3_stand_in.Handler) -> None:
        signed.append(handler.headers["Authorization"].split("/")[2])
        other = {"eu-west-1": "eu-central-1", "eu-central-1": "eu-west-1"}[signed[-1]]
        handler._error(301, "PermanentRedirect", {"x-amz-bucket-region": other})

    monkeypatch.setattr(s3_stand_in.Handler, "do_GET", asked)
    with pytest.raises(ModelNotLoadable, match="another region: set AWS_REGION"):
        store_at(env, stand_in, AWS_REGION="eu-west-1").files("m")
    assert signed == ["eu-west-1", "eu-central-1"]


def test_a_buckets_region_is_remembered_when_connections_are_forgotten(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is used: what was listed before a snapshot is fetched after it."""
    elsewhere(stand_in, monkeypatch, together=1)
    store = store_at(env, stand_in, AWS_REGION="eu-west-1")
    files = store.files("m")
    store.disconnect()
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "x").read_bytes() == b"x"


def test_a_bucket_that_is_always_in_another_region_is_not_asked_for_ever(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is used."""

    def asked(handler: s3_stand_in.Handler) -> None:
        region = "eu-west-1" if "/eu-central-1/s3/" in handler.headers["Authorization"] else "eu-central-1"
        handler._error(301, "PermanentRedirect", {"x-amz-bucket-region": region})

    monkeypatch.setattr(s3_stand_in.Handler, "do_GET", asked)
    with pytest.raises(ModelNotLoadable, match="another region"):
        store_at(env, stand_in).check()


def test_a_listing_that_is_no_xml_is_no_answer(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """It may come from a web server that is not a store; the stand-in is used."""
    stand_in.refusal = (200, "</Code>", {})
    with pytest.raises(ModelUnavailable, match="the listing is not XML"):
        store_at(env, stand_in).check()


def test_keys_are_decoded_where_the_store_says_that_they_are_encoded(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is used: some stores do not know the requested encoding, and name keys unencoded."""
    store = store_at(env, stand_in)
    key = "<Contents><Key>p/m/1/%C3%A9+%2B</Key><Size>1</Size></Contents>"
    for encoded, path in (("<EncodingType>url</EncodingType>", "1/é +"), ("", "1/%C3%A9+%2B")):
        monkeypatch.setattr(s3_stand_in.Handler, "_listing", lambda *_, how=encoded: listing(how, key))
        assert [file.path for file in store.files("m")] == [path]


def listing(*parts: str) -> str:
    """Returns a page with these, which the stand-in sends as if it were a refusal."""
    return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"


OBJECT = "<Contents><Key>p/m/1/x</Key><Size>1</Size></Contents>"
MORE = "<IsTruncated>true</IsTruncated>"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (listing(OBJECT.replace("<Size>1</Size>", "")), "the listing has an object without a size"),
        (listing(OBJECT.replace("1</Size>", "one</Size>")), "the listing has an object without a size"),
        (listing(OBJECT, MORE), "the listing does not say where it continues"),
        (listing(OBJECT, MORE, "<NextContinuationToken/>"), "the listing does not say where it continues"),
        (
            listing(OBJECT, MORE, "<NextContinuationToken>t</NextContinuationToken>"),
            "a page of the listing is followed by one that was before",
        ),
        ('<?xml version="1.0" encoding="what"?>' + listing(OBJECT), "the listing is not XML"),
        ("<Error><Code>InternalError</Code></Error>", "the answer is not a listing"),
        ('<html xmlns="http://www.w3.org/1999/xhtml"><body>Log in</body></html>', "the answer is not a listing"),
    ],
)
def test_a_listing_that_cannot_be_read_is_no_answer(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch, page: str, message: str
) -> None:
    """The stand-in sends one page again and again: without the check it would be asked for ever."""
    monkeypatch.setattr(s3_stand_in.Handler, "_listing", lambda *_: page)
    store = store_at(env, stand_in)
    for ask in (lambda: store.files("m"), store.models, store.everything):
        stand_in.asked.clear()
        with pytest.raises(ModelUnavailable, match=f"127.0.0.1 does not answer .{message}."):
            ask()
        assert len(stand_in.asked) <= 5


def test_the_empty_object_of_a_folder_is_not_one_of_its_files(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """Some tools make it under the folder's name without a slash. Other empty files stay."""
    for key, content in (("m", b""), ("m/1", b""), ("m/1/a", b""), ("m/1/a/x", b"x"), ("m/1/empty", b"")):
        stand_in.put(f"p/{key}", content)
    store = store_at(env, stand_in)
    for files in (store.files("m"), store.everything()["m"], (store.glance() or {})["m"]):
        assert [file.path for file in files or ()] == ["1/a/x", "1/empty"]
    folder = store.fetch("m", "1", store.files("m"), Progress()).path
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == ["a", "a/x", "empty"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("1/a", "1/a/x"), "'1/a' of model 'm' is a file and a folder: remove one of both"),
        (("1/x", f"1/{'é' * 128}/y"), "of model 'm' has a name of more than 255 bytes"),
    ],
)
def test_keys_that_cannot_be_files_of_one_folder_are_named(
    stand_in: s3_stand_in.StandIn, env: Env, keys: tuple[str, ...], message: str
) -> None:
    """The disk's own error would seem to be a fault of DRAGOMAN_CACHE."""
    for key in keys:
        stand_in.put(f"p/m/{key}", b"x")
    store = store_at(env, stand_in)
    with pytest.raises(ModelNotLoadable, match=message):
        store.fetch("m", "1", store.files("m"), Progress())
    assert stand_in.gets() == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["removed", "emptied"])
def test_a_version_in_the_cache_that_lost_a_file_is_fetched_again(
    stand_in: s3_stand_in.StandIn, env: Env, damage: Callable[[Path], object]
) -> None:
    """Machines remove old files from /tmp one by one. What a loaded model holds is not touched."""
    for key in ("m/1/x", "m/1/a/y"):
        stand_in.put(f"p/{key}", b"content")
    store = store_at(env, stand_in)
    files = store.files("m")
    in_use = store.fetch("m", "1", files, Progress())
    damage(in_use.path / "a" / "y")
    folder = store.fetch("m", "1", files, Progress()).path
    assert [(folder / path).read_bytes() for path in ("x", "a/y")] == [b"content"] * 2
    stand_in.asked.clear()
    assert store.fetch("m", "1", files, Progress()).path == folder
    assert stand_in.asked == []


@pytest.mark.parametrize("etag", ["a&#10;b", "&#9731;"])
def test_a_listed_etag_that_no_header_can_have_is_not_used(
    stand_in: s3_stand_in.StandIn, env: Env, monkeypatch: pytest.MonkeyPatch, etag: str
) -> None:
    """The answer to a GET has another one, under which the object is fetched."""
    stand_in.put("p/m/1/x", b"x")
    found = OBJECT.replace("</Size>", f"</Size><ETag>{etag}</ETag>")
    monkeypatch.setattr(s3_stand_in.Handler, "_listing", lambda *_: listing(found))
    store = store_at(env, stand_in)
    [file] = files = store.files("m")
    assert file.etag is None
    assert (store.fetch("m", "1", files, Progress()).path / "x").read_bytes() == b"x"


def test_listings_and_refusals_of_a_store_may_come_in_chunks(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """The stand-in sends them like AWS."""
    stand_in.chunked = True
    stand_in.put("p/m/1/x", b"x")
    store = store_at(env, stand_in)
    store.check()
    assert list(store.models()) == ["m"]
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / "x").read_bytes() == b"x"
    assert store.read("m", "model-settings.json") is None


def test_a_bucket_that_may_not_be_listed_still_answers(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """The stand-in is used: Swift has no such permission. Models cannot be named then; files are still read."""
    stand_in.listable = False
    stand_in.put("p/m/x.json", b"{}")
    store = store_at(env, stand_in)
    store.check()
    with pytest.raises(ModelUnavailable, match="grant s3:ListBucket"):
        store.models()
    with pytest.raises(Forbidden):
        store.files("m")
    assert store.read("m", "model-settings.json") is None
    assert store.read("m", "x.json") == b"{}"


def test_a_file_of_a_bucket_that_may_not_be_listed_takes_one_get(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """The stand-in is used. Size and ETag are those of its answer; the second time, none of it is read."""
    stand_in.listable = False
    stand_in.put("p/m/1/model.onnx", b"first")
    store = store_at(env, stand_in)
    folder = store.fetch("m", "1", [File("1/model.onnx")], Progress())
    assert (folder.path / "model.onnx").read_bytes() == b"first"
    assert stand_in.asked == ["p/m/1/model.onnx"]
    assert store.fetch("m", "1", [File("1/model.onnx")], Progress()).path == folder.path
    stand_in.put("p/m/1/model.onnx", b"second")
    folder = store.fetch("m", "1", [File("1/model.onnx")], Progress())
    assert (folder.path / "model.onnx").read_bytes() == b"second"
    with pytest.raises(ModelUnavailable, match="1/none of model 'm' is missing or forbidden"):
        store.fetch("m", "1", [File("1/none")], Progress())


def test_a_public_bucket_is_read_unsigned(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """A setting asks for it; the stand-in shows the signature."""
    stand_in.put("p/m/x", b"{}")
    assert store_at(env, stand_in).read("m", "x") == b"{}"
    assert store_at(env, stand_in, DRAGOMAN_S3_ANONYMOUS="true").read("m", "x") == b"{}"
    assert stand_in.signed[0].startswith("AWS4-HMAC-SHA256")
    assert stand_in.signed[1] == "unsigned"


CONTENT = np.random.default_rng(0).bytes(300_000)


def published(server: servers.Store, bucket: str, content: bytes = CONTENT) -> str:
    """Makes a bucket with one version of one model in it."""
    with suppress(server.client.exceptions.BucketAlreadyOwnedByYou):
        server.client.create_bucket(Bucket=bucket)
    server.client.put_object(Bucket=bucket, Key=f"{PREFIX}/m/1/model.bin", Body=content)
    return bucket


@pytest.fixture(scope="module")
def bucket(server: servers.Store) -> str:
    """A bucket that no test changes."""
    return published(server, "faults")


def through(proxy: fault_proxy.Proxy, server: servers.Store, env: Env, bucket: str) -> S3Store:
    """Returns a store behind the proxy; only the model's file meets faults."""
    proxy.only = "model.bin"
    return S3Store(env.settings({**server.variables(bucket), "AWS_ENDPOINT_URL_S3": proxy.url}))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    "faults",
    [[Fault("truncate", after)] * 3 for after in (0, 1, 70_000)]
    + [
        [Fault(kind, after)] * 2
        for kind in ("reset", "stall", "short", "refuse", "slow", "error", "expired")
        for after in (0, 40_000)
    ]
    + [[Fault("flip", 100_000)], [Fault("latency", seconds=0.2)] * 4],
    ids=lambda faults: f"{faults[0].kind}-{faults[0].after}",
)
def test_whatever_happens_on_the_way_the_file_is_right(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env, bucket: str, faults: list[Fault]
) -> None:
    """The bytes are Swift's; the same call that met the faults returns them."""
    store = through(proxy, server, env, bucket)
    files = store.files("m")
    proxy.faults = list(faults)
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "model.bin").read_bytes() == CONTENT
    assert not proxy.faults


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncate", "1/model.bin of model 'm' broke off again and again"),
        ("reset", "1/model.bin of model 'm' broke off again and again"),
        ("refuse", "the store at 127.0.0.1 does not answer .RemoteDisconnected"),
        ("slow", "answered 503 SlowDown"),
        ("expired", "credentials have expired"),
        ("flip", "arrived twice, and differs from the store's md5"),
    ],
)
def test_what_does_not_pass_is_said_and_the_next_call_goes_on(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env, bucket: str, tmp_path: Path, kind: str, message: str
) -> None:
    """No file gets its final name before it is right."""
    store = through(proxy, server, env, bucket)
    files = store.files("m")
    proxy.always = Fault(kind, 0)
    with pytest.raises(ServingError, match=message):
        store.fetch("m", "1", files, Progress())
    assert not list((tmp_path / "cache").rglob("model.bin"))
    proxy.always = None
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "model.bin").read_bytes() == CONTENT


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("after", [0, 1, 10_000])
def test_an_object_replaced_meanwhile_is_never_mixed(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env, after: int
) -> None:
    """The new one is fetched from its beginning."""
    bucket, other = published(server, "replaced"), CONTENT[::-1]
    store = through(proxy, server, env, bucket)
    files = store.files("m")
    proxy.faults = [Fault("swap", after, then=lambda: published(server, bucket, other))]
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "model.bin").read_bytes() == other


@pytest.mark.usefixtures("_small")
def test_an_object_replaced_between_two_calls_is_begun_anew(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env
) -> None:
    """Half of the old one lies in the cache, and the listing is an old one."""
    bucket, other = published(server, "between"), CONTENT[::-1]
    store = through(proxy, server, env, bucket)
    files = store.files("m")
    proxy.always = Fault("truncate", 1000)
    with pytest.raises(StillLoading):
        store.fetch("m", "1", files, Progress(within(0.3)))
    proxy.always = None
    published(server, bucket, other)
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "model.bin").read_bytes() == other


@pytest.mark.usefixtures("_small")
def test_a_server_that_restarts_is_waited_for_as_long_as_tries_last(
    server: servers.Store, proxy: fault_proxy.Proxy, env: Env, bucket: str
) -> None:
    """Its connections are reset, and its port is closed; bytes that had arrived are not fetched again."""
    store = through(proxy, server, env, bucket)
    files = store.files("m")
    proxy.faults = [Fault("truncate", 10_000, then=proxy.down)]
    with pytest.raises(ModelUnavailable, match="does not answer|broke off"):
        store.fetch("m", "1", files, Progress())
    proxy.faults = []
    proxy.up()
    proxy.asked.clear()
    folder = store.fetch("m", "1", files, Progress())
    assert (folder.path / "model.bin").read_bytes() == CONTENT
    assert "bytes=0-59999" not in [asked for _, asked in proxy.asked]


def test_a_small_model_takes_one_listing_and_one_get(server: servers.Store, proxy: fault_proxy.Proxy, env: Env) -> None:
    """If its version is known, the GET alone is needed; the second time there is no request."""
    store = through(proxy, server, env, published(server, "one", b"small"))
    files = store.files("m")
    store.fetch("m", "1", files, Progress())
    assert [(path.partition("?")[0], asked) for path, asked in proxy.asked] == [
        ("/one", None),
        ("/one/models/m/1/model.bin", None),
    ]
    store.fetch("m", "1", files, Progress())
    assert len(proxy.asked) == 2


@pytest.mark.usefixtures("_small")
def test_a_load_that_is_longer_than_its_deadline_converges(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """The stand-in is slow: no single call has time for all of it, and some together do."""
    content = np.random.default_rng(3).bytes(2_000_000)
    stand_in.put("p/m/1/model.bin", content)
    stand_in.rate = 100_000
    store = store_at(env, stand_in)
    files = store.files("m")
    done = []
    while True:
        progress = Progress(within(0.2))
        with suppress(StillLoading):
            folder = store.fetch("m", "1", files, progress)
            break
        done.append(progress.done)
    assert (folder.path / "model.bin").read_bytes() == content
    assert len(done) >= 2
    assert done == sorted(done)


def test_a_load_that_runs_out_of_time_says_how_far_it_is(
    stand_in: s3_stand_in.StandIn, env: Env, behind: fault_proxy.Proxy
) -> None:
    """The stand-in is used. The load stops at once although the store is silent, and has a hint when to retry."""
    stand_in.put("p/m/1/model.bin", bytes(4_000_000))
    behind.faults = [Fault("stall", 1_500_000)]
    behind.only = "model.bin"
    store = store_at(env, stand_in, behind.url)
    files = store.files("m")
    with pytest.raises(StillLoading, match="model 'm' is 1 of 4 MB loaded: try again") as refusal:
        store.fetch("m", "1", files, Progress(within(0.5)))
    assert refusal.value.retry_after == 1.0
    store.fetch("m", "1", files, Progress())
    assert stand_in.ranges_asked[1:] == ["bytes=1500000-3999999"]


@pytest.mark.usefixtures("_small")
def test_a_store_without_ranges_is_read_from_the_beginning(
    stand_in: s3_stand_in.StandIn, env: Env, behind: fault_proxy.Proxy
) -> None:
    """The stand-in is used, like some compatible stores: 200 to a Range request is the whole object."""
    stand_in.put("p/m/1/model.bin", CONTENT)
    stand_in.ranges = False
    store = store_at(env, stand_in, behind.url)
    behind.faults = [Fault("truncate", 200_000)]
    behind.only = "model.bin"
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / "model.bin").read_bytes() == CONTENT


def test_a_store_whose_listing_has_other_etags_is_believed_when_it_sends(
    stand_in: s3_stand_in.StandIn, env: Env
) -> None:
    """The stand-in is used: some stores list none, and a listing may be older than the answer to a GET."""
    stand_in.put("p/m/1/model.bin", b"content")
    store = store_at(env, stand_in)
    stand_in.listed_etags = False
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / "model.bin").read_bytes() == b"content"
    wrong = [File("1/model.bin", 7, "another")]
    assert store.fetch("m", "1", wrong, Progress()).path == folder.path


def test_objects_without_etags_are_fetched_each_time(stand_in: s3_stand_in.StandIn, env: Env) -> None:
    """The stand-in is used: without them, a change cannot be noticed."""
    stand_in.put("p/m/1/model.bin", b"old", etag="")
    store = store_at(env, stand_in)
    store.fetch("m", "1", store.files("m"), Progress())
    stand_in.put("p/m/1/model.bin", b"new", etag="")
    folder = store.fetch("m", "1", store.files("m"), Progress())
    assert (folder.path / "model.bin").read_bytes() == b"new"


def test_a_version_that_never_stops_changing_is_refused(
    stand_in: s3_stand_in.StandIn, env: Env, behind: fault_proxy.Proxy
) -> None:
    """The stand-in is used."""
    numbers = iter(range(100))
    stand_in.put("p/m/1/model.bin", b"content")
    store = store_at(env, stand_in, behind.url)
    files = store.files("m")
    behind.only = "model.bin"
    behind.always = Fault("swap", 3, then=lambda: stand_in.put("p/m/1/model.bin", b"content%d" % next(numbers)))
    with pytest.raises(ModelUnavailable, match="version 1 of model 'm' is being replaced"):
        store.fetch("m", "1", files, Progress())


@pytest.mark.parametrize(
    ("endpoint", "said", "url"),
    [
        (None, "auto", "https://models.s3.eu-west-1.amazonaws.com"),
        ("https://s3.eu-west-1.amazonaws.com", "virtual", "https://models.s3.eu-west-1.amazonaws.com"),
        (None, "path", "https://s3.eu-west-1.amazonaws.com/models"),
        ("http://127.0.0.1:9", "auto", "http://127.0.0.1:9/models"),
        ("http://localhost:9", "virtual", "http://models.localhost:9"),
    ],
)
def test_path_style_is_for_endpoints_of_ones_own(
    env: Env, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, said: str, url: str
) -> None:
    """A setting can change that."""
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    variables = {"DRAGOMAN_REPOSITORY": "s3://models/p", "AWS_REGION": "eu-west-1"}
    if endpoint:
        variables["AWS_ENDPOINT_URL_S3"] = endpoint
    bucket = S3Store(env.settings(variables, DRAGOMAN_S3_ADDRESSING=said))._client.bucket
    assert bucket._base == url
    assert bucket.region == "eu-west-1"
