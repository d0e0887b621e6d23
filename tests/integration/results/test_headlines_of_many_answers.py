"""Headlines of a list are computed in bounded time: in one pass over the answers, and of few answers in a request."""

import json

import pytest
from django.core.cache import cache
from django.db import connection

from grading_app.results import headlines, scores
from grading_app.results.headlines import load_headlines
from grading_app.results.scores import list_measures_of_many, load_highest_scores
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


def list_nodes(plan):
    return [plan, *(node for part in plan.get("Plans", []) for node in list_nodes(part))]


def test_the_cells_of_items_are_read_at_most_twice(monkeypatch):
    experiment = make_graded("many", models="abc")
    measures = {pk: found[0] for pk, found in list_measures_of_many([experiment]).items()}
    plans = []

    def explain(sql, parameters):
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters)
            plans.append(cursor.fetchone()[0])
        return []

    monkeypatch.setattr(scores, "fetch_rows", explain)
    load_highest_scores(measures)
    (plan,) = (json.loads(plan) if isinstance(plan, str) else plan for plan in plans)
    scans = [node for node in list_nodes(plan[0]["Plan"]) if node.get("CTE Name") == "cells"]
    read = sum(node["Actual Rows"] * node["Actual Loops"] for node in scans)
    assert scans
    assert read <= 2 * 3 * ITEMS


def test_a_request_computes_headlines_of_a_limited_number_of_answers(monkeypatch):
    first, second = make_graded("first"), make_graded("second")
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", ITEMS + 1)
    rows = list(Experiment.objects.with_totals().order_by("pk"))
    assert load_headlines(rows, first.owner).keys() == {first.pk}
    assert load_headlines(rows, first.owner).keys() == {first.pk, second.pk}
