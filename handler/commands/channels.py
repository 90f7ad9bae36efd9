"""Opens channels of gRPC for the commands that call a server. Their library, grpcio, is an extra."""

from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, Final

from handler.commands.refused import Refused

UNLIMITED: Final = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
"""gRPC's own limit of a message is 4 MB."""


def library() -> Any:
    """Returns the module grpc. Raises Refused if it is not installed."""
    try:
        import grpc  # noqa: PLC0415 - an extra, for one protocol alone
    except ImportError:
        raise Refused("--protocol grpc needs grpcio: pip install 'dragoman[grpc]'") from None
    return grpc


def opened(url: str) -> Any:
    """Returns a channel to a server, with TLS if the URL is https://. Raises Refused without grpcio.

    `url`: https://HOST, http://HOST:PORT, HOST:PORT, or a name of gRPC's such as unix:PATH.
    """
    grpc = library()
    scheme, _, rest = url.partition("://")
    address = rest.partition("/")[0] if scheme.lower() in ("http", "https") else url
    if scheme.lower() == "https":
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(), UNLIMITED)
    return grpc.insecure_channel(address, UNLIMITED)


def other_wire(error: Exception) -> str:
    """Returns what is wrong with a port that does not speak HTTP/1.1, "" if the error is another one.

    The words do not quote what the port has sent, as BadStatusLine does: that of gRPC is not text.
    """
    if not isinstance(error, BadStatusLine) or isinstance(error, RemoteDisconnected):
        return ""
    return "answers, but not over HTTP/1.1: use --protocol grpc for a port of gRPC, or name another port with --url"
