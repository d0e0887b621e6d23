"""Two answers that raters chose between: their order, and each rater's choice."""

from __future__ import annotations

from django.db.models import Q

from evalsite.lib.sql import fetch_rows
from grading_app.comparison.rater_verdicts import RaterVerdict, load_values
from grading_app.comparison.raters import list_ids
from grading_app.comparison.rating_selection import RatingSelection
from grading_app.comparison.unit_counts import build_ratings_sql
from grading_app.models import Preference
from runs_app.models import Experiment, Trial

AnswerPair = tuple[Trial, Trial]
ORDERED_ANSWERS = "SELECT id, one, other FROM scope WHERE id = ANY(%(units)s)"


def find_pair(experiment: Experiment, verdict: int) -> int | None:
    """Return the id of this verdict's pair, the key of its first verdict; None if it is not in this experiment."""
    preferences = Preference.objects.filter(condition__experiment=experiment)
    found = preferences.filter(pk=verdict).first()
    if found is None:
        return None
    same = preferences.filter(_is_between(found.trial_a_id, found.trial_b_id)).order_by("pk")
    return same.values_list("pk", flat=True).first()


def load_answer_pairs(selection: RatingSelection, units: list[int]) -> dict[int, AnswerPair]:
    """Return the two answers of each pair, in order. A pair without any verdict left is missing."""
    ratings, parameters = build_ratings_sql(selection)
    ordered = fetch_rows(f"WITH {ratings} {ORDERED_ANSWERS}", {**parameters, "units": units})
    trials = Trial.objects.select_related(
        "run__experiment", "run__wave", "run__condition__model__endpoint", "run__condition__prompt",
        "run__condition__sampler", "item__image", "dimension",
    ).in_bulk([key for _, *both in ordered for key in both])  # fmt: skip
    return {unit: (trials[one], trials[other]) for unit, one, other in ordered}


def list_pair_verdicts(selection: RatingSelection, unit: int, pair: AnswerPair) -> list[RaterVerdict]:
    """Return a verdict for every rater of the selection, also without a verdict.

    The reasoning of a judge is given for each order.
    """
    first, second = pair
    preferences = Preference.objects.filter(
        _is_between(first.pk, second.pk), condition__in=list_ids(selection.raters, "g")
    )
    by_rater: dict[str, list[Preference]] = {}
    for one in preferences.order_by("pk"):
        by_rater.setdefault(f"g{one.condition_id}", []).append(one)
    values = load_values(selection, [unit])
    return [
        RaterVerdict(
            rater,
            values.get((unit, rater.key)),
            "\n\n".join(_describe_preference(one, first.pk) for one in by_rater.get(rater.key, ())),
            next((one.parse_error for one in by_rater.get(rater.key, ()) if one.parse_error), ""),
        )
        for rater in selection.raters
    ]


def _describe_preference(preference: Preference, first: int) -> str:
    """Return a text such as 'Shown second, first: neither. Both are short.'"""
    order = "first, second" if preference.trial_a_id == first else "second, first"
    winner = {"a": preference.trial_a_id, "b": preference.trial_b_id}.get(preference.winner)
    chosen = "neither" if winner is None else "the first" if winner == first else "the second"
    return f"Shown {order}: {preference.parse_error or chosen}. {preference.reasoning}".strip()


def _is_between(one: int, other: int) -> Q:
    return Q(trial_a=one, trial_b=other) | Q(trial_a=other, trial_b=one)
