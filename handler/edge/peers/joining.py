"""A worker that takes the place of another: it becomes like the others before it takes requests."""

import logging
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final

from core.errors import ServingError, escaped
from core.operations import ModelRef
from handler.edge.peers.own import finished, used
from handler.edge.peers.sockets import SILENCE_SECONDS, Peers
from handler.lifecycle.particulars import ProcessState
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background

log = logging.getLogger("dragoman.workers")
SECONDS: Final = 120.0
"""The longest wait for what the others have in memory. After it the worker takes requests, and loads go on."""
LOADERS: Final = 4


def join(registry: Registry, peers: Peers, seconds: float = SECONDS) -> int:
    """Returns how many versions it has loaded because others have them. What fails is logged."""
    found = [each for each in peers.ask("condition", seconds=SILENCE_SECONDS) if isinstance(each, ProcessState)]
    if not all(each.online for each in found):
        registry.set_online(online=False)
    for name in {name for each in found for name in each.unloaded}:
        with suppress(ServingError):  # it has left the repository
            finished(partial(registry.unload, name, Background()))
    wanted = dict.fromkeys(pair for each in found for pair in each.loaded)
    pool = ThreadPoolExecutor(LOADERS, "dragoman-join")
    loads = [pool.submit(_load, registry, *pair) for pair in wanted]
    done, late = wait(loads, seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    if late:
        log.warning("%d models are not loaded after %.0f s: requests load them", len(late), seconds)
    return sum(load.result() for load in done)


def _load(registry: Registry, name: str, number: str) -> bool:
    try:
        finished(partial(used, registry, ModelRef(name, number)))
    except ServingError as error:
        log.warning("%s version %s, which other workers have: %s", escaped(name), number, error.message)
        return False
    return True
