"""handler.stores.s3.http, s3_answers, lines, and the signatures of requests.

botocore's signer is the oracle; proxies and TLS are on loopback.
"""

from __future__ import annotations

import math
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
from handler.stores.s3 import answers as s3_answers
from handler.stores.s3 import session as s3_signing
from handler.stores.s3.answers import Broken, Refused, whole
from handler.stores.s3.http import Bucket
from handler.stores.s3.lines import Line
from handler.stores.s3.session import Anonymous
from handler.stores.s3.signature import Login, signed
from handler.stores.s3.store import S3Store
from tests.support import s3_stand_in

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
    assert whole(asked.get("x", 1).body, 1) == b"content"
    [(_, first)] = asked._idle
    assert whole(asked.get("x", 1).body, 1) == b"content"
    assert asked._idle[0][1] is first
    first.sock.shutdown(socket.SHUT_RDWR)
    assert whole(asked.get("x", 1).body, 1) == b"content"
    asked._idle[:] = [(time.time() - 10, asked._idle[0][1])]
    second = asked._idle[0][1]
    assert whole(asked.get("x", 1).body, 1) == b"content"
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
    body = asked.get("x", 1).body
    assert whole(body, 1) == b"abc"
    body.close()
    assert not asked._idle


def test_a_proxy_is_asked_with_the_whole_address(speaks: Any) -> None:
    """And with its own login; nothing is sent to the store itself."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    asked = bucket("http://store.invalid", proxy=speaks["url"].replace("//", "//us%40er:pass@"))
    assert whole(asked.get("a b", 1).body, 1) == b"ok"
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
    monkeypatch.setattr("handler.stores.s3.retries.FIRST_PAUSE", 0.001)
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


@pytest.mark.parametrize("tls", [False, True])
def test_cutting_a_line_ends_a_read_that_waits(
    server: s3_stand_in.StandIn, secure: tuple[str, str], *, tls: bool
) -> None:
    """In the thread that reads; once more is no error, and what is asked on that line afterwards breaks off, too."""
    server.put("x", bytes(100_000))
    server.rate = 1.0
    url, certificate = secure
    asked = bucket(url, tls=ssl.create_default_context(cafile=certificate)) if tls else bucket(server.url)
    line = Line()
    body = asked.get("x", 5, line=line).body
    cutting = threading.Thread(target=line.cut)
    cutting.start()
    with pytest.raises(Broken):
        whole(body, 5)
    cutting.join()
    line.cut()
    with pytest.raises(Broken):
        asked.get("x", 5, line=line)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in says nothing of objects any more."""
    end = threading.Event()
    monkeypatch.setattr(s3_stand_in.Handler, "_object", lambda *_: end.wait())
    yield
    end.set()


@pytest.mark.parametrize(("seconds", "stall"), [(0.1, 20.0), (math.inf, 0.1)])
def test_a_kept_connection_that_stalls_is_not_asked_again(
    server: s3_stand_in.StandIn,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    seconds: float,
    stall: float,
) -> None:
    """The time that there was for an answer is over; whoever asked decides."""
    server.put("x", b"content")
    asked = bucket(server.url)
    assert whole(asked.get("x", 5).body, 5) == b"content"
    request.getfixturevalue("silence")
    monkeypatch.setattr(s3_answers, "STALL", stall)
    monkeypatch.setattr(asked, "_connection", lambda _: pytest.fail("asked again"))
    with pytest.raises(Broken, match="TimeoutError"):
        asked.get("x", seconds)
    assert not asked._idle


def test_no_time_is_no_answer(server: s3_stand_in.StandIn) -> None:
    """Nothing is asked then, and nothing read on."""
    server.put("x", bytes(100_000))
    asked = bucket(server.url)
    with pytest.raises(Broken, match="TimeoutError"):
        asked.get("x", 0)
    assert not server.asked
    with pytest.raises(Broken, match="TimeoutError"):
        whole(asked.get("x", 5).body, 0)


def test_a_listing_may_come_in_chunks(server: s3_stand_in.StandIn) -> None:
    """As AWS sends it; the connection is kept."""
    server.put("x", b"content")
    plain = bucket(server.url).list({}, 5)
    server.chunked = True
    asked = bucket(server.url)
    assert asked.list({}, 5) == plain
    [(_, first)] = asked._idle
    assert asked.list({}, 5) == plain
    assert asked._idle[0][1] is first


def test_a_refusal_may_come_in_chunks(server: s3_stand_in.StandIn) -> None:
    """Of an object, which itself must have a length."""
    server.chunked = True
    with pytest.raises(Refused, match="404 NoSuchKey"):
        bucket(server.url).get("x", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "IncompleteRead"),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "IncompleteRead"),
        (b"Transfer-Encoding: chunked\r\n\r\nwhat?\r\n", "IncompleteRead"),
        (b"Content-Length: 5\r\n\r\nab", "3 bytes are missing"),
    ],
)
def test_a_listing_that_breaks_off_may_be_tried_again(speaks: Any, text: bytes, message: str) -> None:
    """However its end is told."""
    speaks["text"] = b"HTTP/1.1 200 OK\r\n" + text
    with pytest.raises(Broken, match=message):
        bucket(speaks["url"]).list({}, 5)


def test_a_listing_without_end_is_refused(speaks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it fills the memory."""
    monkeypatch.setattr(s3_answers, "SMALL", 10)
    speaks["text"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"a\r\n0123456789\r\n" * 2
    with pytest.raises(Refused, match="200 TooLong"):
        bucket(speaks["url"]).list({}, 5)


def test_dates_of_the_signature_are_utc() -> None:
    """Whatever the machine's zone is."""
    headers = signed("GET", "http://h/", {}, Login("k", "s", None, "r"))
    assert headers["X-Amz-Date"][:8] == time.strftime("%Y%m%d", time.gmtime())
