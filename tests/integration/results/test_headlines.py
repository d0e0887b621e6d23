"""The list of experiments shows the highest condition of each and lets the reader select two for comparison."""

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.models import BlindReading, CachedAggregate
from grading_app.results import cached_aggregates, headlines
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.scores import list_measures
from grading_app.results.statistic_format import format_share_interval
from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_quiz(slug="quiz", right=(2, 4)):
    models = [factories.make_model(f"m{at}") for at in range(len(right))]
    experiment = factories.make_experiment(slug, dataset=factories.make_dataset(f"{slug}-items", 5), models=models)
    for run, n in zip(factories.make_runs(experiment, status="done"), right, strict=True):
        factories.plan_trials(run, answer=lambda item, *_, n=n: item.target if item.position < n else "-1")
    grade(experiment, scorers=["numeric"], by="test")
    return experiment


def open_list(client, experiment):
    client.force_login(experiment.owner)
    return client.get(reverse("experiment_list"))


def get_headlines(page):
    return {pk: (one.measure, one.text, one.label) for pk, one in page.context["table"].headlines.items()}


def test_an_experiment_shows_its_highest_condition_on_the_first_measure_with_its_interval(client):
    quiz, alone = make_quiz(), make_quiz("alone", right=(3,))
    page = open_list(client, quiz)
    assert get_headlines(page) == {
        quiz.pk: ("Number within tolerance", "80.0 %", "m1"),
        alone.pk: ("Number within tolerance", "60.0 %", ""),
    }
    (row,) = [row for row in compute_leaderboard(BoardQuery(quiz)).rows if row.label == "m1"]
    (score,) = row.scores.values()
    text = page_text(page)
    interval = format_share_interval(score.low, score.high)
    assert f'80.0 %</a> <small class="muted">{interval}</small>' in text


def test_a_blind_reader_does_not_see_which_condition_has_the_highest_mean(client):
    quiz = make_quiz()
    BlindReading.start(quiz, quiz.owner)
    assert get_headlines(open_list(client, quiz)) == {quiz.pk: ("Number within tolerance", "80.0 %", "")}


def test_home_calls_the_highest_mean_not_the_best_because_nothing_was_tested(client):
    quiz = make_quiz()
    client.force_login(quiz.owner)
    text = page_text(client.get(reverse("home")))
    assert "Number within tolerance, highest of 2 conditions" in text
    assert "best of" not in text


@pytest.mark.parametrize("limit", [cached_aggregates.MAX_ANSWERS_PER_REQUEST, 3])
def test_of_two_equal_means_the_one_with_all_answers_is_listed(client, monkeypatch, limit):
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    models = [factories.make_model(name) for name in ("stopped", "complete")]
    study = factories.make_experiment("study", dataset=factories.make_dataset("eight", 8), models=models)
    for run in factories.make_runs(study, status="done"):
        n = 4 if run.condition.model.name == "stopped" else 8
        factories.plan_trials(
            run,
            answer=lambda item, *_, n=n: None if item.position >= n else item.target if item.position % 2 else "-1",
        )
    grade(study, scorers=["numeric"], by="test")
    client.force_login(study.owner)
    client.get(reverse("experiment_results", args=["study"]))
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    assert get_headlines(open_list(client, study)) == {study.pk: ("Number within tolerance", "50.0 %", "complete")}


def test_home_calls_the_highest_mean_of_ratings_not_the_best(client):
    models = [factories.make_model(name) for name in ("low", "high")]
    study = factories.make_experiment("study", models=models, dimensions=[factories.make_dimension("valence")])
    for value, run in enumerate(factories.make_runs(study, status="done"), start=3):
        factories.plan_trials(run, answer=lambda *_, value=value: {"answer": str(value), "rating": value})
    client.force_login(study.owner)
    text = page_text(client.get(reverse("home")))
    assert "Valence, highest of 2 conditions" in text
    assert "best of" not in text


@pytest.mark.parametrize("limit", [cached_aggregates.MAX_ANSWERS_PER_REQUEST, 3])
def test_a_condition_that_refused_answers_is_not_the_best_and_its_scored_answers_are_counted(
    client, monkeypatch, limit
):
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    refused = {"status": "failed", "error_class": "content_refused", "error": "refused", "answer": ""}
    models = [factories.make_model(name) for name in ("refuser", "other")]
    study = factories.make_experiment("study", dataset=factories.make_dataset("twenty", 20), models=models)
    for run in factories.make_runs(study, status="done"):
        is_refuser = run.condition.model.name == "refuser"
        right = range(8, 20) if is_refuser else range(15)

        def answer(item, *_, right=right, is_refuser=is_refuser):
            return (
                refused
                if is_refuser and item.position not in right
                else (item.target if item.position in right else "-1")
            )

        factories.plan_trials(run, answer=answer)
    grade(study, scorers=["numeric"], by="test")
    client.force_login(study.owner)
    client.get(reverse("experiment_results", args=["study"]))
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    listed, home = page_text(open_list(client, study)), page_text(client.get(reverse("home")))
    assert "100.0 %" in listed
    assert "12 of 20 scored (8 refused)" in listed
    assert "highest of 2 conditions, 12 of 20 scored (8 refused)" in home
    assert "best of" not in home


def test_ratings_precede_grades_as_in_the_list_of_measures(client):
    experiment = factories.make_experiment(
        "study", dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")]
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(
            run, answer=lambda _, dimension, *__: {"answer": "3", "rating": 3 if dimension.name == "valence" else 5}
        )
    grade(experiment, scorers=["numeric"], by="test")
    assert get_headlines(open_list(client, experiment)) == {experiment.pk: ("Valence", "3.00", "")}
    assert list_measures(experiment)[0].label == "Valence"


def test_an_experiment_without_scores_has_no_headline_and_no_checkbox(client):
    quiz = make_quiz()
    factories.make_experiment("empty", owner=quiz.owner)
    text = open_list(client, quiz).content.decode()
    assert 'name="experiment" value="quiz"' in text
    assert 'value="empty"' not in text


def test_a_new_grade_changes_the_headline(client):
    quiz = make_quiz()
    open_list(client, quiz)
    run, _ = factories.make_runs(quiz, wave=1, status="done")
    factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(quiz, scorers=["numeric"], by="test")
    assert get_headlines(open_list(client, quiz))[quiz.pk] == ("Number within tolerance", "80.0 %", "m1")


def test_a_large_experiment_shows_the_numbers_of_its_stored_leaderboard(client, monkeypatch):
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", 3)
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", 3)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    quiz = make_quiz()
    assert get_headlines(open_list(client, quiz)) == {}
    client.get(reverse("experiment_results", args=["quiz"]))
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    assert get_headlines(open_list(client, quiz)) == {quiz.pk: ("Number within tolerance", "80.0 %", "m1")}
    assert "80.0 %" in client.get(reverse("experiment_results", args=["quiz"])).content.decode()


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_the_experiments(client):
    quiz = make_quiz()

    def count_queries():
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            open_list(client, quiz)
        return len(queries)

    count_queries()
    few = count_queries()
    for at in range(4):
        make_quiz(f"more-{at}")
    assert count_queries() == few
