"""handler.commands.tables on a terminal; pipes and files are those of the commands' own tests."""

import os
import pty
import re
import subprocess
import sys

import pytest

from handler.commands import tables
from handler.commands.tables import GrowingTable, TableRow
from tests.handler.commands.test_meter import Terminal
from tests.support.server import ROOT

HEAD = ("NAME [b]", "SIZE")


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Lets stdout be a terminal of 40 columns."""
    for name, value in {"TERM": "xterm", "COLUMNS": "40", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def plain(text: str) -> list[str]:
    """Returns the lines without colours."""
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long cell continues on the next line. Brackets are printed as they are. Notes follow their row."""
    stream = terminal(monkeypatch)
    tables.show(
        HEAD, [TableRow(("a" * 50, "1 B"), style="red"), TableRow((":car: [b]", "12 B"), ("a note",))], (1,), (1,)
    )
    out = stream.getvalue()
    assert plain(out) == [
        f"NAME [b]{'SIZE':>32}",
        f"{'a' * 30}{'1 B':>10}",
        "a" * 20,
        f":car: [b]{'12 B':>31}",
        f"{'  a note':>40}",
    ]
    assert "\x1b[31m" in out


def test_a_narrow_terminal_keeps_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that normally take one line are folded, too, if they leave no room for the others."""
    stream = terminal(monkeypatch)
    tables.show(("MODEL", "MODIFIED"), [TableRow(("half_plus_three", "2026-11-23 14:59:41 by hand at noon"))], (), (1,))
    shown = plain(stream.getvalue())
    assert shown[0].startswith("MODEL")
    assert "half_plus_three" in "".join(line[:15].strip() for line in shown)
    assert "".join(" ".join(line[15:].strip() for line in shown[1:]).split()) == "2026-11-2314:59:41byhandatnoon"


def test_a_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way stands below it, and goes."""
    stream = terminal(monkeypatch)
    with GrowingTable(("AT A TIME", "SIZE"), shown=True) as table:
        table.note("1 of [2]")
        table.add(("1", "2"))
        table.note("2 of [2]")
        table.add(("2", "30"))
    drawn = re.split(r"\x1b\[2K(?:\x1b\[1A\x1b\[2K)*", stream.getvalue())
    assert any("1 of [2]" in each for each in drawn)
    assert plain(drawn[-1])[:3] == ["AT A TIME  SIZE", "        1     2", "        2    30"]
    assert drawn[-1].endswith("\n\x1b[?25h")


def test_a_command_knows_a_terminal() -> None:
    """A real one gets colours, and rich is imported for it alone."""
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": ""}
    script = "import sys; from handler import cli; sys.exit(cli.main(['list', 'models']) or 'rich' in sys.modules)"
    words = (sys.executable, "-c", script)
    done = subprocess.run(
        words, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, check=False
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "\x1b[32miris" in shown
    piped = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, check=True)
    assert plain(piped.stdout.decode()) == plain(shown)
