"""handler.stores.s3_http and its signatures: botocore's signer is the oracle, proxies and TLS are on loopback."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.settings import Settings
from handler.stores import s3_http, s3_signing
from handler.stores.s3 import S3Store
from handler.stores.s3_http import Broken, Bucket
from handler.stores.s3_signature import Login, signed
from handler.stores.s3_signing import Anonymous
from tests import s3_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server() -> Iterator[s3_stand_in.StandIn]:
    """An empty bucket."""
    with s3_stand_in.running() as store:
        yield store


@pytest.mark.parametrize("token", [None, "session/token+=="])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000/bucket/m/1/model.onnx",
        "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC~-_.%21",
        "https://h:443/b",
        "http://[::1]:80/b/x",
        "http://h/b?delimiter=%2F&encoding-type=url&list-type=2&prefix=a%2Fb%20c",
        "https://bucket.h/?continuation-token=a%2Bb%3D%3D&list-type=2",
    ],
)
def test_a_signature_is_botocores(url: str, method: str, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same moment, header by header."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: moment)
    request = AWSRequest(method, url, headers={"x-amz-checksum-mode": "ENABLED"})
    S3SigV4Auth(Credentials("key", "secret", token), "s3", "eu-west-1").add_auth(request)
    login = Login("key", "secret", token, "eu-west-1")
    ours = signed(method, url, {"x-amz-checksum-mode": "ENABLED"}, login, moment.timestamp())
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert {name.lower(): value for name, value in ours.items()} == theirs


def bucket(url: str, **more: Any) -> Bucket:
    """Asked without a signature."""
    return Bucket(f"{url}/bucket", "us-east-1", Anonymous(), **more)


def test_a_connection_is_kept_for_the_next_request(server: s3_stand_in.StandIn) -> None:
    """For some seconds; one that the store has closed meanwhile is no failure."""
    server.put("x", b"content")
    asked = bucket(server.url)
    assert s3_http.whole(asked.get("x", 1), 1) == b"content"
    [(_, first)] = asked._idle
    assert s3_http.whole(asked.get("x", 1), 1) == b"content"
    assert asked._idle[0][1] is first
    first.sock.shutdown(socket.SHUT_RDWR)
    assert s3_http.whole(asked.get("x", 1), 1) == b"content"
    asked._idle[:] = [(time.time() - 10, asked._idle[0][1])]
    second = asked._idle[0][1]
    assert s3_http.whole(asked.get("x", 1), 1) == b"content"
    assert asked._idle[0][1] is not second


@pytest.fixture
def speaks() -> Iterator[Any]:
    """A server that says what it is told, to whatever is asked; it keeps the requests."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said: dict[str, Any] = {"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "text": b"", "requests": []}

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        said["requests"].append(connection.recv(65536))
                        connection.sendall(said["text"])

        thread = threading.Thread(target=serve)
        thread.start()
        yield said
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "RemoteDisconnected"),
        (b"what?\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "without Content-Length"),
        (b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\nContent-Range: bytes 0-4/9\r\n\r\nab", "2 bytes for the range 0-4"),
        (b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n", "503"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 99\r\n\r\n<Error><Code>Inter", "500"),
    ],
)
def test_what_is_no_answer_may_be_tried_again(speaks: Any, text: bytes, message: str) -> None:
    """Broken, with what went wrong in a word."""
    speaks["text"] = text
    with pytest.raises(Broken, match=message):
        bucket(speaks["url"]).get("x", 1)


def test_a_connection_that_the_store_ends_is_read_to_its_end(speaks: Any) -> None:
    """And not kept; http.client forgets the socket before the body is read."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    asked = bucket(speaks["url"])
    answer = asked.get("x", 1)
    assert s3_http.whole(answer, 1) == b"abc"
    answer.close()
    assert not asked._idle


def test_a_proxy_is_asked_with_the_whole_address(speaks: Any) -> None:
    """And with its own login; nothing is sent to the store itself."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    asked = bucket("http://store.invalid", proxy=speaks["url"].replace("//", "//us%40er:pass@"))
    assert s3_http.whole(asked.get("a b", 1), 1) == b"ok"
    head = speaks["requests"][0].decode()
    assert head.startswith("GET http://store.invalid/bucket/a%20b HTTP/1.1\r\nHost: store.invalid\r\n")
    assert "Proxy-Authorization: Basic dXNAZXI6cGFzcw==" in head


