"""Checksums of objects: which one a store sends, and how to compute it.

S3 sends checksums of the whole object with a GET that asks for them. A checksum of parts ("composite") cannot be
compared with a file, and two kinds (CRC32C, CRC64NVME) need AWS's C library. A multipart object's checksum without a
type is composite, as all of them were before S3 had types: moto sends none. An ETag of 32 hexadecimal digits is the
content's MD5, unless the answer says that the store encrypts with keys of KMS or of the caller (Amazon S3 API
reference, "Checking object integrity", "Common response headers").
"""

import hashlib
import re
import zlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, Final, Protocol

from core.records import NamedTuple

MD5: Final = re.compile(r"[0-9a-f]{32}")
MULTIPART: Final = re.compile(r"[0-9a-f]{32}-\d+")
"""The ETag of a multipart object."""
COMPOSITE: Final = re.compile(r"-\d+$")
CHUNK: Final = 1024 * 1024


class Checksum(NamedTuple):
    """`algorithm`: one of ALGORITHMS; `value`: hexadecimal."""

    algorithm: str
    value: str


class Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Crc:
    """A cyclic redundancy check with the methods of a hash; `step` is that of zlib.crc32."""

    def __init__(self, step: Callable[[Any, int], int], digits: int) -> None:
        self._step = step
        self._digits = digits
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._step(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:0{self._digits}x}"


def _crt(name: str, digits: int) -> Hash | None:
    try:
        from awscrt import checksums  # noqa: PLC0415 - AWS's C library: most installations do without
    except ImportError:
        return None
    step = getattr(checksums, name, None)
    return None if step is None else Crc(step, digits)


ALGORITHMS: Final[Mapping[str, Callable[[], Hash | None]]] = {
    "crc32": lambda: Crc(zlib.crc32, 8),
    "crc32c": lambda: _crt("crc32c", 8),
    "crc64nvme": lambda: _crt("crc64nvme", 16),
    "sha256": lambda: hashlib.sha256(usedforsecurity=False),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "blake2b": lambda: hashlib.blake2b(usedforsecurity=False),
}
"""By algorithm, the cheapest first. Each returns a new hash, None where this machine cannot compute it.

Stores never send the last one; manifests have it (see `signing.statement`)."""


def is_known(algorithm: str) -> bool:
    """Decides whether this machine can compute a listing's ChecksumAlgorithm."""
    make = ALGORITHMS.get(algorithm.lower())
    return make is not None and make() is not None


def is_whole(kind: str, etag: str) -> bool:
    """Decides whether a checksum is one of the whole object. `kind`: its type, empty where the store sends none."""
    return kind.upper() == "FULL_OBJECT" if kind else not MULTIPART.fullmatch(etag)


def of_answer(headers: Message) -> Checksum | None:
    """Returns the checksum to compare with, None if the answer has none that this machine can compute."""
    etag = headers.get("ETag", "").strip('"')
    whole = is_whole(headers.get("x-amz-checksum-type", ""), etag)
    for algorithm, make in ALGORITHMS.items():
        text = headers.get(f"x-amz-checksum-{algorithm}", "")
        if text and whole and not COMPOSITE.search(text) and make() is not None:
            try:
                return Checksum(algorithm, b64decode(text, validate=True).hex())
            except NotBase64:
                continue
    return Checksum("md5", etag) if MD5.fullmatch(etag) and not _keyed(headers) else None


def _keyed(headers: Message) -> bool:
    """Decides whether the store encrypts with keys, so that the ETag is not the content's MD5."""
    encryption = headers.get("x-amz-server-side-encryption", "")
    return encryption.startswith("aws:kms") or "x-amz-server-side-encryption-customer-algorithm" in headers


def begin(checksum: Checksum) -> Hash | None:
    """Returns a new hash of the checksum's algorithm, None if this machine cannot compute it."""
    return ALGORITHMS[checksum.algorithm]()


def of_content(checksum: Checksum, pieces: Iterable[bytes]) -> str | None:
    """Returns the hexadecimal value of a content, None if this machine cannot compute the checksum's algorithm."""
    computed = begin(checksum)
    if computed is None:
        return None
    for piece in pieces:
        computed.update(piece)
    return computed.hexdigest()


def is_of(checksum: Checksum, path: Path) -> bool:
    """Decides whether a file's content has this checksum; False if this machine cannot compute it. Raises OSError."""
    with path.open("rb") as file:
        return of_content(checksum, iter(lambda: file.read(CHUNK), b"")) == checksum.value
