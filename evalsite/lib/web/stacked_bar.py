"""Bars of several segments, with widths in per cent. Pure: no Django, no I/O."""

from collections.abc import Sequence
from typing import NamedTuple

MIN_WIDTH = 0.8  # In per cent, so that one failure in a million stays visible.


class Segment(NamedTuple):
    """One segment of a bar. `name` selects the colour; `start` and `width` are per cent of the whole bar."""

    name: str
    amount: float
    start: float
    width: float


def compute_segments(parts: Sequence[tuple[str, float]], total: float) -> list[Segment]:
    """Return the parts above zero side by side, each at least MIN_WIDTH wide. The rest of 100 per cent stays empty."""
    visible = [(name, amount) for name, amount in parts if amount > 0]
    if total <= 0 or not visible:
        return []
    segments, start = [], 0.0
    for (name, amount), width in zip(visible, _compute_widths([amount for _, amount in visible], total), strict=True):
        segments.append(Segment(name, amount, round(start, 3), round(width, 3)))
        start += width
    return segments


def _compute_widths(amounts: Sequence[float], total: float) -> list[float]:
    """Return the widths in per cent. The widest segment is reduced, so that the sum is at most 100."""
    widths = [max(MIN_WIDTH, 100 * amount / total) for amount in amounts]
    excess = sum(widths) - 100
    if excess > 0:
        widths[widths.index(max(widths))] -= excess
    return widths
