"""A stand-in for an S3 server: objects in memory, ListObjectsV2 and GetObject with ranges, ETags and checksums.

It is written to as Amazon's is (see `s3_writes`), and may end, refuse or wait at any request.

It checks no signature and keeps no rights. For what needs hundreds of fetches a minute, or answers that no real server
here can be made to give; whatever can be is tested on a real one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.s3_writes import Objects, Thing, Writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE = 16 * 1024


@dataclass(slots=True)
class StandIn:
    """A bucket whose name nobody asks.

    `rate`: bytes per second and connection, 0 for as many as go through. `refusal`: what every request gets.
    `chunked`: listings and errors come in chunks, without a length, as AWS sends them. `fate`: what becomes of the next
    request, asked before each: "" of none, "unasked" is not done, "lost" is done and not answered, "refused" gets 403.
    """

    url: str = ""
    things: dict[str, Thing] = field(default_factory=dict)
    listable: bool = True
    ranges: bool = True
    conditions: bool = True
    listed_etags: bool = True
    chunked: bool = False
    rate: float = 0.0
    refusal: tuple[int, str, dict[str, str]] | None = None
    asked: list[str] = field(default_factory=list)
    ranges_asked: list[str | None] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    fate: Callable[[], str] = lambda: ""
    objects: Objects = field(init=False)

    def __post_init__(self) -> None:
        """The objects are those of `things`."""
        self.objects = Objects(self.things, threading.Lock())

    def put(self, key: str, content: bytes, etag: str | None = None, **headers: str) -> str:
        """Store an object. Underscores in the names of headers are hyphens."""
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest() if etag is None else etag
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.things[key] = Thing(content, etag, named)
        return etag

    def gets(self) -> list[str]:
        """Keys that were asked for, in order."""
        return [key for key in self.asked if key]

    def variables(self, url: str | None = None) -> dict[str, str]:
        """The environment of a store that asks here."""
        return {
            "DRAGOMAN_REPOSITORY": "s3://bucket/p",
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
        }


class Handler(Writes, BaseHTTPRequestHandler):
    store: StandIn
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Silence."""

    def do_HEAD(self) -> None:
        """HeadObject."""
        self.do_GET()

    def do_GET(self) -> None:
        """ListObjectsV2 or GetObject."""
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").removeprefix("/")
        self.store.asked.append(key)
        self.store.signed.append(self.headers.get("Authorization", "unsigned"))
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self._fate() as alive:
            if not alive:
                return
            if self.store.refusal is not None:
                self._error(*self.store.refusal)
            elif key:
                self._object(key)
            elif not self.store.listable:
                self._error(403, "AccessDenied", {})
            else:
                self._tell(200, self._uploads(query) if "uploads" in query else self._listing(query), {})

    @contextlib.contextmanager
    def _fate(self) -> Iterator[bool]:
        """Whether the request is done; where its answer is lost, the connection ends in its stead."""
        fate = self.store.fate()
        if fate == "refused":
            self._error(403, "AccessDenied", {})
        if fate == "lost":
            self.wfile = io.BytesIO()
        yield fate in ("", "lost")
        if fate in ("unasked", "lost"):
            self.close_connection = True

    def _uploads(self, query: dict[str, str]) -> str:
        """ListMultipartUploads."""
        found = [(name, each.key) for name, each in self.store.objects.uploads.items()]
        uploads = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{name}</UploadId></Upload>"
            for name, key in found
            if key.startswith(query.get("prefix", ""))
        )
        return f"<ListMultipartUploadsResult>{uploads}</ListMultipartUploadsResult>"

    def _listing(self, query: dict[str, str]) -> str:
        prefix, token = query.get("prefix", ""), query.get("continuation-token", "")
        keys = [key for key in sorted(self.store.things) if key.startswith(prefix) and key > token]
        page, folders = keys[: int(query.get("max-keys", "1000"))], set()
        contents = []
        for key in page:
            below, slash, _ = key[len(prefix) :].partition("/")
            if "delimiter" in query and slash:
                folders.add(f"{prefix}{below}/")
                continue
            thing = self.store.things[key]
            etag = f"<ETag>&quot;{thing.etag}&quot;</ETag>" if self.store.listed_etags else ""
            kinds = [name.rpartition("-")[2].upper() for name in thing.headers if name.startswith("x-amz-checksum-")]
            checksum = f"<ChecksumAlgorithm>{kinds[0]}</ChecksumAlgorithm>" if kinds else ""
            size = f"<Size>{len(thing.content)}</Size>"
            modified = f"<LastModified>{thing.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            contents.append(f"<Contents><Key>{escape(quote(key))}</Key>{modified}{size}{etag}{checksum}</Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{escape(quote(f))}</Prefix></CommonPrefixes>" for f in folders)
        more = len(page) < len(keys)
        rest = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        truncated = f"<EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>{rest}"
        return f"<ListBucketResult>{truncated}{''.join(contents)}{common}</ListBucketResult>"

    def _object(self, key: str) -> None:
        thing, asked = self.store.things.get(key), self.headers.get("Range")
        self.store.ranges_asked.append(asked if self.command == "GET" else "HEAD")
        if thing is None:
            self._error(*((404, "NoSuchKey") if self.store.listable else (403, "AccessDenied")), {})
            return
        if self.store.conditions and self.headers.get("If-Match", f'"{thing.etag}"') != f'"{thing.etag}"':
            self._error(412, "PreconditionFailed", {})
            return
        headers = thing.meta | ({"ETag": f'"{thing.etag}"'} if thing.etag else {})
        content = thing.content
        if not asked or not self.store.ranges:
            more = thing.headers if self.headers.get("x-amz-checksum-mode") else {}
            self._answer(200, content, headers | more)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1, len(content))
        if start >= len(content):
            self._error(416, "InvalidRange", {})
            return
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        self._answer(206, content[start:end], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):
            if not self.store.rate:
                self.wfile.write(body)
                return
            for position in range(0, len(body), PIECE):
                time.sleep(PIECE / self.store.rate)
                self.wfile.write(body[position : position + PIECE])

    def _error(self, status: int, code: str, headers: dict[str, str]) -> None:
        self._tell(status, f"<Error><Code>{code}</Code></Error>", headers)

    def _tell(self, status: int, document: str, headers: dict[str, str]) -> None:
        body = document.encode()
        if not self.store.chunked or self.command == "HEAD":
            self._answer(status, body, headers)
            return
        self.send_response_only(status)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        pieces = [body[position : position + 50] for position in range(0, len(body), 50)]
        self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""]))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is what is tested."""


@contextlib.contextmanager
def running() -> Iterator[StandIn]:
    """An empty bucket."""
    store = StandIn()
    with Server(("127.0.0.1", 0), type("Of", (Handler,), {"store": store})) as server:
        store.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
