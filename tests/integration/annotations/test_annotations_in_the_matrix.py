"""Annotations in the matrix: marked items, a filter by flag, and annotations next to the answers of a cell."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.grading.scoring import grade
from runs_app.models.annotations import annotate
from tests.page_text import page_text


@pytest.fixture
def graded_experiment(experiment):
    grade(experiment, scorers=["numeric"], by="test")
    return experiment


def list_keys(response):
    return [row["item"].key for row in response.context.get("rows", [])]


@pytest.mark.slow
def test_flagged_items_are_marked_and_can_be_filtered(as_, graded_experiment, trial, people):
    address, client = reverse("experiment_matrix", args=["sums"]), as_("viewer")
    assert list_keys(client.get(address, {"show": "flagged"})) == []
    annotate(trial, "flag", "Wrong target", by=people["owner"])
    fourth = graded_experiment.dataset.items.get(key="item-3")
    (flag,) = annotate(fourth, "flag", "Ambiguous", by=people["owner"])
    annotate(graded_experiment.dataset.items.get(key="item-2"), "note", "Fine", by=people["owner"])
    assert list_keys(client.get(address, {"show": "flagged"})) == ["item-0", "item-3"]
    assert 'title="Wrong target"' in page_text(client.get(address))
    flag.remove(by=people["owner"])
    assert list_keys(client.get(address, {"show": "flagged"})) == ["item-0"]


def test_a_cell_shows_the_annotations_of_its_answers_and_of_its_item(as_, graded_experiment, trial, people):
    annotate(trial, "note", "Said so twice.", by=people["owner"])
    annotate(trial.item, "tag", "easy", by=people["owner"])
    address = reverse("matrix_cell", args=["sums", trial.item_id, trial.run.condition_id])
    text = page_text(as_("viewer").get(address, headers={"HX-Request": "true"}))
    assert text.count("Said so twice.") == 1
    assert text.count(">easy</span>") == 1


@pytest.mark.slow
def test_flags_add_a_constant_number_of_queries(as_, graded_experiment, people):
    client, address = as_("viewer"), reverse("experiment_matrix", args=["sums"])
    client.get(address)

    def count_queries():
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        return len(queries)

    few = count_queries()
    for item in graded_experiment.dataset.items.all():
        annotate(item, "flag", "Look", by=people["owner"])
    assert count_queries() == few
