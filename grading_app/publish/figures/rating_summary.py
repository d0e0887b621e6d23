"""The numbers of a rating study as JSON: items, samples and correlations of each rated dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grading_app.publish.figures.figure_set import FigureSource
from grading_app.results.figures.rating_data import RatingData, Series, match_items
from grading_app.statistics.correlation import pearson
from grading_app.statistics.item_scores import Floats


def summarize_ratings(source: FigureSource) -> dict[str, Any]:
    """Return the number of items, the samples per item and the correlations of each rated dimension.

    Correlations: with the norms, and between every two dimensions, by condition, with Fisher's 95 % interval.
    """
    experiment = source.experiment
    dimensions = [data for measure in source.measures if measure.is_rating and (data := source.load_ratings(measure))]
    return {
        "experiment": experiment.slug,
        "dataset": str(experiment.dataset),
        "dataset_hash": experiment.dataset.content_hash,
        "wave": source.wave.number if source.wave else None,
        "items": experiment.dataset.active_count,
        "dimensions": {
            data.measure.key: {
                "scale": list(data.ends),
                "conditions": {series.label: _summarize_condition(series, data.norms) for series in data.conditions},
                "norms": None if data.norms is None else {"items": int(data.norms.rated.sum())},
            }
            for data in dimensions
        },
        "between_dimensions": [
            entry
            for index, first in enumerate(dimensions)
            for second in dimensions[index + 1 :]
            for entry in _correlate_conditions(first, second)
        ],
    }


def _summarize_condition(series: Series, norms: Series | None) -> dict[str, Any]:
    rated = series.rated
    content: dict[str, Any] = {
        "items": int(rated.sum()),
        "samples_per_item": {
            "least": int(series.n[rated].min()),
            "most": int(series.n[rated].max()),
            "mean": float(series.n[rated].mean()),
        },
        "mean": float(series.mean[rated].mean()),
    }
    if norms is not None:
        common = rated & norms.rated
        content["with_norms"] = _summarize_correlation(series.mean[common], norms.mean[common])
    return content


def _summarize_correlation(x: Floats, y: Floats) -> dict[str, Any]:
    correlation = pearson(list(x), list(y)) if len(x) else None
    if correlation is None:
        return {"items": len(x), "r": None}
    return {
        "items": correlation.n,
        "r": correlation.r,
        "low": correlation.low,
        "high": correlation.high,
        "p": correlation.p,
    }


def _correlate_conditions(first: RatingData, second: RatingData) -> Iterator[dict[str, Any]]:
    first_places, second_places = match_items(first, second)
    second_series = {series.label: series for series in second.all_series}
    for series in first.all_series:
        if series.label in second_series:
            x, y = series.mean[first_places], second_series[series.label].mean[second_places]
            common = (x == x) & (y == y)
            yield {
                "rated_by": series.label,
                "dimensions": [first.measure.key, second.measure.key],
                **_summarize_correlation(x[common], y[common]),
            }
