"""The headline scores of a list of experiments: the highest value of each on its first measure, with its interval.

The value is the mean, or the correlation with people if the first measure is a rating with human norms, as on Results.

Headlines come from the stored results, which a worker writes after the last grade. Without stored results of the
present answers, those of small experiments are computed during the request, in one query for all experiments, and
cached. A request computes those of at most MAX_ANSWERS_PER_REQUEST answers. The next request computes further ones.
Those of large experiments may be older than the answers, and appear once their results are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from django.core.cache import cache
from django.db.models import Exists, OuterRef
from pydantic import TypeAdapter

from datasets_app.models import Norm
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.text.number_format import format_count
from grading_app.models import BlindReading, CachedAggregate, GradeCondition, StoredRows
from grading_app.results.cached_aggregates import MAX_ANSWERS_PER_REQUEST, fingerprint_many_results
from grading_app.results.closeness import ConditionCloseness, estimate_closeness, load_norms_of_many
from grading_app.results.leaderboard import BoardQuery, Leaderboard
from grading_app.results.scores import (
    ConditionScore,
    ExtremeShare,
    Measure,
    count_missing_of_many,
    describe_extreme,
    estimate,
    list_measures_of_many,
    load_scores_of_many,
)
from grading_app.results.statistic_format import (
    format_coefficient,
    format_coefficient_interval,
    format_mean,
    format_mean_interval,
)
from grading_app.results.stored_results import RESULTS
from runs_app.models import Experiment, Preregistration, Wave
from runs_app.models.conditions import load_labels

VERSION = 2  # Increase it when the same rows give another headline.
CACHE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Headline:
    """The condition with the highest value on an experiment's first measure.

    kind: "r" for the correlation of mean ratings with those of people, "share" or "mean". low, high: the 95 % interval;
    None without one. items: of r, the items with a rating and a norm. n of planned: its answers with a score. missing:
    the others by reason, as text. conditions: the number of conditions with a value. label: the name of the condition;
    "" for a single condition and for a reader from whom names are hidden. waves: the number of waves that are pooled.
    """

    measure: str
    condition: int
    kind: Literal["r", "share", "mean"]
    value: float
    low: float | None
    high: float | None
    n: int
    planned: int
    conditions: int
    missing: str = ""
    items: int = 0
    label: str = ""
    waves: int = 1

    @property
    def text(self) -> str:
        if self.kind == "r":
            return f"r = {format_coefficient(self.value)}"
        return format_mean(self.value, self.kind == "share")

    @property
    def interval(self) -> str:
        """The 95 % interval, or "" without one."""
        if self.low is None:
            return ""
        if self.kind == "r":
            return format_coefficient_interval(self.low, self.high)
        return format_mean_interval(self.low, self.high, self.kind == "share")

    @property
    def subject(self) -> str:
        return f"{self.measure}: closeness to people" if self.kind == "r" else self.measure

    @property
    def extreme(self) -> ExtremeShare | None:
        """A warning if no answer passed, or if all answers of the only condition did."""
        is_known = self.kind == "share" and (not self.value or self.conditions == 1)
        return describe_extreme(self.measure, [self.value]) if is_known else None

    @property
    def rank(self) -> str:
        """The place of the condition among several. No test says that it is better than the others."""
        return "" if self.conditions == 1 else f"highest {'r ' if self.kind == 'r' else ''}of {self.conditions}"

    @property
    def basis(self) -> str:
        """The items of r, the number of scored answers with the reasons of the others, and the number of pooled waves.

        Without the second if all answers have a score, and without the third if there is one wave.
        """
        reasons = f" ({self.missing})" if self.missing else ""
        scored = f"{format_count(self.n)} of {format_count(self.planned)} scored{reasons}"
        texts = (
            f"{format_count(self.items)} items" if self.kind == "r" else "",
            scored if self.n < self.planned else "",
            f"{self.waves} waves pooled" if self.waves > 1 else "",
        )
        return ", ".join(text for text in texts if text)


def load_headlines(experiments: Sequence[Any], user: Any) -> dict[int, Headline]:
    """Return headlines by the experiments' keys, in a constant number of queries.

    experiments: with the totals of `with_totals`. user: the reader, from whom names of models may be hidden.
    """
    stored = [experiment.pk for experiment in experiments if experiment.is_stored]
    experiments = [experiment for experiment in experiments if not experiment.is_stored]
    measures = {pk: found for pk, found in list_measures_of_many(experiments).items() if found}
    totals = {experiment.pk: experiment.read_totals() for experiment in experiments}
    done = {pk: of_experiment.done for pk, of_experiment in totals.items()}
    graders = [found[0].grade_condition for found in measures.values() if found[0].grade_condition]
    changes = dict(GradeCondition.objects.filter(pk__in=graders).values_list("pk", "changes")) if graders else {}
    names = {}
    for experiment in experiments:
        if done[experiment.pk] and (found := measures.get(experiment.pk)):
            state = [
                VERSION, experiment.pk, done[experiment.pk], totals[experiment.pk].trials, experiment.primary_measure,
                found[0].key, found[0].kind, found[0].grader, changes.get(found[0].grade_condition or 0),
            ]  # fmt: skip
            names[f"headline:{hash_content(state)}"] = experiment.pk
    cached: dict[str, Headline] = cache.get_many(names)
    headlines = {names[name]: headline for name, headline in cached.items()}
    missing = [pk for name, pk in names.items() if name not in cached]
    if missing:
        stored_headlines = _load_stored_headlines([one for one in experiments if one.pk in missing], only_fresh=True)
        cache.set_many(
            {name: stored_headlines[pk] for name, pk in names.items() if pk in stored_headlines}, CACHE_SECONDS
        )
        headlines |= stored_headlines
        missing = [pk for pk in missing if pk not in stored_headlines]
    small: list[int] = []
    answers = 0
    for pk in missing:
        if answers + done[pk] <= MAX_ANSWERS_PER_REQUEST:
            small, answers = [*small, pk], answers + done[pk]
    computed = _compute_headlines([one for one in experiments if one.pk in small], measures) if small else {}
    cache.set_many({name: computed[pk] for name, pk in names.items() if pk in computed}, CACHE_SECONDS)
    large = [one for one in experiments if one.pk in missing and done[one.pk] > MAX_ANSWERS_PER_REQUEST]
    headlines |= computed | (_load_stored_headlines(large) if large else {})
    if stored:
        kept = StoredRows.objects.filter(experiment__in=stored).values_list("experiment", "headline")
        headlines |= {pk: Headline(**content) for pk, content in kept if content}
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


def _compute_headlines(experiments: Sequence[Any], measures: Mapping[int, list[Measure]]) -> dict[int, Headline]:
    """Return the headlines of these experiments from their answers. As on Results, closeness to people comes first.

    measures: all measures of each experiment, the primary one first.
    """
    # The (experiment, dimension) of rated dimensions on which an item of the dataset has a norm.
    on_items = Norm.objects.filter(item__dataset=OuterRef("experiment__dataset"), dimension=OuterRef("dimension__name"))
    links = Experiment.dimensions.through.objects.filter(
        Exists(on_items), experiment__in=[one.pk for one in experiments]
    )
    with_norms = set(links.values_list("experiment", "dimension"))
    chosen = {}
    for experiment in experiments:
        found = measures[experiment.pk]
        rated = [one for one in found if one.is_rating and (experiment.pk, one.dimension) in with_norms]
        first = rated[0] if rated and not (experiment.primary_measure and found[0] not in rated) else found[0]
        chosen[experiment.pk] = first
    scores = load_scores_of_many(chosen)
    reasons = count_missing_of_many({pk: chosen[pk] for pk, of_one in scores.items() if of_one.missing.any()})
    datasets = {experiment.pk: experiment.dataset_id for experiment in experiments}
    norms = load_norms_of_many({pk: (datasets[pk], chosen[pk], of_one.items) for pk, of_one in scores.items()})
    headlines = {}
    for pk, of_one in scores.items():
        of_conditions = {key: estimate(of_one, chosen[pk], key, reasons.get(pk)) for key in of_one.conditions.tolist()}
        near = estimate_closeness(of_one, norms[pk]) if pk in norms else {}
        if headline := _choose_headline(chosen[pk].settle(of_one), of_conditions, near):
            headlines[pk] = headline
    return headlines


def _choose_headline(
    measure: Measure, scores: Mapping[int, ConditionScore], near: Mapping[int, ConditionCloseness]
) -> Headline | None:
    """Return the condition with the highest r, without any r the one with the highest mean.

    Of equal values, the one with the fewest missing answers counts.
    """
    correlated = {key: one for key, one in near.items() if one.r is not None}
    values = {key: one.r for key, one in correlated.items()} or {key: one.mean for key, one in scores.items()}
    known = {key: value for key, value in values.items() if value is not None}
    if not known:
        return None
    condition = min(known, key=lambda key: (-known[key], scores[key].missing, key))
    score, closeness = scores[condition], correlated.get(condition)
    low, high = (closeness.low, closeness.high) if closeness else (score.low, score.high)
    return Headline(
        measure.label,
        condition,
        "r" if closeness else "share" if measure.is_share else "mean",
        known[condition],
        low,
        high,
        score.n,
        score.planned,
        len(known),
        missing=score.missing_text,
        items=closeness.items if closeness else 0,
    )


@lru_cache(maxsize=1)
def _make_board_adapter() -> TypeAdapter[Leaderboard]:
    return TypeAdapter(Leaderboard)


def _load_stored_headlines(experiments: Sequence[Any], *, only_fresh: bool = False) -> dict[int, Headline]:
    """Return headlines from the stored results over all waves that have no baseline.

    only_fresh: leave out those whose answers or grades have changed since.
    """
    keys = {RESULTS.key(BoardQuery(experiment)): experiment.pk for experiment in experiments}
    rows = CachedAggregate.objects.filter(experiment__in=keys.values(), key__in=keys, computed_at__isnull=False)
    if only_fresh:
        rows = rows.filter(fingerprint__in=fingerprint_many_results(experiments).values())
    headlines = {}
    for key, content in rows.values_list("key", "value__board"):
        board = _make_board_adapter().validate_python(content)
        if not board.measures:
            continue
        measure = (board.rated_with_norms or board.measures)[0]
        scores = {row.condition: row.scores[measure.key] for row in board.rows}
        closeness = board.closeness[measure.key].conditions if board.rated_with_norms else {}
        if headline := _choose_headline(measure, scores, closeness):
            headlines[keys[key]] = headline
    return headlines
