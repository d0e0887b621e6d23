"""The headline scores of a list of experiments: the highest mean of each on its first measure, with its interval.

Headlines of small experiments are computed during the request, in one query for all experiments, and cached. A request
computes those of at most MAX_ANSWERS_PER_REQUEST answers. The next request computes further ones. Headlines of large
experiments come from stored results, so they appear after somebody has opened the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.cache import cache

from evalsite.lib.text.hashing import hash_content
from evalsite.lib.text.number_format import format_count
from grading_app.models import BlindReading, CachedAggregate, GradeCondition
from grading_app.results.answer_aggregates import MAX_ANSWERS_PER_REQUEST
from grading_app.results.scores import Measure, estimate, list_measures_of_many, load_highest_scores
from grading_app.results.statistic_format import format_mean, format_mean_interval
from runs_app.condition_labels import load_labels
from runs_app.models import Preregistration, Wave

CACHE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Headline:
    """The condition with the highest mean on an experiment's first measure.

    low, high: the 95 % interval; None without one. n of planned: its answers with a score. conditions: the number of
    conditions with a score. label: the name of the condition; "" for a single condition and for a reader from whom
    names are hidden. waves: the number of waves that the mean pools.
    """

    measure: str
    condition: int
    mean: float
    low: float | None
    high: float | None
    n: int
    planned: int
    conditions: int
    is_share: bool
    label: str = ""
    waves: int = 1

    @property
    def text(self) -> str:
        return format_mean(self.mean, self.is_share)

    @property
    def interval(self) -> str:
        """The 95 % interval, or "" without one."""
        return "" if self.low is None else format_mean_interval(self.low, self.high, self.is_share)

    @property
    def rank(self) -> str:
        """The place of the condition among several. No test says that it is better than the others."""
        return "" if self.conditions == 1 else f"highest of {self.conditions}"

    @property
    def basis(self) -> str:
        """The number of scored answers, unless all have a score, and of pooled waves, unless it is one."""
        scored = f"{format_count(self.n)} of {format_count(self.planned)} scored"
        texts = [*([scored] if self.n < self.planned else []), *([f"{self.waves} waves pooled"] * (self.waves > 1))]
        return ", ".join(texts)


def load_headlines(experiments: Sequence[Any], user: Any) -> dict[int, Headline]:
    """Return headlines by the experiments' keys, in a constant number of queries.

    experiments: with the totals of `with_totals`. user: the reader, from whom names of models may be hidden.
    """
    first = {pk: measures[0] for pk, measures in list_measures_of_many(experiments).items() if measures}
    totals = {experiment.pk: experiment.read_totals() for experiment in experiments}
    done = {pk: of_experiment.done for pk, of_experiment in totals.items()}
    graders = [measure.grade_condition for measure in first.values() if measure.grade_condition]
    changes = dict(GradeCondition.objects.filter(pk__in=graders).values_list("pk", "changes")) if graders else {}
    states = {
        pk: [
            pk, done[pk], totals[pk].trials, measure.key, measure.kind, measure.grader,
            changes.get(measure.grade_condition or 0),
        ]
        for pk, measure in first.items()
    }  # fmt: skip
    names = {f"headline:{hash_content(state)}": pk for pk, state in states.items() if done[pk]}
    cached: dict[str, Headline] = cache.get_many(names)
    headlines = {names[name]: headline for name, headline in cached.items()}
    missing = [pk for name, pk in names.items() if name not in cached]
    small, answers = {}, 0
    for pk in missing:
        if answers + done[pk] <= MAX_ANSWERS_PER_REQUEST:
            small[pk], answers = first[pk], answers + done[pk]
    computed = {}
    for pk, (scores, conditions) in (load_highest_scores(small) if small else {}).items():
        measure, (condition,) = small[pk].settle(scores), scores.conditions.tolist()
        score = estimate(scores, measure, condition)
        if score.mean is not None:
            computed[pk] = Headline(
                measure.label, condition, score.mean, score.low, score.high, score.n, score.planned, conditions,
                measure.is_share,
            )  # fmt: skip
    cache.set_many({name: computed[pk] for name, pk in names.items() if pk in computed}, CACHE_SECONDS)
    large = [pk for pk in missing if done[pk] > MAX_ANSWERS_PER_REQUEST]
    headlines |= computed | (_load_stored_headlines(large) if large else {})
    of_waves = Wave.objects.answered().filter(experiment__in=headlines).values_list("experiment", "number")
    waves = Counter(experiment for experiment, _ in of_waves) if headlines else Counter()
    headlines = {pk: replace(headline, waves=waves[pk]) for pk, headline in headlines.items()}
    compared = [pk for pk, headline in headlines.items() if headline.conditions > 1]
    if not compared:
        return headlines
    hidden = set(BlindReading.objects.hidden_for(user).values_list("experiment", flat=True))
    hidden |= set(Preregistration.objects.unfinished().values_list("experiment", flat=True))
    labels = load_labels([pk for pk in compared if pk not in hidden])
    return {pk: replace(headline, label=labels.get(headline.condition, "") if headline.conditions > 1 else "")
            for pk, headline in headlines.items()}  # fmt: skip


def _load_stored_headlines(experiments: list[int]) -> dict[int, Headline]:
    """Return headlines from the stored results over all waves that have no baseline."""
    rows = CachedAggregate.objects.filter(experiment__in=experiments, name="results", computed_at__isnull=False)
    headlines = {}
    for experiment, query, board in rows.values_list("experiment", "query", "value__board"):
        if query != [experiment, None, False, None, None] or not board or not board["measures"]:
            continue
        measure = Measure(**board["measures"][0])
        scores = {row["condition"]: row["scores"][measure.key] for row in board["rows"]}
        known = {key: score for key, score in scores.items() if score["mean"] is not None}
        if not known:
            continue
        condition = min(known, key=lambda key: (-known[key]["mean"], known[key]["missing"], key))
        mean, low, high, n, missing = (known[condition][name] for name in ("mean", "low", "high", "n", "missing"))
        headlines[experiment] = Headline(
            measure.label, condition, mean, low, high, n, n + missing, len(known), measure.is_share
        )
    return headlines
