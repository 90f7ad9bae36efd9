"""Keeps most of a client's resets from zttp, which breaks a connection off at the 257th, with all calls under way.

A client resets the calls that it cancels and those that miss their deadlines, and opens others in their place. Many of
these can be on their way before it reads that the connection ends. It can reset each of its requests once, so zttp gets
what goes beyond them.
"""

from typing import Final

from core.records import NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client of HTTP/2 sends first (RFC 9113 3.4)."""
MOST_RESETS: Final = 128
"""The number of resets that zttp gets at first. At that number a connection announces its end, too."""
MOST_REQUESTS: Final = 4096
"""The number of requests that zttp lets a connection have."""
HEAD: Final = 9
"""The bytes of a frame before its payload, of which the first three are the payload's length (RFC 9113 4.1)."""
RST_STREAM: Final = 3
WHOLE: Final = HEAD + 4
"""The bytes of a frame RST_STREAM (RFC 9113 6.4)."""


class ResetStream(NamedTuple):
    """The reset of a stream, in place of zttp's event."""

    stream_id: int


class ClientResets:
    """The frames of one connection, as far as they are resets. `count`: of the resets so far."""

    def __init__(self) -> None:
        self.count = 0
        self._skip = len(PREFACE)
        self._held = b""

    def parts(self, data: bytes) -> list[tuple[bytes, int]]:
        """Returns what a client has sent in pieces, each with the stream whose reset was behind it; 0 for none.

        The beginning of a frame's head is held back until the rest of the head is there.
        """
        data = self._held + data if self._held else data
        found, begin, at, end = [], 0, self._skip, len(data)
        while at + HEAD <= end:
            size = HEAD + int.from_bytes(data[at : at + 3])
            if data[at + 3] == RST_STREAM and size == WHOLE:
                if at + WHOLE > end:
                    break
                self.count += 1
                if MOST_RESETS < self.count <= MOST_REQUESTS:
                    found.append((data[begin:at], int.from_bytes(data[at + 5 : at + HEAD]) & 0x7FFF_FFFF))
                    begin = at + WHOLE
            at += size
        self._skip = max(0, at - end)
        self._held = data[at:] if at < end else b""
        found.append((data[begin:at] if begin or at < end else data, 0))
        return found
