"""The scale of a score: its ends, and the names of its points."""

from __future__ import annotations

from dataclasses import dataclass


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


CHOICE = Scale(0, 1, ((0, "the second"), (0.5, "neither"), (1, "the first")))
"""A choice between two answers as a number. Its mean is the share of wins; a tie is half a win."""
