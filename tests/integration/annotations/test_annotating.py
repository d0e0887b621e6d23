"""Notes, flags and tags on trials and items: users add, change and remove them without losing input."""

import pytest
from django.urls import reverse

from runs_app.models import Annotation
from runs_app.models.annotations import annotate
from tests.page_text import page_text


def add_annotation(client, trial, kind, text, **more):
    return client.post(reverse("trial_annotate", args=[trial.pk]), {"kind": kind, "text": text}, **more)


def test_a_note_a_flag_and_tags_are_shown_on_the_trial(as_, trial, people):
    client = as_("colleague")
    add_annotation(client, trial, "note", "The question\nis ambiguous.")
    add_annotation(client, trial, "flag", "Wrong target")
    add_annotation(client, trial, "tag", "Arithmetic,  Off by  ONE , arithmetic")
    rows = [(row.kind, row.text, row.author) for row in Annotation.objects.all()]
    by = people["colleague"]
    assert rows == [
        ("note", "The question\nis ambiguous.", by),
        ("flag", "Wrong target", by),
        ("tag", "arithmetic", by),
        ("tag", "off-by-one", by),
    ]
    text = page_text(client.get(reverse("trial_detail", args=[trial.pk])))
    for expected in ("is ambiguous.", "Wrong target", ">off-by-one</span>", "colleague, <time"):
        assert expected in text, expected


def test_a_tag_is_added_once(as_, trial):
    client = as_("colleague")
    for _ in range(2):
        add_annotation(client, trial, "tag", "odd")
    assert Annotation.objects.count() == 1


def test_saving_returns_to_the_page_with_its_filter(as_, trial):
    page = reverse("trial_detail", args=[trial.pk]) + "?status=done"
    answer = as_("owner").post(
        reverse("trial_annotate", args=[trial.pk]), {"kind": "note", "text": "Fine.", "next": page}
    )
    assert answer["Location"] == f"{page}#annotation-{Annotation.objects.get().pk}"
    away = as_("owner").post(
        reverse("trial_annotate", args=[trial.pk]), {"kind": "flag", "text": "Odd", "next": "https://evil.example/"}
    )
    assert away["Location"].startswith(reverse("trial_detail", args=[trial.pk]))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("note", "   ", "Enter a note."),
        ("flag", "", "Enter the reason for the flag."),
        ("note", "x" * 4001, "Use at most 4,000 characters; these are 4,001."),
        ("tag", " , ", "Enter at least one tag."),
        ("tag", "fine, " + "y" * 41, "is too long for a tag; use at most 40 characters."),
    ],
)
def test_an_invalid_annotation_is_shown_again_with_the_reason(as_, trial, kind, text, expected):
    for headers in ({}, {"HX-Request": "true"}):
        answer = add_annotation(as_("owner"), trial, kind, text, headers=headers)
        assert answer.status_code == 200
        assert expected in page_text(answer)
        assert answer.content.decode().count(text.strip()) >= 1
    assert not Annotation.objects.exists()


def test_htmx_replaces_only_the_panel(as_, trial):
    answer = add_annotation(as_("owner"), trial, "note", "Look here.", headers={"HX-Request": "true"})
    text = answer.content.decode()
    assert "Look here." in text
    assert "data-saved" in text
    assert "<html" not in text


def test_an_annotation_of_an_item_also_appears_on_its_trials(as_, trial):
    client = as_("colleague")
    client.post(
        reverse("item_annotate", args=[trial.item_id]), {"kind": "flag", "text": "Typing error in the question"}
    )
    row = Annotation.objects.get()
    assert (row.item_id, row.trial_id, row.experiment_id) == (trial.item_id, None, None)
    assert "Typing error" in page_text(client.get(reverse("item_page", args=[trial.item_id])))
    assert "Typing error" in page_text(client.get(reverse("trial_detail", args=[trial.pk])))


def test_viewers_can_read_but_not_write(as_, trial, people):
    annotate(trial, "note", "Seen by all.", by=people["owner"])
    client = as_("viewer")
    text = page_text(client.get(reverse("trial_detail", args=[trial.pk])))
    assert "Seen by all." in text
    assert "annotation-form" not in text
    assert add_annotation(client, trial, "note", "Mine").status_code == 404
    assert Annotation.objects.count() == 1


