"""Outliers: the items furthest from the norm, or from the other conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from django.urls import reverse

from grading_app.results.analysis.data import AnalysisData
from grading_app.results.figures.analysis import MAX_Z
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.item_scores import Floats

MAX_OUTLIERS = 20
MAX_POINTS = 800  # The maximum number of near and of far residuals in the figure.


@dataclass(frozen=True, slots=True, eq=False)
class _ScaledResiduals:
    """Residuals with their median and median absolute deviation."""

    residuals: Floats
    center: float
    spread: float

    @property
    def z(self) -> Floats | None:
        """The modified z of each residual; None without spread."""
        return 0.6745 * (self.residuals - self.center) / self.spread if self.spread else None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A mean score of one item in one condition, far from the expected score. z: None without spread."""

    item: int  # The row in the scores.
    condition: int
    score: float
    expected: float
    z: float | None


def build_outlier_tables(data: AnalysisData) -> list[ResultTable]:
    """Return a table of the items with the largest residuals; none for fewer than three cells, or equal residuals."""
    expected, reference = _estimate_expected(data)
    residuals = np.where(np.isnan(expected), np.nan, data.scores.mean - expected)
    flat = residuals[~np.isnan(residuals)]
    if len(flat) < 3 or not np.ptp(flat):
        return []
    center = float(np.median(flat))
    scaled = _ScaledResiduals(residuals, center, float(np.median(np.abs(flat - center))))
    low, high = data.bounds or (-np.inf, np.inf)
    on_scale = np.clip(expected, low, high)
    outliers = _find_outliers(data, scaled, on_scale)
    rows: list[Row] = [
        {
            "item": data.keys[outlier.item],
            "category": data.categories[outlier.item] or None,
            "condition": data.labels[outlier.condition],
            "score": outlier.score,
            "expected": outlier.expected,
            "residual": outlier.score - outlier.expected,
            "z": outlier.z,
        }
        for outlier in outliers
    ]
    cells = [(int(data.scores.items[outlier.item]), outlier.condition) for outlier in outliers]
    trials = f"{reverse('trial_list')}?experiment={data.scope.experiment.slug}"
    n_far = sum(1 for outlier in outliers if outlier.z is not None and abs(outlier.z) > MAX_Z)
    return [
        ResultTable(
            "outliers",
            f"Items furthest from the {reference}",
            [
                ResultColumn("item", "Item"),
                ResultColumn("category", "Category"),
                ResultColumn("condition", "Condition"),
                ResultColumn("score", "Mean score", "number"),
                ResultColumn("expected", "Expected", "number"),
                ResultColumn("residual", "Residual", "signed"),
                ResultColumn("z", "Modified z", "signed"),
            ],
            rows,
            formula="Modified z: 0.6745 × (residual − median) / median absolute deviation (Iglewicz and Hoaglin 1993); "
            f"above {MAX_Z} is far. An expected score outside the scale is shown as its end; z uses it unchanged.",
            sentence=f"{n_far} of the {len(outliers)} scores listed are far from the {reference}."
            if n_far or scaled.z is None
            else f"No item is far from the {reference}.",
            links=[{"item": f"{trials}&condition={condition}&item={item}"} for item, condition in cells],
            data={
                "cells": [[item, condition] for item, condition in cells],
                "residuals": _list_points(data, scaled, expected, on_scale),
            },
        )
    ]


def _find_outliers(data: AnalysisData, scaled: _ScaledResiduals, on_scale: Floats) -> list[Outlier]:
    """Return the largest residuals, the furthest first."""
    from_center = np.abs(np.nan_to_num(scaled.residuals - scaled.center))
    order = np.argsort(-from_center, axis=None)[:MAX_OUTLIERS]
    z = scaled.z
    return [
        Outlier(
            int(row),
            int(data.scores.conditions[column]),
            score=float(data.scores.mean[row, column]),
            expected=float(on_scale[row, column]),
            z=None if z is None else float(z[row, column]),
        )
        for row, column in zip(*np.unravel_index(order, scaled.residuals.shape), strict=True)
        if not np.isnan(scaled.residuals[row, column])
    ]


def _list_points(data: AnalysisData, scaled: _ScaledResiduals, expected: Floats, on_scale: Floats) -> dict[str, Any]:
    """Return the data of `ResidualFigure`: an even sample of the near residuals, and the furthest far residuals."""
    residuals = data.scores.mean - on_scale
    z = np.zeros_like(residuals) if scaled.z is None else np.abs(np.nan_to_num(scaled.z))
    is_scored = ~np.isnan(scaled.residuals)
    far = np.flatnonzero(is_scored & (z > MAX_Z))
    near = np.flatnonzero(is_scored & (z <= MAX_Z))
    sampled = {
        "near": near[:: -(-len(near) // MAX_POINTS) or 1],
        "far": far[np.argsort(-z.flat[far], kind="stable")][:MAX_POINTS],
    }
    reach = MAX_Z * scaled.spread / 0.6745
    is_one_limit = scaled.spread > 0 and np.array_equal(expected[is_scored], on_scale[is_scored])
    return {
        **{
            name: np.round(np.column_stack([on_scale.flat[indices], residuals.flat[indices]]), 4).tolist()
            for name, indices in sampled.items()
        },
        "cells": int(is_scored.sum()),
        "far_cells": len(far),
        "limits": [scaled.center - reach, scaled.center + reach] if is_one_limit else None,
    }


def _estimate_expected(data: AnalysisData) -> tuple[Floats, str]:
    """Return the expected score of each cell, and its source: the norm, or the mean of the other conditions."""
    shape = data.scores.mean.shape
    if data.norms is not None:
        return np.broadcast_to(data.norms.mean[:, None], shape), "norm"
    is_scored = ~np.isnan(data.scores.mean)
    others = is_scored.sum(axis=1, keepdims=True) - is_scored
    totals = np.nansum(data.scores.mean, axis=1, keepdims=True) - np.nan_to_num(data.scores.mean)
    # A condition that scores higher on all items is not an outlier on each, so its level is removed.
    is_compared = is_scored & (others > 0)
    expected = np.where(is_compared, totals / np.maximum(others, 1), np.nan)
    differences = np.where(is_compared, data.scores.mean - expected, 0.0)
    level = differences.sum(axis=0, keepdims=True) / np.maximum(is_compared.sum(axis=0, keepdims=True), 1)
    return expected + level, "other conditions"
