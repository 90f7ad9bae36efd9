"""Gateways on the loopback, for clients that call a URL: in front of Lambda's emulator, and of SAM's local gateway."""

import base64
import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.e2e import rie
from tests.support import web


class Exchange(NamedTuple):
    """A request or an answer, which have the same parts; `head` is "POST /path" or the status."""

    head: str
    headers: Mapping[str, str]
    body: bytes


Answers = Callable[[Exchange], Exchange]
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "te", "trailer", "date", "server"}


@contextlib.contextmanager
def running(answers: Answers) -> Iterator[str]:
    """Start a gateway; yield its URL."""
    turn = threading.Lock()  # an instance of a function has one request at a time

    class Handler(web.Handler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            with turn:
                status, given, body = answers(Exchange(f"{self.command} {self.path}", headers, self._body()))
            kept = {name: value for name, value in given.items() if name.lower() not in HOP_BY_HOP}
            self.answer(int(status), body, kept)

        do_GET = do_POST

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.body()
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

    with web.serving(Handler) as server:
        yield server.url


def before_emulator(instance: rie.Rie) -> Answers:
    """Hand a request over like the REST API of template.yaml: every body in base64, the query decoded."""

    def ask(request: Exchange) -> Exchange:
        verb, _, target = request.head.partition(" ")
        url = urlsplit(target)
        path = unquote(url.path)
        answer = instance.invoke(
            {
                "resource": "/{proxy+}",
                "path": path,
                "httpMethod": verb,
                "headers": request.headers,
                "multiValueQueryStringParameters": parse_qs(url.query, keep_blank_values=True),
                "requestContext": {"stage": "Prod", "path": f"/Prod{path}", "httpMethod": verb},
                "body": base64.b64encode(request.body).decode(),
                "isBase64Encoded": True,
            }
        )
        body = base64.b64decode(answer["body"]) if answer["isBase64Encoded"] else answer["body"].encode()
        return Exchange(str(answer["statusCode"]), answer["headers"], body)

    return ask


def before_sam(address: str) -> Answers:
    """Hand base64 to clients that do not say what they accept, as SAM's local gateway does, and AWS's never does."""

    def ask(request: Exchange) -> Exchange:
        verb, _, target = request.head.partition(" ")
        connection = http.client.HTTPConnection(address, timeout=120)
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        connection.request(verb, target, request.body, {"Accept": "*/*"} | headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return Exchange(str(answer.status), dict(answer.getheaders()), body)

    return ask
