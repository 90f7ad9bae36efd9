"""A worker that takes the place of another: it becomes like the others before it takes requests."""

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final

from core.errors import ServingError, counted, escaped
from core.operations import ModelRef
from handler.edge.peers.own import finished, used
from handler.edge.peers.sockets import SILENCE_SECONDS, Peers
from handler.lifecycle.particulars import ProcessState
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background

log = logging.getLogger("dragoman.workers")
SECONDS: Final = 120.0
"""The longest wait to load the models that other workers have. Then the worker takes requests, and loads go on."""
LOADERS: Final = 4


def join(registry: Registry, peers: Peers, seconds: float = SECONDS) -> int:
    """Loads the versions that other workers have, and returns their number. Failures are logged.

    A change that the others made meanwhile, and did not tell a worker that they did not see yet, is made at the end.
    """
    found = _conditions(peers)
    if not found:
        return 0
    _set_online(registry, found)
    _unload(registry, {name for each in found for name in each.unloaded})
    wanted = dict.fromkeys(pair for each in found for pair in each.loaded)
    pool = ThreadPoolExecutor(LOADERS, "dragoman-join")
    loads = [pool.submit(_load, registry, *pair) for pair in wanted]
    done, late = wait(loads, seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    if late:
        log.warning("%s not loaded after %.0f s: requests load them", counted(len(late), "model"), seconds)
    if found := _conditions(peers):
        _set_online(registry, found)
        _unload(registry, {name for name, _ in wanted} - {name for each in found for name, _ in each.loaded})
    return sum(load.result() for load in done)


def _conditions(peers: Peers) -> list[ProcessState]:
    found = peers.ask("condition", seconds=SILENCE_SECONDS)
    return [each for each in found if isinstance(each, ProcessState)]


def _set_online(registry: Registry, found: Iterable[ProcessState]) -> None:
    online = all(each.online for each in found)
    if online is not registry.condition().online:
        registry.set_online(online=online)


def _unload(registry: Registry, names: Iterable[str]) -> None:
    for name in names:
        with suppress(ServingError):  # it has left the repository
            finished(partial(registry.unload, name, Background()))


def _load(registry: Registry, name: str, number: str) -> bool:
    try:
        finished(partial(used, registry, ModelRef(name, number)))
    except ServingError as error:
        log.warning("%s version %s, which other workers have: %s", escaped(name), number, error.message)
        return False
    return True
