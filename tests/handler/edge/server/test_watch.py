"""handler.edge.server.watch: which connections make room for new ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from handler.edge.server.watch import FRESH_SECONDS, Stage, leaves

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


def test_an_idle_connection_leaves() -> None:
    """At any age."""
    connection: Any = SimpleNamespace(is_idle=lambda: True)
    assert leaves(connection, 0.0)
