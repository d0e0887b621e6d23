"""Each rater's verdict on one answer, the raters' values of a page of units, and choices between pairs of answers."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from evalsite.lib.sql import fetch_rows
from grading_app.models import Grading, Preference, Rating
from grading_app.results.raters.raters import Rater, list_ids
from grading_app.results.raters.rating_selection import RatingSelection
from grading_app.results.raters.unit_counts import RATINGS, build_ratings_sql
from grading_app.results.statistic_format import format_number
from runs_app.models import Experiment, Trial

AnswerPair = tuple[Trial, Trial]
ORDERED_ANSWERS = "SELECT id, one, other FROM scope WHERE id = ANY(%(units)s)"


@dataclass(frozen=True, slots=True)
class RaterVerdict:
    """One rater's verdict on one answer.

    value: None without a verdict. error: the error code of an unreadable verdict. label: the chosen label if it is
    stored, because several labels may have the same score.
    """

    rater: Rater
    value: float | None
    reasoning: str = ""
    error: str = ""
    label: str = ""

    @property
    def text(self) -> str:
        return format_number(None) if self.value is None else self.rater.format_value(self.value)

    @property
    def name(self) -> str:
        """The name of the chosen point of the scale, or "". Several names are joined by "or"."""
        points = self.rater.scale.points if self.rater.scale and self.rater.is_scored else ()
        return self.label or " or ".join(name for value, name in points if value == self.value)


def list_verdicts(trial: Trial, raters: list[Rater], criterion: str = "") -> list[RaterVerdict]:
    """Return a verdict for every rater, with an empty value for raters without one. criterion: "" for the total."""
    gradings = {f"g{grading.condition_id}": grading for grading in Grading.objects.filter(trial=trial)}
    ratings = {
        f"p{rating.assignment_id}-{rating.dimension_id}": rating.value
        for rating in Rating.objects.filter(Q(trial=trial), value__isnull=False, assignment__excluded_at=None)
    }
    verdicts = []
    for rater in raters:
        if (grading := gradings.get(rater.key)) is not None:
            label = str((grading.detail or {}).get("label", ""))
            reasoning = grading.reasoning or grading.score_raw
            level = grading.get_level(criterion)
            verdicts.append(RaterVerdict(rater, level, reasoning, grading.parse_error, label))
        else:
            verdicts.append(RaterVerdict(rater, trial.rating if rater.key == "own" else ratings.get(rater.key)))
    return verdicts


def load_values(selection: RatingSelection, units: list[int]) -> dict[tuple[int, str], float]:
    """Return the values of these units by (unit, rater)."""
    ratings, parameters = build_ratings_sql(selection, selection.all_raters)
    return {
        (unit, rater): value
        for unit, rater, value in fetch_rows(f"WITH {ratings} {RATINGS}", {**parameters, "units": units})
    }


def find_pair(experiment: Experiment, verdict: int) -> int | None:
    """Return the id of this verdict's pair, which is the key of the pair's first verdict.

    Return None for a verdict of another experiment.
    """
    preferences = Preference.objects.filter(condition__experiment=experiment)
    preference = preferences.filter(pk=verdict).first()
    if preference is None:
        return None
    pair_preferences = preferences.filter(_match_pair(preference.trial_a_id, preference.trial_b_id)).order_by("pk")
    return pair_preferences.values_list("pk", flat=True).first()


def load_answer_pairs(selection: RatingSelection, units: list[int]) -> dict[int, AnswerPair]:
    """Return the two answers of each pair, in order. Pairs whose verdicts were all deleted are missing."""
    ratings, parameters = build_ratings_sql(selection)
    rows = fetch_rows(f"WITH {ratings} {ORDERED_ANSWERS}", {**parameters, "units": units})
    trials = Trial.objects.select_related(
        "run__experiment", "run__wave", "run__condition__model__endpoint", "run__condition__prompt",
        "run__condition__sampler", "item__image", "dimension",
    ).in_bulk([key for _, *answers in rows for key in answers])  # fmt: skip
    return {unit: (trials[first], trials[second]) for unit, first, second in rows}


def list_pair_verdicts(selection: RatingSelection, unit: int, pair: AnswerPair) -> list[RaterVerdict]:
    """Return a verdict for every rater of the selection, with an empty value for raters without one.

    The reasoning of a judge has a paragraph for each order.
    """
    first, second = pair
    preferences = Preference.objects.filter(
        _match_pair(first.pk, second.pk), condition__in=list_ids(selection.raters, "g")
    )
    by_rater: dict[str, list[Preference]] = {}
    for preference in preferences.order_by("pk"):
        by_rater.setdefault(f"g{preference.condition_id}", []).append(preference)
    values = load_values(selection, [unit])
    return [
        RaterVerdict(
            rater,
            values.get((unit, rater.key)),
            "\n\n".join(_describe_preference(preference, first.pk) for preference in by_rater.get(rater.key, ())),
            next((preference.parse_error for preference in by_rater.get(rater.key, ()) if preference.parse_error), ""),
        )
        for rater in selection.raters
    ]


def _describe_preference(preference: Preference, first: int) -> str:
    """Return a text such as 'Shown second, first: neither. Both are short.'"""
    order = "first, second" if preference.trial_a_id == first else "second, first"
    winner = {"a": preference.trial_a_id, "b": preference.trial_b_id}.get(preference.winner)
    chosen = "neither" if winner is None else "the first" if winner == first else "the second"
    return f"Shown {order}: {preference.parse_error or chosen}. {preference.reasoning}".strip()


def _match_pair(first: int, second: int) -> Q:
    return Q(trial_a=first, trial_b=second) | Q(trial_a=second, trial_b=first)
