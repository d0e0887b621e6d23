"""Outliers: the items that lie furthest from the norm, or from the other conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from django.urls import reverse

from grading_app.analysis.data import AnalysisData
from grading_app.analysis.residual_figure import FAR
from grading_app.reports.result_table import ResultColumn, ResultTable, Row
from grading_app.statistics.item_scores import Floats

SHOWN = 20
MOST_POINTS = 800  # Near and far residuals each, in the figure.


@dataclass(frozen=True, slots=True, eq=False)
class _ScaledResiduals:
    """Residuals with their median and median absolute deviation."""

    residuals: Floats
    center: float
    spread: float

    @property
    def z(self) -> Floats | None:
        """The modified z of each residual; None without any spread."""
        return 0.6745 * (self.residuals - self.center) / self.spread if self.spread else None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A mean score of one item in one condition, far from what is expected. `z` is None without any spread."""

    item: int  # Its row in the scores.
    condition: int
    score: float
    expected: float
    z: float | None


def build_outlier_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the items with the largest residuals; no table for fewer than three items."""
    expected, what = _estimate_expected(data)
    residuals = np.where(np.isnan(expected), np.nan, data.scores.mean - expected)
    flat = residuals[~np.isnan(residuals)]
    if len(flat) < 3 or not np.ptp(flat):
        return []
    center = float(np.median(flat))
    scaled = _ScaledResiduals(residuals, center, float(np.median(np.abs(flat - center))))
    low, high = data.bounds or (-np.inf, np.inf)
    on_scale = np.clip(expected, low, high)
    outliers = _find_outliers(data, scaled, on_scale)
    far = sum(1 for one in outliers if one.z is not None and abs(one.z) > FAR)
    return [
        ResultTable(
            "outliers",
            f"Items furthest from the {what}",
            [
                ResultColumn("item", "Item"),
                ResultColumn("category", "Category"),
                ResultColumn("condition", "Condition"),
                ResultColumn("score", "Mean score", "number"),
                ResultColumn("expected", "Expected", "number"),
                ResultColumn("residual", "Residual", "signed"),
                ResultColumn("z", "Modified z", "signed"),
            ],
            [_build_row(data, one) for one in outliers],
            formula="Modified z: 0.6745 × (residual − median) / median absolute deviation (Iglewicz and Hoaglin 1993); "
            f"above {FAR} is far. An expected score beside the scale is shown as its end; z uses it unchanged.",
            sentence=f"{far} of the {len(outliers)} items shown lie far from the {what}.",
            links=[{"item": _make_trials_url(data, one)} for one in outliers],
            data={
                "cells": [[int(data.scores.items[one.item]), one.condition] for one in outliers],
                "residuals": _list_points(data, scaled, expected, on_scale),
            },
        )
    ]


def _find_outliers(data: AnalysisData, scaled: _ScaledResiduals, on_scale: Floats) -> list[Outlier]:
    """Return the largest residuals, furthest first."""
    from_center = np.abs(np.nan_to_num(scaled.residuals - scaled.center))
    order = np.argsort(-from_center, axis=None)[:SHOWN]
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
    """Return what `ResidualFigure` draws: evenly spread near residuals, and the furthest of the far ones."""
    shown = data.scores.mean - on_scale
    z = np.zeros_like(shown) if scaled.z is None else np.abs(np.nan_to_num(scaled.z))
    scored = ~np.isnan(scaled.residuals)
    far = np.flatnonzero(scored & (z > FAR))
    near = np.flatnonzero(scored & (z <= FAR))
    drawn = {
        "near": near[:: -(-len(near) // MOST_POINTS) or 1],
        "far": far[np.argsort(-z.flat[far], kind="stable")][:MOST_POINTS],
    }
    reach = FAR * scaled.spread / 0.6745
    is_one_limit = scaled.spread > 0 and np.array_equal(expected[scored], on_scale[scored])
    return {
        **{
            name: np.round(np.column_stack([on_scale.flat[at], shown.flat[at]]), 4).tolist()
            for name, at in drawn.items()
        },
        "cells": int(scored.sum()),
        "far_cells": len(far),
        "limits": [scaled.center - reach, scaled.center + reach] if is_one_limit else None,
    }


def _build_row(data: AnalysisData, outlier: Outlier) -> Row:
    return {
        "item": data.keys[outlier.item],
        "category": data.categories[outlier.item] or None,
        "condition": data.labels[outlier.condition],
        "score": outlier.score,
        "expected": outlier.expected,
        "residual": outlier.score - outlier.expected,
        "z": outlier.z,
    }


def _make_trials_url(data: AnalysisData, outlier: Outlier) -> str:
    item = int(data.scores.items[outlier.item])
    query = f"?experiment={data.scope.experiment.slug}&condition={outlier.condition}&item={item}"
    return f"{reverse('trial_list')}{query}"


def _estimate_expected(data: AnalysisData) -> tuple[Floats, str]:
    """Return the expected score of each cell, and what it is: the norm, or the mean of the other conditions."""
    shape = data.scores.mean.shape
    if data.norms is not None:
        return np.broadcast_to(data.norms.mean[:, None], shape), "norm"
    scored = ~np.isnan(data.scores.mean)
    others = scored.sum(axis=1, keepdims=True) - scored
    totals = np.nansum(data.scores.mean, axis=1, keepdims=True) - np.nan_to_num(data.scores.mean)
    # A condition that is higher everywhere is no outlier on every item, so its level is taken out.
    compared = scored & (others > 0)
    expected = np.where(compared, totals / np.maximum(others, 1), np.nan)
    differences = np.where(compared, data.scores.mean - expected, 0.0)
    level = differences.sum(axis=0, keepdims=True) / np.maximum(compared.sum(axis=0, keepdims=True), 1)
    return expected + level, "other conditions"
