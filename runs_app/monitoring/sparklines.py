"""Charts of ticks over time, as points of a small SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

TICK = timedelta(seconds=10)
TICKS_A_MINUTE = 6


@dataclass(frozen=True)
class Curve:
    """A line from `start` to `end` in a box of WIDTH x HEIGHT. `top` is its upper edge, `peak` its highest value."""

    line: str
    area: str
    top: int
    peak: float
    start: datetime
    end: datetime

    WIDTH = 720
    HEIGHT = 140


def throughput_curve(points: Sequence[tuple[datetime, int]]) -> Curve | None:
    """Return the curve of trials ended per minute. A tick without a row counts as zero."""
    ended = dict(points)
    return _curve([(at, ended.get(at, 0) * TICKS_A_MINUTE) for at in _ticks(points)])


def limit_curve(points: Sequence[tuple[datetime, float]]) -> Curve | None:
    """Return the curve of a limit at the end of each tick. It keeps its value through ticks without a row."""
    known, value, line = dict(points), 0.0, []
    for at in _ticks(points):
        value = known.get(at, value)
        line.append((at, value))
    return _curve(line)


def _ticks(points: Sequence[tuple[datetime, float]]) -> list[datetime]:
    """Return every tick from the first to the last point."""
    if not points:
        return []
    start, end = points[0][0], points[-1][0]
    return [start + at * TICK for at in range(int((end - start) / TICK) + 1)]


def _curve(values: Sequence[tuple[datetime, float]]) -> Curve | None:
    """Return the curve, or None for fewer than two ticks."""
    if len(values) < 2:
        return None
    peak = max(value for _, value in values)
    top = round_up(peak)
    places = [
        (round(Curve.WIDTH * at / (len(values) - 1), 1), round(Curve.HEIGHT * (1 - value / top), 1))
        for at, (_, value) in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in places)
    area = f"0,{Curve.HEIGHT} {line} {Curve.WIDTH},{Curve.HEIGHT}"
    return Curve(line, area, top, peak, values[0][0], values[-1][0])


def round_up(value: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten, for a readable axis label."""
    if value <= 1:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(int(step * power) for step in (1, 2, 5, 10) if step * power >= value)