def test_a_proxy_opens_a_tunnel_for_tls(speaks: Any) -> None:
    """The store's name and port, to which TLS is spoken then."""
    speaks["text"] = b"HTTP/1.1 407 Login\r\n\r\n"
    asked = bucket("https://store.invalid", proxy=speaks["url"], tls=ssl.create_default_context())
    with pytest.raises(Broken, match="OSError"):
        asked.get("x", 1)
    assert speaks["requests"][0].startswith(b"CONNECT store.invalid:443 HTTP/1")


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what NO_PROXY names."""
    monkeypatch.setenv("http_proxy", "proxy:3128")
    monkeypatch.setenv("https_proxy", "http://proxy:3129")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert s3_signing._proxy("http://h/b") == "http://proxy:3128"
    assert s3_signing._proxy("https://h/b") == "http://proxy:3129"
    assert s3_signing._proxy("http://inside.example/b") is None


@pytest.fixture
def secure(server: s3_stand_in.StandIn, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The stand-in behind TLS, with a certificate of its own: its URL, and the certificate's file."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *names)
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with s3_stand_in.Server(("127.0.0.1", 0), type("Of", (s3_stand_in.Handler,), {"store": server})) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://127.0.0.1:{running.server_port}", str(certificate)
        running.shutdown()
        thread.join()


def test_certificates_are_checked_unless_that_is_switched_off(
    secure: tuple[str, str], server: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS_CA_BUNDLE names those to trust; S3_VERIFY_SSL=0 is KServe's."""
    url, certificate = secure
    server.put("p/m/x", b"content")
    monkeypatch.setattr("handler.stores.retries.FIRST_PAUSE", 0.001)
    for name, value in server.variables(url).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://bucket/p", "DRAGOMAN_CACHE": str(tmp_path)})
    with pytest.raises(ModelUnavailable, match="does not answer .SSLCertVerificationError"):
        S3Store(settings).read("m", "x")
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
    assert S3Store(settings).read("m", "x") == b"content"
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("S3_VERIFY_SSL", "0")
    assert S3Store(settings).read("m", "x") == b"content"


def test_credentials_that_cannot_be_had_are_no_usable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile with a key and no secret, for instance; the reason is said, its text is not."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    from botocore.session import get_session  # noqa: PLC0415 - as the store does

    with pytest.raises(ModelNotLoadable, match="no usable AWS credentials.*PartialCredentialsError"):
        s3_signing.Signer("us-east-1", get_session()).sign("GET", "http://h/", {})


def test_renewed_credentials_are_looked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment, as they are then."""
    from botocore.session import get_session  # noqa: PLC0415 - as the store does

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    signer = s3_signing.Signer("us-east-1", get_session())
    assert "Credential=old/" in signer.sign("GET", "http://h/", {})["Authorization"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    signer.renew()
    assert "Credential=new/" in signer.sign("GET", "http://h/", {})["Authorization"]
    Anonymous().renew()


def test_ending_a_read_that_waits_breaks_it(server: s3_stand_in.StandIn) -> None:
    """In the thread that reads."""
    server.put("x", bytes(100_000))
    server.rate = 1.0
    answer = bucket(server.url).get("x", 5)
    threading.Timer(0.05, answer.abort).start()
    with pytest.raises(Broken):
        s3_http.whole(answer, 5)
    answer.abort()


def test_dates_of_the_signature_are_utc() -> None:
    """Whatever the machine's zone is."""
    headers = signed("GET", "http://h/", {}, Login("k", "s", None, "r"))
    assert headers["X-Amz-Date"][:8] == time.strftime("%Y%m%d", time.gmtime())
