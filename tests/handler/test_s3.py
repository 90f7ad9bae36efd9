"""handler.stores.s3 against a real S3 server: OpenStack Swift's.

What no real server here can be made to answer, a loopback server of canned answers does; those tests say so.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, ServingError
from core.operations import ModelRef
from handler.aws import Function
from handler.registry import Registry
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Forbidden
from handler.stores import s3 as s3_store
from handler.stores.s3 import Location, S3Store, locate
from tests.e2e import s3 as servers
from tests.e2e.tools import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BUCKET, PREFIX = servers.BUCKET, servers.PREFIX
X = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Store]:
    """The sample models in a bucket."""
    with servers.running() as running:
        running.fill()
        yield running


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own configuration, and no question to a metadata service."""
    for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "S3_ENDPOINT", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))


class Env:
    """Settings for a store, and the variables that botocore reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self._patch = monkeypatch
        self._cache = cache

    def settings(self, variables: dict[str, str], **more: str) -> Settings:
        """As a function would be configured."""
        environ = {**variables, "DRAGOMAN_CACHE": str(self._cache / "cache"), **more}
        for name, value in environ.items():
            if not name.startswith("DRAGOMAN_"):
                self._patch.setenv(name, value)
        return Settings.from_env({k: v for k, v in environ.items() if k.startswith("DRAGOMAN_")})


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Env:
    """A cache of this test's own."""
    return Env(monkeypatch, tmp_path)


def test_a_model_in_a_bucket_is_found_loaded_and_its_files_go_with_it(
    server: servers.Store, env: Env, tmp_path: Path
) -> None:
    """One listing, one object, nothing left behind."""
    models = Registry(env.settings(server.variables()))
    assert list(models.names()) == ["half_plus_three", "iris", "strings"]
    assert models.ready().ready
    model = models.get(ModelRef("half_plus_three"))
    assert model.spec.version == "123"
    assert models.get(ModelRef("iris")).spec.outputs[1].labels == ("setosa", "versicolor", "virginica")
    assert len(list((tmp_path / "cache").iterdir())) == 2
    del model
    models.unload("half_plus_three")
    models.unload("iris")
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ModelNotFound):
        models.get(ModelRef("half"))


def test_only_whole_folders_of_a_models_own_name_are_listed(server: servers.Store, env: Env) -> None:
    """A sibling whose name begins alike, folder markers, empty files, and keys that would leave the folder."""
    bucket = "listing"
    server.client.create_bucket(Bucket=bucket)
    for key in ("m/1/model.onnx", "m/1/", "m-2/1/model.onnx", "m/1/../../x", "m/1/empty"):
        server.client.put_object(Bucket=bucket, Key=f"{PREFIX}/{key}", Body=b"")
    store = S3Store(env.settings(server.variables(bucket)))
    assert [file.path for file in store.files("m")] == ["1/empty", "1/model.onnx"]
    assert store.files("q") == []
    assert list(store.models()) == ["m", "m-2"]


def test_listings_of_many_pages_are_read_to_their_end(server: servers.Store, env: Env) -> None:
    """A thousand keys are one page."""
    bucket = "pages"
    server.client.create_bucket(Bucket=bucket)
    for number in range(12):
        server.client.put_object(Bucket=bucket, Key=f"{PREFIX}/m/{number}/model.onnx", Body=b"")
    store = S3Store(env.settings(server.variables(bucket)))
    call = store._call
    store._call = lambda method, **arguments: call(method, **{**arguments, "MaxKeys": 5})  # type: ignore[method-assign] # smaller pages
    assert len(store.files("m")) == 12


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, ModelNotLoadable, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "no:body"}, ModelNotLoadable, "AWS_ACCESS_KEY_ID|AWS_SECRET_ACCESS_KEY"),
        ({"DRAGOMAN_REPOSITORY": "s3://no-such-bucket/m"}, ModelNotLoadable, "bucket 'no-such-bucket' does not exist"),
        (
            {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
            ModelUnavailable,
            "127.0.0.1 does not answer .EndpointConnectionError.: check AWS_ENDPOINT_URL_S3",
        ),
        ({"AWS_ENDPOINT_URL_S3": "http://"}, ServingError, "does not answer"),
    ],
)
def test_what_is_wrong_with_a_store_is_said_with_its_cure(
    server: servers.Store, env: Env, wrong: dict[str, str], kind: type[ServingError], message: str
) -> None:
    """In readiness, in every answer, without the secret."""
    models = Registry(env.settings({**server.variables(), **wrong}))
    with pytest.raises(kind, match=message) as refusal:
        models.get(ModelRef("half_plus_three"))
    assert "testing" not in refusal.value.message
    told = models.ready()
    assert not told.ready
    assert told.reason == refusal.value.message


