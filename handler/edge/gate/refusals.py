"""The log of refusals: it names the caller and the path, and stays short however many are refused.

A request that has a record gets its line there, which names them, too.
"""

import logging
import time
from typing import Final

from core.errors import shown
from handler.edge.exchange import Scope
from handler.edge.observe.record import turned_away

SECONDS: Final = 10.0
MOST: Final = 10
"""Lines in that many seconds. The next one says how many were left out."""
SHOWN_PATH: Final = 128


class RefusalLog:
    """Writes at most MOST lines in SECONDS."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = float("-inf")
        self._lines = 0

    def refused(self, scope: Scope, name: str) -> None:
        """Logs a refusal. `name`: the caller's; no credential is part of it."""
        peer = (scope.get("client") or ("an unknown address",))[0]
        if turned_away(name, str(peer)):
            return  # its line in the access log says so
        now = time.monotonic()
        if now - self._since >= SECONDS:
            if self._lines > MOST:
                self._log.warning("%d further requests were refused", self._lines - MOST)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= MOST:
            method, path = shown(scope["method"], 16), shown(scope["path"], SHOWN_PATH)
            self._log.warning("refused: %s %s of %s, from %s", method, path, name, shown(str(peer), 64))
