"""handler.commands.channels: the URL decides on the host, the port, and TLS."""

import socket
import sys
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection

import pytest

from handler.commands import channels
from handler.commands.refused import Refused, WrongOption

TLS, CLEAR = b"\x16\x03", b"PR"
"""The beginning of a client's hello, and of HTTP/2's preface."""


@pytest.mark.parametrize(("url", "beginning"), [
    ("https://{}", TLS), ("HTTPS://{}/", TLS), ("http://{}", CLEAR), ("http://{}/", CLEAR), ("{}", CLEAR),
    ("ipv4:{}", CLEAR),
])  # fmt: skip
def test_a_url_of_https_has_tls(url: str, beginning: bytes) -> None:
    """Credentials travel in the metadata of each call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        netloc = f"127.0.0.1:{listener.getsockname()[1]}"
        with channels.opened(url.format(netloc)) as channel:
            waiting = channel.unary_unary("/s/m").future(b"", metadata=[("x-api-key", "secret")])
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(2, socket.MSG_WAITALL) == beginning
            waiting.cancel()


def test_each_channel_has_a_connection_of_its_own() -> None:
    """`bench` measures connections, one for each thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as ending:
        listener.settimeout(60)
        for _ in range(2):
            channel = ending.enter_context(channels.opened(f"127.0.0.1:{listener.getsockname()[1]}"))
            waiting = channel.unary_unary("/s/m").future(b"")
            ending.callback(waiting.cancel)
            connection, _ = listener.accept()
            ending.enter_context(connection)


@pytest.mark.parametrize(("url", "kind", "place"), [
    ("http://h", HTTPConnection, ("h", 80, "")), ("h:9/", HTTPConnection, ("h", 9, "")),
    ("HTTPS://h/a b/ü%20/", HTTPSConnection, ("h", 443, "/a%20b/%C3%BC%20")),
    ("http://[::1]", HTTPConnection, ("::1", 80, "")), ("[::1]:9", HTTPConnection, ("::1", 9, "")),
    ("https://[fe80::abcd]", HTTPSConnection, ("fe80::abcd", 443, "")),
])  # fmt: skip
def test_a_url_has_a_host_a_port_and_a_path(url: str, kind: type, place: tuple[str, int, str]) -> None:
    """The end of an IPv6 address without a port was read as the port."""
    connection, path = channels.over_http(url, 1)
    assert (type(connection), (connection.host, connection.port, path)) == (kind, place)


@pytest.mark.parametrize("url", [
    "ftp://h", "http://", "http://h:x", "http://h:0", "http://h:99999", "http://[::1", "http://a b", "http://a..b", "",
    "http://h\udcff", "http://h/\udcff",
])  # fmt: skip
def test_a_url_that_is_none_is_a_wrong_option(url: str) -> None:
    """Each command that has the flag says the same."""
    with pytest.raises(WrongOption, match=r"--url is '.*'; expected http://HOST:PORT or https://HOST"):
        channels.over_http(url, 1)


def test_without_grpcio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other protocols need no extra."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Refused, match=r"--protocol grpc needs grpcio: pip install 'dragoman\[grpc\]'"):
        channels.opened("127.0.0.1:1")
