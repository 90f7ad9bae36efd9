"""The log of refusals: it names the caller and the path, and stays short however many are refused.

A request that has a record gets its line there, which names them, too.
"""

import logging
from typing import Final

from core.errors import shown
from handler.edge.exchange import Scope
from handler.edge.log_lines import LineLimit
from handler.edge.observe.record import turned_away

SHOWN_PATH: Final = 128
UNKNOWN_CALLER: Final = "an unknown caller"


def peer_of(scope: Scope) -> str:
    """Returns the address of a request's client."""
    return str((scope.get("client") or ("an unknown address",))[0])


class RefusalLog:
    """Writes as many lines as LineLimit admits."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._limit = LineLimit()

    def refused(self, scope: Scope, name: str) -> None:
        """Logs a refusal. `name`: the caller's; no credential is part of it."""
        peer = peer_of(scope)
        if turned_away(name, peer):
            return  # its line in the access log says so
        if self._limit.admits(self._log.warning):
            method, path = shown(scope["method"], 16), shown(scope["path"], SHOWN_PATH)
            self._log.warning("refused: %s %s of %s, from %s", method, path, name, shown(peer, 64))
