"""With human norms, the results lead with closeness to people. Its numbers are recomputed from the rows."""

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse
from scipy import stats

from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from runs_app.models import Trial
from tests import factories
from tests.integration.results.test_analysis_sections import build_tables
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
ITEMS = 24


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def get_norm(position):
    return 1.5 + (position * 5 % ITEMS) * 5 / ITEMS


@shared_rows
def study():
    """Return ratings of two models, of which `near` is at most one point off and `far` up to three."""
    items = [{"key": f"photo-{at}", "norms": {"valence": get_norm(at)}} for at in range(ITEMS)]
    experiment = factories.make_experiment(
        "photos",
        dataset=factories.make_dataset("photographs", items),
        models=[factories.make_model("near"), factories.make_model("far")],
        dimensions=[factories.make_dimension("valence")],
        samples=2,
    )
    for run in factories.make_runs(experiment, status="done"):
        off = 1 if run.condition.model.name == "near" else 3
        factories.plan_trials(
            run,
            answer=lambda item, _, index, off=off: {
                "rating": int(np.clip(round(get_norm(item.position)) + (item.position % 3 - 1) * off + index, 1, 7))
            },
        )
    return experiment


@pytest.mark.parametrize(("means", "expected"), [((2, 9.5, 3, 9.0), True), ((2, 7, 3, 1), False)])
def test_norms_outside_the_scale_are_named_once_with_the_first_item(client, means, expected):
    items = [{"key": f"photo-{at}", "norms": {"valence": mean}} for at, mean in enumerate(means)]
    valence = factories.make_dimension("valence")
    experiment = factories.make_experiment("p", dataset=factories.make_dataset("q", items), dimensions=[valence])
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: {"rating": 1 + item.position})
    client.force_login(experiment.owner)
    text = page_text(client.get(reverse("experiment_results", args=[experiment.slug])))
    assert text.count("outside the scale") == expected
    warning = "Norms outside the scale of Valence, 1 to 7: 2 of 4, the first 9.50 of item photo-1."
    assert (warning in text) == expected


def load_means(experiment, name):
    """Return the mean rating of each item by this model, and the norms, in the same order."""
    ratings = {}
    for position, rating in Trial.objects.filter(
        run__experiment=experiment, run__condition__model__name=name
    ).values_list("item__position", "rating"):
        ratings.setdefault(position, []).append(rating)
    order = sorted(ratings)
    return np.array([np.mean(ratings[at]) for at in order]), np.array([get_norm(at) for at in order])


def test_correlation_error_and_bias_are_those_of_scipy_and_numpy(study):
    board = compute_leaderboard(BoardQuery(study))
    labels = {row.condition: row.label for row in board.rows}
    found = board.closeness["valence"].conditions
    assert len(found) == 2
    for condition, near in found.items():
        model, people = load_means(study, labels[condition])
        assert near.items == ITEMS
        assert near.r == pytest.approx(stats.pearsonr(model, people).statistic)
        assert near.error == pytest.approx(np.abs(model - people).mean())
        assert near.bias == pytest.approx((model - people).mean())
        assert near.low < near.r < near.high


def test_the_noise_ceiling_is_the_root_of_the_norms_reliability(study):
    norms = np.array([get_norm(at) for at in range(ITEMS)])
    variance = norms.var(ddof=1)
    expected = np.sqrt((variance - 1 / 100) / variance)
    assert compute_leaderboard(BoardQuery(study)).closeness["valence"].ceiling == pytest.approx(expected)


def test_the_errors_of_two_models_are_compared_item_by_item(study):
    (lead,) = compute_leaderboard(BoardQuery(study)).closeness["valence"].leads
    near, far = (np.abs(np.subtract(*load_means(study, name))) for name in ("near", "far"))
    expected = stats.ttest_rel(far, near)
    change = lead.lead.pair.change
    assert change.mean == pytest.approx((far - near).mean())
    assert (lead.lead.p, change.t) == pytest.approx((expected.pvalue, expected.statistic))
    assert (change.low, change.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_the_page_leads_with_closeness_and_shows_mean_ratings_second(study, client):
    client.force_login(study.owner)
    response = client.get(reverse("experiment_results", args=["photos"]))
    text = page_text(response)
    assert (
        text.index("near rates closer to people than far, by ")
        < text.index("r with people")
        < text.index("Mean rating")
        < text.index("Intervals on items like these: of r, the wider of Fisher")
    )
    (conclusion,) = response.context["screen"].conclusions
    assert conclusion.is_certain
    assert "On items like these: 24 items" in conclusion.basis
    assert sorted(response.context["screen"].items.head) == ["People", "far", "near"]


def test_the_closeness_of_one_model_says_how_many_answers_have_a_rating(client):
    items = [{"key": f"photo-{at}", "norms": {"valence": get_norm(at)}} for at in range(ITEMS)]
    experiment = factories.make_experiment(
        "single",
        dataset=factories.make_dataset("few-photographs", items),
        models=[factories.make_model("only")],
        dimensions=[factories.make_dimension("valence")],
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(
            run,
            answer=lambda item, *_: (
                {"rating": int(np.clip(round(get_norm(item.position)) + item.position % 2, 1, 7))}
                if item.position > 2
                else {"answer": "No.", "refused": True}
            ),
        )
    client.force_login(experiment.owner)
    response = client.get(reverse("experiment_results", args=["single"]))
    (conclusion,) = response.context["screen"].conclusions
    assert conclusion.basis.endswith("On items like these: 21 items, 21 of 24 answers with a score.")
    sentence = build_tables(experiment)["norm_leaderboard"].sentence
    assert sentence.startswith("only has this mean absolute error: ")


def test_a_study_without_norms_compares_mean_ratings(client):
    experiment = factories.make_experiment(
        "plain",
        dataset=factories.make_dataset("plain-items", 12),
        models=[factories.make_model("high"), factories.make_model("low")],
        dimensions=[factories.make_dimension("valence")],
    )
    for run in factories.make_runs(experiment, status="done"):
        gain = run.condition.model.name == "high"
        factories.plan_trials(run, answer=lambda item, *_, gain=gain: {"rating": 2 + item.position % 3 + gain * 2})
    assert compute_leaderboard(BoardQuery(experiment)).closeness == {}
    client.force_login(experiment.owner)
    assert "high rates 2.00 points higher than low." in page_text(
        client.get(reverse("experiment_results", args=["plain"]))
    )
