"""handler.commands.channels: the URL decides on TLS."""

import socket
import sys

import pytest

from handler.commands import channels
from handler.commands.refused import Refused

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


def test_without_grpcio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other protocols need no extra."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Refused, match=r"--protocol grpc needs grpcio: pip install 'dragoman\[grpc\]'"):
        channels.opened("127.0.0.1:1")
