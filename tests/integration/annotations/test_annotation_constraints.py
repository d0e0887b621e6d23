"""Database constraints of annotations: inconsistent rows are refused, and former texts are kept."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from runs_app import deletion
from runs_app.models import Annotation
from runs_app.models.annotations import annotate


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"kind": "note", "text": " \n"}, "annotation_has_text"),
        ({"kind": "note", "text": "x" * 4001}, "annotation_has_text"),
        ({"kind": "tag", "text": "Two words"}, "annotation_tag_is_normalised"),
        ({"kind": "tag", "text": "y" * 41}, "annotation_tag_is_normalised"),
        ({"kind": "idea", "text": "x"}, "kind_choices"),
        ({"kind": "note", "text": "x", "experiment": None}, "annotation_trial_has_experiment"),
        ({"kind": "note", "text": "x", "removed": True}, "annotation_change_has_author"),
    ],
)
def test_inconsistent_rows_are_refused(trial, people, experiment, columns, constraint):
    fields = {"item": trial.item, "trial": trial, "experiment": experiment, "author": people["owner"], **columns}
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Annotation.objects.create(**fields)


def test_a_tag_is_unique_on_a_trial_and_on_its_item(trial, people, experiment):
    annotate(trial, "tag", "odd", by=people["owner"])
    annotate(trial.item, "tag", "odd", by=people["owner"])
    for columns in ({"trial": trial, "experiment": experiment}, {}):
        with pytest.raises(IntegrityError, match="annotation_tag_once"), transaction.atomic():
            Annotation.objects.create(item=trial.item, kind="tag", text="odd", author=people["owner"], **columns)


def test_a_client_cannot_rewrite_the_history(trial, people):
    (note,) = annotate(trial, "note", "First.", by=people["owner"])
    note.change_text("Second.", by=people["owner"])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_app_annotation SET former = '[]', text = 'Third.' WHERE id = %s", [note.pk])
    note.refresh_from_db()
    assert [one["text"] for one in note.former] == ["First.", "Second."]


@pytest.mark.parametrize(
    "change",
    [
        "kind = 'flag'",
        "author_id = changed_by_id",
        "item_id = item_id + 1",
        "created_at = now() - interval '1 day'",
    ],
)
def test_the_subject_and_author_of_an_annotation_cannot_change(trial, people, change):
    (note,) = annotate(trial, "note", "First.", by=people["owner"])
    note.change_text("Second.", by=people["colleague"])
    with pytest.raises(DatabaseError, match="keeps what it is on"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_app_annotation SET {change} WHERE id = %s", [note.pk])


def test_a_removed_annotation_cannot_change(trial, people):
    (note,) = annotate(trial, "note", "First.", by=people["owner"])
    Annotation.objects.filter(pk=note.pk).update(removed=True, changed_by=people["owner"], changed_at=note.created_at)
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        Annotation.objects.filter(pk=note.pk).update(text="Again.")


def test_deleting_an_experiment_deletes_trial_annotations_but_keeps_item_annotations(trial, people, experiment):
    annotate(trial, "note", "Of the trial.", by=people["owner"])
    annotate(trial.item, "note", "Of the item.", by=people["owner"])
    deletion.delete(experiment, by=people["owner"], reason="test")
    assert [row.text for row in Annotation.objects.all()] == ["Of the item."]
