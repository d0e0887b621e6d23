"""Robustness: how the headline moves under other choices of what counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grading_app.analysis.data import AnalysisData, load_analysis_data
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.reports.scope import FLAGGED, MISSING_EXCLUDED, MISSING_WRONG, Scope
from grading_app.reports.score_matrix import list_measures
from grading_app.statistics.condition_pairs import compare_conditions
from grading_app.statistics.intervals import estimate_mean
from grading_app.statistics.item_scores import ItemScores
from runs_app.annotations import list_flagged_items

MOST_CATEGORIES = 20


def build_robustness_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the headline under each choice: the difference of two conditions, or the mean of a single one."""
    if not data.conditions:
        return []
    pair = _choose_headline_pair(data)
    rows = [row for name, variant in _iterate_variants(data) if (row := _build_row(name, variant, pair)) is not None]
    if len(rows) < 2:
        return []
    shown, ends = ("share", "share_interval") if data.is_share else ("number", "interval")
    if pair:
        shown, ends = ("signed_share", "points_interval") if data.is_share else ("signed", "interval")
        subject = f"{data.labels[pair[1]]} minus {data.labels[pair[0]]}"
    else:
        subject = data.labels[data.conditions[0]]
    values = [row["value"] for row in rows]
    same = all(value > 0 for value in values) or all(value < 0 for value in values)
    sentence = "The sign of the difference is the same under every choice." if pair and same else ""
    if pair and not same:
        sentence = "The sign of the difference depends on the choice."
    return [
        ResultTable(
            "robustness",
            f"How the headline moves: {subject}",
            [
                ResultColumn("variant", "Choice"),
                ResultColumn("items", "Items", "count"),
                ResultColumn("n", "Scores", "count"),
                ResultColumn("value", "Difference" if pair else "Mean", shown),  # type: ignore[arg-type]
                ResultColumn("interval", "95 % interval", ends),  # type: ignore[arg-type]
                ResultColumn("p", "p", "p"),
            ],
            rows,
            sentence=sentence,
            notes=["Each row changes one choice of the scope and keeps the others."],
        )
    ]


def _choose_headline_pair(data: AnalysisData) -> tuple[int, int] | None:
    """Return the baseline and the first other condition, or the first two conditions; None for a single one."""
    baseline = data.scope.baseline if data.scope.baseline in data.conditions else data.conditions[0]
    others = [one for one in data.conditions if one != baseline]
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
        yield "With the items that are left out", load_analysis_data(replace(scope, without=()))
    yield from _iterate_without_category(data)
    yield from _iterate_other_measures(scope)


def _iterate_without_category(data: AnalysisData) -> Iterator[tuple[str, AnalysisData]]:
    names = sorted(set(data.categories) - {""})
    if not 1 < len(names) <= MOST_CATEGORIES:
        return
    for name in names:
        chosen = [one != name for one in data.categories]
        yield f"Without category {name}", _select_items(data, chosen)


def _select_items(data: AnalysisData, chosen: list[bool]) -> AnalysisData:
    import numpy as np

    return replace(
        data,
        scores=data.scores.select_items(np.array(chosen, dtype=np.bool_)),
        keys=[key for key, keep in zip(data.keys, chosen, strict=True) if keep],
        categories=[one for one, keep in zip(data.categories, chosen, strict=True) if keep],
        norms=None,
    )


def _iterate_other_measures(scope: Scope) -> Iterator[tuple[str, AnalysisData]]:
    """Yield the same answers under other graders on the same scale; other dimensions are other questions."""
    now = scope.measure
    for measure in list_measures(scope.experiment):
        alike = (measure.dimension, measure.low, measure.high) == (now.dimension, now.low, now.high)
        if alike and measure.key != now.key and not measure.is_rating:
            yield f"Measure {measure.label}", load_analysis_data(replace(scope, measure=measure))


def _build_row(name: str, data: AnalysisData, pair: tuple[int, int] | None) -> dict[str, Any] | None:
    scores: ItemScores = data.scores
    if not set(pair or data.conditions[:1]) <= set(data.conditions) or not data.conditions:
        return None
    if pair is None:
        found = estimate_mean(scores.sum_condition(data.conditions[0]), data.bounds)
        if found is None:
            return None
        interval = (found.low, found.high) if found.low is not None else None
        counts = {"variant": name, "items": found.clusters, "n": found.n}
        return {**counts, "value": found.mean, "interval": interval, "p": None}
    compared = compare_conditions(scores, *pair, data.bounds)
    if compared is None:
        return None
    change = compared.change
    return {
        "variant": name,
        "items": compared.items,
        "n": int(scores.select_conditions(list(pair)).n.sum()),
        "value": change.mean,
        "interval": (change.low, change.high) if change.low is not None else None,
        "p": change.p,
    }
