"""Under overload, the accepted requests are answered in time, and the others are refused at once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.abuse.asking import ask, entered, leave, post
from tests.protocols.test_waiting import until
from tests.support.publishing import publish
from tests.support.zoo import slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server import Server

SLEEPS = """
import time
metadata = {"inputs": [{"name": "n", "datatype": "INT64", "shape": [1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}
def predict(inputs, parameters):
    time.sleep(0.2)
    return {"y": inputs["n"]}
"""


def test_a_line_that_is_too_long_refuses_at_once_and_says_when_to_come_back(
    launch: Callable[..., Server], tmp_path: Path
) -> None:
    """A model that takes 0.2 s on one thread accepts about fifteen of a burst of forty; refusals have a retry time."""
    publish(tmp_path / "models", "sleeps", 1, SLEEPS.encode(), "model.py")
    server = launch(REPOSITORY=str(tmp_path / "models"), ALLOW_CODE="true", THREADS="1", PRELOAD="*")
    until(lambda: ask(server, "sleeps", 1).status == 200)
    with ThreadPoolExecutor(40) as clients:
        told = list(clients.map(lambda n: ask(server, "sleeps", n), range(40)))
    statuses = Counter(each.status for each in told)
    assert statuses.keys() == {200, 503}
    assert statuses[200] >= 3
    refused = [each for each in told if each.status == 503]
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    # On a busy machine, some that were accepted do not get the thread in time after all.
    late = [each for each in refused if "did not get a thread in time" in each.text]
    assert len(late) < len(refused)
    assert all("requests waiting" in each.text for each in refused if each not in late)


def test_a_full_queue_is_shared(launch: Callable[..., Server], tmp_path: Path) -> None:
    """One model's requests fill the queue. Another model's request replaces the newest of them, and is next."""
    slow.write(tmp_path / "models", gate := tmp_path / "gate")
    settings = {"ALLOW_CODE": "true", "THREADS": "1", "QUEUE": "4", "TIMEOUT": "0", "PRELOAD": "*"}
    server = launch(REPOSITORY=str(tmp_path / "models"), **settings)
    until(lambda: ask(server, "other", 1).status == 200)
    running = leave(server, "waits", 1)
    until(lambda: entered(gate, 1) == 1)
    with ThreadPoolExecutor(6) as clients:
        waiting = [clients.submit(ask, server, "waits", 2) for _ in range(5)]
        until(lambda: any(each.done() for each in waiting))
        other = clients.submit(ask, server, "other", 4)
        until(lambda: sum(each.done() for each in waiting) == 2)
        assert not other.done()
        assert post(server, "/v2/health/ready", method="GET").status == 200
        (gate / "open").touch()
        assert other.result().status == 200
        statuses = Counter(each.result().status for each in waiting)
    running()
    assert statuses == {200: 3, 503: 2}
