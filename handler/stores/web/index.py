"""The index of a repository on a web server: index.json in its root, as `dragoman index` writes it.

    {"files": [{"path": "iris/1/model.onnx", "size": 471, "sha256": "...", "modified": "2026-11-22T15:00:00+00:00"}]}

HTTP has no listing. The index is one, and it has more: each file's SHA-256 identifies its content, and is compared
with what arrives. A publisher uploads the index last.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from core.records import NamedTuple
from handler.stores.transfer.fetching import is_plain

FILE: Final = "index.json"
MOST: Final = 100_000
"""The most files in an index: as many as fit into 16 MiB."""
LONGEST: Final = 1024
"""Characters of a path."""
LARGEST: Final = 2**53
EPOCH: Final = "1970-01-01T00:00:00+00:00"
SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""A half of a character, which JSON can hold, and no URL and no file name."""
SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Malformed(Exception):
    """The document is not an index. The message says where."""


class IndexedFile(NamedTuple):
    """A file. `path`: in the repository, with slashes. `size`: in bytes. `sha256`: hexadecimal.

    `modified`: ISO 8601 with a zone; empty if the index does not say.
    """

    path: str
    size: int
    sha256: str
    modified: str = ""

    @property
    def time(self) -> datetime:
        """The time of the last change, the epoch without one."""
        return datetime.fromisoformat(self.modified or EPOCH)


def parse(document: bytes) -> Mapping[str, IndexedFile]:
    """Returns the files by their paths. Raises Malformed."""
    try:
        said = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{FILE} is not JSON") from error
    files = said.get("files") if isinstance(said, dict) else None
    if not isinstance(files, list):
        raise Malformed(f"{FILE} has no list 'files'")
    if len(files) > MOST:
        raise Malformed(f"{FILE} has {len(files)} files; expected at most {MOST}")
    return {each.path: each for each in (_file(number, entry) for number, entry in enumerate(files))}


def _file(number: int, entry: Any) -> IndexedFile:
    said = entry if isinstance(entry, dict) else {}
    path, size, sha256, modified = (said.get(name) for name in IndexedFile._fields)
    where = f"{FILE}: files[{number}]"
    if not isinstance(path, str) or len(path) > LONGEST or not is_plain(path) or SURROGATE.search(path):
        raise Malformed(f"{where}.path is {str(path)[:256]!r}; expected a path such as 'iris/1/model.onnx'")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < LARGEST:
        raise Malformed(f"{where}.size is {str(size)[:64]!r}; expected a number of bytes")
    if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
        raise Malformed(f"{where}.sha256 is {str(sha256)[:64]!r}; expected 64 hexadecimal digits")
    return IndexedFile(path, size, sha256, _time(modified, where))


def _time(said: Any, where: str) -> str:
    if said is None:
        return ""
    with suppress(ValueError):
        if isinstance(said, str) and datetime.fromisoformat(said).tzinfo is not None:
            return said
    raise Malformed(f"{where}.modified is {str(said)[:64]!r}; expected a time such as {EPOCH}")


def write(files: Sequence[IndexedFile]) -> bytes:
    """Returns the document, a line for each file."""
    lines = ",\n".join(f"  {json.dumps(each._asdict(), ensure_ascii=False)}" for each in files)
    return f'{{"files": [\n{lines}\n]}}\n'.encode()
