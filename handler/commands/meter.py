"""Reports a command's progress on stderr: by rich on a terminal, elsewhere a line for each finished step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Self, TextIO

from core.errors import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def human(size: float) -> str:
    """Formats a number of bytes in the unit that leaves up to three digits before the point."""
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:  # noqa: PLR2004 - what prints as 1000
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 else f"{size:.1f} {UNITS[unit]}"


def screen(stream: TextIO) -> Console:
    """Returns a terminal. Prints texts as they are: brackets, numbers and colons in them mean nothing."""
    from rich.console import Console  # noqa: PLC0415 - 90 ms, for a terminal

    return Console(file=stream, markup=False, highlight=False, emoji=False)


class Meter:
    """Shows the progress of a command: the bytes that are done, or a line of text.

    Any thread may add bytes. As a context manager it ends the display.
    """

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._moves = self._stream.isatty() and not quiet
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, what: str, total: int) -> None:
        """Begins to show how many of `total` bytes are done."""
        if self._moves:
            from rich import progress as parts  # noqa: PLC0415 - 100 ms, for a terminal

            numbers = parts.DownloadColumn(), parts.TransferSpeedColumn(), parts.TimeRemainingColumn()
            self._start(what, total, parts.BarColumn(), *numbers)

    def add(self, count: int) -> None:
        """Adds bytes that were sent, or subtracts bytes that must be sent again."""
        if (shown := self._shown) is not None:  # another thread may end it meanwhile
            shown.advance(shown.task_ids[0], count)

    def show(self, line: str) -> None:
        """Shows a line on a terminal, which the next one replaces."""
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], description=escaped(line))
        elif self._moves:
            self._start(line, None)

    def say(self, line: str) -> None:
        """Prints a line that stays on the screen."""
        if (shown := self._shown) is not None:
            shown.console.print(escaped(line))
        elif not self._quiet:
            self._stream.write(f"{escaped(line)}\n")
            self._stream.flush()

    def done(self, line: str) -> None:
        """Prints a finished step, except on a terminal, where the bar has shown it."""
        if not self._moves:
            self.say(line)

    def end(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _start(self, what: str, total: int | None, *columns: ProgressColumn) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415 - as above

        self.end()
        text = TextColumn("{task.description}", markup=False)
        self._shown = Progress(SpinnerColumn(), text, *columns, console=screen(self._stream), transient=True)
        self._shown.add_task(escaped(what), total=total)
        self._shown.start()
