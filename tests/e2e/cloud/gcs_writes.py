"""A proxy before fake-gcs-server, which has the XML API for reading alone: writes become those of the JSON API.

It decides nothing: a condition goes along as it came, and the server's status comes back. A read is passed on.
"""

import contextlib
import http.client
import json
from collections.abc import Iterator
from urllib.parse import unquote, urlencode, urlsplit

from tests.support import web

BOUNDARY = "a-boundary-that-no-model-has"
META = "x-goog-meta-"


class Handler(web.Handler):
    upstream = ""

    def do_GET(self) -> None:
        self._pass(self.command, self.path, None, dict(self.headers.items()))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._pass("POST", self.path, self.body(), dict(self.headers.items()))

    def do_PUT(self) -> None:
        body = self.body()
        bucket, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        metadata = {key.lower().removeprefix(META): value for key, value in self.headers.items() if META in key.lower()}
        query = {"uploadType": "multipart"}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        head = json.dumps({"name": unquote(name), "metadata": metadata}).encode()
        parts = (b"application/json", head), (b"application/octet-stream", body)
        begin = f"--{BOUNDARY}\r\n".encode()
        content = (
            b"".join(begin + b"Content-Type: %s\r\n\r\n%s\r\n" % part for part in parts) + f"--{BOUNDARY}--".encode()
        )
        headers = {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}
        self._pass("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", content, headers)

    def _pass(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        upstream = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            # The server tells its APIs apart by the host.
            upstream.request(
                method, path, body, {name: each for name, each in headers.items() if name.lower() != "host"}
            )
            answer = upstream.getresponse()
            content, told = answer.read(), dict(answer.headers.items())
        finally:
            upstream.close()
        if self.command == "PUT" and answer.status == http.client.OK:
            said = json.loads(content)
            content, told = b"", {"ETag": f'"{said["etag"]}"', "x-goog-generation": said["generation"]}
        self.send_response_only(answer.status)
        for name, value in told.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = told.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def before(upstream: str) -> Iterator[str]:
    """Offers the URL of the proxy. `upstream`: host and port of the server."""
    with web.serving(type("Of", (Handler,), {"upstream": upstream})) as server:
        yield server.url
