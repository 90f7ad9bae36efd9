"""handler.stores.web, and `dragoman index`: a folder behind a web server as a repository."""

import http.server
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.lifecycle.registry import Registry
from handler.settings import InvalidSettings, Settings
from handler.settings.hosts import Contract
from handler.stores import SMALL, open_store
from handler.stores.progress import Progress
from handler.stores.transfer import retries
from handler.stores.web import index, reader
from handler.stores.web.store import WebStore
from tests.handler.commands.publish.conftest import adds, answer
from tests.support import fault_proxy, web
from tests.support.fault_proxy import Fault

Run = Callable[..., tuple[int, str, str]]
BIG = b"0123456789abcdef" * 30_000


class Quiet(web.Handler, http.server.SimpleHTTPRequestHandler):
    """Python's own web server, which knows no ranges and no ETags."""

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.answer(302, headers={"Location": "http://elsewhere.example/index.json"})
        else:
            super().do_GET()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository in a folder: a model of one file, and one with a large one beside it."""
    adds(1, tmp_path / "www" / "m" / "1")
    adds(2, tmp_path / "www" / "n" / "7" / "deep" / "ü +%")
    adds(2, tmp_path / "www" / "n" / "7").with_name("big.bin").write_bytes(BIG)
    (tmp_path / "www" / "m" / "model-settings.json").write_text('{"name": "m"}')
    (tmp_path / "www" / ".hidden").write_text("")
    return tmp_path / "www"


@contextmanager
def serving(folder: Path, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serves a folder, and yields the port."""
    with web.serving(partial(Quiet, directory=str(folder)), context) as server:
        yield server.server_port


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The folder's web server."""
    with serving(folder) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def run(run: Run, small: None) -> Run:
    """`dragoman`, which fetches in small pieces."""
    return run


def settings(url: str, tmp_path: Path) -> Settings:
    return Settings.from_env({"DRAGOMAN_REPOSITORY": url, "DRAGOMAN_CACHE": str(tmp_path / "cache")})


@pytest.mark.parametrize(("below", "served", "count", "name", "expected"), [
    ("m/1", "m/1", "1 file", "127.0.0.1", 1), ("n", "", "3 files", "n", 2),
])  # fmt: skip
def test_a_folder_of_one_model_is_served(
    run: Run, folder: Path, tmp_path: Path, below: str, served: str, count: str, name: str, expected: int
) -> None:
    """A version alone, or numbered ones: under the name that servers give it, else that of its folder or host."""
    told = f"{folder / below}/index.json: 1 model, {count}; its servers need --model-name\n"
    assert [run("index", folder / below)[:2] for _ in range(2)] == [(0, told)] * 2
    with serving(folder / served) as port:
        loose = settings(f"http://127.0.0.1:{port}/{'' if served else below}", tmp_path)
        loose = loose._replace(contract=Contract(layout="one"))
        assert open_store(loose).models() == [name]
        assert answer(Registry(loose._replace(model_name="given")), "given") == expected


def test_a_folder_with_an_index_is_served_listed_and_pulled(run: Run, folder: Path, url: str, tmp_path: Path) -> None:
    """The index names every file but hidden ones; it does not name itself."""
    assert run("index", folder)[:2] == (0, f"{folder}/index.json: 2 models, 5 files\n")
    store = open_store(settings(f"{url}/", tmp_path))
    assert store.models() == ["m", "n"]
    assert {file.path for file in store.files("n")} == {"7/model.onnx", "7/big.bin", "7/deep/ü +%/model.onnx"}
    models = Registry(settings(url, tmp_path))
    assert (answer(models, "m"), answer(models, "n")) == (1, 2)
    rows = json.loads(run("list", url, "--json")[1])
    assert [(row["model"], row["version"], row["state"]) for row in rows] == [
        ("m", "1", "served"),
        ("n", "7", "served"),
    ]
    assert rows[0]["modified"] > "2026"
    assert run("pull", f"{url}/n", tmp_path / "out", "--quiet")[::2] == (0, "")
    assert (tmp_path / "out" / "7" / "big.bin").read_bytes() == BIG
    assert "read only" in run("push", folder / "m" / "1", f"{url}/m")[2]


def test_a_new_version_is_there_once_the_index_names_it(run: Run, folder: Path, url: str, tmp_path: Path) -> None:
    """A file that has changed under an old index is refused: it has another SHA-256."""
    run("index", folder)
    store = WebStore(settings(url, tmp_path))
    files = [file for file in store.files("m") if file.path == "1/model.onnx"]
    adds(3, folder / "m" / "1")
    with pytest.raises(ModelUnavailable, match="arrived twice, and differs from the store's sha256"):
        store.fetch("m", "1", files, Progress())
    (folder / "m" / "model-settings.json").write_text("{}")
    with pytest.raises(ModelUnavailable, match="the content differs from its SHA-256"):
        store.read("m", "model-settings.json")
    run("index", folder)
    assert store.read("m", "none") is None
    assert answer(Registry(settings(url, tmp_path)), "m") == 3


@pytest.mark.parametrize("fault", [Fault("truncate", 50_000), Fault("error"), Fault("flip", 9)], ids=lambda f: f.kind)
def test_a_fetch_survives_the_network(run: Run, folder: Path, url: str, tmp_path: Path, fault: Fault) -> None:
    """A server that knows no ranges sends the file again, from which the rest is taken."""
    run("index", folder)
    with fault_proxy.running(url) as proxy:
        proxy.only, proxy.faults = "big.bin", [fault]
        store = WebStore(settings(proxy.url, tmp_path))
        fetched = store.fetch("n", "7", store.files("n"), Progress())
        assert not proxy.faults
    assert (fetched.path / "big.bin").read_bytes() == BIG


