"""Scores by item and condition match the exported rows, for every measure of an experiment."""

import csv
import io
from collections import defaultdict
from statistics import fmean

import pytest

from grading_app.grading.scoring import grade
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.scores import find_measure, list_measures, load_scores
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


def export_rows(experiment, table):
    text = b"".join(export_chunks(experiment, table, "csv")).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def read_cells(scores):
    """Return n and missing of each cell with answers, by item and condition key."""
    return {
        (int(item), int(condition)): (int(scores.n[row, column]), int(scores.missing[row, column]))
        for row, item in enumerate(scores.items)
        for column, condition in enumerate(scores.conditions)
        if scores.n[row, column] or scores.missing[row, column]
    }


@shared_rows
def rated():
    experiment = factories.make_experiment(
        dataset=factories.make_dataset(items=5),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal", low=1, high=9)],
        samples=3,
    )
    for wave in (0, 1):
        for run in factories.make_runs(experiment, wave=wave):
            factories.plan_trials(run, answer=lambda item, dimension, index, run=run: _rating(run, item, index))
    return experiment


def _rating(run, item, index):
    chosen = (item.position * 3 + index * 2 + run.wave.number) % 8
    if chosen == 7:
        return {"answer": "no idea", "rating": None, "parse_error": "no_rating_found", "truncated": True}
    return {"answer": str(chosen + 1), "rating": chosen + 1, "attempts": 1 + index % 2}


@shared_rows
def graded():
    experiment = factories.make_experiment(
        "graded",
        dataset=factories.make_dataset("graded-questions", 6),
        models=[factories.make_model("a"), factories.make_model("b")],
        samples=2,
        scorers=["numeric", "exact_match"],
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=lambda item, _, index: item.target if (item.pk + index) % 3 else "none")
    grade(experiment, by="test")
    return experiment


def test_the_measures_of_a_rating_study_are_its_dimensions(rated):
    assert [(one.key, one.low, one.high) for one in list_measures(rated)] == [("valence", 1, 7), ("arousal", 1, 9)]


def test_the_measures_of_a_graded_experiment_are_its_scorers(graded):
    assert [one.key for one in list_measures(graded)] == ["numeric", "exact_match"]
    assert find_measure(graded, "").key == "numeric"
    assert find_measure(graded, "bleu") is None


@pytest.mark.parametrize("wave", [None, 1])
def test_ratings_by_item_match_the_export(rated, wave):
    chosen = rated.waves.get(number=wave) if wave is not None else None
    scores = load_scores(rated, find_measure(rated, "arousal"), chosen)
    expected = defaultdict(list)
    conditions = dict(rated.conditions.values_list("condition_id", "pk"))
    items = dict(rated.dataset.items.values_list("key", "pk"))
    for row in export_rows(rated, "trials"):
        if row["dimension"] == "arousal" and (wave is None or row["wave"] == str(wave)):
            expected[items[row["item_key"]], conditions[row["condition_id"]]].append(row["rating"])
    assert read_cells(scores) == {
        cell: (sum(text != "" for text in texts), sum(text == "" for text in texts)) for cell, texts in expected.items()
    }
    for column, condition in enumerate(scores.conditions):
        for row, item in enumerate(scores.items):
            ratings = [int(text) for text in expected[int(item), int(condition)] if text]
            assert scores.mean[row, column] == pytest.approx(fmean(ratings))
            assert scores.within[row, column] == pytest.approx(sum((one - fmean(ratings)) ** 2 for one in ratings))
    assert not scores.is_binary


def test_scores_by_a_rule_match_the_export(graded):
    scores = load_scores(graded, find_measure(graded, "numeric"))
    rows = [row for row in export_rows(graded, "gradings") if row["scorer"] == "numeric"]
    assert scores.is_binary
    assert int(scores.n.sum()) == sum(row["parse_ok"] == "t" or row["parse_ok"] == "true" for row in rows)
    assert int(scores.missing.sum()) == len(rows) - int(scores.n.sum())
    right = sum(float(row["score"]) for row in rows if row["score"])
    assert float((scores.n * scores.mean)[scores.n > 0].sum()) == pytest.approx(right)


def test_excluded_answers_have_no_score(rated):
    valence = find_measure(rated, "valence")
    rows = [row for row in export_rows(rated, "trials") if row["dimension"] == "valence"]
    whole = load_scores(rated, valence, exclude={"truncated"})
    assert int(whole.missing.sum()) == 0
    first = load_scores(rated, valence, exclude={"retried"})
    assert int((first.n + first.missing).sum()) == sum(row["attempts"] == "1" for row in rows)


def test_items_follow_the_order_of_the_dataset(rated):
    scores = load_scores(rated, find_measure(rated, "valence"))
    assert scores.items.tolist() == list(rated.dataset.items.order_by("position").values_list("pk", flat=True))


def test_the_number_of_queries_does_not_depend_on_the_conditions(graded, django_assert_max_num_queries):
    with django_assert_max_num_queries(5):
        measure = list_measures(graded)[0]
    with django_assert_max_num_queries(3):
        load_scores(graded, measure)
