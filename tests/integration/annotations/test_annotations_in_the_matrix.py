"""Annotations in the matrix: marked items, a filter by flag, and annotations next to the answers of a cell."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.scoring.grading import grade
from runs_app.annotations import annotate, remove
from tests.page_text import page_text


@pytest.fixture
def graded(experiment):
    grade(experiment, scorers=["numeric"], by="test")
    return experiment


def keys_of(response):
    return [row["item"].key for row in response.context.get("rows", [])]


@pytest.mark.slow
def test_flagged_items_are_marked_and_can_be_filtered(as_, graded, trial, people):
    address, client = reverse("experiment_matrix", args=["sums"]), as_("viewer")
    assert keys_of(client.get(address, {"show": "flagged"})) == []
    annotate(trial, "flag", "Wrong target", by=people["owner"])
    fourth = graded.dataset.items.get(key="item-3")
    (flag,) = annotate(fourth, "flag", "Ambiguous", by=people["owner"])
    annotate(graded.dataset.items.get(key="item-2"), "note", "Fine", by=people["owner"])
    assert keys_of(client.get(address, {"show": "flagged"})) == ["item-0", "item-3"]
    assert 'title="Wrong target"' in page_text(client.get(address))
    remove(flag, by=people["owner"])
    assert keys_of(client.get(address, {"show": "flagged"})) == ["item-0"]


def test_a_cell_shows_the_annotations_of_its_answers_and_of_its_item(as_, graded, trial, people):
    annotate(trial, "note", "Said so twice.", by=people["owner"])
    annotate(trial.item, "tag", "easy", by=people["owner"])
    address = reverse("matrix_cell", args=["sums", trial.item_id, trial.run.condition_id])
    text = page_text(as_("viewer").get(address, headers={"HX-Request": "true"}))
    assert text.count("Said so twice.") == 1
    assert text.count(">easy</span>") == 1


@pytest.mark.slow
def test_flags_add_a_constant_number_of_queries(as_, graded, people):
    client, address = as_("viewer"), reverse("experiment_matrix", args=["sums"])
    client.get(address)

    def count():
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        return len(queries)

    few = count()
    for item in graded.dataset.items.all():
        annotate(item, "flag", "Look", by=people["owner"])
    assert count() == few
