"""The comparison of two waves of one experiment: the items' scores in both waves, and the outcomes of the trials.

The database aggregates the rows. The result has a row for each condition and measure. It has the differences of single
items only if few items differ, for the exact tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from evalsite.lib.sql import fetch_rows
from grading_app.reports.frames import (
    BY_PEOPLE,
    BY_RULES,
    IN_EXPERIMENT,
    Outcomes,
    load_condition_labels,
    load_dimensions,
    load_outcomes,
    load_people_labels,
    load_rule_labels,
    make_scope_parameters,
    sum_outcomes,
)
from grading_app.reports.score_matrix import list_measures
from grading_app.reports.score_summaries import SummaryMeasure, get_sort_key, label_measure
from grading_app.statistics.intervals import is_share_scale
from grading_app.statistics.paired import MIN_CHANGED, Change, estimate_change, holm
from runs_app.models import Experiment, Wave
from runs_app.planning.drift import ServedModels

LEVEL = 0.05
IN_EITHER_WAVE = f"{IN_EXPERIMENT} AND r.wave_id IN (%(a)s, %(b)s)"


@dataclass(frozen=True, slots=True)
class WaveChange:
    """The change of one measure in one condition (None: in all), over the items with a score in both waves.

    unpaired: the number of items without a score in one of the waves. unread_a, unread_b: answers without a score.
    adjusted: p after Holm's correction, over the lines of single conditions or over the lines of all conditions.
    """

    measure: SummaryMeasure
    condition: str | None
    change: Change | None
    mean_a: float | None
    mean_b: float | None
    unpaired: int
    unread_a: int
    unread_b: int
    adjusted: float | None = None

    @property
    def has_drifted(self) -> bool:
        return self.adjusted is not None and self.adjusted < LEVEL


class ServedDifference(NamedTuple):
    """The differences of two waves in their served models and providers."""

    models: bool = False
    providers: bool = False

    @classmethod
    def of(cls, a: ServedModels, b: ServedModels) -> ServedDifference:
        """Compare two waves. A wave without a served model or provider counts as unchanged."""
        pairs = ((a.models, b.models), (a.providers, b.providers))
        return cls(*(bool(first and second and first != second) for first, second in pairs))


@dataclass(frozen=True, slots=True)
class WaveOutcome:
    """The outcomes of the trials of one condition (None: of all) in wave a or b."""

    condition: str | None
    is_b: bool
    counts: Outcomes
    served: ServedModels
    differs: ServedDifference


@dataclass(frozen=True, slots=True)
class WaveComparison:
    lines: list[WaveChange]
    outcomes: list[WaveOutcome]

    @property
    def has_people(self) -> bool:
        return any((line.measure.rule or 0) < 0 for line in self.lines)

    @property
    def drifted(self) -> list[WaveChange]:
        return [line for line in self.lines if line.has_drifted]

    @property
    def changed_conditions(self) -> list[str]:
        """The labels of the conditions that other models or providers served in wave b."""
        return [row.condition for row in self.outcomes if row.is_b and any(row.differs) and row.condition]


def compare_waves(experiment: Experiment, a: Wave, b: Wave) -> WaveComparison:
    """Compare wave b with wave a, in at most six passes over the rows of both waves in the database."""
    return WaveComparison(compare_scores(experiment, a, b), list_wave_outcomes(experiment, a, b))


def compare_scores(experiment: Experiment, a: Wave, b: Wave) -> list[WaveChange]:
    """Return lines by measure: all conditions together if there are several, then each in the order of the design."""
    labels, dimensions = load_condition_labels(experiment), load_dimensions(experiment)
    rules, people = load_rule_labels(experiment), load_people_labels(experiment)
    scales = {(measure.grader, measure.dimension): measure.bounds for measure in list_measures(experiment)}
    parameters = {"experiment": experiment.pk, "a": a.pk, "b": b.pk, "few": MIN_CHANGED}
    rows = fetch_rows(_build_comparison_sql(RATINGS), parameters) if dimensions else []
    for graded, labels_by_rule in ((BY_RULES, rules), (BY_PEOPLE, people)):
        rows += (
            fetch_rows(_build_comparison_sql(_build_grades_sql(graded)), {**parameters, "rules": list(labels_by_rule)})
            if labels_by_rule
            else []
        )
    has_several_conditions = len({row[0] for row in rows if row[0] is not None}) > 1
    lines = []
    for condition, rule, dimension, is_binary, n, mean, sd, changed, is_single_answer, *rest in rows:
        if condition is None and not has_several_conditions:
            continue  # It would repeat the line of the only condition.
        bounds = scales.get((rule, dimension))
        is_share = is_share_scale(is_binary, bounds)
        measure = SummaryMeasure(
            label_measure({**rules, **people}, dimensions, rule, dimension), rule, dimension, is_share
        )
        span = 1.0 if is_share else bounds[1] - bounds[0] if bounds else None
        change = estimate_change(n, mean, sd, changed, span=span, is_single_answer=is_share and is_single_answer)
        lines.append(WaveChange(measure, labels[condition] if condition is not None else None, change, *rest))
    order: dict[str | None, int] = {None: -1} | {label: at for at, label in enumerate(labels.values())}
    return _adjust_p(sorted(lines, key=lambda line: (get_sort_key(line.measure), order[line.condition])))


def _adjust_p(lines: list[WaveChange]) -> list[WaveChange]:
    """Return the lines with the adjusted p.

    Single conditions and sums over conditions are two families of tests, because a sum repeats its parts.
    """
    adjusted = list(lines)
    for is_sum in (True, False):
        indices = [k for k, line in enumerate(lines) if (line.condition is None) == is_sum and line.change]
        tested = [(k, p) for k in indices if (change := lines[k].change) and (p := change.p) is not None]
        for (k, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
            adjusted[k] = replace(lines[k], adjusted=p)
    return adjusted


# For each item in a condition: its mean in each wave, and the number of answers without a score.
_ITEM_MEANS = """avg({score}::float8) FILTER (WHERE r.wave_id = %(a)s) AS a,
    avg({score}::float8) FILTER (WHERE r.wave_id = %(b)s) AS b,
    count(*) FILTER (WHERE r.wave_id = %(a)s AND {score} IS NULL) AS unread_a,
    count(*) FILTER (WHERE r.wave_id = %(b)s AND {score} IS NULL) AS unread_b"""
RATINGS = f"""SELECT r.condition_id, NULL::bigint AS rule, t.dimension_id, t.item_id, false AS zero_or_one,
        {_ITEM_MEANS.format(score="t.rating")}
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
    WHERE {IN_EITHER_WAVE} AND t.status = 'done' AND t.dimension_id IS NOT NULL GROUP BY 1, 2, 3, 4"""  # noqa: S608


def _build_grades_sql(grades_sql: str) -> str:
    """Return SQL like RATINGS for scores. grades_sql: SQL that selects rule, trial and score."""
    return f"""SELECT r.condition_id, g.rule, t.dimension_id, t.item_id,
            coalesce(bool_and(g.score IN (0, 1)), true) AS zero_or_one, {_ITEM_MEANS.format(score="g.score")}
        FROM ({grades_sql}) g JOIN runs_app_trial t ON t.id = g.trial_id JOIN runs_app_run r ON r.id = t.run_id
        WHERE {IN_EITHER_WAVE} GROUP BY 1, 2, 3, 4"""  # noqa: S608


def _build_comparison_sql(item_means: str) -> str:
    """Return SQL with a row for each condition and measure, and a row for each measure over all conditions.

    Over all conditions, an item counts with the mean of its differences. Differences below the rounding error count
    as zero.
    """
    return f"""WITH of_item AS ({item_means}), paired AS (
            SELECT *, CASE WHEN abs(b - a) <= 1e-12 * greatest(abs(a), abs(b)) THEN 0 ELSE b - a END AS d FROM of_item
        ), lines AS (
            SELECT condition_id, rule, dimension_id, zero_or_one, a, b, d, unread_a, unread_b FROM paired
            UNION ALL
            SELECT NULL, rule, dimension_id, bool_and(zero_or_one), avg(a) FILTER (WHERE d IS NOT NULL),
                avg(b) FILTER (WHERE d IS NOT NULL), avg(d), sum(unread_a), sum(unread_b)
            FROM paired GROUP BY rule, dimension_id, item_id
        )
        SELECT condition_id, rule, dimension_id,
            bool_and(bool_and(zero_or_one)) OVER (PARTITION BY rule, dimension_id),
            count(d), avg(d), stddev_samp(d),
            CASE WHEN count(*) FILTER (WHERE d <> 0) < %(few)s
                THEN coalesce(array_agg(d) FILTER (WHERE d <> 0), ARRAY[]::float8[]) END,
            coalesce(bool_and(d IN (-1, 0, 1)), false),
            avg(a) FILTER (WHERE d IS NOT NULL), avg(b) FILTER (WHERE d IS NOT NULL), count(*) - count(d),
            sum(unread_a)::bigint, sum(unread_b)::bigint
        FROM lines GROUP BY 1, 2, 3"""  # noqa: S608


def list_wave_outcomes(experiment: Experiment, a: Wave, b: Wave) -> list[WaveOutcome]:
    """Return two rows for each condition, wave a first.

    If there are several conditions, two rows for all conditions come before them.
    """
    labels, served = load_condition_labels(experiment), _load_served_models(experiment, a, b)
    outcomes = [
        {row.condition: row for row in load_outcomes(make_scope_parameters(experiment, wave))} for wave in (a, b)
    ]
    rows = []
    for condition, label in labels.items():
        served_by_wave = [served[condition, wave.pk] for wave in (a, b)]
        for counts, models, is_b in zip(outcomes, served_by_wave, (False, True), strict=True):
            if condition in counts:
                rows.append(WaveOutcome(label, is_b, counts[condition], models, ServedDifference.of(*served_by_wave)))
    has_several_conditions = len({row.condition for row in rows}) > 1
    return [*(_sum_conditions(outcomes) if has_several_conditions else []), *rows]


def _sum_conditions(outcomes: list[dict[int, Outcomes]]) -> Iterable[WaveOutcome]:
    for counts, is_b in zip(outcomes, (False, True), strict=True):
        yield WaveOutcome(None, is_b, sum_outcomes(counts.values()), ServedModels(), ServedDifference())


def _load_served_models(experiment: Experiment, a: Wave, b: Wave) -> dict[tuple[int, int], ServedModels]:
    """Return the served models and providers by condition and wave."""
    statement = f"""SELECT r.condition_id, r.wave_id, t.served_model, t.served_provider
        FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
        WHERE {IN_EITHER_WAVE} AND t.status = 'done' GROUP BY 1, 2, 3, 4"""  # noqa: S608
    pairs_by_run: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for condition, wave, model, provider in fetch_rows(statement, {"experiment": experiment.pk, "a": a.pk, "b": b.pk}):
        pairs_by_run[condition, wave].append((model, provider))
    return defaultdict(ServedModels, {key: ServedModels.from_pairs(pairs) for key, pairs in pairs_by_run.items()})
