"""handler.commands.channels: the URL decides on the host, the port, and TLS."""

import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection
from threading import Event
from typing import Any

import grpc
import pytest

from handler.commands import channels
from handler.commands.refused import Refused, WrongOption
from tests.support.ports import free_port

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


class Handlers(grpc.GenericRpcHandler):
    """Answers /UNAVAILABLE/- and the like with that status, and /late/- when the server has ended."""

    def __init__(self, ended: Event) -> None:
        self._ended = ended

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        code = getattr(grpc.StatusCode, details.method.split("/")[1], None)  # type: ignore[attr-defined] # not in types
        if code is not None:
            return grpc.unary_unary_rpc_method_handler(lambda _, call: call.abort(code, "cannot connect to a store"))
        is_late = details.method.startswith("/late/")  # type: ignore[attr-defined] # as above
        return grpc.unary_unary_rpc_method_handler(lambda *_: self._ended.wait()) if is_late else None


@pytest.fixture(scope="module")
def answering() -> Iterator[str]:
    """The address of a server of gRPC that refuses calls."""
    server, ended = grpc.server(ThreadPoolExecutor(4)), Event()
    server.add_generic_rpc_handlers((Handlers(ended),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)
    ended.set()


def code_of(url: str, method: str, seconds: float) -> str:
    """Returns the status of a call, "" if no server answers."""
    with channels.opened(url) as channel:
        try:
            channels.called(channel, channel.unary_unary(f"/{method}/-"), b"", seconds, [])
        except OSError as error:
            assert str(error)  # noqa: PT017 - the other outcome has none
            return ""
        except grpc.RpcError as error:
            return str(error.code().name)
    raise AssertionError


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"])
def test_a_refusal_of_a_server_is_an_answer(answering: str, code: str) -> None:
    """A proxy's UNAVAILABLE reads like the channel's own."""
    assert code_of(answering, code, 60) == code


@pytest.mark.parametrize(("url", "seconds"), [
    ("127.0.0.1:{free}", 60), ("no-such-host.invalid:9", 60), ("a b:1", 60), ("http://[::1", 60), ("unix:", 60),
    ("{silent}", 0.1),
])  # fmt: skip
def test_a_server_that_is_not_reached_does_not_answer(url: str, seconds: float) -> None:
    """Its status is the channel's own. A log of refused calls was replayed without a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        assert code_of(url.format(free=free_port(), silent=silent), "UNAVAILABLE", seconds) == ""


def test_a_server_that_does_not_answer_in_time_does_not_answer(answering: str) -> None:
    """As over HTTP."""
    assert code_of(answering, "late", 0.1) == ""


@pytest.mark.parametrize("url", ["", "http://", "https:///path", "h\udcff:1"])
def test_a_url_without_a_target_is_a_wrong_option(url: str) -> None:
    """It is the status UNKNOWN of each call over gRPC, or UnicodeEncodeError."""
    with pytest.raises(WrongOption, match=r"--url is '.*'; expected HOST:PORT, http://HOST:PORT or https://HOST"):
        channels.opened(url)


def test_without_grpcio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other protocols need no extra."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Refused, match=r"--protocol grpc needs grpcio: pip install 'dragoman\[grpc\]'"):
        channels.opened("127.0.0.1:1")
