"""Running `manage.py demo` again continues with the existing data, including later changes."""

import pytest

from grading_app.management.commands import demo
from runs_app.models import Condition, Experiment
from tests import factories

pytestmark = pytest.mark.django_db


def make_demonstration(*, answered, waves=2):
    for slug in demo.EXPERIMENTS:
        experiment = factories.make_experiment(slug, models=[factories.make_model("small")])
        for wave in range(waves if slug == demo.DRIFT_EXPERIMENT else 1):
            for run in factories.make_runs(experiment, wave=wave, status="done"):
                answer = (lambda item, dimension, index: "4") if answered else None
                factories.plan_trials(run, answer=answer)
    return Experiment.objects.get(slug="questions-pilot")


def test_the_demo_does_not_wait_for_added_judges():
    experiment = make_demonstration(answered=True)
    assert demo.is_finished()
    run = experiment.runs.get()
    added = Condition.objects.create(
        experiment=experiment, stage="judge", model=run.condition.model, sampler=run.condition.sampler,
        condition_id="judge--1", content={},
    )  # fmt: skip
    experiment.runs.create(condition=added, wave=run.wave, status="paused", n_pending=5)
    assert demo.is_finished()


def test_the_demo_waits_for_answers_and_judges_of_the_design():
    experiment = make_demonstration(answered=True)
    experiment.graders = ["strict-judge"]
    experiment.save()
    assert not demo.is_finished()


def test_answers_are_waited_for():
    make_demonstration(answered=False)
    assert not demo.is_finished()


def test_the_second_wave_is_waited_for():
    make_demonstration(answered=True, waves=1)
    assert not demo.is_finished()
