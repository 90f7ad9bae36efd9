"""The limits of a gRPC server: the options of its channels, and the time in which a call's message has to come.

grpc reports nothing of a message before it is complete, so its bytes count against the budget only then. Until then the
number of calls that wait for theirs is bounded.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from core.errors import InvalidInput, ServerBusy
from handler.edge.flight import Flight
from handler.edge.server.limits import of
from handler.settings import Settings

STREAMS: Final = 1024
"""Calls beside those that may wait for a thread: streams and watches of health, which are mostly idle."""
MESSAGE_SECONDS: Final = 120.0
"""The longest time for one message. Its progress is not known, and 64 MB need that long at 4 Mbit/s."""
FRESH_SECONDS: Final = 1.0
"""A call may wait so long for its message, however many do."""
FEWEST: Final = 8
SHARE: Final = 4
"""One connection of gRPC for so many of HTTP: calls share connections."""
KEEPALIVE_MS: Final = 60_000
"""After so long without data the server asks whether the client is still there."""
IDLE_MS: Final = 300_000
"""A connection without calls is closed; clients connect again by themselves."""


class Reading:
    """The calls that wait for their message, the oldest first. `most`: how many of them may wait for over a moment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[asyncio.Timeout, float] = {}

    async def first(self, bodies: AsyncIterator[bytes], flight: Flight) -> bytes:
        """Returns the first message.

        Raises ServerBusy if it does not come in time, or if the budget is used up before; InvalidInput without one.
        """
        flight.admit(0)
        now = asyncio.get_running_loop().time()
        if len(self._waiting) >= self._most:
            self._make_room(now)
        try:
            async with asyncio.timeout_at(now + MESSAGE_SECONDS) as scope:
                self._waiting[scope] = now
                try:
                    body: bytes | None = await anext(bodies, None)
                finally:
                    del self._waiting[scope]
        except TimeoutError:
            raise ServerBusy("the call's message did not come in time: try again", retry_after=1) from None
        if body is None:
            raise InvalidInput("the call has no message")
        return body

    def _make_room(self, now: float) -> None:
        """Ends the wait that has lasted longest, if it has lasted longer than a moment."""
        oldest = next((scope for scope in self._waiting if not scope.expired()), None)
        if oldest is not None and now - self._waiting[oldest] >= FRESH_SECONDS:
            oldest.reschedule(now)


def most_messages(budget: int | None, largest: int) -> int:
    """Returns how many of the largest messages fit into the budget. Their calls may wait for them at the same time."""
    return STREAMS if budget is None else max(FEWEST, budget // largest)


def options(settings: Settings) -> list[tuple[str, Any]]:
    """Returns the arguments of the server's channels (grpc, channel_arg_names.h). Metadata have grpc's limit, 16 kB."""
    return [
        ("grpc.max_receive_message_length", settings.max_body_bytes),  # inflated, too
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # else a second server silently takes half of the calls
        ("grpc.max_concurrent_streams", STREAMS),  # of one connection
        ("grpc.max_allowed_incoming_connections", max(FEWEST, of(settings).connections // SHARE)),
        ("grpc.server_handshake_timeout_ms", int(settings.head_timeout * 1000)),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", int(settings.pause_timeout * 1000)),
        ("grpc.max_connection_idle_ms", IDLE_MS),
    ]
