"""Messages in envelopes, as Connect's streams and gRPC-Web send them: flags, four bytes of length, the message.

Sources: the Connect protocol's "Streaming-Request"; gRPC's PROTOCOL-HTTP2.md "Length-Prefixed-Message".
"""

from collections.abc import Iterator
from typing import Final

from core.bounds import MOST_MESSAGES
from core.dialects.connect.codes import UnannouncedCompression
from core.encoding import compression
from core.errors import InvalidInput, NotSupported, TooLarge
from core.records import NamedTuple
from core.wire import Part

HEAD: Final = 5
COMPRESSED: Final = 1
LONGEST: Final = 2**32 - 1
NO_MESSAGE: Final = "the request has no message; this method takes one"


class Whole:
    """A body of several messages. Together they may inflate to as much as one compressed body of this size.

    A message that is inflated again counts once. Threads that inflate at the same time may exceed the bound a little.
    """

    __slots__ = ("_inflated", "_sent", "_total")

    def __init__(self, sent: int) -> None:
        self._sent = sent
        self._inflated: dict[int, int] = {}
        self._total = 0

    def inflate(self, content: Part, coding: bytes, limit: int, at: int) -> bytes:
        """Returns the message at that place of the body. Raises InvalidInput, TooLarge."""
        most = compression.permitted(self._sent)
        before = self._inflated.get(at, 0)
        left = most - self._total + before
        try:
            plain = compression.inflate(content, coding, min(limit, max(left, 0)))
        except TooLarge:
            if left >= min(limit, compression.permitted(len(content))):
                raise
            raise compression.beyond(f"the messages of a body of {self._sent} bytes inflate", most) from None
        self._inflated[at] = len(plain)
        self._total += len(plain) - before
        return plain


class Frame(NamedTuple):
    """A message as it was received. `coding`: its compression, b"" without one. `whole`: its body, with its place."""

    content: Part
    coding: bytes = b""
    whole: tuple[Whole, int] | None = None

    def message(self, limit: int) -> Part:
        """Returns the message, inflated if it is compressed. Raises InvalidInput, TooLarge."""
        # An empty message is not decompressed, whatever its flags are.
        if not self.coding or not self.content:
            return self.content
        if self.whole is None:
            return compression.inflate(self.content, self.coding, limit)
        body, at = self.whole
        return body.inflate(self.content, self.coding, limit, at)


def frames(body: Part, limit: int, coding: bytes) -> Iterator[Frame]:
    """Yields the messages of a request. `limit`: the most bytes of each. `coding`: the one that a header announces.

    Raises InvalidInput, TooLarge, UnannouncedCompression.
    """
    view, position, end = memoryview(body), 0, len(body)
    whole = Whole(end)
    while position < end:
        start = position + HEAD
        if start > end:
            raise InvalidInput(f"the request ends inside an envelope's head, at byte {end}")
        own, size = announced(view[position:start], limit, coding, at=position)
        position = start + size
        if position > end:
            raise InvalidInput(f"an envelope announces {size} bytes; {end - start} follow")
        yield Frame(view[start:position], own, (whole, start) if own else None)


def announced(envelope: Part | bytearray, limit: int, coding: bytes, *, at: int) -> tuple[bytes, int]:
    """Returns what an envelope's head announces: the message's coding, and its bytes. `at`: its place.

    Raises InvalidInput, TooLarge, UnannouncedCompression.
    """
    flags, size = envelope[0], int.from_bytes(envelope[1:])
    if flags & ~COMPRESSED:
        raise InvalidInput(f"the envelope at byte {at} has the flags {flags}; requests may have 0 and 1")
    if size > limit:
        raise TooLarge(f"an envelope announces {size} bytes; at most {limit} are accepted")
    if flags and not coding:
        raise UnannouncedCompression(f"the envelope at byte {at} is compressed, but no header says how")
    return coding if flags else b"", size


def check_messages(body: Part) -> None:
    """Raises TooLarge for a body of more messages than a stream may have. Looks at the envelopes' heads alone."""
    view, position, count, last = memoryview(body), 0, 0, len(body) - HEAD
    while position <= last:
        count += 1
        if count > MOST_MESSAGES:
            raise TooLarge(f"the request has more than {MOST_MESSAGES} messages, the most of a stream in one body")
        position += HEAD + int.from_bytes(view[position + 1 : position + HEAD])


def only(found: Iterator[Frame]) -> Frame:
    """Returns the frame of a method that takes one message. gRPC requires UNIMPLEMENTED for any other number."""
    frame = next(found, None)
    if frame is None:
        raise NotSupported(NO_MESSAGE)
    if next(found, None) is not None:
        raise NotSupported("the request has more than one message; this method takes one")
    return frame


def head(size: int, flags: int = 0) -> bytes:
    """Returns the head of the envelope of a message of `size` bytes. Raises TooLarge."""
    if size > LONGEST:
        raise TooLarge(f"the answer has {size} bytes; an envelope takes {LONGEST}")
    return bytes((flags,)) + size.to_bytes(4)


def framed(message: bytes, flags: int = 0) -> bytes:
    return head(len(message), flags) + message


def deflated(message: bytes) -> bytes:
    return compression.deflate((message,), b"gzip")
