import pytest

from runs_app.models import Run, Trial
from runs_app.planning import plan as plan_module
from runs_app.planning.plan import PlanError
from tests.factories.drafts import make_draft_experiment

pytestmark = pytest.mark.django_db


def grow(experiment, samples):
    experiment.samples = samples
    experiment.save()


def test_each_wave_takes_the_epochs_after_the_one_before():
    experiment = make_draft_experiment(samples=3)
    waves = [plan_module.plan(experiment, wave_label=label).wave for label in ("", "march", "april")]
    assert [(wave.number, wave.epoch_offset) for wave in waves] == [(0, 0), (1, 3), (2, 6)]


def test_a_wave_has_runs_and_trials_of_its_own():
    experiment = make_draft_experiment(samples=2)
    plan_module.plan(experiment)
    report = plan_module.plan(experiment, wave_label="march")
    assert report.trials_added == report.trials_total == 6
    assert Run.objects.values("condition").distinct().count() == 1
    assert Trial.objects.count() == 12


def test_the_same_label_is_the_same_wave():
    experiment = make_draft_experiment()
    first = plan_module.plan(experiment, wave_label="march")
    again = plan_module.plan(experiment, wave_label="march")
    assert (again.wave, again.trials_added) == (first.wave, 0)


def test_the_last_wave_may_grow_and_an_earlier_one_may_not_run_into_it():
    experiment = make_draft_experiment(samples=2)
    plan_module.plan(experiment)
    plan_module.plan(experiment, wave_label="march")
    grow(experiment, 3)
    with pytest.raises(PlanError, match="its epochs would overlap with those of march, which start at 3"):
        plan_module.plan(experiment)
    assert plan_module.plan(experiment, wave_label="march").trials_added == 3


def test_a_wave_after_a_larger_one_starts_behind_all_its_epochs():
    experiment = make_draft_experiment(samples=4)
    plan_module.plan(experiment)
    grow(experiment, 2)
    assert plan_module.plan(experiment, wave_label="march").wave.epoch_offset == 4
