"""Charts of ticks over time, as points of a small SVG. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

TICK = timedelta(seconds=10)
TICKS_PER_MINUTE = 6


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


def build_throughput_curve(points: Sequence[tuple[datetime, int]]) -> Curve | None:
    """Return the curve of trials ended per minute. A tick without a row counts as zero."""
    ended = dict(points)
    return _build_curve([(at, ended.get(at, 0) * TICKS_PER_MINUTE) for at in _list_ticks(points)])


def build_limit_curve(points: Sequence[tuple[datetime, float]]) -> Curve | None:
    """Return the curve of a limit at the end of each tick. A tick without a row has the previous value."""
    recorded, value, values = dict(points), 0.0, []
    for at in _list_ticks(points):
        value = recorded.get(at, value)
        values.append((at, value))
    return _build_curve(values)


def _list_ticks(points: Sequence[tuple[datetime, float]]) -> list[datetime]:
    """Return every tick from the first to the last point."""
    if not points:
        return []
    start, end = points[0][0], points[-1][0]
    return [start + index * TICK for index in range(int((end - start) / TICK) + 1)]


def _build_curve(values: Sequence[tuple[datetime, float]]) -> Curve | None:
    """Return the curve, or None for fewer than two ticks."""
    if len(values) < 2:
        return None
    peak = max(value for _, value in values)
    top = round_up(peak)
    points = [
        (round(Curve.WIDTH * index / (len(values) - 1), 1), round(Curve.HEIGHT * (1 - value / top), 1))
        for index, (_, value) in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    area = f"0,{Curve.HEIGHT} {line} {Curve.WIDTH},{Curve.HEIGHT}"
    return Curve(line, area, top, peak, values[0][0], values[-1][0])


def round_up(value: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten, for a readable axis label."""
    if value <= 1:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(int(step * power) for step in (1, 2, 5, 10) if step * power >= value)