def test_annotations_of_private_experiments_stay_private(as_, trial, people, experiment):
    (note,) = annotate(trial, "note", "Secret.", by=people["owner"])
    type(experiment).objects.filter(pk=experiment.pk).update(sharing="private")
    client = as_("colleague")
    assert "Secret." not in page_text(client.get(reverse("item_page", args=[trial.item_id])))
    assert client.get(reverse("experiment_annotations", args=["sums"])).status_code == 404
    assert client.get(reverse("annotation_edit", args=[note.pk])).status_code == 404
    assert not Annotation.objects.visible_to(people["colleague"]).exists()


def test_former_texts_are_kept_with_author_and_time(as_, trial, people):
    (note,) = annotate(trial, "note", "First words.", by=people["colleague"])
    client = as_("owner")
    client.post(reverse("annotation_edit", args=[note.pk]), {"kind": "note", "text": "Better words."})
    note.refresh_from_db()
    assert (note.text, note.author, note.changed_by) == ("Better words.", people["colleague"], people["owner"])
    text = page_text(client.get(reverse("trial_detail", args=[trial.pk])))
    assert "edited by owner" in text
    assert "First words." in text
    assert [(one["text"], one["by"]) for one in note.former] == [("First words.", "colleague")]


def test_only_author_owner_and_operators_can_change_an_annotation(as_, trial, people):
    (note,) = annotate(trial, "note", "Mine.", by=people["owner"])
    (of_item,) = annotate(trial.item, "note", "Of the item.", by=people["operator"])
    edit = {"kind": "note", "text": "Yours."}
    for row in (note, of_item):
        assert as_("colleague").post(reverse("annotation_edit", args=[row.pk]), edit).status_code == 404
        assert as_("colleague").post(reverse("annotation_remove", args=[row.pk])).status_code == 404
    assert as_("owner").post(reverse("annotation_edit", args=[of_item.pk]), edit).status_code == 404
    assert as_("operator").post(reverse("annotation_edit", args=[note.pk]), edit).status_code == 302


def test_a_removed_annotation_is_hidden_but_its_row_stays(as_, trial, people):
    (flag,) = annotate(trial, "flag", "By mistake", by=people["colleague"])
    client = as_("colleague")
    client.post(reverse("annotation_remove", args=[flag.pk]))
    flag.refresh_from_db()
    assert (flag.removed, flag.changed_by) == (True, people["colleague"])
    assert "By mistake" not in page_text(client.get(reverse("trial_detail", args=[trial.pk])))
    assert client.post(reverse("annotation_remove", args=[flag.pk])).status_code == 404


@pytest.mark.slow
def test_the_annotation_list_of_an_experiment_can_be_filtered(as_, trial, people):
    annotate(trial, "note", "About the answer", by=people["owner"])
    annotate(trial.item, "flag", "About the question", by=people["colleague"])
    annotate(trial, "tag", "odd", by=people["owner"])
    client, address = as_("viewer"), reverse("experiment_annotations", args=["sums"])
    for query, n_queries in (
        ({}, {"note", "flag", "tag"}),
        ({"kind": "flag"}, {"flag"}),
        ({"on": "trial"}, {"note", "tag"}),
        ({"author": "colleague"}, {"flag"}),
        ({"text": "QUESTION"}, {"flag"}),
        ({"kind": "nothing"}, set()),
    ):
        assert {row.kind for row in client.get(address, query).context["table"].data} == n_queries, query


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_annotations(as_, trial, people, django_assert_max_num_queries):
    client, addresses = as_("owner"), [
        reverse("experiment_annotations", args=["sums"]), reverse("trial_detail", args=[trial.pk]),
        reverse("item_page", args=[trial.item_id]),
    ]  # fmt: skip
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def count_queries():
        n_queries = []
        for address in addresses:
            with CaptureQueriesContext(connection) as queries:
                client.get(address)
            n_queries.append(len(queries))
        return n_queries

    annotate(trial, "note", "One.", by=people["owner"])
    annotate(trial.item, "note", "One.", by=people["owner"])
    few = count_queries()
    for number in range(12):
        annotate(trial, "note", f"Note {number}", by=people["colleague"])
        annotate(trial.item, "flag", f"Flag {number}", by=people["colleague"])
    assert count_queries() == few
