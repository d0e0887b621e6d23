"""Use of annotations: flagged items become a draft dataset or a rating queue, and exports contain annotations."""

import csv
import io
import json

import pytest
from django.core.management import call_command
from django.urls import reverse

from datasets_app.models import Dataset
from grading_app.grading.rating import queues
from grading_app.models import RatedAnswer, RatingQueue
from grading_app.publish.export.file_formats import export_chunks
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.queues import make_queue
from tests.page_text import page_text


@pytest.fixture
def flagged_keys(experiment, people):
    """Flag the second item on a trial and the fourth directly. The third has a removed flag and a note."""
    second, third, fourth = experiment.dataset.items.order_by("position")[1:4]
    trial = experiment.runs.get().trials.filter(item=second).first()
    annotate(trial, "flag", "Wrong", by=people["owner"])
    annotate(fourth, "flag", "Unclear", by=people["owner"])
    annotate(third, "flag", "By mistake", by=people["owner"])[0].remove(by=people["owner"])
    annotate(third, "note", "Fine", by=people["owner"])
    return [second.key, fourth.key]


def test_flagged_items_become_a_draft_with_their_norms(as_, flagged_keys, people):
    address = reverse("annotated_dataset", args=["sums"]) + "?kind=flag"
    client = as_("colleague")
    assert "the 2 selected items of sums@1" in page_text(client.get(address))
    answer = client.post(address, {"slug": "hard-ones", "reason": "To be rewritten"})
    draft = Dataset.objects.get(slug="hard-ones")
    assert answer["Location"] == draft.get_absolute_url()
    assert list(draft.items.values_list("key", flat=True)) == flagged_keys
    assert (draft.status, draft.parent.slug, draft.created_by) == ("draft", "sums", people["colleague"])
    assert draft.recipe["strategy"] == "selected"
    assert "sums" not in json.dumps({**draft.recipe, "from": ""}), "the recipe names no experiment"


def test_an_invalid_name_is_shown_again_in_the_form(as_, flagged_keys):
    answer = as_("owner").post(
        reverse("annotated_dataset", args=["sums"]) + "?kind=flag", {"slug": "Hard Ones", "reason": "because"}
    )
    assert 'value="Hard Ones"' in answer.content.decode()
    assert 'value="because"' in answer.content.decode()
    assert not Dataset.objects.filter(recipe__strategy="selected").exists()


def test_without_flagged_items_no_dataset_is_created(as_, experiment):
    address = reverse("annotated_dataset", args=["sums"]) + "?kind=flag"
    assert "No items selected" in page_text(as_("owner").get(address))
    answer = as_("owner").post(address, {"slug": "none", "reason": ""})
    assert answer.status_code == 200
    assert not Dataset.objects.filter(slug="none").exists()


def test_flagged_items_prefill_the_form_of_a_rating_queue(as_, flagged_keys):
    notes = page_text(as_("owner").get(reverse("experiment_annotations", args=["sums"]), {"kind": "flag"}))
    address = f"{reverse('rating_queue_of_answers', args=['sums'])}?annotated=1&kind=flag"
    assert address.replace("&", "&amp;") in notes
    assert "\n".join(flagged_keys) in as_("owner").get(address).content.decode()


def test_a_queue_of_selected_items_contains_only_their_answers(as_, flagged_keys, experiment, people):
    dimension = factories.make_dimension("clarity")
    form = {
        "name": "second-look", "title": "Look again", "instructions": "Rate.", "only_items": "\n".join(flagged_keys),
        "answers_each": 2, "sample_seed": 1, "dimensions": [dimension.pk], "raters_wanted": 1, "practice_items": 1,
    }  # fmt: skip
    answer = as_("owner").post(reverse("rating_queue_of_answers", args=["sums"]), form)
    assert answer.status_code == 302, page_text(answer)[-3000:]
    queue = RatingQueue.objects.get(name="second-look")
    queues.open_queue(queue, by=people["owner"], reason="")
    rated = RatedAnswer.objects.filter(queue=queue, kind="item")
    assert sorted(set(rated.values_list("item__key", flat=True))) == flagged_keys
    assert rated.count() == 4
    page = page_text(as_("owner").get(queue.get_absolute_url()))
    assert f'2 chosen: <span class="mono">{", ".join(flagged_keys)}</span>' in page


def test_an_unknown_item_key_is_reported(as_, experiment):
    form = {"name": "x", "title": "X", "instructions": "X", "only_items": "item-1\nnowhere", "answers_each": 1}
    text = page_text(as_("owner").post(reverse("rating_queue_of_answers", args=["sums"]), form))
    assert "sums@1 has no active item nowhere." in text
    assert "item-1\nnowhere" in as_("owner").post(
        reverse("rating_queue_of_answers", args=["sums"]), form
    ).content.decode().replace("\r", "")


def test_an_item_queue_can_also_be_restricted_to_selected_items(experiment, people):
    queue = make_queue(
        "some", owner=people["owner"], dataset=experiment.dataset, dimensions=[factories.make_dimension("clarity")],
        only_items=["item-2", "item-4"],
    )  # fmt: skip
    assert [item.key for item in queue.select_rated_items()] == ["item-2", "item-4"]


def test_annotations_can_be_exported_as_a_table(flagged_keys, experiment, people, tmp_path, trial):
    (note,) = annotate(trial, "note", "=HYPERLINK()", by=people["colleague"])
    note.change_text("=1+1", by=people["owner"])
    other = factories.make_experiment("other", owner=people["owner"], dataset=experiment.dataset)
    (run,) = factories.make_runs(other)
    annotate(factories.plan_trials(run)[0], "note", "Of another experiment", by=people["owner"])
    call_command("export", "sums", table="annotations", out=str(tmp_path / "notes.csv"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "notes.csv").read_text())))
    assert [(row["item_key"], row["kind"], row["text"], bool(row["trial_id"])) for row in rows] == [
        (flagged_keys[0], "flag", "Wrong", True),
        (flagged_keys[1], "flag", "Unclear", False),
        ("item-2", "note", "Fine", False),
        ("item-0", "note", "'=1+1", True),
    ]
    last = rows[-1]
    assert (last["author"], last["changed_by"], last["sample_idx"]) == ("colleague", "owner", "0")
    exact = [json.loads(line) for line in b"".join(export_chunks(experiment, "annotations", "jsonl")).splitlines()]
    assert exact[-1]["text"] == "=1+1"
    assert [one["text"] for one in exact[-1]["former"]] == ["=HYPERLINK()"]


def test_exports_accept_filters_by_annotation(flagged_keys, experiment, trial, people):
    annotate(trial, "tag", "off by one", by=people["owner"])
    annotate(trial, "note", "50 % sure", by=people["owner"])

    def export_keys(**filters):
        lines = b"".join(export_chunks(experiment, "trials", "jsonl", filters)).splitlines()
        return [(row["item_key"], row["sample_idx"]) for row in map(json.loads, lines)]

    assert sorted(export_keys(flag="true")) == [(flagged_keys[0], 0), (flagged_keys[1], 0), (flagged_keys[1], 1)]
    assert len(export_keys(flag="false")) == 7
    assert export_keys(tag="Off  by one") == export_keys(note="50 % S") == [("item-0", 0)]
    assert export_keys(note="50 % unsure") == []
