"""handler.edge.server.h2.tables without a network; test_connection has its effect on real connections."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from handler.edge.server.flow import BODIES
from handler.edge.server.h2.tables import EMPTY, TableWrites, is_small
from tests.support.http2 import DATA, END_HEADERS, HEADERS, SETTINGS, frame

ACKNOWLEDGED = frame(SETTINGS, flags=1)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ([], False),
        ([(4, 1)], False),
        ([(1, 4096)], False),
        ([(1, 65536)], False),
        ([(1, 4095)], True),
        ([(4, 65535), (1, 0)], True),
        ([(1, 0), (1, 4096)], True),
    ],
)
def test_a_table_is_small_if_it_was_smaller_than_the_default(params: list[tuple[int, int]], *, expected: bool) -> None:
    """Also between two settings of one frame (RFC 7541 4.2)."""
    assert is_small(SimpleNamespace(params=params)) is expected


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("before", [b"", ACKNOWLEDGED, ACKNOWLEDGED + frame(DATA, 1, b"\1" * 20)])
def test_the_first_header_block_begins_with_the_update(before: bytes, *, sends: bool) -> None:
    """Frames before it and after it stay as they are, and so does the next block."""
    raw = MagicMock()
    raw.is_closing.return_value = False
    writes = TableWrites(raw, MagicMock())
    answer = b"".join((frame(HEADERS, 1, b"block", END_HEADERS), frame(DATA, 1, b"x" * BODIES)))
    write = writes.send if sends else writes.write
    write(before + answer)
    writes.confirms = True
    write(before + b"".join((answer, answer)))
    write(answer)
    updated = b"".join((frame(HEADERS, 1, EMPTY + b"block", END_HEADERS), frame(DATA, 1, b"x" * BODIES)))
    sent = [call.args[0] for call in raw.write.call_args_list]
    assert sent == [before + answer, before + updated + answer, answer]


def test_data_without_headers_leaves_the_update_to_the_next() -> None:
    """The acknowledgement of settings may be written alone."""
    raw = MagicMock()
    writes = TableWrites(raw, MagicMock())
    writes.confirms = True
    writes.send(ACKNOWLEDGED)
    assert writes.confirms
    writes.send(frame(HEADERS, 1, b"block", END_HEADERS))
    assert not writes.confirms
