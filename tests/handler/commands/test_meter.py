"""handler.commands.meter, and what bodies report to it."""

import io
import re
import threading
from pathlib import Path

import pytest

from handler.commands.meter import Meter, human
from handler.commands.publish.files import CommandStopped, Section


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_499, "999.5 kB"), (999_500, "1.0 MB"), (5e15, "5000.0 TB"),
])  # fmt: skip
def test_sizes_are_told_in_the_unit_that_fits(size: float, text: str) -> None:
    """Units are decimal, as for disks and S3's prices."""
    assert human(size) == text


def test_on_a_terminal_a_bar_moves_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the bytes sent, the total and the speed. Lines that stay come above it, and texts mean nothing to rich."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with Meter(quiet=False, stream=stream) as meter:
        meter.begin("m[b]/1", 4_000_000)
        meter.add(1_000_005)
        meter.add(-5)
        meter.say("a [b]word[/b] :car: \x1b[2J")
        meter.done("sent m/1")
        meter.add(3_000_000)
        meter.end()
        meter.show("7 requests sent")
        meter.show("8 requests sent")
    shown = stream.getvalue()
    assert re.search(r"m\[b\]/1 .*4\.0/4\.0 MB", shown)
    assert "a [b]word[/b] :car: \\x1b[2J\n" in shown
    assert "8 requests sent" in shown
    assert "sent m/1" not in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 2  # the cursor is there again
    assert shown.endswith("\x1b[1A\x1b[2K")  # and the line is not


def test_elsewhere_there_are_plain_lines_or_none() -> None:
    """A log cannot show a line that moves."""
    plain, quiet = io.StringIO(), Terminal()
    for meter in (Meter(quiet=False, stream=plain), Meter(quiet=True, stream=quiet)):
        meter.begin("m/1", 10)
        meter.add(10)
        meter.show("7 requests sent")
        meter.done("sent model.onnx")
        meter.say("a word")
        meter.end()
    assert plain.getvalue() == "sent model.onnx\na word\n"
    assert quiet.getvalue() == ""


def test_a_body_counts_what_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading for a signature does not count, nor does sending again; the body ends when the command ends."""
    (tmp_path / "f").write_bytes(bytes(range(10)))
    stop, added = threading.Event(), []
    meter = Meter(quiet=True)
    monkeypatch.setattr(meter, "add", added.append)
    with Section(tmp_path / "f", 2, 6, meter, stop) as body:
        assert (body.readable(), body.seekable()) == (True, True)
        assert body.read() == bytes(range(2, 8))
        assert (body.seek(0, 2), body.tell(), body.seek(-6, 1)) == (6, 6, 0)
        body.counting = True
        assert body.read(4) == bytes(range(2, 6))
        body.seek(0)
        assert body.read(100) == bytes(range(2, 8))
        assert added == [4, -4, 6]
        stop.set()
        with pytest.raises(CommandStopped):
            body.read(1)
