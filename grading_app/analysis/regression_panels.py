"""The panels of the figure of ratings over norms: points, lines and the confidence band of some conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grading_app.statistics import reference
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import Floats

MOST_PANELS, MOST_POINTS, PLACES = 6, 500, 41


def build_regression_panels(found: Sequence[tuple[str, Floats, Floats]], bounds: Bounds | None) -> list[dict[str, Any]]:
    """Return the panels of (label, norms, ratings), the last one always among them, as JSON can hold them."""
    drawn = found if len(found) <= MOST_PANELS else [*found[: MOST_PANELS - 1], found[-1]]
    return [panel for label, people, model in drawn if (panel := _build_panel(label, people, model, bounds))]


def _build_panel(label: str, people: Floats, model: Floats, bounds: Bounds | None) -> dict[str, Any] | None:
    """Return one panel; None where a line is not defined."""
    if len(people) < 3:
        return None
    at = np.linspace(people.min(), people.max(), PLACES)
    found = reference.confidence_band(people, model, at)
    if found is None:
        return None
    both = reference.deming(people, model)
    names = ("line_x", "line", "band_low", "band_high")
    low, high = bounds or (min(people.min(), model.min()), max(people.max(), model.max()))
    step = max(1, len(people) // MOST_POINTS)
    return {
        "label": label,
        "x": _round(people[::step]),
        "y": _round(model[::step]),
        **{name: _round(values) for name, values in zip(names, (at, *found), strict=True)},
        "deming": _round(both.intercept + both.slope * at) if both else None,
        "low": float(low),
        "high": float(high),
    }


def _round(values: Floats) -> list[float]:
    found: list[float] = np.round(values, 4).tolist()
    return found
