"""handler.edge.server.limits: the bounds of connections."""

from __future__ import annotations

import pytest

from handler.edge.server import limits
from handler.settings import Settings


def test_the_limits_are_the_settings() -> None:
    """A refused body is read to twice its limit; a body is slow below a kilobyte a second."""
    environ = {
        "MAX_HEADER_BYTES": "5",
        "HEAD_TIMEOUT": "2",
        "PAUSE_TIMEOUT": "3",
        "MAX_BODY_BYTES": "7",
        "CONNECTIONS": "9",
    }
    found = limits.of(Settings.from_env({f"DRAGOMAN_{name}": value for name, value in environ.items()}))
    assert found == limits.Limits(5, 2.0, 3.0, 14, 9)
    assert found.least == 3 * 1024
    assert found._replace(pause=0.0001).least == 1


def test_enough_bytes_begin_the_time_of_a_wait_anew() -> None:
    """They may come one by one, and what is more than enough does not count for the next time."""
    wait = limits.WaitLimit(3, 100)
    left = []
    for size, seconds in ((60, 1), (39, 1), (500, 0.5), (99, 2), (0, 1)):
        wait.count(size, seconds)
        left.append(wait.left)
    assert left == [2, 1, 3, 1, 0]


@pytest.mark.parametrize(("descriptors", "most"), [(1024, 768), (256, 192), (100, 36), (10, 1), (10**6, 10_000)])
def test_connections_leave_a_quarter_of_the_descriptors(descriptors: int, most: int) -> None:
    """At least 64 are left."""
    assert limits.most_connections(descriptors) == most


def test_without_a_limit_of_descriptors_there_is_one_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not have such a limit."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (limits_infinity(), 0))
    assert limits.most_connections(limits.descriptors()) == limits.MOST_CONNECTIONS
    monkeypatch.setattr("sys.platform", "win32")
    assert limits.descriptors() >= limits.MOST_CONNECTIONS


def limits_infinity() -> int:
    import resource  # noqa: PLC0415 - Windows has none

    return resource.RLIM_INFINITY
