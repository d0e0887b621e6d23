"""Graders that a design names are asked once a wave's answers are in, and read when they have answered."""

import pytest

from grading_app.models import Grading
from grading_app.tasks import grade_experiment
from runs_app.models import Attempt, Experiment, LanguageModel, Run, Trial
from tests import factories
from tests.judging.conftest import drain, judge_run, judging, make_grader


@pytest.fixture
def designed(answered):
    make_grader()
    Experiment.objects.update(graders=["judge-a"])
    answered.refresh_from_db()
    return answered


def test_a_wave_that_ended_is_judged_and_then_read_and_then_left_alone(designed):
    grade_experiment(designed.pk)
    assert judge_run(designed).status == "running"
    drain(judging(1))
    (graded,) = grade_experiment(designed.pk).values()
    assert graded == 12

    grade_experiment(designed.pk)
    assert Grading.objects.count() == 12
    assert judge_run(designed).n_trials == 12


def test_a_wave_that_still_runs_waits(designed):
    Run.objects.filter(pk=designed.runs.first().pk).update(status="running")
    grade_experiment(designed.pk)
    assert not Trial.objects.exclude(subject=None).exists()


def test_the_engine_asks_for_it_when_generation_ends(transactional_db, settings, monkeypatch):
    """From the launch to the gradings, with nothing between but what the task queue was asked for."""
    asked = []
    monkeypatch.setattr(
        "django_q.tasks.async_task", lambda name, *arguments, **options: asked.append((name, arguments))
    )
    make_grader()
    experiment = factories.make_experiment("alone", graders=["judge-a"], max_usd=None)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    drain(judging(0.25))
    while asked:
        name, arguments = asked.pop()
        if name == "grading_app.tasks.grade_experiment":
            grade_experiment(*arguments)
        elif name == "runs_app.tasks.drain":
            drain(judging(0.25))
    assert Grading.objects.filter(score=0.25, judged_by__status="done").count() == 3
    assert Attempt.objects.count() == 6


def test_a_judge_that_cannot_judge_stops_no_rule(designed, caplog):
    Experiment.objects.update(scorers=["numeric"])
    designed.refresh_from_db()
    LanguageModel.objects.filter(name="judge").update(output_price=None)
    grade_experiment(designed.pk)
    assert Grading.objects.filter(condition__scorer="numeric").count() == 12
    assert "is not judged by judge-a: unknown price" in caplog.text
