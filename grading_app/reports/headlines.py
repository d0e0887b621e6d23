"""The headline scores of a list of experiments: the first measure of each, over its conditions.

Headlines of small experiments are computed during the request, in one query for all experiments, and cached. Headlines
of large experiments come from stored leaderboards, so they appear after somebody has opened the results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache

from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.hashing import hash_content
from grading_app.models import CachedAggregate, GradeCondition
from grading_app.reports.answer_aggregates import MAX_ANSWERS_PER_REQUEST
from grading_app.reports.statistic_format import format_interval, format_number, format_share, format_share_interval
from grading_app.statistics.intervals import Bounds, is_share_scale
from runs_app.models import Dimension, Experiment
from runs_app.monitoring.progress import read_totals

CACHE_SECONDS = 24 * 3600
BY_RATING = """SELECT r.experiment_id, r.condition_id, avg(t.rating)::float8, bool_and(t.rating IN (0, 1))
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
    """The lowest and the highest mean of an experiment's conditions on its first measure."""

    measure: str
    low: float
    high: float
    is_share: bool
    conditions: int

    @property
    def text(self) -> str:
        is_single = self.low == self.high
        if self.is_share:
            return format_share(self.low) if is_single else format_share_interval(self.low, self.high)
        return format_number(self.low) if is_single else format_interval(self.low, self.high)


@dataclass(frozen=True, slots=True)
class _FirstMeasure:
    """The first measure of an experiment: a dimension or a grade condition. state: changes whenever a score changes."""

    label: str
    key: int
    is_rating: bool
    bounds: Bounds | None
    state: list[Any]


def load_headlines(experiments: Sequence[Any]) -> dict[int, Headline]:
    """Return headlines by the experiments' keys, in a constant number of queries.

    experiments: with the counters of `annotate_totals`.
    """
    first = _find_first_measures(experiments)
    done = {experiment.pk: read_totals(experiment).done for experiment in experiments}
    names = {
        f"headline:{hash_content([pk, done[pk], headline.state])}": pk for pk, headline in first.items() if done[pk]
    }
    cached: dict[str, Headline] = cache.get_many(names)
    headlines = {names[name]: headline for name, headline in cached.items()}
    missing = [pk for name, pk in names.items() if name not in cached]
    small = [pk for pk in missing if done[pk] <= MAX_ANSWERS_PER_REQUEST]
    computed = _compute_headlines({pk: first[pk] for pk in small})
    cache.set_many({name: computed[pk] for name, pk in names.items() if pk in computed}, CACHE_SECONDS)
    large = [pk for pk in missing if done[pk] > MAX_ANSWERS_PER_REQUEST]
    return headlines | computed | (_load_stored_headlines(large) if large else {})


def _find_first_measures(experiments: Sequence[Experiment]) -> dict[int, _FirstMeasure]:
    keys = [grader.pk for grader in experiments]
    first_measures: dict[int, _FirstMeasure] = {}
    graders = GradeCondition.objects.filter(experiment__in=keys).exclude(scorer="rating").order_by("pk")
    no_measures = (GradeCondition.Kind.PERSON, GradeCondition.Kind.ADJUDICATED)
    with_scales = graders.exclude(kind__in=no_measures).select_related("rubric", "grader", "panel")
    for grader in with_scales.prefetch_related("panel__graders__rubric"):
        if grader.experiment_id not in first_measures and not grader.is_pairwise:
            first_measures[grader.experiment_id] = _FirstMeasure(
                grader.label, grader.pk, False, grader.score_range, ["grader", grader.pk, grader.changes]
            )
    dimensions = Dimension.objects.filter(experiments__in=keys).order_by("-pk")
    columns = ("pk", "title", "name", "scale_min", "scale_max", "experiments")
    for pk, title, name, low, high, experiment in dimensions.values_list(*columns):
        if experiment in keys:
            first_measures[experiment] = _FirstMeasure(title or name, pk, True, (low, high), ["dimension", pk])
    return first_measures


def _compute_headlines(first: dict[int, _FirstMeasure]) -> dict[int, Headline]:
    rated = {pk: measure.key for pk, measure in first.items() if measure.is_rating}
    graded = {pk: measure.key for pk, measure in first.items() if not measure.is_rating}
    rows: list[Any] = []
    if rated:
        rows += fetch_rows(BY_RATING, {"experiments": list(rated), "measures": list(rated.values())})
    if graded:
        rows += fetch_rows(BY_GRADE, {"measures": list(graded.values())})
    means: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for experiment, _, mean, is_binary in rows:
        means[experiment].append((mean, is_binary))
    headlines = {}
    for pk, condition_means in means.items():
        is_share = is_share_scale(all(is_binary for _, is_binary in condition_means), first[pk].bounds)
        headlines[pk] = _make_headline(first[pk].label, [mean for mean, _ in condition_means], is_share)
    return headlines


def _make_headline(label: str, means: list[float], is_share: bool) -> Headline:
    return Headline(label, min(means), max(means), is_share, len(means))


def _load_stored_headlines(experiments: list[int]) -> dict[int, Headline]:
    """Return headlines from stored leaderboards of all waves that have no baseline."""
    rows = CachedAggregate.objects.filter(experiment__in=experiments, name="leaderboard", computed_at__isnull=False)
    headlines = {}
    for row in rows:
        if row.query != [row.experiment_id, None, False, None] or not row.value or not row.value["measures"]:
            continue
        measure = row.value["measures"][0]
        means = [board_row["scores"][measure["key"]]["mean"] for board_row in row.value["rows"]]
        known_means = [mean for mean in means if mean is not None]
        if known_means:
            headlines[row.experiment_id] = _make_headline(measure["label"], known_means, measure["is_share"])
    return headlines
