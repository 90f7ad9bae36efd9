"""handler.edge.server.h2.unread without a network; test_connection has the bounds with real connections."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import zttp

from handler.edge.server.h2.unread import UnreadBodies
from handler.edge.server.limits import Limits
from tests.support.http2 import DATA, END_STREAM, PREFACE, RST_STREAM, SETTINGS, asking, frame

LIMITS = Limits(head=1000, head_seconds=1, pause=7, drain=10, connections=20)


class Peer:
    """A connection whose stream 1 has had an answer, and its only timer."""

    def __init__(self) -> None:
        self.connection = MagicMock(limits=LIMITS, conn=zttp.Connection(zttp.SERVER, zttp.HTTP2))
        self.connection.transport.is_closing.return_value = False
        self.bodies = UnreadBodies(self.connection)
        self.connection.conn.initiate_connection()
        self.took(PREFACE + frame(SETTINGS) + asking(1, "POST", "/", ends=False))
        stream = self.connection.conn.stream(1)
        stream.send_response(400, [])
        stream.end_message()
        self.connection.conn.data_to_send()
        self.bodies.add(1)
        (self.seconds, self.ends, *self.arguments), _ = self.connection.loop.call_later.call_args
        self.timer = self.connection.loop.call_later.return_value

    def took(self, data: bytes) -> list[bool]:
        """Returns for each event in the data whether it belongs to an unread body."""
        peer, found = self.connection.conn, []
        peer.receive_data(data)
        while (event := peer.next_event()) is not zttp.NEED_DATA:
            if isinstance(event, zttp.Request | zttp.Data | zttp.EndOfMessage | zttp.RstStream):
                found.append(self.bodies.took(event))
        return found

    def has_reset(self) -> bool:
        sent = self.connection.conn.data_to_send()
        return frame(RST_STREAM, 1, bytes(4)) in sent


@pytest.mark.parametrize("end", [frame(DATA, 1, b"x", END_STREAM), frame(RST_STREAM, 1, b"\0\0\0\x08")])
def test_a_body_that_ends_needs_no_reset(end: bytes) -> None:
    """Its timer ends, and its stream is like any other one."""
    peer = Peer()
    assert all(peer.took(frame(DATA, 1, b"x" * 9) + end))
    peer.timer.cancel.assert_called_once_with()
    assert not peer.has_reset()
    assert not peer.bodies.took(SimpleNamespace(stream_id=1))


def test_a_body_with_too_many_bytes_is_reset() -> None:
    """Bytes up to the limit are dropped."""
    peer = Peer()
    assert peer.took(frame(DATA, 1, b"x" * 10)) == [True]
    assert not peer.has_reset()
    assert peer.took(frame(DATA, 1, b"x")) == [True]
    assert peer.has_reset()
    peer.timer.cancel.assert_called_once_with()


@pytest.mark.parametrize("is_closing", [False, True])
def test_a_body_that_takes_too_long_is_reset(*, is_closing: bool) -> None:
    """A connection that is closing sends nothing more."""
    peer = Peer()
    peer.connection.transport.is_closing.return_value = is_closing
    assert peer.seconds == LIMITS.pause
    peer.ends(*peer.arguments)
    assert peer.has_reset() is not is_closing


def test_a_connection_that_has_ended_has_no_timers() -> None:
    """They would keep it in memory."""
    peer = Peer()
    peer.bodies.close()
    peer.timer.cancel.assert_called_once_with()
    assert not peer.bodies.took(SimpleNamespace(stream_id=1))
