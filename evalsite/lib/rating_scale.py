"""Rating scales: ranges of integers with optional labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RatingScale:
    """A range of integers from `minimum` to `maximum`, both included. Some points may have a label."""

    minimum: int
    maximum: int
    labels: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minimum >= self.maximum:
            raise ValueError(f"a scale must end above its start, not run from {self.minimum} to {self.maximum}")
        outside = sorted(point for point in self.labels if point not in self)
        if outside:
            raise ValueError(f"labels outside the scale {self.minimum} to {self.maximum}: {outside}")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.minimum <= value <= self.maximum
