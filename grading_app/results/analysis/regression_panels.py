"""The panels of the figure of ratings over norms: points, lines and the confidence band of some conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grading_app.statistics import reference
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import Floats

MAX_PANELS, MAX_POINTS, LINE_POINTS = 6, 500, 41


def build_regression_panels(
    matches: Sequence[tuple[str, Floats, Floats]], bounds: Bounds | None
) -> list[dict[str, Any]]:
    """Return the panels of (label, norms, ratings) as JSON-compatible values. The last one is always included.

    A condition whose line is undefined has no panel.
    """
    panels = []
    for label, people, model in matches if len(matches) <= MAX_PANELS else [*matches[: MAX_PANELS - 1], matches[-1]]:
        line_x = np.linspace(people.min(), people.max(), LINE_POINTS)
        band = reference.confidence_band(people, model, line_x)
        if band is None:
            continue
        deming = reference.deming(people, model)
        names = ("line_x", "line", "band_low", "band_high")
        low, high = bounds or (min(people.min(), model.min()), max(people.max(), model.max()))
        step = max(1, len(people) // MAX_POINTS)
        panel = {
            "label": label,
            "x": _round(people[::step]),
            "y": _round(model[::step]),
            **{name: _round(values) for name, values in zip(names, (line_x, *band), strict=True)},
            "deming": _round(deming.intercept + deming.slope * line_x) if deming else None,
            "low": float(low),
            "high": float(high),
        }
        panels.append(panel)
    return panels


def _round(values: Floats) -> list[float]:
    rounded: list[float] = np.round(values, 4).tolist()
    return rounded
