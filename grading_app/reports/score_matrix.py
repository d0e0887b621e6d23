"""The scores of an experiment by item and condition, for each measure that the experiment has.

A measure is a dimension that models rated, or a grader (rule, judge, panel, people of a queue). For graded ratings it
is a grader on a dimension. Results, matrix, comparisons and analyses all read the same arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.names import NamedChoice, find_named
from grading_app.models import GradeCondition
from grading_app.reports import statistic_format
from grading_app.reports.frames import (
    BY_PEOPLE,
    BY_RULES,
    IN_SCOPE,
    load_condition_labels,
    load_people_labels,
    load_rule_labels,
    make_scope_parameters,
)
from grading_app.scoring.scorers import SCORERS
from grading_app.statistics.intervals import SHARE_BOUNDS, Bounds, estimate_mean, is_share_scale
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Condition, Dimension, Experiment, Wave
from runs_app.models.trials import REFUSED_CLASS

EXCLUSIONS = {
    "truncated": "NOT t.truncated",
    "retried": "t.attempts <= 1",
    "refused": "NOT t.refused",
    "reused": "NOT t.from_cache",
}
"""The kinds of answers that a reader may exclude, with the SQL condition on trials that keeps all others."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of score of an experiment's answers.

    key: the name in addresses: the dimension for a rating ("valence"), the scorer for a rule ("exact_match"), "g12" for
    any other grader, "people3" for the people of queue 3. Keys of graders of rated items end in ":valence".
    dimension: the primary key of the dimension, or None.
    grader: the primary key of the grade condition, or the negated key of a queue; None for the models' own ratings.
    low, high: the ends of the scale; None if the scale is unbounded or unknown.
    names: other names that mean it, such as those of its grader and of its dimension.
    """

    key: str
    label: str
    kind: str
    dimension: int | None = None
    grader: int | None = None
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_rating(self) -> bool:
        return self.grader is None

    @property
    def bounds(self) -> Bounds | None:
        """The ends of the scale; None if the scale is unbounded or unknown."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def length(self) -> float | None:
        """The length of the scale; None if the scale is unbounded or unknown."""
        return None if self.low is None or self.high is None else self.high - self.low

    def is_share(self, scores: ItemScores) -> bool:
        """Return True if means of these scores are shares: all are 0 or 1, and the scale has no other ends."""
        return is_share_scale(scores.is_binary, self.bounds)


def list_measures(experiment: Experiment) -> list[Measure]:
    """Return every measure: ratings by dimension, then rules, judges and panels, then people.

    Adjudications and pairwise verdicts are excluded, because they do not measure single conditions.
    """
    dimensions = list(experiment.dimensions.order_by("pk"))
    names = name_dimensions(dimensions)
    ratings = [
        Measure(
            names[dimension.pk],
            dimension.title or dimension.name,
            "rating",
            dimension.pk,
            None,
            dimension.scale_min,
            dimension.scale_max,
            (dimension.name, str(dimension)),
        )
        for dimension in dimensions
    ]
    return [
        *ratings,
        *(
            grader if dimension is None else _restrict_to_dimension(grader, dimension, names[dimension.pk])
            for grader in _list_grader_measures(experiment)
            for dimension in (dimensions or [None])
        ),
    ]


def find_measure(experiment: Experiment, key: str) -> Measure | None:
    """Return the measure with this key, the first one for an empty key, or None."""
    measures = list_measures(experiment)
    return next((measure for measure in measures if measure.key == key or not key), None)


def match_measure(measures: Sequence[Measure], name: str) -> Measure:
    """Return the measure that people mean by a key, or by a name that pages show.

    Raise UnknownNameError for a name of none or of several; the message lists the choices.
    """
    choices = [NamedChoice(measure, measure.key, (measure.label, *measure.names)) for measure in measures]
    return find_named(name, choices, "measure")


def name_dimensions(dimensions: Collection[Dimension]) -> dict[int, str]:
    """Return names for addresses by primary key. Dimensions of the same name have their version, too."""
    name_counts = Counter(dimension.name for dimension in dimensions)
    return {
        dimension.pk: dimension.name if name_counts[dimension.name] == 1 else str(dimension) for dimension in dimensions
    }


