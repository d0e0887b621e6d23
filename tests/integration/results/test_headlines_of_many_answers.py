"""Headlines of a list are computed in bounded time: of few answers in a request."""

import pytest
from django.core.cache import cache

from grading_app.results import headlines
from grading_app.results.headlines import load_headlines
from runs_app.models import Experiment
from tests.factories.gradings import make_answered_experiment, make_gradings

pytestmark = pytest.mark.django_db
ITEMS = 30


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_graded(slug, items=ITEMS, **fields):
    experiment = make_answered_experiment(slug, items=items, **fields)
    make_gradings(experiment, "exact", lambda trial: float(trial.item.position % 2), kind="rule")
    return experiment


def test_a_request_computes_headlines_of_a_limited_number_of_answers(monkeypatch):
    first, second = make_graded("first"), make_graded("second")
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", ITEMS + 1)
    rows = list(Experiment.objects.with_totals().order_by("pk"))
    assert load_headlines(rows, first.owner).keys() == {first.pk}
    assert load_headlines(rows, first.owner).keys() == {first.pk, second.pk}
