"""Tables on stdout: by rich on a terminal; elsewhere plain lines, for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from core.records import NamedTuple
from handler.commands.meter import Meter, screen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import JustifyMethod
    from rich.live import Live
    from rich.table import Table


GAP, LEAST = 2, 4
"""The space between two cells, and the least width at which a cell is readable, in columns of the terminal."""


class TableRow(NamedTuple):
    """A row. `notes`: lines below it. `style`: its colour on a terminal."""

    cells: Sequence[str]
    notes: Sequence[str] = ()
    style: str = ""


def show(
    head: Sequence[str], rows: Sequence[TableRow], right: Collection[int] = (), whole: Collection[int] = ()
) -> None:
    """Prints a table. `right`: the columns that are aligned to the right. `whole`: those that take one line each."""
    if not sys.stdout.isatty():
        print(*_lines(head, rows, right), sep="\n")  # noqa: T201 - the result
        return
    console = screen(sys.stdout)
    table = _table(head, right, whole if _leaves_room(head, rows, whole, console.width) else ())
    for row in rows:
        _add(table, row)
    console.print(table)


def _leaves_room(head: Sequence[str], rows: Sequence[TableRow], whole: Collection[int], width: int) -> bool:
    """Decides whether columns on one line leave the others enough width. rich would leave them none."""
    taken = sum(max(len(cells[column]) for cells in (head, *(row.cells for row in rows))) for column in whole)
    return width - taken - GAP * (len(head) - 1) >= LEAST * (len(head) - len(whole))


def _lines(head: Sequence[str], rows: Sequence[TableRow], right: Collection[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *(row.cells for row in rows), strict=True)]
    for row in (TableRow(head), *rows):
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row.cells, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()
        yield from (f"  {note}" for note in row.notes)


def _table(head: Sequence[str], right: Collection[int], whole: Collection[int]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - 90 ms, for a terminal

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", caption_justify="left")
    for column, each in enumerate(head):
        aligned: JustifyMethod = "right" if column in right else "left"
        table.add_column(each, justify=aligned, overflow="fold", no_wrap=column in whole)
    return table


def _add(table: Table, row: TableRow) -> None:
    *cells, last = row.cells
    table.add_row(*cells, "\n  ".join((last, *row.notes)), style=row.style)


class GrowingTable:
    """A table of numbers whose rows come one by one. `shown`: False for the notes alone."""

    def __init__(self, head: Sequence[str], *, shown: bool) -> None:
        self._head, self._shown = head, shown
        self._meter = Meter(quiet=False)
        self._table: Table | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._shown and sys.stdout.isatty():
            from rich.live import Live  # noqa: PLC0415 - as above

            self._table = _table(self._head, range(len(self._head)), ())
            self._live = Live(self._table, console=screen(sys.stdout), auto_refresh=False)
            self._live.start(refresh=True)
        elif self._shown:
            print("  ".join(self._head), flush=True)  # noqa: T201 - the result
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.end()
        if self._live is not None:
            self.note("")
            self._live.stop()

    def add(self, cells: Sequence[str]) -> None:
        self._meter.end()
        if self._table is not None:
            _add(self._table, TableRow(cells))
        elif self._shown:
            padded = (cell.rjust(len(head)) for cell, head in zip(cells, self._head, strict=True))
            print("  ".join(padded), flush=True)  # noqa: T201 - the result

    def note(self, text: str) -> None:
        """Shows on a terminal what is under way; the next note replaces it."""
        if self._table is None or self._live is None:
            self._meter.show(text)
        else:
            self._table.caption = text
            self._live.refresh()