def _list_grader_measures(experiment: Experiment) -> list[Measure]:
    rules = load_rule_labels(experiment)
    grade_conditions = GradeCondition.objects.filter(pk__in=rules).select_related("rubric", "grader", "panel")
    with_scales = grade_conditions.prefetch_related("panel__graders__rubric").order_by("pk")
    conditions = [condition for condition in with_scales if not condition.is_pairwise]
    scorer_counts = Counter(condition.scorer for condition in conditions)
    graders = []
    for condition in conditions:
        low, high = condition.score_range or (None, None)
        key = (
            condition.scorer
            if condition.kind == GradeCondition.Kind.RULE and scorer_counts[condition.scorer] == 1
            else f"g{condition.pk}"
        )
        scorer = SCORERS.get(condition.scorer)
        names = (
            condition.grade_condition_id,
            condition.scorer,
            scorer.label if scorer else "",
            condition.grader.name if condition.grader else "",
            condition.panel.name if condition.panel else "",
        )
        shown_names = tuple(name for name in names if name)
        label = rules[condition.pk]
        graders.append(Measure(key, label, condition.kind, None, condition.pk, low, high, shown_names))
    queues = {queue.pk: queue for queue in experiment.rating_queues.exclude(rubric=None).select_related("rubric")}
    for negated, label in load_people_labels(experiment).items():
        queue = queues[-negated]
        low, high = queue.rubric.score_range
        people = (queue.name, f"people of {queue.name}")
        graders.append(Measure(f"people{-negated}", label, "person", None, negated, low, high, people))
    return graders


def _restrict_to_dimension(grader: Measure, dimension: Dimension, dimension_name: str) -> Measure:
    """Return the grader's scores of one dimension. The grader's own names mean them too, if they are the only ones."""
    title = dimension.title or dimension.name
    grader_names = (grader.key, grader.label, *grader.names)
    suffixes = [f"{joint}{name}" for joint in (":", " · ") for name in (dimension_name, title)]
    return replace(
        grader,
        key=f"{grader.key}:{dimension_name}",
        label=f"{grader.label} · {title}",
        dimension=dimension.pk,
        names=(*grader_names, *(f"{name}{suffix}" for name in grader_names for suffix in suffixes)),
    )


def load_item_scores(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> ItemScores:
    """Load the scores of one measure, in one pass over the rows in the database.

    Items are all items with planned answers, in the order of the dataset. Conditions are all conditions that have runs
    (in this wave). A planned answer without a score is missing, whatever the cause (`count_missing`); for people, only
    an answer that they were asked about. exclude: keys of EXCLUSIONS.
    """
    parameters = {
        **make_scope_parameters(experiment, wave),
        "dimension": measure.dimension,
        "rules": [measure.grader],
    }
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(exclude))
    rows: list[Any] = fetch_rows(_build_statement(measure, filters), parameters)
    conditions = list(load_condition_labels(experiment, wave))
    condition_set = set(conditions)
    scored_rows = [row for row in rows if row[1] in condition_set]
    items = list(dict.fromkeys(row[0] for row in scored_rows))
    is_binary = bool(scored_rows) and all(row[6] for row in scored_rows)
    return ItemScores.from_rows([row[:6] for row in scored_rows], items, conditions, is_binary=is_binary)


