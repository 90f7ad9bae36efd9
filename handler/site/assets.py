"""The files that the pages refer to: style, scripts, icon. They come with the package, and no other host is asked.

Their path holds a digest of all of them, so that browsers keep them for good and never mix two versions.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from core.wire import HttpResponse

FOLDER: Final = Path(__file__).with_name("assets")
KINDS: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
FOREVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")


@cache
def contents() -> dict[str, bytes]:
    """Returns every file's content by its name."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in KINDS}


@cache
def prefix() -> str:
    """Returns the path of the files, without a slash at its start: it changes whenever one of them does."""
    digest = hashlib.sha256()
    for name, content in contents().items():
        digest.update(b"%b %d " % (name.encode(), len(content)) + content)
    return f"assets/{digest.hexdigest()[:16]}/"


def find(path: str) -> HttpResponse | None:
    """Returns the answer to a request for a file; None for a path that has none."""
    start = "/" + prefix()
    content = contents().get(path[len(start) :]) if path.startswith(start) else None
    return None if content is None else _answer(path, content, FOREVER)


def icon() -> HttpResponse:
    """Returns the icon, for browsers that ask for /favicon.ico before they have read a page."""
    return _answer("icon.svg", contents()["icon.svg"], (b"cache-control", b"public, max-age=86400"))


def _answer(name: str, content: bytes, caching: tuple[bytes, bytes]) -> HttpResponse:
    kind = KINDS[Path(name).suffix]
    return HttpResponse(200, ((b"content-type", kind), caching, NO_SNIFFING), (content,))
