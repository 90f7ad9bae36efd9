"""Opens connections for the commands that call a server: HTTP, and channels of gRPC, whose library is an extra."""

from http.client import BadStatusLine, HTTPConnection, HTTPSConnection, InvalidURL, RemoteDisconnected
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlsplit

from handler.commands.refused import Refused, WrongOption

OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),  # gRPC's own limit is 4 MB
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels to a server share one connection
    ("grpc.enable_http_proxy", 0),  # as over HTTP, whose library knows no proxies
)
GONE, LATE = "UNAVAILABLE", "DEADLINE_EXCEEDED"


def over_http(url: str, seconds: float) -> tuple[HTTPConnection, str]:
    """Returns a connection, which its first request opens, and the URL's own path. Raises WrongOption.

    `url`: http://HOST:PORT, https://HOST, or HOST:PORT, perhaps with a path. `seconds`: without a byte from the server.
    """
    wrong = WrongOption(f"--url is {url!r}; expected http://HOST:PORT or https://HOST")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.hostname or ""
        kind, usual = {"http": (HTTPConnection, 80), "https": (HTTPSConnection, 443)}[parts.scheme]
        port = usual if parts.port is None else parts.port  # without one, the library looks for it in an IPv6 address
        if not (host.encode("idna") and port):  # as the socket does
            raise wrong
        return kind(host, port, timeout=seconds), quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    except (ValueError, KeyError, InvalidURL):
        raise wrong from None


def library() -> Any:
    """Returns the module grpc. Raises Refused if it is not installed."""
    try:
        import grpc  # noqa: PLC0415 - an extra, for one protocol alone
    except ImportError:
        raise Refused("--protocol grpc needs grpcio: pip install 'dragoman[grpc]'") from None
    return grpc


def opened(url: str) -> Any:
    """Returns a channel to a server, with TLS if the URL is https://. Raises WrongOption; Refused without grpcio.

    `url`: https://HOST, http://HOST:PORT, HOST:PORT, or a name of gRPC's such as unix:PATH.
    """
    grpc = library()
    scheme, _, rest = url.partition("://")
    address = rest.partition("/")[0] if scheme.lower() in ("http", "https") else url
    if not address or not address.isprintable():
        raise WrongOption(f"--url is {url!r}; expected HOST:PORT, http://HOST:PORT or https://HOST")
    if scheme.lower() == "https":
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(), OPTIONS)
    return grpc.insecure_channel(address, OPTIONS)


def called(channel: Any, method: Any, message: bytes, seconds: float, metadata: Any) -> bytes:
    """Returns the answer of a channel's method.

    Raises OSError if no server answers, TimeoutError if none does so in time, RpcError for a refusal.
    """
    end = monotonic() + seconds
    try:
        answer: bytes = method(message, timeout=seconds, metadata=metadata)
    except library().RpcError as error:
        code = error.code().name
        if code == LATE and monotonic() >= end:
            raise TimeoutError(error.details() or code) from None
        if code == GONE and not _answers(channel, seconds):
            raise OSError(error.details() or code) from None
        raise
    return answer


def _answers(channel: Any, seconds: float) -> bool:
    """Decides whether a server is there: its own UNAVAILABLE differs from the channel's only in the text.

    It answers a method that it does not have with another status.
    """
    try:
        channel.unary_unary("/-/-")(b"", timeout=seconds)
    except library().RpcError as error:
        return error.code().name not in (GONE, LATE)
    return True


def other_wire(error: Exception) -> str:
    """Returns what is wrong with a port that does not speak HTTP/1.1, "" if the error is another one.

    The words do not quote what the port has sent, as BadStatusLine does: that of gRPC is not text.
    """
    if not isinstance(error, BadStatusLine) or isinstance(error, RemoteDisconnected):
        return ""
    return "answers, but not over HTTP/1.1: use --protocol grpc for a port of gRPC, or name another port with --url"
