"""The size of HPACK's table, for clients whose table is smaller than usual."""

from typing import Any, Final

import zttp

from handler.edge.server.flow import JoinedWrites

USUAL: Final = 4096
"""Bytes of a table until its client says otherwise (RFC 9113 6.5.2)."""
HEAD: Final = 9
HEADERS: Final = 1
EMPTY: Final = b"\x20"
"""The update of a table's size to nothing (RFC 7541 6.3). zttp writes literals only, and so has no use for a table."""


def is_small(event: Any) -> bool:
    """Decides whether settings make the client's table smaller than usual. The server has to confirm it."""
    sizes = [value for name, value in event.params if name == zttp.H2Settings.HEADER_TABLE_SIZE]
    return bool(sizes) and min(sizes) < USUAL


class TableWrites(JoinedWrites):
    """Writes of HTTP/2. `confirms`: the next headers begin with the size of the table (RFC 7541 4.2)."""

    confirms = False

    def write(self, data: bytes) -> None:
        super().write(self._confirmed(data) if self.confirms else data)

    def send(self, whole: bytes) -> None:
        super().send(self._confirmed(whole) if self.confirms else whole)

    def _confirmed(self, data: bytes) -> bytes:
        """Returns whole frames, the first headers among them with the size of the table before them."""
        position = 0
        while position + HEAD <= len(data):
            size = int.from_bytes(data[position : position + 3])
            block = position + HEAD
            if data[position + 3] == HEADERS:
                self.confirms = False
                longer = (size + len(EMPTY)).to_bytes(3)
                return b"".join((data[:position], longer, data[position + 3 : block], EMPTY, data[block:]))
            position = block + size
        return data
