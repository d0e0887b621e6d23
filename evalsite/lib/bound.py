"""A closed range of numbers. It imports no Django."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Bound:
    """A closed range. NaN and the infinities lie outside every range."""

    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        return f"between {_format_number(self.low)} and {_format_number(self.high)}" + (
            f" {self.unit}" if self.unit else ""
        )

    def contains(self, value: float | Decimal) -> bool:
        """Return whether the value is a finite number within the range."""
        return (isinstance(value, int) or math.isfinite(value)) and self.low <= value <= self.high

    def check(self, value: Any) -> Any:
        """Return the value, or raise ValueError with the range if the value is a number outside it."""
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and not self.contains(value):
            raise ValueError(f"must be {self}")
        return value


def _format_number(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,g}"
