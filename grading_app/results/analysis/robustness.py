"""Robustness: the headline under other choices of scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from grading_app.results.analysis.data import AnalysisData, load_analysis_data
from grading_app.results.scope import FLAGGED, MISSING_EXCLUDED, MISSING_WRONG
from grading_app.results.scores import estimate, list_measures
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import compare_conditions
from grading_app.statistics.paired import PairedChange, describe_methods
from runs_app.models.annotations import list_flagged_items

MAX_CATEGORIES = 20


def build_robustness_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the headline under each choice: the difference of two conditions, or the mean of a single condition."""
    if not data.conditions:
        return []
    baseline = data.scope.baseline if data.scope.baseline in data.conditions else data.conditions[0]
    others = [condition for condition in data.conditions if condition != baseline]
    pair = (baseline, others[0]) if others else None
    rows: list[dict[str, Any]] = []
    changes: list[PairedChange] = []
    for name, variant in _iterate_variants(data):
        if not variant.conditions or not set(pair or data.conditions[:1]) <= set(variant.conditions):
            continue
        if pair is None:
            score = estimate(variant.scores, variant.measure, variant.conditions[0])
            counts = {"variant": name, "items": score.items, "n": score.n}
            if score.n:
                rows.append({**counts, "value": score.mean, "interval": score.interval, "p": None})
        elif found := compare_conditions(variant.scores, *pair, variant.bounds):
            changes.append(found.change)
            n = int(variant.scores.select_conditions(list(pair)).n.sum())
            ends = (found.change.low, found.change.high) if found.change.low is not None else None
            counts = {"variant": name, "items": found.items, "n": n}
            rows.append({**counts, "value": found.change.mean, "interval": ends, "p": found.change.p})
    names = dict.fromkeys(change.test for change in changes if change.test)
    tests = f"Tests: {', '.join(names)}." if names else ""
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
            test=f"{tests} {describe_methods(changes)}".strip(),
            sentence=sentence,
            notes=["Each row changes one choice of the scope."],
        )
    ]


def _iterate_variants(data: AnalysisData) -> Iterator[tuple[str, AnalysisData]]:
    scope = data.scope
    yield "As chosen", data
    for name, label in (("retried", "First attempts only"), ("truncated", "Without truncated answers")):
        if name not in scope.exclude:
            yield label, load_analysis_data(replace(scope, exclude=scope.exclude | {name}))
    if int(data.scores.missing.sum()) or scope.missing == MISSING_WRONG:
        if scope.missing == MISSING_EXCLUDED:
            other = replace(scope, missing=MISSING_WRONG)
            yield "Answers without a score counted as the lowest score", load_analysis_data(other)
        else:
            other = replace(scope, missing=MISSING_EXCLUDED)
            yield "Answers without a score excluded", load_analysis_data(other)
    if FLAGGED not in scope.exclude and list_flagged_items(scope.experiment):
        yield "Without flagged items", load_analysis_data(replace(scope, exclude=scope.exclude | {FLAGGED}))
    if scope.without:
        yield "Including the excluded items", load_analysis_data(replace(scope, without=()))
    names = sorted(set(data.categories) - {""})
    for name in names if 1 < len(names) <= MAX_CATEGORIES else ():
        is_kept = np.array([category != name for category in data.categories], dtype=np.bool_)
        keys, categories = ([one[at] for at in np.flatnonzero(is_kept)] for one in (data.keys, data.categories))
        scores = data.scores.select_items(is_kept)
        yield f"Without category {name}", replace(data, scores=scores, keys=keys, categories=categories, norms=None)
    # The same answers under other graders with the same dimension and scale.
    kind = (scope.measure.dimension, scope.measure.low, scope.measure.high)
    for measure in list_measures(scope.experiment):
        is_comparable = (measure.dimension, measure.low, measure.high) == kind and not measure.is_rating
        if is_comparable and measure.key != scope.measure.key:
            yield f"Measure {measure.label}", load_analysis_data(replace(scope, measure=measure))
