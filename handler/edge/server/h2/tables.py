"""Confirms the size of HPACK's table to clients that have made it smaller than the default."""

from typing import Any, Final

import zttp

from handler.edge.server.flow import JoinedWrites

DEFAULT: Final = 4096
"""The bytes of a table unless the client sets another size (RFC 9113 6.5.2)."""
HEAD: Final = 9
HEADERS: Final = 1
EMPTY: Final = b"\x20"
"""The update that makes the table empty (RFC 7541 6.3). zttp writes literals only and does not use the table."""


def is_small(event: Any) -> bool:
    """Decides whether settings make the client's table smaller than the default. The server has to confirm that."""
    sizes = [value for name, value in event.params if name == zttp.H2Settings.HEADER_TABLE_SIZE]
    return bool(sizes) and min(sizes) < DEFAULT


class TableWrites(JoinedWrites):
    """Writes of an HTTP/2 connection.

    `confirms`: the next header block begins with an update of the table's size (RFC 7541 4.2).
    """

    confirms = False

    def write(self, data: bytes) -> None:
        super().write(self._confirmed(data) if self.confirms else data)

    def send(self, whole: bytes) -> None:
        super().send(self._confirmed(whole) if self.confirms else whole)

    def _confirmed(self, data: bytes) -> bytes:
        """Returns the frames, with the update at the start of the first header block."""
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
