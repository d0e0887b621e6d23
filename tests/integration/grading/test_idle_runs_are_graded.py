"""Rules grade the answers of a run that stands still, so that its page shows no score of a few of them."""

import pytest
from django.core.cache import cache

from grading_app.models import Grading
from grading_app.tasks import grade_experiment
from runs_app import tasks
from runs_app.grading_interface import GRADE
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def graded(monkeypatch):
    """Return the experiments whose grading was enqueued, and grade each at once."""
    cache.clear()
    keys = []

    def enqueue(function, *args, **options):
        if function == GRADE:
            keys.append(args[0])
            grade_experiment(*args)

    monkeypatch.setattr("django_q.tasks.async_task", enqueue)
    return keys


def make_half_done(status):
    experiment = factories.make_experiment("quiz", dataset=factories.make_dataset("things", 10), scorers=["numeric"])
    (run,) = factories.make_runs(experiment, status=status)
    factories.plan_trials(run, answer=lambda item, *_: item.target if item.position < 6 else None)
    return experiment


@pytest.mark.parametrize("status", ["paused", "stopped", "cancelled"])
def test_the_answers_of_a_run_that_stands_still_are_graded(graded, status):
    experiment = make_half_done(status)
    tasks.maintain()
    assert graded == [experiment.pk]
    assert Grading.objects.filter(condition__experiment=experiment).count() == 6
    tasks.maintain()
    assert graded == [experiment.pk]


def test_an_answer_that_arrives_after_the_stop_is_graded_too(graded):
    experiment = make_half_done("stopped")
    tasks.maintain()
    run = experiment.runs.get()
    trial = run.trials.filter(status="pending").first()
    run.trials.filter(pk=trial.pk).update(**factories.build_done_fields(answer=trial.item.target))
    factories.refresh_counters(run)
    tasks.maintain()
    assert graded == [experiment.pk] * 2
    assert Grading.objects.filter(condition__experiment=experiment).count() == 7


def test_a_running_run_waits_for_its_end(graded):
    make_half_done("running")
    tasks.maintain()
    assert graded == []
