"""Reports a command's progress on stderr: one moving line on a terminal, elsewhere a line for each finished step."""

import sys
import threading
import time
from typing import Final, TextIO

from core.errors import escaped

PAUSE: Final = 0.1
"""Seconds between two updates of the moving line."""
CLEAR: Final = "\r\x1b[K"
UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def human(size: float) -> str:
    """Formats a number of bytes in the unit that leaves up to three digits before the point."""
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:  # noqa: PLR2004 - what prints as 1000
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 else f"{size:.1f} {UNITS[unit]}"


class Meter:
    """Progress: `total` bytes of `what`. Any thread may add."""

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._moves = self._stream.isatty() and not quiet
        self._lock = threading.Lock()
        self._what, self._total, self._done = "", 0, 0
        self._started = self._shown = 0.0

    def begin(self, what: str, total: int) -> None:
        with self._lock:
            self._what, self._total, self._done = escaped(what), total, 0
            self._started = time.monotonic()

    def add(self, count: int) -> None:
        """Adds bytes that were sent, or subtracts bytes that must be sent again."""
        with self._lock:
            self._done += count
            if self._moves and time.monotonic() - self._shown >= PAUSE:
                self._show()

    def show(self, line: str) -> None:
        """Shows a line on a terminal, which the next one replaces."""
        with self._lock:
            if self._moves and time.monotonic() - self._shown >= PAUSE:
                self._shown = time.monotonic()
                self._stream.write(CLEAR + escaped(line))
                self._stream.flush()

    def say(self, line: str) -> None:
        """Prints a line that stays on the screen."""
        if self._quiet:
            return
        with self._lock:
            self._stream.write(f"{CLEAR if self._moves else ''}{escaped(line)}\n")
            self._stream.flush()

    def done(self, line: str) -> None:
        """Prints a finished step, except on a terminal, where the moving line has shown it."""
        if not self._moves:
            self.say(line)

    def end(self) -> None:
        if self._moves:
            with self._lock:
                self._stream.write(CLEAR)
                self._stream.flush()

    def _show(self) -> None:
        self._shown = time.monotonic()
        rate = self._done / max(self._shown - self._started, 1e-3)
        part = self._done / max(self._total, 1)
        line = f"{self._what}  {human(self._done)} of {human(self._total)}  {part:.0%}  {human(rate)}/s"
        self._stream.write(CLEAR + line)
        self._stream.flush()
