"""The parts of a request beside its messages: its deadline, its protocol's version, a GET's query, base64 bodies."""

import binascii
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import numpy as np

from core.encoding.proto_json import to_bytes
from core.errors import InvalidInput, shown

CONNECT_TIMEOUT: Final = b"connect-timeout-ms"
GRPC_TIMEOUT: Final = b"grpc-timeout"
TIMEOUTS: Final = frozenset((CONNECT_TIMEOUT, GRPC_TIMEOUT))
MILLISECONDS: Final = re.compile(rb"[0-9]{1,10}")
GRPC_DURATION: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
SECONDS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
SLICE: Final = 1024 * 1024
"""Characters of a text that are decoded at a time, which takes ten times their memory; a multiple of four."""
Headers = Mapping[bytes, bytes]


def connect_timeout(headers: Headers) -> float | None:
    """Returns the timeout in seconds, None for none. Raises InvalidInput."""
    text = headers.get(CONNECT_TIMEOUT)
    if not text:
        return None
    if not MILLISECONDS.fullmatch(text):
        raise InvalidInput(f"connect-timeout-ms is {shown(text)}; expected a number of at most 10 digits")
    return int(text) / 1000


def grpc_timeout(headers: Headers) -> float | None:
    """Returns the timeout in seconds, None for none. Raises InvalidInput. Source: PROTOCOL-HTTP2.md "Timeout"."""
    text = headers.get(GRPC_TIMEOUT)
    if not text:
        return None
    found = GRPC_DURATION.fullmatch(text)
    if found is None:
        raise InvalidInput(f"grpc-timeout is {shown(text)}; expected at most 8 digits and one of H, M, S, m, u, n")
    return int(found[1]) * SECONDS[found[2]]


def check_version(headers: Headers) -> None:
    """Raises InvalidInput for another version than 1, which is also the default."""
    version = headers.get(b"connect-protocol-version", b"1")
    if version != b"1":
        raise InvalidInput(f"connect-protocol-version is {shown(version)}; expected '1'")


class Query(dict[bytes, bytes]):
    """The parameters of a Connect GET; the first value of each. Raises InvalidInput."""

    def __init__(self, text: bytes) -> None:
        for pair in reversed(text.split(b"&")):
            name, _, value = pair.partition(b"=")
            self[_plain(name)] = _plain(value)
        version = self.get(b"connect", b"v1")
        if version != b"v1":
            raise InvalidInput(f"the parameter connect is {shown(version)}; expected 'v1'")
        for name in (b"encoding", b"message"):
            if name not in self:
                raise InvalidInput(f"the query needs the parameter {name.decode()}")

    def message(self) -> bytes:
        """Returns the message, decoded from base64 if the query says so. Raises InvalidInput."""
        text = self[b"message"]
        if self.get(b"base64") != b"1":
            return text
        try:
            return to_bytes(text.decode().replace(" ", "+"))  # in a query, a + is a space
        except ValueError:
            raise InvalidInput("the parameter message is not base64 text") from None


def _plain(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def from_text(body: bytes | memoryview) -> bytes:
    """Decodes the body of grpc-web-text: base64 in one piece per flush of its client, each with its own padding.

    Raises InvalidInput.
    """
    view = memoryview(body)
    return b"".join([_from_slice(view[start : start + SLICE]) for start in range(0, len(view), SLICE)])


def _from_slice(body: memoryview) -> bytes:
    text = bytes(body) + b"=" * (-len(body) % 4)
    characters = np.frombuffer(text, np.uint8)
    padding = np.flatnonzero(characters == ord("="))
    place = padding % 4
    # The last one or two of four characters may be padding.
    if (place < 2).any() or (characters[padding[place == 2] + 1] != ord("=")).any():  # noqa: PLR2004 - their places
        raise InvalidInput("the body is not base64 text: it has padding inside a group of four characters")
    try:
        content = binascii.a2b_base64(text.replace(b"=", b"A"), strict_mode=True)
    except binascii.Error:
        raise InvalidInput("the body is not base64 text") from None
    if not padding.size:
        return content
    return np.delete(np.frombuffer(content, np.uint8), padding // 4 * 3 + place - 1).tobytes()


def to_text(part: bytes) -> bytes:
    return binascii.b2a_base64(part, newline=False)
