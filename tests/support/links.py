"""The links of the documents that lead out of the project. `make check-links` asks for each of them."""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
URL: Final = re.compile(r"(?<![=\w])https?://[^\s)>\"'`|,;]*[^\s)>\"'`|,;.:]")
KNOWN: Final = frozenset((
    "aws.amazon.com", "connectrpc.com", "github.com", "onnx.ai", "pypi.org",
))  # fmt: skip
"""The hosts that documents may link to: a mistyped one is not among them."""
OWN: Final = re.compile(r"127\.|172\.17\.|\[::1\]|([\w.-]+\.)?example(\.com)?(:|$)|[a-z]+(:|$)|.*(ID|ACCOUNT|REGION)")
"""Hosts of examples: the reader's machine, reserved names, names without a dot, and words to replace."""
ROBOTS: Final = (401, 403, 429)
"""Statuses of pages that are there, but not for programs."""


def written() -> dict[str, str]:
    """Returns each URL that leads out, with the page that has it first. Values of settings are none."""
    found: dict[str, str] = {}
    for page in PAGES:
        for url in URL.findall(page.read_text(encoding="utf-8")):
            if not OWN.match(urlsplit(url).netloc):
                found.setdefault(url, page.relative_to(ROOT).as_posix())
    return found


def faults(urls: Iterable[str]) -> list[str]:
    """Returns what is wrong with URLs as they are written."""
    found, alike = [], dict[str, str]()
    for url in urls:
        parts = urlsplit(url)
        if parts.hostname not in KNOWN:
            found.append(f"{url}: the host is not in tests/support/links.py")
        if parts.scheme != "https":
            found.append(f"{url}: write https")
        twin = alike.setdefault(f"{parts.netloc}{parts.path}".rstrip("/").lower(), url)
        if twin != url:
            found.append(f"{url}: also written {twin}")
    return found


def broken(url: str) -> str:
    """Returns why a URL does not resolve; "" if it does."""
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (check-links)"})  # noqa: S310 - of the documents
    try:
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - the same
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return "" if error.code in ROBOTS else f"{url}: {error.code}"
    except OSError as error:
        return f"{url}: {error}"


if __name__ == "__main__":
    with ThreadPoolExecutor(4) as pool:
        said = [*faults(written()), *filter(None, pool.map(broken, written()))]
    sys.exit("\n".join(said))
