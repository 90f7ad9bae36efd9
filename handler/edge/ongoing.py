"""The requests under way: each is counted and logged when it ends, and one that the server cuts off has an answer."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from handler.edge import exchange
from handler.edge.exchange import Scope
from handler.edge.observe.observer import FAILED, Observer
from handler.edge.observe.record import Record, cut_off
from handler.edge.protocols import refuse

LAST_SECONDS: Final = 1.0
"""For answers of a server that ends. A client that does not read takes none."""


class Ongoing:
    """The requests of one application that are answered in tasks."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._records: set[Record] = set()

    async def recorded(self, record: Record, scope: Scope, answering: Awaitable[None]) -> None:
        """Awaits the answer of the request whose record has begun, and ends the record."""
        self._records.add(record)
        try:
            await answering
        except asyncio.CancelledError:  # a server that ends waits for requests only so long
            error = cut_off()
            refusal = refuse(error, scope)
            if not record.status:
                await exchange.answer(refusal, scope["method"], record.send)
            elif record.last is not None:
                await record.send({"type": "http.response.body", "body": record.last(error)})
        except Exception:
            record.status = record.status or FAILED
            raise
        finally:
            self._observer.end(record)
            self._records.discard(record)

    async def ended(self) -> None:
        """Waits until the requests that the server has cancelled have their answers: it ends with the lifespan."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while self._records:  # noqa: ASYNC110 - an event would cost each request
                    await asyncio.sleep(LAST_SECONDS / 100)
