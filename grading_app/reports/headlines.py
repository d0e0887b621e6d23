"""The headline scores of a list of experiments: the first measure of each, over its conditions.

Few answers are added up during the request, in one query for all experiments, and cached. Those of a large experiment
come from its stored leaderboard, so they appear once somebody has opened its results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache

from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import content_hash
from grading_app.models import CachedAggregate, GradeCondition
from grading_app.reports import statistic_format
from grading_app.reports.answer_aggregates import MOST_AT_ONCE
from runs_app.models import Dimension, Experiment
from runs_app.monitoring.progress import read_totals

SECONDS = 24 * 3600
BY_RATING = """SELECT r.experiment_id, r.condition_id, avg(t.rating)::float8, false
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_condition c ON c.id = r.condition_id
    WHERE r.experiment_id = ANY(%(experiments)s) AND t.dimension_id = ANY(%(measures)s) AND c.stage = 'generate'
        AND t.status = 'done' AND (r.experiment_id, t.dimension_id) IN (
            SELECT * FROM unnest(%(experiments)s::bigint[], %(measures)s::bigint[]))
    GROUP BY 1, 2 HAVING count(t.rating) > 0"""
BY_GRADE = """SELECT r.experiment_id, r.condition_id, avg(g.score)::float8, bool_and(g.score IN (0, 1))
    FROM grading_app_grading g JOIN runs_app_trial t ON t.id = g.trial_id JOIN runs_app_run r ON r.id = t.run_id
    JOIN runs_app_condition c ON c.id = r.condition_id
    WHERE g.condition_id = ANY(%(measures)s) AND g.score IS NOT NULL AND c.stage = 'generate' GROUP BY 1, 2"""


@dataclass(frozen=True, slots=True)
class Headline:
    """The means of an experiment's conditions on its first measure: the lowest and the highest one."""

    measure: str
    low: float
    high: float
    is_share: bool
    conditions: int

    @property
    def text(self) -> str:
        if self.is_share:
            return (
                statistic_format.format_share(self.low)
                if self.low == self.high
                else statistic_format.format_share_interval(self.low, self.high)
            )
        ends = statistic_format.format_interval(self.low, self.high)
        return statistic_format.format_number(self.low) if self.low == self.high else ends


@dataclass(frozen=True, slots=True)
class _FirstMeasure:
    """The first measure of an experiment: a dimension, or a grade condition. state: changes with its scores."""

    label: str
    key: int
    is_rating: bool
    state: list[Any]


def load_headlines(experiments: Sequence[Any]) -> dict[int, Headline]:
    """Return the headlines by keys of experiments from `annotate_totals`, in a constant number of queries."""
    first = _find_first_measures(experiments)
    done = {one.pk: read_totals(one).done for one in experiments}
    names = {f"headline:{content_hash([pk, done[pk], found.state])}": pk for pk, found in first.items() if done[pk]}
    cached: dict[str, Headline] = cache.get_many(names)
    headlines = {names[name]: found for name, found in cached.items()}
    missing = [pk for name, pk in names.items() if name not in cached]
    small = [pk for pk in missing if done[pk] <= MOST_AT_ONCE]
    computed = _compute_headlines({pk: first[pk] for pk in small})
    cache.set_many({name: computed[pk] for name, pk in names.items() if pk in computed}, SECONDS)
    large = [pk for pk in missing if done[pk] > MOST_AT_ONCE]
    return headlines | computed | (_load_stored_headlines(large) if large else {})


def _find_first_measures(experiments: Sequence[Experiment]) -> dict[int, _FirstMeasure]:
    keys = [one.pk for one in experiments]
    found: dict[int, _FirstMeasure] = {}
    graders = GradeCondition.objects.filter(experiment__in=keys).exclude(scorer="rating").order_by("pk")
    no_measures = (GradeCondition.Kind.PERSON, GradeCondition.Kind.ADJUDICATED)
    for one in graders.exclude(kind__in=no_measures).select_related("rubric", "grader", "panel"):
        if one.experiment_id not in found and not one.is_pairwise:
            found[one.experiment_id] = _FirstMeasure(one.label, one.pk, False, ["grader", one.pk, one.changes])
    dimensions = Dimension.objects.filter(experiments__in=keys).order_by("-pk")
    for pk, title, name, experiment in dimensions.values_list("pk", "title", "name", "experiments"):
        if experiment in keys:
            found[experiment] = _FirstMeasure(title or name, pk, True, ["dimension", pk])
    return found


def _compute_headlines(first: dict[int, _FirstMeasure]) -> dict[int, Headline]:
    rated = {pk: one.key for pk, one in first.items() if one.is_rating}
    graded = {pk: one.key for pk, one in first.items() if not one.is_rating}
    rows: list[Any] = []
    if rated:
        rows += fetch_rows(BY_RATING, {"experiments": list(rated), "measures": list(rated.values())})
    if graded:
        rows += fetch_rows(BY_GRADE, {"measures": list(graded.values())})
    means: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for experiment, _, mean, is_binary in rows:
        means[experiment].append((mean, is_binary))
    return {pk: _make_headline(first[pk].label, found) for pk, found in means.items()}


def _make_headline(label: str, means: list[tuple[float, bool]]) -> Headline:
    values = [mean for mean, _ in means]
    return Headline(label, min(values), max(values), all(is_binary for _, is_binary in means), len(values))


def _load_stored_headlines(experiments: list[int]) -> dict[int, Headline]:
    """Return headlines from the stored leaderboards of all waves and without a baseline."""
    rows = CachedAggregate.objects.filter(experiment__in=experiments, name="leaderboard", computed_at__isnull=False)
    found = {}
    for row in rows:
        if row.query != [row.experiment_id, None, False, None] or not row.value or not row.value["measures"]:
            continue
        measure = row.value["measures"][0]
        means = [one["scores"][measure["key"]]["mean"] for one in row.value["rows"]]
        present = [(mean, measure["is_share"]) for mean in means if mean is not None]
        if present:
            found[row.experiment_id] = _make_headline(measure["label"], present)
    return found
