"""Rows of answers name their wave if the experiment has several waves, so that no two rows look the same."""

import pytest
from django.urls import reverse

from runs_app.models import Run
from tests import factories
from tests.factories.gradings import list_generated_trials, make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_rater, make_rubric_queue, rate_all

pytestmark = pytest.mark.django_db


def make_study(waves):
    """Return answers of one model to two items in these waves, on which two judges differ."""
    experiment = make_answered_experiment(items=2)
    for number, label in enumerate(waves[1:], start=1):
        wave = factories.make_wave(experiment, number, label)
        run = Run.objects.create(experiment=experiment, condition=experiment.conditions.get(), wave=wave)
        factories.plan_trials(run, answer=lambda item, *cell: f"Of {item.key}.")
    rubric = make_scale_rubric()
    for name, score in (("judge-a", 2.0), ("judge-b", 5.0)):
        make_gradings(experiment, name, lambda trial, score=score: score, rubric=rubric)
    return experiment


def open_page(client, experiment, name, *args):
    client.force_login(experiment.owner)
    return client.get(reverse(name, args=args or [experiment.slug])).content.decode()


def test_disagreements_name_the_wave_of_each_answer(client):
    experiment = make_study(["", "second"])
    page = open_page(client, experiment, "experiment_disagreements")
    assert page.count("small, first wave") == 2
    assert page.count("small, second") == 2
    last = list_generated_trials(experiment)[-1]
    assert "small, second" in open_page(client, experiment, "disagreement", "pilot", last.pk)


ONE_WAVE_PAGES = (
    "experiment_disagreements", "experiment_progress", "experiment_results", "experiment_matrix", "experiment_grading",
    "experiment_agreement", "experiment_analysis", "experiment_detail", "experiment_ledger", "experiment_figures",
)  # fmt: skip


def test_one_wave_is_not_named(client):
    experiment = make_study([""])
    for name in ONE_WAVE_PAGES:
        page = open_page(client, experiment, name)
        assert "first wave" not in page, name
        assert "wave 0" not in page.lower(), name


def test_progress_names_the_wave_of_each_run(client):
    page = open_page(client, make_study(["", "second"]), "experiment_progress")
    assert page.count("first wave") >= 1
    assert page.count("second") >= 1


def test_the_page_of_a_queue_names_the_wave_of_each_answer(client):
    experiment = make_study(["", "second"])
    queue = make_answer_queue(experiment=experiment, answers_each=2)
    rate_all(make_rater(queue, started=True))
    page = open_page(client, experiment, "rating_queue_detail", "reading")
    assert page.count("small, first wave, sample 0") == 2
    assert page.count("small, second, sample 0") == 2


def test_a_pair_names_the_waves_of_its_answers(client):
    queue = make_rubric_queue("pairwise", items=2, answers_each=1)
    experiment = queue.experiment
    factories.make_wave(experiment, 1, "second")
    raters = [make_rater(queue, started=True) for _ in range(2)]
    for value, rater in enumerate(raters):
        rate_all(rater, value)
    page = open_page(client, experiment, "rating_queue_detail", "reading")
    assert "small, first wave, sample 0" in page
