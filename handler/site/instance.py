"""Facts of this process for the status page, its age and its platform, and how numbers are written there."""

import os
import platform
import time
from pathlib import Path
from typing import Final

from handler.settings import Settings

IMPORTED: Final = time.monotonic()
PROC: Final = Path("/proc")
THOUSAND: Final = 1000
WHOLE: Final = 100
"""From here on a number needs no digits after its point."""


def age(proc: Path = PROC) -> float:
    """Returns the seconds since this process began; without /proc, since the import.

    Source: proc(5), field 22 of stat, in ticks since boot.
    """
    try:
        began = int((proc / "self" / "stat").read_text("utf-8").rpartition(")")[2].split()[19])
        return float((proc / "uptime").read_text("utf-8").split()[0]) - began / os.sysconf("SC_CLK_TCK")
    except OSError:
        return time.monotonic() - IMPORTED


def described(settings: Settings) -> str:
    return f"{'AWS Lambda' if settings.platform == 'lambda' else platform.system()} {platform.machine()}"


def duration(seconds: float) -> str:
    """Returns the two largest units of a time span.

    >>> duration(7), duration(190), duration(7_500), duration(180_000)
    ('7 s', '3 min 10 s', '2 h 5 min', '2 d 2 h')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    largest = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[largest : largest + 2])


def size(count: float) -> str:
    """Returns bytes in the largest unit that leaves a number above one.

    >>> size(312), size(4_321), size(9_876_543)
    ('312 B', '4.3 kB', '9.9 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < THOUSAND or unit == "GB":
            break
        count /= THOUSAND
    return f"{count:.0f} {unit}" if unit == "B" or count >= WHOLE else f"{count:.1f} {unit}"


def milliseconds(value: float | None) -> str:
    """Returns a time with at least three digits, "" for none.

    >>> milliseconds(None), milliseconds(0.04213), milliseconds(7.126), milliseconds(1234.5)
    ('', '0.0421', '7.13', '1,234')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.3g}" if value < 1 else f"{value:.2f}"
