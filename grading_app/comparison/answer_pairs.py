"""Two answers that raters chose between: their order, and each rater's choice."""

from __future__ import annotations

from django.db.models import Q

from grading_app.comparison.query import Question
from grading_app.comparison.rater_verdicts import Side, values_by_unit
from grading_app.comparison.raters import keys_of
from grading_app.comparison.unit_counts import given_by, rows
from grading_app.models import Preference
from runs_app.models import Experiment, Trial

Pair = tuple[Trial, Trial]
ORDERED = "SELECT id, one, other FROM scope WHERE id = ANY(%(units)s)"


def pair_with(experiment: Experiment, verdict: int) -> int | None:
    """Return the id of this verdict's pair, the key of its first verdict; None if it is not in this experiment."""
    known = Preference.objects.filter(condition__experiment=experiment)
    found = known.filter(pk=verdict).first()
    if found is None:
        return None
    same = known.filter(_on(found.trial_a_id, found.trial_b_id)).order_by("pk")
    return same.values_list("pk", flat=True).first()


def answers_of(question: Question, units: list[int]) -> dict[int, Pair]:
    """Return the two answers of each pair, in order. A pair without any verdict left is missing."""
    given, chosen = given_by(question)
    ordered = rows(f"WITH {given} {ORDERED}", {**chosen, "units": units})
    trials = Trial.objects.select_related(
        "run__experiment", "run__wave", "run__condition__model__endpoint", "run__condition__prompt",
        "run__condition__sampler", "item__image", "dimension",
    ).in_bulk([key for _, *both in ordered for key in both])  # fmt: skip
    return {unit: (trials[one], trials[other]) for unit, one, other in ordered}


def sides_of_pair(question: Question, unit: int, pair: Pair) -> list[Side]:
    """Return a side for every rater of the question, also without a verdict.

    A judge's words are given for each order.
    """
    first, second = pair
    said = Preference.objects.filter(_on(first.pk, second.pk), condition__in=keys_of(question.raters, "g"))
    words: dict[str, list[Preference]] = {}
    for one in said.order_by("pk"):
        words.setdefault(f"g{one.condition_id}", []).append(one)
    values = values_by_unit(question, [unit])
    return [
        Side(
            rater,
            values.get((unit, rater.key)),
            "\n\n".join(_words(one, first.pk) for one in words.get(rater.key, ())),
            next((one.parse_error for one in words.get(rater.key, ()) if one.parse_error), ""),
        )
        for rater in question.raters
    ]


def _words(said: Preference, first: int) -> str:
    """Return a text such as 'Shown second, first: neither. Both are short.'"""
    order = "first, second" if said.trial_a_id == first else "second, first"
    winner = {"a": said.trial_a_id, "b": said.trial_b_id}.get(said.winner)
    chosen = "neither" if winner is None else "the first" if winner == first else "the second"
    return f"Shown {order}: {said.parse_error or chosen}. {said.reasoning}".strip()


def _on(one: int, other: int) -> Q:
    return Q(trial_a=one, trial_b=other) | Q(trial_a=other, trial_b=one)
