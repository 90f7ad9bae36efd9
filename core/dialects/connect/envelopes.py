"""Messages in envelopes, as Connect's streams and gRPC-Web send them: flags, four bytes of length, the message.

Sources: the Connect protocol's "Streaming-Request"; gRPC's PROTOCOL-HTTP2.md "Length-Prefixed-Message".
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from core.bounds import MOST_MESSAGES
from core.dialects.connect.codes import UnannouncedCompression
from core.encoding import compression
from core.errors import InvalidInput, NotSupported, TooLarge
from core.wire import Part

HEAD: Final = 5
COMPRESSED: Final = 1
LONGEST: Final = 2**32 - 1


class Frame(NamedTuple):
    """A message as it was received."""

    content: Part
    compressed: bool

    def message(self, limit: int) -> Part:
        """Returns the message, inflated if it is compressed. Raises InvalidInput, TooLarge."""
        # An empty message is not decompressed, whatever its flags are.
        if not self.compressed or not self.content:
            return self.content
        return compression.inflate(self.content, b"gzip", limit)


def frames(body: Part, limit: int, *, gzipped: bool) -> Iterator[Frame]:
    """Yields the messages of a request. `limit`: the most bytes of each. `gzipped`: a header announces gzip.

    Raises InvalidInput, TooLarge, UnannouncedCompression.
    """
    view, position, end = memoryview(body), 0, len(body)
    while position < end:
        start = position + HEAD
        if start > end:
            raise InvalidInput(f"the request ends inside an envelope's head, at byte {end}")
        flags, size = view[position], int.from_bytes(view[position + 1 : start])
        if flags & ~COMPRESSED:
            raise InvalidInput(f"the envelope at byte {position} has the flags {flags}; requests may have 0 and 1")
        if size > limit:
            raise TooLarge(f"an envelope announces {size} bytes; at most {limit} are accepted")
        if flags and not gzipped:
            raise UnannouncedCompression(f"the envelope at byte {position} is compressed, but no header says how")
        position = start + size
        if position > end:
            raise InvalidInput(f"an envelope announces {size} bytes; {end - start} follow")
        yield Frame(view[start:position], flags == COMPRESSED)


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
        raise NotSupported("the request has no message; this method takes one")
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
