"""Frozen rubrics, graders and panels: after use, neither forms nor models nor plain SQL can change them."""

import pytest
from django.db import IntegrityError, connection, transaction

from grading_app.models import GradeCondition, Grader, Panel, Rubric
from runs_app.models import ItemText, TextSet
from tests.factories import make_dataset, make_experiment
from tests.factories.judges import make_grader, make_item_texts, make_starter_rubric

pytestmark = pytest.mark.django_db


def execute_refused(sql, *values):
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, values)
    return str(caught.value)


def execute(sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.rowcount


@pytest.mark.parametrize("status", ["approved", "archived"])
@pytest.mark.parametrize(
    "change",
    ["messages = '[]'", "kind = 'label'", "scale_max = 7", "criteria = '[1]'", "labels = '[1]'", "name = 'other'",
     "version = 9", "status = 'draft'"],
)  # fmt: skip
def test_only_a_draft_rubric_can_change(status, change):
    rubric = make_starter_rubric(status=status)
    assert "grading_app_rubric" in execute_refused(f"UPDATE grading_app_rubric SET {change} WHERE id = %s", rubric.pk)
    assert "cannot be deleted" in execute_refused("DELETE FROM grading_app_rubric WHERE id = %s", rubric.pk)
    assert Rubric.objects.get().content == rubric.content


def test_a_draft_rubric_can_be_changed_and_deleted():
    rubric = make_starter_rubric(status="draft")
    assert execute("UPDATE grading_app_rubric SET scale_max = 7 WHERE id = %s", rubric.pk) == 1
    assert execute("DELETE FROM grading_app_rubric WHERE id = %s", rubric.pk) == 1


CHANGES_OF_TEXTS = [
    "UPDATE runs_app_itemtext SET text = 'other' WHERE text_set_id = %s",
    "DELETE FROM runs_app_itemtext WHERE text_set_id = %s",
    "INSERT INTO runs_app_itemtext (text_set_id, item_id, text) SELECT %s, max(id), 'x' FROM datasets_app_item",
    "UPDATE runs_app_itemtext SET text_set_id = (SELECT max(id) FROM runs_app_textset) WHERE text_set_id = %s",
]


@pytest.mark.parametrize("sql", CHANGES_OF_TEXTS)
def test_the_texts_of_an_approved_set_cannot_change(sql):
    dataset = make_dataset()
    texts = make_item_texts(dataset, texts={"item-0": "one", "item-1": "two"})
    make_item_texts(dataset, version=2, status="draft", texts={})
    before = list(texts.texts.values())
    assert "the texts of own@1 are frozen" in execute_refused(sql, texts.pk)
    assert list(texts.texts.values()) == before
    assert "frozen" in execute_refused("UPDATE runs_app_textset SET name = 'other' WHERE id = %s", texts.pk)


def test_texts_cannot_be_moved_into_a_frozen_set():
    dataset = make_dataset()
    frozen = make_item_texts(dataset, texts={"item-0": "one"})
    draft = make_item_texts(dataset, version=2, status="draft", texts={"item-1": "two"})
    assert "frozen" in execute_refused(
        "UPDATE runs_app_itemtext SET text_set_id = %s WHERE text_set_id = %s", frozen.pk, draft.pk
    )


def test_the_author_of_a_frozen_text_can_be_removed():
    texts = make_item_texts(make_dataset())
    assert ItemText.objects.filter(text_set=texts).update(trial=None, edited_by=None) == 3
    assert TextSet.objects.filter(pk=texts.pk).update(written_by=None) == 1


@pytest.fixture
def used_rows():
    """Return a grader and a panel of two, each with a grade condition."""
    experiment = make_experiment()
    grader, other = make_grader("first"), make_grader("second")
    panel = Panel.objects.create(name="bench")
    panel.graders.set([grader, other])
    GradeCondition.objects.create(experiment=experiment, grade_condition_id="g--1", kind="judge", grader=grader)
    GradeCondition.objects.create(experiment=experiment, grade_condition_id="p--1", kind="panel", panel=panel)
    return grader, panel


@pytest.mark.parametrize(
    "change", ["name = 'other'", "rubric_id = 0", "sampler_id = 0", "language_model_id = 0", "on_empty = 'zero'",
               "longest_answer = 5"]
)  # fmt: skip
def test_a_grader_with_gradings_can_only_be_archived(used_rows, change):
    grader, _ = used_rows
    assert "first has graded" in execute_refused(f"UPDATE grading_app_grader SET {change} WHERE id = %s", grader.pk)
    assert "first has graded" in execute_refused("DELETE FROM grading_app_grader WHERE id = %s", grader.pk)
    assert execute("UPDATE grading_app_grader SET archived_at = now() WHERE id = %s", grader.pk) == 1


def test_a_panel_with_gradings_keeps_its_rule_and_members(used_rows):
    _, panel = used_rows
    stranger = make_grader("third")
    assert "bench has graded" in execute_refused("UPDATE grading_app_panel SET rule = 'median' WHERE id = %s", panel.pk)
    members = "grading_app_panel_graders"
    assert "keeps its members" in execute_refused(f"DELETE FROM {members} WHERE panel_id = %s", panel.pk)
    added = f"INSERT INTO {members} (panel_id, grader_id) VALUES (%s, %s)"
    assert "keeps its members" in execute_refused(added, panel.pk, stranger.pk)
    assert panel.graders.count() == 2


def test_graders_and_panels_without_gradings_can_be_changed_and_deleted():
    grader = make_grader()
    panel = Panel.objects.create(name="bench")
    panel.graders.set([grader])
    Grader.objects.filter(pk=grader.pk).update(on_empty="zero")
    panel.graders.clear()
    assert panel.delete()[0] == 1
    assert grader.delete()[0] == 1