def test_no_credentials_at_all_are_said_so(server: servers.Store, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting for public buckets."""
    settings = env.settings(server.variables())
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ModelNotLoadable, match="no usable AWS credentials.*DRAGOMAN_S3_ANONYMOUS=true"):
        S3Store(settings).check()


def test_an_object_that_goes_between_listing_and_loading_is_missing(server: servers.Store, env: Env) -> None:
    """Or forbidden: S3 does not tell."""
    store = S3Store(env.settings(server.variables()))
    with pytest.raises(ModelUnavailable, match="1/gone of model 'iris' is missing or forbidden"):
        store.fetch("iris", "1", [File("1/gone", 1)])


def test_settings_that_are_not_there_are_none(server: servers.Store, env: Env) -> None:
    """A model needs none."""
    assert S3Store(env.settings(server.variables())).read("strings", "model-settings.json") is None


def test_a_model_larger_than_the_disk_is_refused_before_it_is_fetched(server: servers.Store, env: Env) -> None:
    """With both numbers."""
    store = S3Store(env.settings(server.variables()))
    with pytest.raises(ModelNotLoadable, match=rf"'m' has {2**60} bytes, \d+ are free: enlarge DRAGOMAN_CACHE"):
        store.fetch("m", "1", [File("1/model.onnx", 2**60)])


def test_a_cache_that_cannot_be_written_is_refused(server: servers.Store, env: Env, tmp_path: Path) -> None:
    """By the name of its setting."""
    (tmp_path / "file").touch()
    store = S3Store(env.settings(server.variables(), DRAGOMAN_CACHE=str(tmp_path / "file" / "x")))
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE cannot be written"):
        store.fetch("m", "1", [File("1/model.onnx", 1)])


@pytest.mark.parametrize(
    ("uri", "environ", "place"),
    [
        ("s3://b", {}, Location("b", "", None)),
        ("s3://b/p/q/", {}, Location("b", "p/q/", None)),
        (
            "s3://b/p",
            {"AWS_ENDPOINT_URL_S3": "http://a:1", "AWS_ENDPOINT_URL": "http://b"},
            Location("b", "p/", "http://a:1"),
        ),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "https://e"}, Location("b", "p/", "https://e")),
        ("s3://b/p", {"S3_ENDPOINT": "e:9"}, Location("b", "p/", "https://e:9")),
        ("s3://b/p", {"S3_ENDPOINT": "e:9", "S3_USE_HTTPS": "0"}, Location("b", "p/", "http://e:9")),
        ("s3://h:9000/b/p", {}, Location("b", "p/", "http://h:9000")),
        ("s3://https://h:9000/b/p", {"AWS_ENDPOINT_URL_S3": "http://a"}, Location("b", "p/", "https://h:9000")),
        ("s3://http://h/b", {}, Location("b", "", "http://h")),
    ],
)
def test_a_repository_is_located(uri: str, environ: dict[str, str], place: Location) -> None:
    """AWS's form, Triton's, and every variable that names an endpoint."""
    assert locate(uri, environ) == place


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://http://h", "s3://h:9000"])
def test_a_repository_without_a_bucket_is_a_wrong_setting(uri: str) -> None:
    """At start."""
    with pytest.raises(InvalidSettings, match="expected s3://bucket/prefix"):
        locate(uri, {})


def created(*keys: str, bucket: str = BUCKET) -> dict[str, Any]:
    """S3's notification."""
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    return {"Records": [record | {"s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in keys]}


def test_objects_created_in_the_bucket_load_the_models_they_belong_to(server: servers.Store, env: Env) -> None:
    """Each once, what is wrong is said, and other buckets' and prefixes' objects are none of ours."""
    function = Function(env.settings(server.variables()))
    sample = json.loads((ROOT / "events" / "s3-object-created.json").read_text(encoding="utf-8"))
    assert function(sample, None) == {"checked": [{"model": "half_plus_three", "ready": True}]}
    keys = (f"{PREFIX}/iris/1/model.onnx", f"{PREFIX}/iris/model-settings.json", f"{PREFIX}/nobody/1/model.onnx")
    iris, nobody = function(created(*keys, f"{PREFIX}/readme.txt", "other/m/1/model.onnx"), None)["checked"]
    assert iris == {"model": "iris", "ready": True}
    assert nobody["model"] == "nobody"
    assert "no model 'nobody'" in nobody["error"]
    assert function(created(keys[0], bucket="elsewhere"), None) == {"checked": []}
    assert function({}, None)["models"] == {"half_plus_three": "READY", "iris": "READY"}
    function.close()


class Canned(BaseHTTPRequestHandler):
    """Answers what a test put in; a stand-in for what the real server cannot be made to do."""

    answers: list[tuple[int, bytes, int]]
    asked: list[str]

    def do_GET(self) -> None:
        """The next answer; the last one again and again."""
        status, body, announced = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.append(self.headers.get("Authorization", "unsigned"))
        self.send_response(status)
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = announced != len(body)

    def log_message(self, *_: Any) -> None:
        """Silence."""


@pytest.fixture
def canned() -> Iterator[type[Canned]]:
    """A server whose handler class holds its answers."""
    handler = type("Handler", (Canned,), {"answers": [], "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", free_port()), handler) as running:
        handler.url = f"http://127.0.0.1:{running.server_port}"  # type: ignore[attr-defined] # made here
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield handler
        running.shutdown()
        thread.join()


def store_at(env: Env, canned: Any, **more: str) -> S3Store:
    """A store that asks the canned server."""
    variables = {
        "DRAGOMAN_REPOSITORY": "s3://b/p",
        "AWS_ENDPOINT_URL_S3": canned.url,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    return S3Store(env.settings(variables, **more))


def error(code: str, status: int) -> tuple[int, bytes, int]:
    """S3's error document."""
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    return status, body, len(body)


@pytest.mark.parametrize(
    ("code", "status", "kind", "message"),
    [
        ("ExpiredToken", 400, ModelNotLoadable, "credentials have expired"),
        ("InvalidToken", 400, ModelNotLoadable, "AWS_SESSION_TOKEN"),
        ("RequestTimeTooSkewed", 403, ModelNotLoadable, "clock"),
        ("PermanentRedirect", 301, ModelNotLoadable, "another region: set AWS_REGION"),
        ("SlowDown", 503, ModelUnavailable, "answered 503 SlowDown"),
        ("Strange", 418, ModelNotLoadable, "answered 418 Strange"),
        ("404", 404, ModelNotLoadable, "answered 404 404 for s3://b/p: check AWS_ENDPOINT_URL_S3"),
    ],
)
def test_every_refusal_of_a_store_has_its_message(
    canned: Any, env: Env, code: str, status: int, kind: type[ServingError], message: str
) -> None:
    """A canned server: no real one here can be made to refuse so."""
    canned.answers.append(error(code, status))
    with pytest.raises(kind, match=message):
        store_at(env, canned).check()


def test_a_bucket_that_may_not_be_listed_still_answers(canned: Any, env: Env) -> None:
    """A canned server: Swift has no such right apart. Models cannot be named then; files are read all the same."""
    canned.answers.append(error("AccessDenied", 403))
    store = store_at(env, canned)
    store.check()
    with pytest.raises(ModelUnavailable, match="grant s3:ListBucket"):
        store.models()
    with pytest.raises(Forbidden):
        store.files("m")
    assert store.read("m", "model-settings.json") is None


def test_a_body_that_breaks_off_is_asked_for_again(canned: Any, env: Env, tmp_path: Path) -> None:
    """A canned server, because it must break off at a given byte."""
    canned.answers.extend([(200, b"ab", 5), (200, b"abcde", 5)])
    folder = store_at(env, canned).fetch("m", "1", [File("1/model.onnx", 5)])
    assert (folder.path / "model.onnx").read_bytes() == b"abcde"
    assert [p.name for p in folder.path.iterdir()] == ["model.onnx"]
    canned.answers[:] = [(200, b"ab", 5)]
    with pytest.raises(ModelUnavailable, match="broke off 3 times"):
        store_at(env, canned).fetch("m", "1", [File("1/model.onnx", 5)])
    with pytest.raises(ModelUnavailable, match="broke off 3 times"):
        store_at(env, canned).read("m", "model-settings.json")


def test_a_public_bucket_is_read_unsigned(canned: Any, env: Env) -> None:
    """Only when it is asked for."""
    canned.answers.append((200, b"{}", 2))
    assert store_at(env, canned).read("m", "x") == b"{}"
    assert store_at(env, canned, DRAGOMAN_S3_ANONYMOUS="true").read("m", "x") == b"{}"
    assert canned.asked[0].startswith("AWS4-HMAC-SHA256")
    assert canned.asked[1] == "unsigned"


@pytest.mark.parametrize(
    ("endpoint", "said", "style"),
    [
        (None, "auto", "auto"),
        ("https://s3.eu-west-1.amazonaws.com", "auto", "auto"),
        ("http://127.0.0.1:9", "auto", "path"),
        ("http://127.0.0.1:9", "virtual", "virtual"),
    ],
)
def test_path_style_is_for_endpoints_of_ones_own(
    env: Env, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, said: str, style: str
) -> None:
    """Unless it is said otherwise."""
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    variables = {"DRAGOMAN_REPOSITORY": "s3://b/p", "AWS_REGION": "eu-west-1"}
    if endpoint:
        variables["AWS_ENDPOINT_URL_S3"] = endpoint
    client = S3Store(env.settings(variables, DRAGOMAN_S3_ADDRESSING=said))._client
    assert client.meta.config.s3["addressing_style"] == style
    assert client.meta.region_name == "eu-west-1"


def test_a_certificate_need_not_be_checked(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """KServe's variable for endpoints with certificates of their own."""
    made: list[Any] = []
    monkeypatch.setattr("botocore.session.Session.create_client", lambda *_, **arguments: made.append(arguments))
    for value, verify in (("0", False), ("1", None)):
        monkeypatch.setenv("S3_VERIFY_SSL", value)
        S3Store(env.settings({"DRAGOMAN_REPOSITORY": "s3://b"}))._connect()
        assert made[-1]["verify"] is verify


def test_the_module_is_imported_without_boto3() -> None:
    """Its table entry is a string, and botocore comes with the first call."""
    assert not hasattr(s3_store, "botocore")
