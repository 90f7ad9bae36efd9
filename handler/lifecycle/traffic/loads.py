"""All loads of this process: how many, how many failed, how long they took, what they fetched; and evictions.

THE place where they are counted. A load takes milliseconds at least, so a lock costs nothing here.
"""

import threading
from typing import Final


class Loads:
    """Counts from any thread. `cached`: loads whose files were in the cache or in a local folder.

    `fetched`: bytes that came from a store. `seconds`: of the loads that succeeded, from the look at the settings on.
    """

    __slots__ = ("_lock", "cached", "evicted", "failed", "fetched", "fetches", "loaded", "seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.loaded = 0
        self.failed = 0
        self.seconds = 0.0
        self.fetches = 0
        self.fetched = 0
        self.cached = 0
        self.evicted = 0

    def succeeded(self, seconds: float, fetched: int) -> None:
        """Counts a load that has ended well. `fetched`: the bytes that its last part fetched."""
        with self._lock:
            self.loaded += 1
            self.seconds += seconds
            self.cached += not fetched
            self._fetch(fetched)

    def stopped(self, fetched: int, *, failed: bool) -> None:
        """Counts a load that has failed, or that continues with the next request."""
        with self._lock:
            self.failed += failed
            self._fetch(fetched)

    def evict(self) -> None:
        """Counts a model that has left the memory for another one."""
        with self._lock:
            self.evicted += 1

    def _fetch(self, size: int) -> None:
        self.fetches += size > 0
        self.fetched += size


LOADS: Final = Loads()
"""The only instance: counts are those of the process."""
