"""Where people rated the items, Home and the list of experiments show the condition whose ratings correlate most.

scipy recomputes the correlation from the rows.
"""

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse
from scipy import stats

from datasets_app.models import Norm
from grading_app.grading.scoring import grade
from grading_app.models import CachedAggregate
from grading_app.results import cached_aggregates, headlines
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.headlines import load_headlines
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from runs_app.models import Experiment, Trial
from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
ITEMS = 24
# "flat" has the higher mean, "near" follows people.
RATINGS = {"near": lambda n: 1 + (n * 7) % 5, "flat": lambda n: 6 + n % 2}


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(slug="study", norms=lambda n: 1.5 + (n * 7) % 5 + 0.3 * (n % 3), **fields):
    items = [
        {
            "key": f"p{n}",
            "input": str(n),
            "target": "3",
            "norms": {"valence": value} if (value := norms(n)) is not None else {},
        }
        for n in range(ITEMS)
    ]
    models = [factories.make_model(name) for name in RATINGS]
    dimension = factories.make_dimension("valence")
    study = factories.make_experiment(
        slug, dataset=factories.make_dataset(f"{slug}-items", items), models=models, dimensions=[dimension], **fields
    )
    for run in factories.make_runs(study, status="done"):
        rate = RATINGS[run.condition.model.name]
        factories.plan_trials(
            run,
            answer=lambda item, *_, rate=rate: {"answer": str(rate(item.position)), "rating": rate(item.position)},
        )
    return study


def load_headline(study):
    return load_headlines(list(Experiment.objects.filter(pk=study.pk).with_totals()), study.owner)[study.pk]


def correlate_by_scipy(study, model):
    norms = dict(Norm.objects.filter(item__dataset=study.dataset).values_list("item", "mean"))
    ratings = dict(
        Trial.objects.filter(run__experiment=study, run__condition__model__name=model).values_list("item", "rating")
    )
    common = sorted(norms.keys() & ratings.keys())
    return stats.pearsonr([ratings[pk] for pk in common], [norms[pk] for pk in common]), len(common)


@pytest.mark.parametrize("limit", [cached_aggregates.MAX_ANSWERS_PER_REQUEST, 3])
def test_the_condition_with_the_highest_r_is_shown_with_the_interval_and_the_items_of_results(
    client, monkeypatch, limit
):
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", limit)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    study = make_study(norms=lambda n: None if n >= 20 else 1.5 + (n * 7) % 5 + 0.3 * (n % 3))
    client.force_login(study.owner)
    client.get(reverse("experiment_results", args=["study"]))
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    headline = load_headline(study)
    of_model, n = correlate_by_scipy(study, "near")
    assert correlate_by_scipy(study, "flat")[0].statistic < of_model.statistic
    assert (headline.label, headline.items, headline.value) == ("near", n, pytest.approx(of_model.statistic))
    fisher = of_model.confidence_interval(0.95)
    assert headline.low <= fisher.low <= headline.value <= fisher.high <= headline.high
    (near,) = [
        one for one in compute_leaderboard(BoardQuery(study)).closeness["valence"].conditions.values()
        if one.r == pytest.approx(headline.value)
    ]  # fmt: skip
    assert (headline.low, headline.high) == (pytest.approx(near.low), pytest.approx(near.high))
    shown = f"r = {of_model.statistic:.2f}".replace("0.", ".")
    for page in ("home", "experiment_list"):
        text = page_text(client.get(reverse(page)))
        assert shown in text
        assert "near" in text
        assert "Valence: closeness to people" in text
        assert "20 items" in text
        assert not {"closest", "best of"} & set(text.split())


def test_home_names_the_rank_and_calls_no_condition_the_closest_because_nothing_was_tested(client):
    study = make_study()
    client.force_login(study.owner)
    text = page_text(client.get(reverse("home")))
    assert "highest r of 2 conditions, 24 items" in text
    assert "closest" not in text


def test_without_norms_the_highest_mean_is_shown():
    headline = load_headline(make_study(norms=lambda _: None))
    assert (headline.kind, headline.label, headline.value) == ("mean", "flat", np.mean([6, 7]))


def test_another_primary_measure_precedes_the_norms():
    study = make_study(primary_measure="numeric:valence")
    grade(study, scorers=["numeric"], by="test")
    headline = load_headline(study)
    assert (headline.kind, headline.label) == ("share", "near")


def test_constant_ratings_have_no_r_and_the_highest_mean_is_shown(monkeypatch):
    monkeypatch.setitem(RATINGS, "near", lambda _: 3)
    monkeypatch.setitem(RATINGS, "flat", lambda _: 5)
    headline = load_headline(make_study())
    assert (headline.kind, headline.label, headline.value) == ("mean", "flat", 5.0)
