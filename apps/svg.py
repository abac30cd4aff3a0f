"""Line charts as SVG text: small, static, self-contained, readable in light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 40
#: Colours of the lines, told apart by anybody; every second line is dashed as well.
COLOURS = ("#0b6fb8", "#d1580a", "#2e8540", "#7b4ba0")


@dataclass(frozen=True)
class Line:
    """One curve: its name and its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers inside [low, high], about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(magnitude * factor for factor in (1, 2, 2.5, 5, 10) if magnitude * factor >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def chart(title: str, lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Return the chart as an ``<svg>`` element; axes begin at 0 unless values are negative."""
    xs, ys = [x for line in lines for x in line.x], [y for line in lines for y in line.y]
    x_low, x_high = min([0.0, *xs]), max([*xs, 1e-9])
    y_low, y_high = min([0.0, *ys]), max([*ys, 1e-9]) * 1.04

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<text class="title" x="{LEFT}" y="14">{escape(title)}</text>',
    ]
    for tick in ticks(x_low, x_high):
        across = place(tick, 0)[0]
        parts.append(f'<path class="grid" d="M{across:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="tick" text-anchor="middle" x="{across:.1f}" y="{HEIGHT - 24}">{tick:g}</text>')
    for tick in ticks(y_low, y_high):
        up = place(0, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {up:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{up + 4:.1f}">{tick:g}</text>')
    parts.append(
        f'<text class="label" text-anchor="middle" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}">{escape(x_label)}</text>'
    )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="label" text-anchor="middle" transform="rotate(-90 12 {middle})" x="12" y="{middle}">'
                 f"{escape(y_label)}</text>")  # fmt: skip
    for number, line in enumerate(lines):
        parts += _curve(number, len(lines), line, place)
    return "\n".join([*parts, "</svg>"])


def _curve(number: int, count: int, line: Line, place: object) -> list[str]:
    assert callable(place)
    points = [place(x, y) for x, y in zip(line.x, line.y, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""
    dash = ' stroke-dasharray="5 3"' if number % 2 else ""
    colour, x = COLOURS[number % len(COLOURS)], WIDTH - 95 * count + 96 * number
    return [
        f'<path fill="none" stroke="{colour}" stroke-width="1.8"{dash} d="{path}"/>',
        f'<path stroke="{colour}" stroke-width="2"{dash} d="M{x} 22h18"/>',
        f'<text class="tick" x="{x + 22}" y="26">{escape(line.name)}</text>',
    ]
