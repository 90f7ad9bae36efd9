"""Bounds on names that clients invent: on the requests to the store for them, and on the memory that they take."""

import threading
import time
from collections.abc import Hashable
from typing import Any, Final

MOST: Final = 1024
RATE: Final = 2.0
BURST: Final = 16
"""Requests a second, and at once, for names and versions that only a request of their own can find."""
MOST_BYTES_OF_TEXTS: Final = 64 * 1024 * 1024
LONGEST_TEXT: Final = 64 * 1024
"""Bytes. Triton's lists of labels for 1,000 classes have up to 32 kB."""


class Allowance:
    """Limits requests: a number at once, and a number per second."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._since = float(burst), time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Decides whether one more request is permitted now."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._burst, self._left + max(0.0, now - self._since) * self._rate)
            self._since = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class Remembered:
    """Things that hold for a while, few of them: the oldest one makes room."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._items: dict[Hashable, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def put(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._items.pop(key, None)
            if len(self._items) >= MOST:
                del self._items[next(iter(self._items))]
            self._items[key] = time.monotonic() + self._seconds, value

    def get(self, key: Hashable) -> Any:
        """Returns the value, None after its time."""
        until, value = self._items.get(key, (0.0, None))
        return value if time.monotonic() < until else None

    def clear(self) -> None:
        with self._lock:
            self._items = {}


class Texts:
    """Small files by name and ETag, so that a look at a model reads its settings again only if they have changed."""

    def __init__(self, most: int = MOST_BYTES_OF_TEXTS) -> None:
        self._left = most
        self._items: dict[Hashable, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        return self._items.get(key)

    def put(self, key: Hashable | None, text: bytes | None) -> None:
        """Keeps a text. Ignores one without a key, one that is missing, and one that is too long."""
        if key is None or text is None or len(text) > LONGEST_TEXT:
            return
        with self._lock:
            self._left += len(self._items.pop(key, b"")) - len(text)
            self._items[key] = text
            while self._left < 0:
                self._left += len(self._items.pop(next(iter(self._items))))
