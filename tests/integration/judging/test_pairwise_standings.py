"""Pairwise standings: the database aggregates all verdicts, and results equal a computation row by row."""

import random
from collections import Counter

import pytest

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition, Preference
from grading_app.results.raters.pairwise_stats import TALLIES, compute_standing
from grading_app.statistics.bradley_terry import Comparison, Comparisons, bradley_terry
from runs_app.models import Trial
from runs_app.models.conditions import make_condition_labels
from tests.factories.gradings import make_answered_experiment
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

MODELS = ("small", "middle", "large")


@shared_rows
def experiment():
    return make_answered_experiment("pilot", items=8, models=MODELS, samples=2)


def make_verdicts(experiment, winner, *, both_orders=True):
    """Store a verdict on each pair of answers to an item by different models; `winner(first, second)` may be None."""
    condition = GradeCondition.objects.create(experiment=experiment, grade_condition_id="duel", kind="judge")
    answers = list(Trial.objects.filter(run__experiment=experiment).select_related("item", "run__condition__model"))
    preferences = []
    for first in answers:
        for second in answers:
            differ = first.item_id == second.item_id and first.run_id != second.run_id
            if differ and (both_orders or first.pk < second.pk):
                won = winner(first, second)
                fields = {"winner": won} if won else {"winner": "", "parse_error": "no_winner"}
                preference = Preference(
                    condition=condition, trial_a=first, trial_b=second, judged_by_id=len(preferences) + 1, **fields
                )
                preferences.append(preference)
    Preference.objects.bulk_create(preferences)
    return condition


def build_labels(experiment):
    return {one.pk: one.model.name for one in experiment.conditions.select_related("model")}


def test_aggregated_strengths_equal_strengths_from_individual_verdicts(experiment):
    draw = random.Random(5)
    condition = make_verdicts(experiment, lambda *_: draw.choice(["a", "a", "b", "tie", ""]))
    names, share = build_labels(experiment), {"a": 1.0, "tie": 0.5, "b": 0.0}
    single = [
        Comparison(names[one.trial_a.run.condition_id], names[one.trial_b.run.condition_id], share[one.winner],
                   one.trial_a.item_id)
        for one in Preference.objects.exclude(winner="").select_related("trial_a__run", "trial_b__run")
    ]  # fmt: skip
    expected = bradley_terry(Comparisons.from_rows(single))
    standing = compute_standing([condition], names)
    assert (standing.comparisons, standing.items) == (len(single), 8)
    assert {one.label: one.strength for one in standing.ranked} == {
        one.name: pytest.approx(one.strength, abs=1e-6) for one in expected.strengths
    }
    assert all(one.low < one.strength < one.high for one in standing.ranked)


def test_items_with_the_same_tally_share_one_row(experiment):
    condition = make_verdicts(experiment, lambda first, second: "a" if first.run_id < second.run_id else "b")
    (row,) = fetch_rows(TALLIES, {"conditions": [condition.pk]})
    assert row[0] == 8


def test_the_strength_of_an_unbeaten_model_is_marked_as_smoothed(experiment):
    ranks = {name: rank for rank, name in enumerate(MODELS)}

    def prefer_stronger(first, second):
        one, other = (ranks[answer.run.condition.model.name] for answer in (first, second))
        return "a" if one > other else "b"

    standing = compute_standing([make_verdicts(experiment, prefer_stronger)], build_labels(experiment))
    assert [one.label for one in standing.ranked] == ["large", "middle", "small"]
    assert "0.5 wins added each way" in standing.note
    # Every resample has the same wins. The interval would be a point, although the strength is unbounded.
    assert {(one.low, one.high) for one in standing.ranked} == {(None, None)}
    why = "never lost to any of the others, so their strength is unbounded: large"
    assert standing.note.endswith(f"no interval: {why}")


def test_a_judge_that_always_prefers_the_first_answer_gives_no_interval(experiment):
    standing = compute_standing([make_verdicts(experiment, lambda first, second: "a")], build_labels(experiment))
    assert [one.strength for one in standing.ranked] == pytest.approx([0, 0, 0], abs=1e-9)
    assert {(one.low, one.high) for one in standing.ranked} == {(None, None)}
    assert standing.note.endswith("no interval: every choice of items gives the same value")


def test_an_interval_from_too_few_losses_is_omitted_with_a_note(experiment):
    def let_each_lose_once(first, second):
        one, other = (answer.run.condition.model.name for answer in (first, second))
        prefer_stronger = one if MODELS.index(one) > MODELS.index(other) else other
        upset = first.item.key == "item-0" and {one, other} in ({"large", "middle"}, {"middle", "small"})
        return "ab"[(prefer_stronger != one) != upset]

    standing = compute_standing([make_verdicts(experiment, let_each_lose_once)], build_labels(experiment))
    assert {(one.low, one.high) for one in standing.ranked} == {(None, None)}
    assert standing.note.endswith("no interval: without one of the items, some never lost")


def test_two_conditions_with_the_same_name_stay_separate(experiment):
    """Test a model that changed behind its name: requests differ, but all names are equal."""
    conditions = list(experiment.conditions.select_related("model", "prompt", "sampler"))
    for condition in conditions[1:]:
        condition.model = conditions[0].model  # Not saved, because stored conditions cannot change.
    names = make_condition_labels(conditions)
    assert len(set(names.values())) == 3
    assert compute_standing([make_verdicts(experiment, lambda *_: "tie")], names).problem == ""


def test_models_that_were_never_compared_are_listed(experiment):
    other = make_answered_experiment("other", items=2, models=["away", "far"])
    condition = make_verdicts(experiment, lambda *_: "tie")
    away, far = Trial.objects.filter(run__experiment=other, item__key="item-0").order_by("pk")
    Preference.objects.create(condition=condition, trial_a=away, trial_b=far, winner="a", judged_by_id=9_999)
    standing = compute_standing([condition], build_labels(experiment) | build_labels(other))
    assert standing.ranked == ()
    assert standing.problem == "groups that were never compared with each other: away, far; large, middle, small"


def test_ties_alone_give_equal_strengths(experiment):
    standing = compute_standing([make_verdicts(experiment, lambda *_: "tie")], build_labels(experiment))
    assert Counter(round(one.strength, 9) for one in standing.ranked) == {0: 3}


def test_a_standing_without_readable_verdicts_does_not_crash(experiment):
    standing = compute_standing([make_verdicts(experiment, lambda *_: "")], build_labels(experiment))
    assert (standing.comparisons, standing.problem) == (0, "a comparison needs at least two entries")
