"""The work of clients that leave without their answer is dropped or ended, and the next client is answered at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.abuse.asking import CUSTOM, ask, entered, leave, post
from tests.protocols.test_waiting import until
from tests.support.server import serve
from tests.support.zoo import slow
from tests.support.zoo.slow import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server import Server

QUEUE = 300


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server with one thread for models and a long queue, and the folder of its gate."""
    root = tmp_path_factory.mktemp("leaving")
    slow.write(root / "models", root / "gate")
    settings = {"ALLOW_CODE": "true", "THREADS": "1", "QUEUE": str(QUEUE), "TIMEOUT": "0", "PRELOAD": "*"}
    with serve(root / "log", REPOSITORY=str(root / "models"), **settings) as server:
        until(lambda: post(server, "/v2/health/ready", method="GET").status == 200)
        yield server, root / "gate"


def test_the_work_of_three_hundred_clients_that_left_is_not_done(single: tuple[Server, Path]) -> None:
    """They fill the queue behind one that runs. Once they have left, another client waits for that one alone."""
    server, gate = single
    running = leave(server, "waits", 1)
    until(lambda: entered(gate, 1) == 1)
    left = [leave(server, "waits", 2) for _ in range(QUEUE)]
    until(lambda: _refused(server))
    for close in left:
        close()
    with ThreadPoolExecutor(1) as innocent:
        answer = innocent.submit(_until_admitted, server)
        time.sleep(0.1)  # it may be waiting by now; the order of arrival does not count
        (gate / "open").touch()
        assert answer.result() == 200
    running()
    (gate / "open").unlink()
    assert (entered(gate, 2), entered(gate, 3), entered(gate, 4)) == (0, 0, 1)


def _refused(server: Server) -> bool:
    """Returns whether the queue is full. A client that would have to wait leaves again."""
    try:
        return ask(server, "waits", 3, seconds=0.3).status == 503
    except TimeoutError:
        return False


def _until_admitted(server: Server) -> int:
    """Returns the first status that does not mean a full queue."""
    for _ in range(1000):
        told = ask(server, "waits", 4)
        if told.status != 503:
            return int(told.status)
        time.sleep(0.01)
    return 0


@pytest.mark.parametrize("protocol", [each for each in CUSTOM if each != "custom"])
def test_a_graph_ends_when_its_client_leaves(single: tuple[Server, Path], protocol: str) -> None:
    """The only thread is free for another model."""
    server, _ = single
    assert ask(server, "loop", 1, protocol).status == 200
    leave(server, "loop", ENDLESS, protocol)()
    assert ask(server, "other", 1, protocol).status == 200


@pytest.mark.parametrize("protocol", list(CUSTOM))
def test_a_waiting_request_is_dropped_when_its_client_leaves(single: tuple[Server, Path], protocol: str) -> None:
    """Its model never sees it; a request that came later does."""
    server, gate = single
    held, dropped, kept = (10 * (1 + list(CUSTOM).index(protocol)) + number for number in (1, 2, 3))
    assert ask(server, "waits", 0, protocol).status == 200  # the protocol's modules are imported
    running = leave(server, "waits", held)
    until(lambda: entered(gate, held) == 1)
    close = leave(server, "waits", dropped, protocol)
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(ask, server, "waits", kept, protocol)
        close()
        time.sleep(0.3)  # time to notice; without it, the test would prove less, and still not fail
        (gate / "open").touch()
        assert answer.result().status == 200
    running()
    (gate / "open").unlink()
    assert (entered(gate, dropped), entered(gate, kept)) == (0, 1)
