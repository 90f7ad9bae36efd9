"""The figures of `bench` as an SVG: bars of requests a second, lines of the median and the 99th percentile."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from core.errors import counted
from handler.commands.call.levels import Level

WIDTH: Final = 720
HEIGHT: Final = 400
LEFT: Final = 70
TOP: Final = 70
BOTTOM: Final = 340
LINES: Final = (("p50", "#1f77b4"), ("p99", "#d62728"))
STYLE: Final = "text{font:13px sans-serif;fill:#333}.t{font-size:16px}.e{text-anchor:end}.m{text-anchor:middle}"


def draw(title: str, levels: Sequence[Level]) -> str:
    """Returns the text of an SVG file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="t" x="{LEFT}" y="28">{escape(title)}</text>',
        f'<text x="{LEFT}" y="50">bars: requests/s</text>',
        *(
            f'<text x="{LEFT + 150 + 120 * at}" y="50" style="fill:{colour}">line: {name} in ms</text>'
            for at, (name, colour) in enumerate(LINES)
        ),
    ]
    step = (WIDTH - LEFT - 30) / max(1, len(levels))
    middles = [LEFT + step * (at + 0.5) for at in range(len(levels))]
    parts += _bars(levels, middles, step)
    for name, colour in LINES:
        parts += _line([getattr(each, name) * 1000 for each in levels], _most(levels), middles, colour)
    parts.append(f'<text class="m" x="{WIDTH / 2}" y="{BOTTOM + 45}">requests at a time</text></svg>')
    return "\n".join(parts) + "\n"


def _most(levels: Sequence[Level]) -> float:
    return max((each.p99 * 1000 for each in levels if not math.isnan(each.p99)), default=1.0) or 1.0


def _bars(levels: Sequence[Level], middles: Sequence[float], step: float) -> list[str]:
    most = max((each.rate for each in levels), default=0.0) or 1.0
    parts = [f'<line x1="{LEFT}" y1="{BOTTOM}" x2="{WIDTH - 30}" y2="{BOTTOM}" stroke="#999"/>']
    for level, x in zip(levels, middles, strict=True):
        height = (BOTTOM - TOP) * level.rate / most * 0.95
        parts.append(
            f'<rect x="{x - step * 0.3:.1f}" y="{BOTTOM - height:.1f}" width="{step * 0.6:.1f}" '
            f'height="{height:.1f}" fill="#dde5ee"/>'
        )
        parts.append(f'<text class="m" x="{x:.1f}" y="{BOTTOM - 6}">{level.rate:.0f}</text>')
        errors = f" ({counted(level.errors, 'error')})" if level.errors else ""
        parts.append(f'<text class="m" x="{x:.1f}" y="{BOTTOM + 20}">{level.concurrency}{errors}</text>')
    return parts


def _line(values: Sequence[float], most: float, middles: Sequence[float], colour: str) -> list[str]:
    points = [
        (x, BOTTOM - (BOTTOM - TOP) * value / most * 0.9, value)
        for x, value in zip(middles, values, strict=True)
        if not math.isnan(value)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y, _ in points),
        *(
            f'<text class="m" x="{x:.1f}" y="{y - 8:.1f}" style="fill:{colour}">{value:.2f}</text>'
            for x, y, value in points
        ),
    ]