def test_a_server_without_an_index_says_how_to_make_one(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redirects are not followed: no request leaves the server that the operator has named."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    (folder / "wrong").mkdir()
    (folder / "wrong" / "index.json").write_text("[]")
    (folder / "long").mkdir()
    (folder / "long" / "index.json").write_bytes(b" " * (SMALL + 1))
    for uri, message in (
        (url, f"{url} has no index.json: `dragoman index FOLDER` writes it"),
        (f"{url}/moved", r"redirects \(302\), which is not followed: name the final address"),
        (f"{url}/wrong", "index.json has no list 'files'"),
        (f"{url}/long", "index.json has more than 16777216 bytes"),
    ):
        with pytest.raises(ModelNotLoadable, match=message):
            WebStore(settings(uri, tmp_path)).check()
    with fault_proxy.running(url) as proxy:
        proxy.always = Fault("error")
        with pytest.raises(ModelUnavailable, match=r"answered 500 for index.json"):
            WebStore(settings(proxy.url, tmp_path)).check()
    with pytest.raises(
        ModelUnavailable, match=r"does not answer \(ConnectionRefusedError\): check DRAGOMAN_REPOSITORY"
    ):
        WebStore(settings(proxy.url, tmp_path)).check()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://", "expected https://host/path, without a query"),
        ("https://h/p?sig=s3cret", "has a query or a fragment; expected https://host/path, without a query"),
        ("https://h/p#s3cret", "has a query or a fragment; "),
        ("http://h:99999/p", "expected https://host/path, without a query"),
        ("https://user:s3cret@h/p", "holds credentials"),
        ("https://user:s3cret@h:99999/p", "holds credentials"),
        ("https://user:s3/cret@h/p", "holds credentials"),
        ("https://[h/p?sig=s3cret", "has a query or a fragment; "),
    ],
)
def test_a_wrong_address_is_refused(uri: str, message: str, tmp_path: Path) -> None:
    """A secret in it is not repeated, to clients or in the log."""
    with pytest.raises(InvalidSettings, match=message) as refusal:
        WebStore(settings(uri, tmp_path))
    assert "s3cret" not in refusal.value.public + str(refusal.value)


def test_a_certificate_is_verified(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an authority of one's own is trusted by SSL_CERT_FILE."""
    run("index", folder)
    context, certificate = web.certified(tmp_path)
    with serving(folder, context) as port:
        url = f"https://127.0.0.1:{port}"
        with pytest.raises(
            ModelUnavailable, match=r"does not answer \(SSLCertVerificationError\): check SSL_CERT_FILE"
        ):
            WebStore(settings(url, tmp_path)).check()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert WebStore(settings(url, tmp_path)).models() == ["m", "n"]


def test_a_server_without_tls_is_not_one_with_a_wrong_certificate(url: str, tmp_path: Path) -> None:
    """What to correct is the scheme."""
    with pytest.raises(
        ModelUnavailable, match=r"does not answer \(SSLError\): check the scheme of DRAGOMAN_REPOSITORY"
    ):
        WebStore(settings(url.replace("http://", "https://"), tmp_path)).check()


GOOD = {"path": "m/1/model.onnx", "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"{", "index.json is not JSON"),
        (b"[" * 100_000, "index.json is not JSON"),
        ({"files": {}}, "index.json has no list 'files'"),
        ({"files": [GOOD, "x"]}, r"files\[1\].path is 'None'; expected a path such as"),
        ({"files": [GOOD | {"path": "m/../x"}]}, r"files\[0\].path is 'm/../x'"),
        ({"files": [GOOD | {"path": "/m/x"}]}, r"files\[0\].path is '/m/x'"),
        ({"files": [GOOD | {"path": "m/1/\ud800"}]}, r"files\[0\].path is 'm/1/\\ud800'"),
        ({"files": [GOOD | {"size": True}]}, r"files\[0\].size is 'True'; expected a number of bytes"),
        ({"files": [GOOD | {"size": -1}]}, r"files\[0\].size is '-1'"),
        ({"files": [GOOD | {"sha256": "F" * 64}]}, r"files\[0\].sha256 is .*; expected 64 hexadecimal digits"),
        ({"files": [GOOD | {"modified": "2026-01-01"}]}, r"files\[0\].modified is '2026-01-01'; expected a time"),
        ({"files": [GOOD] * (index.MOST + 1)}, "has 100001 files; expected at most 100000"),
    ],
)  # fmt: skip
def test_a_malformed_index_is_refused_with_its_place(document: Any, message: str) -> None:
    """Paths stay in the repository; nothing is taken from a document that is wrong anywhere."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(index.Malformed, match=message):
        index.parse(text)


def test_an_index_is_made_of_models_alone(run: Run, folder: Path, tmp_path: Path) -> None:
    """An empty folder and none at all are refused; an old index stays."""
    run("index", folder)
    before = (folder / "index.json").read_bytes()
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "empty", "has no model: expected folders such as"),
        (tmp_path / "none", "does not exist"),
    ):
        code, _, err = run("index", path)
        assert (code, message in err) == (1, True), err
    assert (folder / "index.json").read_bytes() == before


def test_the_index_is_read_in_the_time_that_its_head_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline holds for both."""
    now, given = [0.0], []

    def get(_: Any, seconds: float) -> Any:
        given.append(seconds)
        now[0] += 1.5
        return SimpleNamespace(body=None)

    def whole(_: Any, seconds: float) -> bytes:
        given.append(seconds)
        return b'{"files": []}'

    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(reader, "whole", whole)
    asked = reader.WebReader("http://127.0.0.1:1", None)
    monkeypatch.setattr(asked._reader, "get", get)
    asked.refresh(2.0)
    assert given == [2.0, 0.5]