def count_ratings(
    experiment: Experiment,
    measure: Measure,
    items: Collection[int],
    wave: Wave | None = None,
    exclude: Collection[str] = (),
) -> list[tuple[int, str, int | None, int]]:
    """Return (condition, category, rating, number of answers) of a rated measure for these items.

    The rating is None for answers without one. exclude: keys of EXCLUSIONS.
    """
    parameters = {
        **make_scope_parameters(experiment, wave),
        "dimension": measure.dimension,
        "items": list(items),
    }
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(exclude))
    counts: list[Any] = fetch_rows(
        f"""SELECT r.condition_id, i.category, t.rating, count(*) FROM runs_app_trial t
            JOIN runs_app_run r ON r.id = t.run_id JOIN datasets_app_item i ON i.id = t.item_id
            WHERE {IN_SCOPE} AND t.status = 'done' AND t.dimension_id = %(dimension)s AND i.id = ANY(%(items)s){filters}
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",  # noqa: S608
        parameters,
    )
    return counts


def _build_statement(measure: Measure, filters: str) -> str:
    """Return SQL for rows (item, condition, n, missing, mean, squared deviations, all 0 or 1), in the dataset's order.

    It uses PostgreSQL's var_pop, because sums of squares would lose digits of large scores.
    """
    source, score = _select_source(measure)
    return f"""SELECT of_cell.* FROM (
            SELECT t.item_id, r.condition_id, count({score}) AS n, count(*) - count({score}) AS missing,
                avg({score})::float8 AS mean, (var_pop({score}::float8) * count({score}))::float8 AS within,
                coalesce(bool_and({score} IN (0, 1)), true) AS is_binary
            FROM {source} JOIN runs_app_run r ON r.id = t.run_id
            WHERE {IN_SCOPE} AND {OF_DIMENSION}{filters} GROUP BY 1, 2
        ) AS of_cell JOIN datasets_app_item i ON i.id = of_cell.item_id ORDER BY i.position, of_cell.item_id"""  # noqa: S608


def _select_source(measure: Measure) -> tuple[str, str]:
    """Return SQL for the planned answers `t` with their scores by this measure, and the score's column."""
    if measure.is_rating:
        return "runs_app_trial t", "t.rating"
    if measure.grader is not None and measure.grader < 0:
        return f"({BY_PEOPLE}) g JOIN runs_app_trial t ON t.id = g.trial_id", "g.score"
    return f"runs_app_trial t LEFT JOIN ({BY_RULES}) g ON g.trial_id = t.id", "g.score"


OF_DIMENSION = "(%(dimension)s::bigint IS NULL OR t.dimension_id = %(dimension)s)"


def count_missing(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> dict[int, dict[str, int]]:
    """Return the number of planned answers without a score, by condition and then by reason, the most frequent first.

    Each answer has one reason. The scope is that of `load_item_scores`.
    """
    source, score = _select_source(measure)
    no_grading = "false" if measure.is_rating else "g.trial_id IS NULL"
    parameters = {**make_scope_parameters(experiment, wave), "dimension": measure.dimension, "rules": [measure.grader]}
    filters = "".join(f" AND {EXCLUSIONS[name]}" for name in sorted(exclude))
    rows = fetch_rows(
        f"""SELECT r.condition_id, CASE WHEN t.status IN ('pending', 'running') THEN 'not run'
                WHEN t.status = 'cancelled' THEN 'cancelled'
                WHEN t.status = 'failed' AND t.error_class <> '{REFUSED_CLASS}' THEN 'failed'
                WHEN t.status = 'failed' OR t.refused THEN 'refused' WHEN t.truncated THEN 'truncated'
                WHEN t.answer = '' THEN 'empty' WHEN {no_grading} THEN 'not graded yet' ELSE 'unreadable' END, count(*)
            FROM {source} JOIN runs_app_run r ON r.id = t.run_id
            WHERE {IN_SCOPE} AND {OF_DIMENSION}{filters} AND {score} IS NULL GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2""",  # noqa: S608
        parameters,
    )
    reasons: dict[int, dict[str, int]] = {}
    for condition, reason, n in rows:
        reasons.setdefault(condition, {})[reason] = n
    return reasons


def estimate_conditions(experiment: Experiment) -> list[dict[str, Any]]:
    """Return a record for each measure and condition with scores: n, mean or share, and 95 % interval.

    Without an interval, `low` and `high` are None and `reason` says why. `text` is the estimate for people.
    """
    labels = load_condition_labels(experiment)
    names = dict(Condition.objects.filter(pk__in=labels).values_list("pk", "condition_id"))
    records = []
    for measure in list_measures(experiment):
        scores = load_item_scores(experiment, measure)
        is_share = measure.is_share(scores)
        missing = dict(zip(scores.conditions.tolist(), scores.missing.sum(axis=0).tolist(), strict=True))
        reasons = count_missing(experiment, measure) if any(missing.values()) else {}
        for key, label in labels.items():
            estimate = estimate_mean(scores.sum_condition(key), SHARE_BOUNDS if is_share else measure.bounds)
            if estimate is None:
                continue
            records.append(
                {
                    "measure": measure.key,
                    "label": measure.label,
                    "condition_id": names[key],
                    "condition": label,
                    "is_share": is_share,
                    "n": estimate.n,
                    "items": estimate.clusters,
                    "missing": missing[key],
                    "missing_reasons": reasons.get(key, {}),
                    "mean": estimate.mean,
                    "low": estimate.low,
                    "high": estimate.high,
                    "method": estimate.method,
                    "reason": estimate.reason,
                    "text": _format_estimate(estimate.mean, estimate.low, estimate.high, is_share),
                }
            )
    return records


def _format_estimate(mean: float, low: float | None, high: float | None, is_share: bool) -> str:
    middle = statistic_format.format_share(mean) if is_share else statistic_format.format_number(mean)
    if low is None:
        return middle
    ends = statistic_format.format_share_interval if is_share else statistic_format.format_interval
    return f"{middle} [{ends(low, high)}]"
