import pytest

from runs_app.models import Run, Trial
from runs_app.planning import plan as plan_module
from runs_app.planning.work import PlanError
from tests.factories.drafts import make_draft_experiment

pytestmark = pytest.mark.django_db


def grow(experiment, samples):
    experiment.samples = samples
    experiment.save()


def test_each_wave_has_the_epochs_after_those_of_the_previous_wave():
    experiment = make_draft_experiment(samples=3)
    waves = [plan_module.plan(experiment, wave_label=label).wave for label in ("", "march", "april")]
    assert [(wave.number, wave.epoch_offset) for wave in waves] == [(0, 0), (1, 3), (2, 6)]


def test_a_wave_has_its_own_runs_and_trials():
    experiment = make_draft_experiment(samples=2)
    plan_module.plan(experiment)
    report = plan_module.plan(experiment, wave_label="march")
    assert report.trials_added == report.trials_total == 6
    assert Run.objects.values("condition").distinct().count() == 1
    assert Trial.objects.count() == 12


def test_planning_an_existing_label_continues_its_wave():
    experiment = make_draft_experiment()
    first_report = plan_module.plan(experiment, wave_label="march")
    second_report = plan_module.plan(experiment, wave_label="march")
    assert (second_report.wave, second_report.trials_added) == (first_report.wave, 0)


def test_only_the_last_wave_can_grow():
    experiment = make_draft_experiment(samples=2)
    plan_module.plan(experiment)
    plan_module.plan(experiment, wave_label="march")
    grow(experiment, 3)
    with pytest.raises(PlanError, match="march follows it and has the repetitions from number 3 on"):
        plan_module.plan(experiment)
    assert plan_module.plan(experiment, wave_label="march").trials_added == 3


def test_a_wave_starts_after_all_planned_epochs_even_if_samples_were_reduced():
    experiment = make_draft_experiment(samples=4)
    plan_module.plan(experiment)
    grow(experiment, 2)
    assert plan_module.plan(experiment, wave_label="march").wave.epoch_offset == 4
