"""handler.edge.server.watch: which connections make room for new ones."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from handler.edge.server.http2 import EitherHttp
from handler.edge.server.limits import Limits
from handler.edge.server.watch import FRESH_SECONDS, Stage, Watch, answering, leaves
from tests.support.bounded import serving
from tests.support.raw import head, status, talk

HEAD = Stage("head", 1, 30)
BODY = Stage("body", 1, 30)


@pytest.mark.parametrize(
    ("seen", "now", "seconds", "expected"),
    [
        (HEAD, HEAD, FRESH_SECONDS, True),
        (HEAD, HEAD, FRESH_SECONDS - 0.1, False),
        (HEAD, BODY, FRESH_SECONDS, False),  # its head has come since the last look
        (HEAD, Stage("head", 2, 30), FRESH_SECONDS, False),
        (HEAD, None, FRESH_SECONDS, False),
        (BODY, BODY, FRESH_SECONDS, False),
        (None, HEAD, FRESH_SECONDS, False),
    ],
)
def test_a_connection_leaves_whose_head_takes_long(seen: Any, now: Any, seconds: float, *, expected: bool) -> None:
    """A look may be a whole period old: what counts is where the connection is now."""
    connection: Any = SimpleNamespace(is_idle=lambda: False, stage=lambda: now, seen=seen, since=10.0)
    assert leaves(connection, 10.0 + seconds) is expected


def test_an_answer_moves_with_enough_of_its_bytes() -> None:
    """Fewer than a kilobyte for each second of the pause are none."""
    first, same, other = (answering(taken, Limits(1, 30, 3, 1, 9)) for taken in (7000, 7000 + 1024, 7000 + 3 * 1024))
    assert first == same
    assert first != other
    assert (other.name, other.seconds) == ("answer", 3)


def test_an_idle_connection_leaves() -> None:
    """At any age."""
    connection: Any = SimpleNamespace(is_idle=lambda: True)
    assert leaves(connection, 0.0)


@pytest.mark.parametrize("broken", ["stage", "give_up"])
def test_a_look_at_a_connection_that_fails_is_not_the_last(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    """The connection ends, with a line in the log. The limits of the others hold."""

    async def run() -> None:
        given_up = asyncio.Event()

        def fail(*_: Any) -> None:
            raise MemoryError

        def connection(**members: Any) -> Any:
            whole = {"stage": lambda: Stage("head", 1, 0.05), "give_up": lambda _: None, "seen": None, "since": 0.0}
            return SimpleNamespace(**{**whole, **members})

        connections: dict[int, Any] = {}

        def end(_: Any) -> None:
            if 0 not in connections:
                given_up.set()

        bad = connection(**{broken: fail}, transport=SimpleNamespace(abort=lambda: connections.pop(0)))
        connections |= {0: bad, 1: connection(give_up=end)}
        known: Any = connections.values()
        watch = Watch(known, Limits(1, 0.2, 0.2, 1, 9), 0.2, asyncio.get_running_loop())
        watch.begin()
        await asyncio.wait_for(given_up.wait(), 30)
        connections.clear()

    asyncio.run(run())
    assert caplog.text.count("a look at a connection failed") == 1


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_whose_look_fails_is_closed(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client sees that at once, and the next one is served."""
    monkeypatch.setattr(EitherHttp, "stage", lambda _: 1 / 0)
    with serving(loop, Limits(1000, 0.2, 0.2, 300_000, 20), EitherHttp) as port:
        assert talk(port) == b""
        monkeypatch.undo()
        assert status(talk(port, head("GET", "/", "Connection: close"))) == 200
