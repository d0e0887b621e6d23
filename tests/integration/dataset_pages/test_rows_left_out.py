"""An upload can be imported without its faulty rows. They are named, counted, and offered as a file."""

import csv
import io

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from datasets_app.models import Dataset
from datasets_app.pending_uploads import find_upload, stage_upload

TABLE = "id,question,answer\na,First?,1\nb,,2\nc,Third?,3\na,Again?,4\nd,=cmd(),5\n"


def build_file(text):
    return SimpleUploadedFile("capitals.csv", text.encode())


@pytest.fixture
def upload(people):
    user = people["researcher"]
    return stage_upload(user, {"items": build_file(TABLE)}, slug="capitals", about={})


def load_again(upload, people):
    return find_upload(people["researcher"].pk, upload.token)


def test_a_preview_shows_the_first_items_as_they_will_be(upload, people):
    upload.request_job("preview", {}, leaves_out=True)
    upload = load_again(upload, people)
    outcome = upload.outcome
    assert outcome.ok
    assert (outcome.items, outcome.report.left_out_total) == (3, 2)
    assert [item["key"] for item in outcome.first_items] == ["a", "c", "d"]
    assert outcome.first_items[0]["target"] == "1"
    assert outcome.mapping == {"key": "id", "input": "question", "target": "answer"}
    assert upload.table.columns == ["id", "question", "answer"]
    assert not Dataset.objects.exists()


def test_the_import_leaves_out_the_faulty_rows_and_the_history_names_them(upload, people):
    upload.request_job("import", {}, leaves_out=True)
    dataset = Dataset.objects.get()
    assert set(dataset.items.values_list("key", flat=True)) == {"a", "c", "d"}
    line = dataset.history.get(aspect="warnings")
    assert "row 2 (line 3), input: left out: neither an input nor an image" in line.reason
    assert "row 4 (line 5), key: left out: 'a' is the key of row 1 already" in line.reason


def test_without_the_choice_a_faulty_row_stops_the_import(upload, people):
    upload.request_job("import", {})
    assert not Dataset.objects.exists()
    assert load_again(upload, people).outcome.report.error_total == 2


def test_the_rows_left_out_can_be_downloaded_with_their_problems(upload, people, as_):
    address = f"/datasets/new/upload/{upload.token}/left-out.csv"
    assert as_("researcher").get(address).status_code == 404
    upload.request_job("preview", {}, leaves_out=True)
    response = as_("researcher").get(address)
    assert response["Content-Disposition"] == 'attachment; filename="capitals-left-out.csv"'
    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    assert [(row["id"], row["question"], row["answer"]) for row in rows] == [("b", "", "2"), ("a", "Again?", "4")]
    assert rows[1]["problem"] == "row 4, key: 'a' is the key of row 1 already"
    assert as_("curator").get(address).status_code == 404


def test_a_file_whose_rows_are_all_faulty_is_refused(people):
    table = "id,question\na,\nb,\n"
    upload = stage_upload(people["researcher"], {"items": build_file(table)}, slug="empty", about={})
    upload.request_job("import", {}, leaves_out=True)
    assert not Dataset.objects.exists()
    assert [remark.message for remark in load_again(upload, people).outcome.report.errors] == ["no row is valid"]


def test_rows_with_faulty_norms_or_cells_are_left_out_too(people, as_):
    """The reader of tables and the reader of norms find these rows, not the builder of items."""
    table = (
        "id,question,v_mean,v_sd\na,First?,1,1\nb,Second?,,1\nc,Third?,3,-1\nd,Fourth?,4,1,extra\n"
        'e,Fifth?,"4,2",1\nf,Sixth?,4\n'
    )
    upload = stage_upload(people["researcher"], {"items": build_file(table)}, slug="capitals", about={})
    upload.request_job("preview", {}, leaves_out=True)
    outcome = load_again(upload, people).outcome
    assert (outcome.ok, outcome.items, outcome.report.left_out_total) == (True, 1, 5)
    response = as_("researcher").get(f"/datasets/new/upload/{upload.token}/left-out.csv")
    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    assert {row["id"]: row["problem"] for row in rows} == {
        "b": "row 2, v: has no mean",
        "c": "row 3, v_sd: an sd of -1 is negative",
        "d": "row 4, row: has 5 cells where the header has 4",
        "e": "row 5, v_mean: '4,2' is not a number; write 4.2",
        "f": "row 6, row: has 3 cells where the header has 4",
    }


def test_start_names_the_first_rows_of_a_file_without_a_valid_row(people, as_):
    table = "id,question,v_mean\na,First?,high\nb,,2\n"
    upload = stage_upload(people["researcher"], {"items": build_file(table)}, slug="capitals", about={})
    upload.request_job("preview", {}, leaves_out=True)
    text = as_("researcher").get(f"/start/?upload={upload.token}").content.decode()
    assert "No row is valid" in text
    assert "Row 1, v_mean: &#x27;high&#x27; is not a number" in text
    assert "Row 2, input: neither an input nor an image" in text
