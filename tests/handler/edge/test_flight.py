"""handler.edge.flight: one budget for the bytes of requests and answers."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from core.errors import ServerBusy, TooLarge
from handler.edge import exchange, flight
from handler.edge.flight import SMALL, WEIGHT, WEIGHT_OF_ENCODED, Flight, flight_of
from handler.settings import Settings

ENCODED = {b"content-encoding": b"gzip"}


async def gathered(budget: Flight, *chunks: bytes, headers: Any = None, limit: int = 10**9) -> Any:
    inbox = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    inbox[-1]["more_body"] = False

    async def receive() -> Any:
        return inbox.pop(0) if inbox else {"type": "http.disconnect"}

    return await exchange.gather(headers or {}, receive, limit, 0, budget)


def gather(budget: Flight, *chunks: bytes, headers: Any = None, limit: int = 10**9) -> Any:
    return asyncio.run(gathered(budget, *chunks, headers=headers, limit=limit))


def announced(size: int) -> dict[bytes, bytes]:
    return {b"content-length": b"%d" % size}


@pytest.mark.parametrize(
    ("chunks", "headers", "held"),
    [
        ((b"x" * (SMALL - 1),), {}, 0),
        ((b"x" * SMALL,), {}, WEIGHT * SMALL),
        ((b"x" * SMALL, b"x"), {}, WEIGHT * (SMALL + 1)),
        ((b"x" * 10,) * 10, {}, 0),
        ((b"x" * SMALL,), ENCODED, WEIGHT_OF_ENCODED * SMALL),
    ],
)
def test_a_body_counts_from_some_kilobytes_on(chunks: tuple[bytes, ...], headers: Any, held: int) -> None:
    """Its bytes are the same as without a budget."""
    budget = Flight(10**9)
    body = gather(budget, *chunks, headers=headers)
    assert bytes(body) == b"".join(chunks)
    assert budget.held == held


@pytest.mark.parametrize(("limit", "held", "size", "fits"), [
    (WEIGHT * SMALL, 0, SMALL, True),
    (WEIGHT * SMALL, 1, SMALL, False),
    (WEIGHT * SMALL, 1, SMALL - 1, True),
    (None, 10**9, SMALL, True),
])  # fmt: skip
def test_a_message_fits_beside_what_is_held(limit: int | None, held: int, size: int, fits: bool) -> None:  # noqa: FBT001 - a column
    """A small one fits always."""
    budget = Flight(limit)
    budget.take(held)
    assert budget.fits(bytes(size)) is fits
    with budget.waiting(bytes(size)):
        assert budget.held - held == (0 if size < SMALL else size)
    assert budget.held == held


def test_a_body_counts_until_its_last_tensor_is_gone() -> None:
    """The budget counts memory, not requests."""
    budget = Flight(10**9)
    body = gather(budget, b"x" * SMALL, b"y" * SMALL)
    tensor = np.frombuffer(body[SMALL:], np.uint8)
    del body
    assert budget.held == 2 * WEIGHT * SMALL
    del tensor
    assert budget.held == 0


def test_a_body_beyond_the_budget_is_refused_before_it_is_read() -> None:
    """Its announced size is enough; a small body, or a body alone, is accepted."""
    budget = Flight(3 * WEIGHT * SMALL)
    with budget.holding(2 * WEIGHT * SMALL):
        with pytest.raises(ServerBusy, match="in flight hold 0 MB already: try again, or raise") as refused:
            gather(budget, b"", headers=announced(SMALL + 1))
        assert refused.value.retry_after == 1
        assert gather(budget, b"x", headers=announced(1)) == b"x"
        assert len(gather(budget, b"x" * SMALL, headers=announced(SMALL))) == SMALL
    assert len(gather(budget, b"x" * 9 * SMALL, headers=announced(9 * SMALL))) == 9 * SMALL
    assert budget.held == 0


@pytest.mark.parametrize("chunks", [(b"x" * 9 * SMALL,), (b"x" * SMALL,) * 9])
def test_a_body_that_grows_beyond_the_budget_is_refused_as_it_comes(chunks: tuple[bytes, ...]) -> None:
    """Its bytes are released."""
    budget = Flight(3 * WEIGHT * SMALL)
    with budget.holding(1), pytest.raises(ServerBusy):
        gather(budget, *chunks)
    assert budget.held == 0
    assert len(gather(budget, *chunks)) == 9 * SMALL


@pytest.mark.parametrize("limit", [SMALL, 4 * SMALL])
def test_a_body_that_does_not_come_to_its_end_returns_what_it_held(limit: int) -> None:
    """The client left, or the body is too large."""
    budget = Flight(10**9)

    async def left() -> None:
        inbox = [{"type": "http.request", "body": b"x" * 2 * SMALL, "more_body": True}, {"type": "http.disconnect"}]
        assert await exchange.gather({}, lambda: asyncio.sleep(0, inbox.pop(0)), limit, 0, budget) is None

    asyncio.run(left())
    with pytest.raises(TooLarge):
        gather(budget, b"x" * 5 * SMALL, limit=limit)
    assert budget.held == 0


def test_the_budget_is_a_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of the limit or of the machine's memory, or the setting's value. The value 0 switches it off."""

    def limit(**variables: str) -> int | None:
        return flight_of(Settings.from_env({f"DRAGOMAN_{name}": value for name, value in variables.items()})).limit

    assert limit(MEMORY_LIMIT="1GB") == 250_000_000
    assert limit(MEMORY_LIMIT="1GB", BYTES_IN_FLIGHT="300MB") == 300_000_000
    assert limit(MEMORY_LIMIT="1GB", BYTES_IN_FLIGHT="0") is None
    monkeypatch.setattr(flight, "machine_memory", lambda: 400)
    assert limit(MEMORY_LIMIT="0") == 100
    monkeypatch.setattr(flight, "machine_memory", lambda: 0)
    assert limit(MEMORY_LIMIT="0") is None


def test_a_system_that_does_not_report_its_memory_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting there is no budget then."""
    assert flight.machine_memory() > 2**20
    monkeypatch.delattr("os.sysconf")
    assert flight.machine_memory() == 0
