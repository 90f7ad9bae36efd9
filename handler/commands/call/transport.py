"""Connections to a server: HTTP by the standard library, gRPC where grpcio is installed. One connection, one thread."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from core.records import NamedTuple
from handler.commands import channels
from handler.commands.refused import Refused, WrongOption

NOT_FOUND: Final = 404
OK: Final = 200


class Packet(NamedTuple):
    """A request to send. `path`: below the URL's own path."""

    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"


LIVE: Final = Packet("/v2/health/live", method="GET")
"""The request for which every server of V2 does next to nothing."""


class Landed(NamedTuple):
    """A received answer. `status`: of HTTP; gRPC's codes are converted. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    def call(self, packet: Packet) -> Landed:
        """Sends a request and waits for its answer. Raises Unreachable."""
        ...

    def close(self) -> None: ...


class Unreachable(Refused):
    """The server cannot be reached, or does not answer."""


def _late(url: str, seconds: float) -> Unreachable:
    return Unreachable(f"{url} does not answer within {seconds:g} s: raise --timeout, or set --url")


def credentials(key: str | None) -> dict[str, str]:
    """Returns the header of a key, or of a token: only a JWT has two dots. Raises WrongOption."""
    if key is None:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise WrongOption("--key has characters that a header cannot have")
    return {"authorization": f"Bearer {key}"} if key.count(".") == 2 else {"x-api-key": key}  # noqa: PLR2004 - a JWT


class HttpTransport:
    """One connection over HTTP or HTTPS, which is opened again if the server has closed it."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        """Raises WrongOption for anything but a URL. `timeout`: seconds without a byte from the server."""
        self._connection, self._path = channels.over_http(url, timeout)
        self._url, self._timeout, self._headers = url, timeout, credentials(key)
        self._used = False

    def call(self, packet: Packet) -> Landed:
        try:
            return self._call(packet)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self._connection.close()
            if not self._used:
                raise self._unreachable(error) from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from None
        self._used = False  # servers close idle connections: try once more, on a new one
        return self.call(packet)

    def _call(self, packet: Packet) -> Landed:
        path, headers = self._path + packet.path, {**self._headers, **packet.headers}
        try:
            self._connection.request(packet.method, path, packet.body or None, headers)
        except (BrokenPipeError, ConnectionResetError):
            answer = self._early()  # a server that refuses a body need not have read it
        else:
            answer = self._connection.getresponse()
        body = answer.read()
        self._used = True
        return Landed(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)

    def _early(self) -> http.client.HTTPResponse:
        """Returns the answer of a server that did not take the whole body. Raises OSError."""
        answer = self._connection.getresponse()
        answer.will_close = True
        return answer

    def _unreachable(self, error: Exception) -> Unreachable:
        if other := channels.other_wire(error):
            return Unreachable(f"{self._url} {other}")
        if isinstance(error, TimeoutError) and error.errno is None:  # the system's own has a number
            return _late(self._url, self._timeout)
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"{self._url} does not answer: {reason}; start `dragoman serve`, or set --url")

    def close(self) -> None:
        self._connection.close()


class GrpcTransport:
    """One channel of gRPC, without TLS unless the URL is https://."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        """Raises Refused without grpcio."""
        self._grpc, self._timeout, self._url = channels.library(), timeout, url
        self._metadata = [*credentials(key).items()]
        self._channel = channels.opened(url)
        self._calls: dict[str, Any] = {}

    def call(self, packet: Packet) -> Landed:
        call = self._calls.get(packet.path)
        if call is None:
            call = self._calls[packet.path] = self._channel.unary_unary(packet.path)
        try:
            return Landed(OK, {}, channels.called(self._channel, call, packet.body, self._timeout, self._metadata))
        except TimeoutError:
            raise _late(self._url, self._timeout) from None
        except OSError as error:
            cure = "start `dragoman serve --grpc-port`, or name it with --url"
            raise Unreachable(f"{self._url} does not answer: {str(error)[:256]}; {cure}") from None
        except self._grpc.RpcError as error:
            code, text = error.code(), error.details() or ""
        status = NOT_FOUND if code is self._grpc.StatusCode.NOT_FOUND else 500
        return Landed(status, {}, json.dumps({"error": f"{code.name}: {text}"}).encode())

    def close(self) -> None:
        self._channel.close()


def reason(landed: Landed) -> str:
    """Returns why a request was refused, in the words of any protocol here."""
    try:
        document = json.loads(landed.body)
    except ValueError:
        return f"{landed.status} {landed.body[:256].decode(errors='replace')}".strip()
    status = document.get("status") if isinstance(document, dict) else None
    found = status if isinstance(status, dict) else document
    words = (found.get(key) for key in ("error", "message", "msg")) if isinstance(found, dict) else ()
    text = next((word for word in words if isinstance(word, str)), str(document))
    return f"{landed.status} {text[:1024]}"
