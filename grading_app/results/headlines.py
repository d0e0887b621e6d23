"""The headline scores of a list of experiments: the first measure of each, over its conditions.

Headlines of small experiments are computed during the request, in one query for all experiments, and cached. Headlines
of large experiments come from stored results, so they appear after somebody has opened the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache

from evalsite.lib.text.hashing import hash_content
from grading_app.models import CachedAggregate, GradeCondition
from grading_app.results.answer_aggregates import MAX_ANSWERS_PER_REQUEST
from grading_app.results.scores import Measure, list_measures_of_many, load_condition_means
from grading_app.results.statistic_format import format_mean, format_mean_interval

CACHE_SECONDS = 24 * 3600


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
        if self.low == self.high:
            return format_mean(self.low, self.is_share)
        return format_mean_interval(self.low, self.high, self.is_share)


def load_headlines(experiments: Sequence[Any]) -> dict[int, Headline]:
    """Return headlines by the experiments' keys, in a constant number of queries.

    experiments: with the totals of `with_totals`.
    """
    first = {pk: measures[0] for pk, measures in list_measures_of_many(experiments).items() if measures}
    done = {experiment.pk: experiment.read_totals().done for experiment in experiments}
    graders = [measure.grade_condition for measure in first.values() if measure.grade_condition]
    changes = dict(GradeCondition.objects.filter(pk__in=graders).values_list("pk", "changes")) if graders else {}
    states = {
        pk: [pk, done[pk], measure.key, measure.kind, measure.grader, changes.get(measure.grade_condition or 0)]
        for pk, measure in first.items()
    }
    names = {f"headline:{hash_content(state)}": pk for pk, state in states.items() if done[pk]}
    cached: dict[str, Headline] = cache.get_many(names)
    headlines = {names[name]: headline for name, headline in cached.items()}
    missing = [pk for name, pk in names.items() if name not in cached]
    small = {pk: first[pk] for pk in missing if done[pk] <= MAX_ANSWERS_PER_REQUEST}
    computed = {
        pk: _make_headline(measure, means)
        for pk, (measure, means) in (load_condition_means(small) if small else {}).items()
    }
    cache.set_many({name: computed[pk] for name, pk in names.items() if pk in computed}, CACHE_SECONDS)
    large = [pk for pk in missing if done[pk] > MAX_ANSWERS_PER_REQUEST]
    return headlines | computed | (_load_stored_headlines(large) if large else {})


def _make_headline(measure: Measure, means: list[float]) -> Headline:
    return Headline(measure.label, min(means), max(means), measure.is_share, len(means))


def _load_stored_headlines(experiments: list[int]) -> dict[int, Headline]:
    """Return headlines from the stored results over all waves that have no baseline."""
    rows = CachedAggregate.objects.filter(experiment__in=experiments, name="results", computed_at__isnull=False)
    headlines = {}
    for experiment, query, board in rows.values_list("experiment", "query", "value__board"):
        if query != [experiment, None, False, None, None] or not board or not board["measures"]:
            continue
        measure = Measure(**board["measures"][0])
        means = [board_row["scores"][measure.key]["mean"] for board_row in board["rows"]]
        if known_means := [mean for mean in means if mean is not None]:
            headlines[experiment] = _make_headline(measure, known_means)
    return headlines
