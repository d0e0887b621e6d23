"""Bars of several segments, as widths in per cent. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

SLIVER = 0.8  # Per cent: one failure in a million is still seen.


class Segment(NamedTuple):
    """One part of a bar: `name` picks the colour, `start` and `width` are per cent of the whole."""

    name: str
    amount: float
    start: float
    width: float


def segments(parts: Sequence[tuple[str, float]], total: float) -> list[Segment]:
    """The parts that are above zero, side by side, each at least a sliver; what is left of 100 is the track."""
    shown = [(name, amount) for name, amount in parts if amount > 0]
    if total <= 0 or not shown:
        return []
    placed, start = [], 0.0
    for (name, amount), width in zip(shown, _widths([amount for _, amount in shown], total), strict=True):
        placed.append(Segment(name, amount, round(start, 3), round(width, 3)))
        start += width
    return placed


def _widths(amounts: Sequence[float], total: float) -> list[float]:
    """Widths with slivers; what the slivers add is taken from the widest, so that nothing passes 100."""
    widths = [max(SLIVER, 100 * amount / total) for amount in amounts]
    excess = sum(widths) - 100
    if excess > 0:
        widths[widths.index(max(widths))] -= excess
    return widths
