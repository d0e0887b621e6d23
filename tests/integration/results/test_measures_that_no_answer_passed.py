"""A measure that no answer passed, or that all did, is reported with one sentence on every page that shows its mean."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone

from grading_app.grading.scoring import grade
from grading_app.models import ShareLink
from grading_app.publish.report.build import build_document
from grading_app.results.headlines import load_headlines
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.scores import describe_extreme
from runs_app.models import Experiment
from tests import factories
from tests.page_text import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
NONE = "No answer passed Exact match."
ALL = "Every scored answer passed Exact match."


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(make_answer, models=("a", "b")):
    experiment = factories.make_experiment(
        "pilot",
        dataset=factories.make_dataset(items=4),
        models=[factories.make_model(name) for name in models],
        scorers=["exact_match"],
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: {"answer": make_answer(item)})
    grade(experiment, by="test")
    return experiment


@pytest.mark.parametrize(
    ("make_answer", "expected"),
    [(lambda item: "The answer is wrong.", NONE), (lambda item: item.target, ALL)],
    ids=["none", "all"],
)
def test_each_page_says_that_no_answer_or_every_answer_passed(client, make_answer, expected):
    experiment = make_study(make_answer)
    client.force_login(experiment.owner)
    for name in ("experiment_results", "experiment_progress"):
        assert page_text(client.get(reverse(name, args=[experiment.slug]))).count(expected) == 1
    address = client.get(reverse("experiment_results", args=[experiment.slug])).context["extremes"][0][1]
    assert len(client.get(address).context["table"].rows) == 8
    report = str(build_document(experiment))
    assert expected in report
    assert f"{expected} Read some answers" not in report


def test_the_shared_leaderboard_says_so_too(client):
    experiment = make_study(lambda item: "The answer is wrong.")
    _, token = ShareLink.create(
        experiment, ShareLink.Scope.LEADERBOARD, timezone.now() + timedelta(days=7), by=experiment.owner
    )
    assert NONE in page_text(client.get(reverse("shared_leaderboard", args=[token])))


@pytest.mark.parametrize("models", [("a",), ("a", "b")])
def test_the_headline_on_home_says_so_if_it_covers_all_conditions(models):
    none = make_study(lambda item: "The answer is wrong.", models)
    (headline,) = load_headlines(Experiment.objects.with_totals(), none.owner).values()
    assert headline.extreme.fact == NONE


def test_nothing_is_said_if_some_answers_pass(client):
    experiment = make_study(lambda item: item.target if item.position else "wrong")
    assert compute_leaderboard(BoardQuery(experiment)).extremes == []
    assert describe_extreme("Exact match", [0, 1, None]) is None
    assert describe_extreme("Exact match", [None]) is None
