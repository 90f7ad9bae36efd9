"""Gateways on the loopback, for clients that call a URL: in front of Lambda's emulator, and of SAM's local gateway."""

import base64
import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.e2e import rie


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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            with turn:
                status, given, body = answers(Exchange(f"{self.command} {self.path}", headers, self._body()))
            self.send_response(int(status))
            for name, value in given.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - as http.server calls it

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


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
