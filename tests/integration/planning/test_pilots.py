"""A pilot plans a few trials across a design; a later launch adds only the missing trials."""

from collections import Counter
from decimal import Decimal

import pytest

from runs_app.models import Run, Trial
from runs_app.planning import plan as plan_module
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.work import PlanError
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db


def make_wide_design(items=10, *, models=3, dimensions=("valence", "arousal"), **fields):
    return make_draft_experiment(
        dataset=make_questions(items),
        models=[make_rehearsal_model(f"m{number}") for number in range(models)],
        dimensions=[make_draft_dimension(name) for name in dimensions],
        **fields,
    )


def list_identities():
    return set(Trial.objects.values_list("run__condition", "item__key", "dimension__name", "sample_idx"))


def test_a_pilot_spreads_its_number_of_trials_over_the_conditions():
    experiment = make_wide_design(samples=5)
    report = plan_module.plan(experiment, pilot=20)
    assert (report.trials_added, report.trials_total, Trial.objects.count()) == (20, 20, 20)
    assert sorted(Run.objects.values_list("n_pending", flat=True)) == [6, 7, 7]
    assert set(Trial.objects.values_list("sample_idx", flat=True)) == {0}


def test_a_pilot_repeats_an_item_only_after_all_others():
    plan_module.plan(make_wide_design(10, models=1), pilot=12)
    times = Counter(Trial.objects.values_list("item__key", flat=True))
    assert (len(times), sorted(times.values())) == (10, [1] * 8 + [2] * 2)
    assert set(Trial.objects.values_list("dimension__name", flat=True)) == {"valence", "arousal"}


def test_conditions_of_a_pilot_draw_the_same_items_so_that_it_compares_them():
    plan_module.plan(make_wide_design(30, models=2), pilot=20)
    asked = [set(run.trials.values_list("item__key", "dimension__name")) for run in Run.objects.all()]
    assert len(asked[0]) == 10
    assert asked[0] == asked[1]


def test_a_pilot_with_fewer_trials_than_conditions_creates_runs_only_for_those_trials():
    plan_module.plan(make_wide_design(models=5, dimensions=()), pilot=2)
    assert list(Run.objects.values_list("n_pending", flat=True)) == [1, 1]


def test_a_repeated_pilot_adds_nothing_and_a_larger_one_keeps_its_trials():
    experiment = make_wide_design(samples=2)
    plan_module.plan(experiment, pilot=7)
    before = list_identities()
    assert plan_module.plan(experiment, pilot=7).trials_added == 0
    assert plan_module.plan(experiment, pilot=20).trials_added == 13
    assert before < list_identities()


def test_the_full_launch_adds_only_the_missing_trials():
    experiment = make_wide_design(samples=2)
    plan_module.plan(experiment, pilot=20)
    pilot = set(Trial.objects.values_list("pk", flat=True))
    report = plan_module.plan(experiment)
    assert (report.trials_added, report.trials_total) == (100, 120)
    assert pilot < set(Trial.objects.values_list("pk", flat=True))
    assert len(list_identities()) == Trial.objects.count() == 120
    assert plan_module.plan(experiment, pilot=20).trials_added == 0


def test_a_pilot_is_at_most_one_repetition():
    experiment = make_wide_design(3, models=1, dimensions=(), samples=4)
    assert plan_module.plan(experiment, pilot=50).trials_total == 3


def test_a_pilot_draws_no_excluded_items():
    dataset = make_questions(3, excluded={1})
    plan_module.plan(make_draft_experiment(dataset=dataset), pilot=3)
    assert set(Trial.objects.values_list("item__key", flat=True)) == {"q000000", "q000002"}


@pytest.mark.parametrize("n", [0, -1])
def test_a_pilot_without_trials_is_refused(n):
    with pytest.raises(PlanError, match="a pilot must have at least one trial"):
        plan_module.plan(make_wide_design(), pilot=n)
    assert not Run.objects.exists()


def test_the_estimate_of_a_pilot_counts_only_its_trials():
    experiment = make_wide_design(samples=2)
    full, pilot = estimate(experiment), estimate(experiment, pilot=20)
    assert (pilot.trials, pilot.to_do) == (120, 20)
    assert pilot.ceiling_usd * 6 == full.ceiling_usd
    plan_module.plan(experiment, pilot=20)
    assert [estimate(experiment, pilot=n).to_do for n in (20, 21, None)] == [20, 21, 120]


def test_a_pilots_tokens_give_the_expected_cost_of_the_rest():
    experiment = make_wide_design(models=1, dimensions=(), prompts=[make_question_prompt()])
    plan_module.plan(experiment, pilot=4)
    Run.objects.update(n_pending=0, n_done=4, input_tokens=400, output_tokens=40)
    forecast = estimate(experiment)
    assert (forecast.to_do, forecast.basis, forecast.coverage) == (6, {"own": 6}, 1.0)
    assert forecast.expected_usd == 6 * (100 * Decimal("0.5") + 10 * Decimal("1.5")) / 1_000_000
