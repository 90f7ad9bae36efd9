"""Content codings both ways: gzip and deflate (RFC 9110 8.4.1), with limits on the inflated size and on its ratio."""

import zlib
from typing import Final

from core.bounds import RATIO
from core.errors import InvalidInput, TooLarge

GZIP: Final = 31
DEFLATE: Final = 15  # HTTP's "deflate" is the zlib format, not the raw one
WINDOW_BITS: Final = {b"gzip": GZIP, b"x-gzip": GZIP, b"deflate": DEFLATE}
MAGIC: Final = b"\x1f\x8b"
"""The beginning of each member of a gzip body."""
MOST_MEMBERS: Final = 16
"""The most members of a gzip body: each costs a copy of all that follows it."""
MOST_CODINGS: Final = 2
"""The most codings of one body. Clients apply one; each further one costs a pass over everything."""
FREE: Final = 1_310_720
"""Bytes that any body may inflate to: two black images of 3x224x224 FP32, whose ratio is 1,000."""
LEVEL: Final = 1
"""The level of answers: on a 1.6 MB JSON tensor, level 6 takes six times as long to save another 4 %."""


def permitted(sent: int) -> int:
    """Returns the bytes to which a body may inflate, by the bytes that came over the network."""
    return max(FREE, RATIO * sent)


def inflate(body: bytes | memoryview, coding: bytes, limit: int, sent: int | None = None) -> bytes:
    """Returns the decoded body. Raises TooLarge beyond `limit` bytes, InvalidInput unless the streams are whole.

    It never makes more than one byte beyond what is permitted: `limit`, and RATIO times the `sent` bytes beyond FREE.
    `sent`: bytes that came over the network, where they are not the body's own. A gzip body may have several members
    (RFC 1952 2.2), as `cat a.gz b.gz` has.
    """
    name = coding.decode()
    sent = len(body) if sent is None else sent
    most = min(limit, permitted(sent))
    plain, size, rest = [], 0, bytes(body)
    for _ in range(MOST_MEMBERS):
        inflater = zlib.decompressobj(WINDOW_BITS[coding])
        try:
            plain.append(inflater.decompress(rest, most - size + 1))
        except zlib.error as error:
            raise InvalidInput(f"the body is not {name} data: {error}") from None
        size += len(plain[-1])
        if size > most:
            raise _too_large(name, sent, most, limit)
        if not inflater.eof:
            raise InvalidInput(f"the {name} body is cut short after {len(body)} bytes")
        rest = inflater.unused_data
        if not rest:
            return b"".join(plain)
        if coding == b"deflate" or not rest.startswith(MAGIC):
            raise InvalidInput(f"the {name} body is followed by {len(rest)} stray bytes")
    raise InvalidInput(f"the {name} body has more than {MOST_MEMBERS} members")


def _too_large(name: str, sent: int, most: int, limit: int) -> TooLarge:
    if most == limit:
        return TooLarge(f"the {name} body inflates to more than {limit} bytes, the most that is accepted")
    return beyond(f"the {name} body of {sent} bytes inflates", most)


def beyond(what: str, most: int) -> TooLarge:
    """Returns the refusal of bodies that inflate too far. `what`: subject and verb, as "the body inflates"."""
    return TooLarge(
        f"{what} to more than {most} bytes: beyond {FREE} bytes, at most {RATIO} times its size is accepted"
    )


def deflate(parts: tuple[bytes | memoryview, ...], coding: bytes) -> bytes:
    """Returns the parts as one body in a content coding, at LEVEL. `coding`: a key of WINDOW_BITS."""
    deflater = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS[coding])
    return b"".join([*map(deflater.compress, parts), deflater.flush()])


def accepted(header: bytes | None) -> bytes | None:
    """Returns the coding that an Accept-Encoding header prefers among this server's, None for none (RFC 9110 12.5.3).

    >>> accepted(b"deflate;q=0.5, gzip;q=0.8"), accepted(b"gzip;q=0, *;q=1"), accepted(b"identity, br")
    (b'gzip', b'deflate', None)
    """
    if not header:
        return None
    wishes = dict(map(_wish, header.lower().split(b",")))
    anything = wishes.get(b"*", 0.0)
    best = max((b"gzip", b"deflate"), key=lambda coding: wishes.get(coding, anything))
    quality = wishes.get(best, anything)
    return best if quality > 0 and quality >= wishes.get(b"identity", 0.0) else None


def _wish(item: bytes) -> tuple[bytes, float]:
    coding, _, parameters = item.partition(b";")
    name, _, value = parameters.partition(b"=")
    if name.strip() != b"q":
        return coding.strip(), 1.0
    try:
        return coding.strip(), float(value)
    except ValueError:
        return coding.strip(), 0.0
