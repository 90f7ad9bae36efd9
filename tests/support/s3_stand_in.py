"""A stand-in for an S3 server: objects in memory, ListObjectsV2 and GetObject with ranges, ETags and checksums.

It is written to like Amazon's (see `s3_writes`), and may end, refuse or wait at any request.

It does not check signatures or permissions. It serves tests that need hundreds of fetches a minute, or answers that no
real server here can be made to send; all other tests use a real one.
"""

import contextlib
import hashlib
import io
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from handler.settings import Settings
from tests.support import web
from tests.support.s3_writes import Objects, Thing, Writes

PIECE = 16 * 1024


@dataclass(slots=True)
class StandIn:
    """A bucket that answers to any name.

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
        """Takes the objects from `things`."""
        self.objects = Objects(self.things, threading.Lock())

    def put(self, key: str, content: bytes, etag: str | None = None, **headers: str) -> str:
        """Stores an object. Underscores in the names of headers are hyphens."""
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest() if etag is None else etag
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.things[key] = Thing(content, etag, named)
        return etag

    def gets(self) -> list[str]:
        """Returns the keys that were asked for, in order."""
        return [key for key in self.asked if key]

    def variables(self, url: str | None = None) -> dict[str, str]:
        """Returns the environment of a store that asks here."""
        return {
            "DRAGOMAN_REPOSITORY": "s3://bucket/p",
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
        }

    def settings(self, patch: pytest.MonkeyPatch, url: str | None = None, **more: str) -> Settings:
        """Sets the environment of a store that asks here. Returns a server's settings, with `more` of them."""
        variables = self.variables(url)
        for name, value in variables.items():
            patch.setenv(name, value)
        return Settings.from_env(variables | more)


class Handler(Writes):
    store: StandIn

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
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
        """Yields whether the request is done; if its answer is lost, the connection ends instead."""
        fate = self.store.fate()
        if fate == "refused":
            self._error(403, "AccessDenied", {})
        if fate == "lost":
            self.wfile = io.BytesIO()
        yield fate in ("", "lost")
        if fate in ("unasked", "lost"):
            self.close_connection = True

    def _uploads(self, query: dict[str, str]) -> str:
        found = [(name, each.key) for name, each in self.store.objects.uploads.items()]
        uploads = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{name}</UploadId></Upload>"
            for name, key in found
            if key.startswith(query.get("prefix", ""))
        )
        return f"<ListMultipartUploadsResult>{uploads}</ListMultipartUploadsResult>"

    def _listing(self, query: dict[str, str]) -> str:
        prefix, token = query.get("prefix", ""), query.get("continuation-token", query.get("start-after", ""))
        keys = [key for key in sorted(self.store.things) if key.startswith(prefix) and key > token]
        grouped: dict[str, str] = {}  # a folder and its last key count as one, as Amazon counts them
        for key in keys:
            below, slash, _ = key[len(prefix) :].partition("/")
            grouped[f"{prefix}{below}/" if "delimiter" in query and slash else key] = key
        page = list(grouped)[: int(query.get("max-keys", "1000"))]
        folders = [key for key in page if "delimiter" in query and key.endswith("/")]
        contents = []
        for key in page:
            if key in folders:
                continue
            thing = self.store.things[key]
            etag = f"<ETag>{escape(quoted(thing.etag))}</ETag>" if self.store.listed_etags else ""
            kinds = [name.rpartition("-")[2].upper() for name in thing.headers if name.startswith("x-amz-checksum-")]
            checksum = f"<ChecksumAlgorithm>{kinds[0]}</ChecksumAlgorithm>" if kinds else ""
            size = f"<Size>{len(thing.content)}</Size>"
            modified = f"<LastModified>{thing.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            contents.append(f"<Contents><Key>{escape(quote(key))}</Key>{modified}{size}{etag}{checksum}</Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{escape(quote(f))}</Prefix></CommonPrefixes>" for f in folders)
        more = len(page) < len(grouped)
        rest = f"<NextContinuationToken>{escape(grouped[page[-1]])}</NextContinuationToken>" if more else ""
        truncated = f"<EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>{rest}"
        return f"<ListBucketResult>{truncated}{''.join(contents)}{common}</ListBucketResult>"

    def _object(self, key: str) -> None:
        thing, asked = self.store.things.get(key), self.headers.get("Range")
        self.store.ranges_asked.append(asked if self.command == "GET" else "HEAD")
        if thing is None:
            self._error(*((404, "NoSuchKey") if self.store.listable else (403, "AccessDenied")), {})
            return
        wanted = self.headers.get("If-Match") if self.store.conditions else None
        if wanted is not None and (thing.etag.startswith("W/") or wanted != quoted(thing.etag)):
            self._error(412, "PreconditionFailed", {})
            return
        headers = thing.meta | ({"ETag": quoted(thing.etag)} if thing.etag else {})
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


def quoted(etag: str) -> str:
    """Returns the ETag as a header has it; `W/v1` is a weak one, which no If-Match matches (RFC 9110 13.1.1)."""
    mark = "W/" if etag.startswith("W/") else ""
    return f'{mark}"{etag.removeprefix(mark)}"'


@contextlib.contextmanager
def running() -> Iterator[StandIn]:
    store = StandIn()
    with web.serving(type("Of", (Handler,), {"store": store})) as server:
        store.url = server.url
        yield store
