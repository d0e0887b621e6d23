"""The scale of a score: its ends, and the names of its points."""

from __future__ import annotations

from dataclasses import dataclass

MAX_POINTS = 11


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of a scale, and the names of its points if they have names."""

    low: float
    high: float
    points: tuple[tuple[float, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    def list_points(self) -> list[tuple[float, str]]:
        """Return the points of a short whole-number scale or of named points; an empty list for a continuous scale."""
        names_by_value, (low, high) = dict(self.points), self.ends
        if low.is_integer() and high.is_integer() and 1 < high - low < MAX_POINTS:
            return [(float(value), names_by_value.get(float(value), "")) for value in range(int(low), int(high) + 1)]
        return list(self.points) if len(self.points) > 1 else []


CHOICE = Scale(0, 1, ((0, "the second"), (0.5, "neither"), (1, "the first")))
"""A choice between two answers as a number. Its mean is the share of wins; a tie is half a win."""
