"""Intervals on the grading tab: equal to those of the results page, without pooling."""

import re

import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.results.statistic_format import format_mean, format_mean_interval
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def read_tables(client, experiment):
    """Return the graders' rows of the grading tab and the rows of the results page, as text."""
    client.force_login(experiment.owner)
    tab = client.get(reverse("experiment_grading", args=[experiment.slug]))
    results = client.get(reverse("experiment_results", args=[experiment.slug]))
    of_graders = [read_texts(present["means"], "condition", "dimension") for present in tab.context["rows"]]
    lines = results.context["results"].summary.lines
    return of_graders, [(line.measure.label, line.condition, *format_score(line)) for line in lines]


def format_score(line):
    ends = format_mean_interval(line.score.low, line.score.high, line.measure.is_share)
    return format_mean(line.score.mean, line.measure.is_share), line.score.reason or ends


def read_texts(table, *names):
    """Return the names, the mean and the interval, or the reason why there is none, of each row."""
    reasons = " ".join(table["table"].notes)
    texts = []
    for cells in table["table"].cells():
        row = dict(zip([column.name for column in table["table"].columns], cells, strict=True))
        reason = re.search(rf"{re.escape(row['condition'])} has no interval: ([^.]+)\.", reasons)
        interval = reason[1] if reason and row["interval"] == "–" else row["interval"]
        texts.append((*(row[name] for name in names if name in row), row["mean"], interval))
    return texts


def test_ten_of_ten_correct_answers_have_the_same_interval_on_both_pages(client):
    experiment = make_answered_experiment(items=10)
    make_gradings(experiment, "exact_match", lambda trial: 1.0, kind="rule")
    ((tab,),), (results,) = read_tables(client, experiment)
    assert tab[1:] == results[2:] == ("100.0 %", "72.2 to 100.0 %")


def test_valence_and_arousal_of_two_models_give_four_means(client):
    dimensions = [factories.make_dimension("valence"), factories.make_dimension("arousal")]
    experiment = make_answered_experiment(items=6, models=("small", "large"), samples=2, dimensions=dimensions)
    grade(experiment, scorers=["rating"], by="a test")
    (tab,), results = read_tables(client, experiment)
    assert {row[:2] for row in tab} == {(one, on) for one in ("small", "large") for on in ("Valence", "Arousal")}
    assert len(tab) == 4
    assert [row[2:] for row in tab] == [row[2:] for row in results]


def test_the_interval_of_equal_ratings_has_a_width_and_stays_on_the_scale(client):
    experiment = make_answered_experiment(items=8)
    make_gradings(experiment, "judge-a", lambda trial: 7.0, rubric=make_scale_rubric())
    ((tab,),), (results,) = read_tables(client, experiment)
    assert tab[1] == results[2] == "7.00"
    low, high = (float(end) for end in tab[2].split(" to "))
    assert 1 < low < 6.9
    assert high == 7
    assert results[3] == tab[2]


def test_a_single_item_shows_the_reason_for_its_missing_interval(client):
    experiment = make_answered_experiment(items=1, samples=4)
    make_gradings(experiment, "judge-a", lambda trial: 3.0 + trial.sample_idx % 2, rubric=make_scale_rubric())
    ((tab,),), (results,) = read_tables(client, experiment)
    assert tab[1:] == results[2:] == ("3.50", "an interval needs at least two items")


def test_a_decision_has_no_mean_on_the_tab(client):
    experiment = make_answered_experiment(items=3)
    make_gradings(experiment, "settled", lambda trial: 5.0, kind="adjudicated")
    experiment.grade_conditions.update(parameters={"scale_min": 1, "scale_max": 7})
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_grading", args=[experiment.slug]))
    assert page.context["rows"][0]["means"] is None
    assert "Decided answers" in page.content.decode()
