"""The limits of a gRPC server: the options of its channels, and the time in which a call's message has to come.

grpc reports nothing of a message before it is complete, so its bytes count against the budget only then. Until then the
number of calls that wait for theirs is bounded.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from grpc.aio import EOF

from core.dialects.connect.envelopes import NO_MESSAGE
from core.errors import NotSupported
from handler.edge.flight import Flight
from handler.edge.idling import FRESH_SECONDS, LATE, MESSAGE_SECONDS, Idling, TaskWaits
from handler.edge.server.limits import of
from handler.settings import Settings

STREAMS: Final = 1024
"""Streams and watches of health: the limit of idle ones, and the calls beside those that wait for a thread."""
FEWEST: Final = 8
SHARE: Final = 4
"""One connection of gRPC for so many of HTTP: calls share connections."""
KEEPALIVE_MS: Final = 60_000
"""After so long without data the server asks whether the client is still there."""
METADATA: Final = 32 * 1024
"""Bytes of a call's metadata, twice those of the longest credential. With grpc's own limits, calls with more than 8 kB
fail at random, and with more than 16 kB always."""
IDLE_MS: Final = 300_000
"""A connection without calls is closed; clients connect again by themselves."""


class Reading:
    """The calls that wait for their message, the oldest first. `most`: how many of them may wait for over a moment.

    asyncio.timeout would cost each call 15 us, so one timer looks after all of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waits = TaskWaits()
        self._watched: asyncio.AbstractEventLoop | None = None  # one that has ended runs no timer any more

    async def first(self, read: Callable[[], Awaitable[Any]], flight: Flight) -> bytes:
        """Returns the first message. `read`: the context's; the end of its iterator would cost a task for each call.

        Raises ServerBusy if it does not come in time, or if the budget is used up before; NotSupported without one.
        Further ones are not looked for: grpc.aio would need as long as a tenth of a tiny call to say that none comes.
        """
        flight.admit(0)
        loop = asyncio.get_running_loop()
        now = loop.time()
        if len(self._waits.since) >= self._most:
            self._make_room(now)
        if self._watched is not loop:
            self._watch(loop, MESSAGE_SECONDS)
        body = await self._waits.result(read(), now, LATE)
        if body is EOF:
            await _settled(read)
            raise NotSupported(NO_MESSAGE)
        message: bytes = body
        return message

    def _make_room(self, now: float) -> None:
        """Ends the wait that has lasted longest, if it has lasted longer than a moment."""
        oldest = next(iter(self._waits.since), None)
        if oldest is not None and now - self._waits.since[oldest] >= FRESH_SECONDS:
            self._waits.end(oldest)

    def _watch(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._watched = loop
        loop.call_later(seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the waits that have lasted too long, and looks again when the next one may have."""
        self._watched = None
        due = loop.time() - MESSAGE_SECONDS
        for task, begun in list(self._waits.since.items()):
            if begun > due:
                self._watch(loop, begun - due)
                return
            self._waits.end(task)


async def _settled(read: Callable[[], Awaitable[Any]]) -> None:
    """Returns after the last message of a call, unless grpc has ended the call: then its task is cancelled meanwhile.

    To a reader, a message beyond grpc's limit looks like the end of the messages, and so does a client that leaves.
    grpc refuses the former itself. Its event for the end of the call comes while another read is under way.
    """
    await read()


async def messages_of(read: Callable[[], Awaitable[Any]], idling: Idling) -> AsyncGenerator[bytes]:
    """Yields the messages of a stream. `read`: the context's. Raises ServerBusy."""
    while True:
        taken = [await idling.wait(read(), asyncio.get_running_loop().time())]
        if taken[0] is EOF:
            await _settled(read)
            return
        yield taken.pop()  # this frame does not keep the message while it is worked on


def most_messages(budget: int | None, largest: int) -> int:
    """Returns how many of the largest messages fit into the budget. Their calls may wait for them at the same time."""
    return STREAMS if budget is None else max(FEWEST, budget // largest)


def options(settings: Settings) -> list[tuple[str, Any]]:
    """Returns the arguments of the server's channels (grpc, channel_arg_names.h)."""
    return [
        ("grpc.max_metadata_size", METADATA),  # from here on at random
        ("grpc.absolute_max_metadata_size", METADATA),  # from here on always
        ("grpc.max_receive_message_length", settings.max_body_bytes),  # inflated, too
        ("grpc.max_send_message_length", -1),
        # Only for the workers of one server: a second server would silently take half of the calls.
        ("grpc.so_reuseport", int(settings.workers > 1)),
        ("grpc.max_concurrent_streams", STREAMS),  # of one connection
        ("grpc.max_allowed_incoming_connections", max(FEWEST, of(settings).connections // SHARE)),
        ("grpc.server_handshake_timeout_ms", int(settings.head_timeout * 1000)),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", int(settings.pause_timeout * 1000)),
        ("grpc.max_connection_idle_ms", IDLE_MS),
    ]
