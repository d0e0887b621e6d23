"""Robustness: the headline under other choices of scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grading_app.results.analysis.data import AnalysisData, load_analysis_data
from grading_app.results.scope import FLAGGED, MISSING_EXCLUDED, MISSING_WRONG, Scope
from grading_app.results.scores import estimate, list_measures
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import compare_conditions
from runs_app.annotations import list_flagged_items

MAX_CATEGORIES = 20


def build_robustness_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the headline under each choice: the difference of two conditions, or the mean of a single condition."""
    if not data.conditions:
        return []
    pair = _choose_headline_pair(data)
    rows = [row for name, variant in _iterate_variants(data) if (row := _build_row(name, variant, pair)) is not None]
    if len(rows) < 2:
        return []
    measure = data.measure
    subject = f"{data.labels[pair[1]]} minus {data.labels[pair[0]]}" if pair else data.labels[data.conditions[0]]
    values = [row["value"] for row in rows]
    has_same_sign = all(value > 0 for value in values) or all(value < 0 for value in values)
    sentence = "The sign of the difference is the same under every choice." if pair and has_same_sign else ""
    if pair and not has_same_sign:
        sentence = "The sign of the difference depends on the choice."
    return [
        ResultTable(
            "robustness",
            f"Headline under other choices: {subject}",
            [
                ResultColumn("variant", "Choice"),
                ResultColumn("items", "Items", "count"),
                ResultColumn("n", "Scores", "count"),
                ResultColumn("value", "Difference", measure.difference_column)
                if pair
                else ResultColumn("value", "Mean", measure.mean_column),
                ResultColumn(
                    "interval",
                    "95 % interval",
                    measure.difference_interval_column if pair else measure.interval_column,
                ),
                ResultColumn("p", "p", "p"),
            ],
            rows,
            sentence=sentence,
            notes=["Each row changes one choice of the scope."],
        )
    ]


def _choose_headline_pair(data: AnalysisData) -> tuple[int, int] | None:
    """Return the baseline and the first other condition, or the first two conditions; None for a single condition."""
    baseline = data.scope.baseline if data.scope.baseline in data.conditions else data.conditions[0]
    others = [condition for condition in data.conditions if condition != baseline]
    return (baseline, others[0]) if others else None


def _iterate_variants(data: AnalysisData) -> Iterator[tuple[str, AnalysisData]]:
    scope = data.scope
    yield "As chosen", data
    for name, label in (("retried", "First attempts only"), ("truncated", "Without truncated answers")):
        if name not in scope.exclude:
            yield label, load_analysis_data(replace(scope, exclude=scope.exclude | {name}))
    if int(data.scores.missing.sum()) or scope.missing == MISSING_WRONG:
        if scope.missing == MISSING_EXCLUDED:
            yield "Answers without a score counted as wrong", load_analysis_data(replace(scope, missing=MISSING_WRONG))
        else:
            other = replace(scope, missing=MISSING_EXCLUDED)
            yield "Answers without a score excluded", load_analysis_data(other)
    if FLAGGED not in scope.exclude and list_flagged_items(scope.experiment):
        yield "Without flagged items", load_analysis_data(replace(scope, exclude=scope.exclude | {FLAGGED}))
    if scope.without:
        yield "Including the excluded items", load_analysis_data(replace(scope, without=()))
    yield from _iterate_without_category(data)
    yield from _iterate_other_measures(scope)


def _iterate_without_category(data: AnalysisData) -> Iterator[tuple[str, AnalysisData]]:
    names = sorted(set(data.categories) - {""})
    if not 1 < len(names) <= MAX_CATEGORIES:
        return
    for name in names:
        is_selected = [category != name for category in data.categories]
        yield f"Without category {name}", _select_items(data, is_selected)


def _select_items(data: AnalysisData, is_selected: list[bool]) -> AnalysisData:
    import numpy as np

    return replace(
        data,
        scores=data.scores.select_items(np.array(is_selected, dtype=np.bool_)),
        keys=[key for key, is_kept in zip(data.keys, is_selected, strict=True) if is_kept],
        categories=[category for category, is_kept in zip(data.categories, is_selected, strict=True) if is_kept],
        norms=None,
    )


def _iterate_other_measures(scope: Scope) -> Iterator[tuple[str, AnalysisData]]:
    """Yield the same answers under other graders with the same dimension and scale."""
    current = scope.measure
    for measure in list_measures(scope.experiment):
        is_comparable = (measure.dimension, measure.low, measure.high) == (current.dimension, current.low, current.high)
        if is_comparable and measure.key != current.key and not measure.is_rating:
            yield f"Measure {measure.label}", load_analysis_data(replace(scope, measure=measure))


def _build_row(name: str, data: AnalysisData, pair: tuple[int, int] | None) -> dict[str, Any] | None:
    if not set(pair or data.conditions[:1]) <= set(data.conditions) or not data.conditions:
        return None
    if pair is None:
        score = estimate(data.scores, data.measure, data.conditions[0])
        if not score.n:
            return None
        counts = {"variant": name, "items": score.items, "n": score.n}
        return {**counts, "value": score.mean, "interval": score.interval, "p": None}
    comparison = compare_conditions(data.scores, *pair, data.bounds)
    if comparison is None:
        return None
    change = comparison.change
    return {
        "variant": name,
        "items": comparison.items,
        "n": int(data.scores.select_conditions(list(pair)).n.sum()),
        "value": change.mean,
        "interval": (change.low, change.high) if change.low is not None else None,
        "p": change.p,
    }
