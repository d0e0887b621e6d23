"""Computed tables: answers with scores, participant-style rows and counts of scale points."""

import csv
import io
import json
from collections import Counter

import pyarrow.parquet as pa_parquet
import pytest
from django.core.management import call_command
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.publish.export import file_formats
from grading_app.publish.export.file_formats import ExportError, export_chunks
from grading_app.publish.export.wide_tables import NO_PARTICIPANTS, make_unique_names
from runs_app.models import Trial
from tests import factories
from tests.factories.gradings import make_gradings
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
CATEGORIES = {"animal": 6, "object": 3, "scene": 3}


def export_table(experiment, table, file_format="jsonl", **options):
    return b"".join(export_chunks(experiment, table, file_format, options))


def export_rows(experiment, table, **options):
    return [json.loads(line) for line in export_table(experiment, table, **options).splitlines()]


@shared_rows
def rated():
    return make_rated()


def make_rated(arousal=7, valence=7):
    """Return twelve photographs rated three times on two dimensions. One answer has no rating."""
    names = [f"{category} {number}" for category, n in CATEGORIES.items() for number in range(n)]
    items = [
        {**factories.build_question(at), "key": name, "category": name.split()[0]} for at, name in enumerate(names)
    ]
    experiment = factories.make_experiment(
        dataset=factories.make_dataset("photos", items),
        dimensions=[
            factories.make_dimension("arousal", high=arousal),
            factories.make_dimension("valence", high=valence),
        ],
        samples=3,
    )
    for wave in (0, 1):
        (run,) = factories.make_runs(experiment, wave=wave)
        factories.plan_trials(run, answer=rate_in_wave(wave))
    return experiment


def rate_in_wave(wave):
    return lambda item, dimension, index: make_rating(item, dimension, index, wave)


def make_rating(item, dimension, index, wave):
    if (item.position, dimension.name, index) == (0, "valence", 1):
        return {"answer": "?", "rating": None, "parse_error": "no_rating_found"}
    return {"answer": "x", "rating": 1 + (item.position + index + wave + (dimension.name == "valence")) % 7}


def test_the_participants_table_has_a_row_per_repetition_and_a_column_per_item_and_dimension(rated):
    table = export_rows(rated, "participants", n_items="12")
    assert [(row["wave"], row["sample_idx"], row["epoch"]) for row in table] == [
        (wave, index, wave * 3 + index + 1) for wave in (0, 1) for index in range(3)
    ]
    for trial in Trial.objects.select_related("item", "dimension", "run__wave"):
        row = table[trial.run.wave.number * 3 + trial.sample_idx]
        assert row[f"{trial.item.key.replace(' ', '_')}_{trial.dimension.name}"] == trial.rating
    assert table[1]["animal_0_valence"] is None


def test_the_items_of_participants_are_drawn_by_category_and_seed(rated):
    def draw_items(**options):
        (first, *_) = export_rows(rated, "participants", **options)
        return [name.removesuffix("_valence") for name in first if name.endswith("_valence")]

    one = draw_items(n_items="4", seed="7")
    assert Counter(name.split("_")[0] for name in one) == {"animal": 2, "object": 1, "scene": 1}
    assert one == draw_items(n_items="4", seed="7")
    assert len({tuple(draw_items(n_items="4", seed=str(seed))) for seed in range(8)}) > 1
    assert len(draw_items()) == 12


def test_every_row_in_every_format_warns_that_it_is_not_a_participant(rated):
    assert {row["note"] for row in export_rows(rated, "participants")} == {NO_PARTICIPANTS}
    text = export_table(rated, "participants", "csv").decode()
    assert {row["note"] for row in csv.DictReader(io.StringIO(text))} == {NO_PARTICIPANTS}
    table = pa_parquet.read_table(io.BytesIO(export_table(rated, "participants", "parquet")))
    assert set(table["note"].to_pylist()) == {NO_PARTICIPANTS}


def test_filters_and_pages_apply_to_participants(rated, monkeypatch):
    whole = export_rows(rated, "participants")
    monkeypatch.setattr(file_formats, "PAGE_ROWS", 2)
    assert export_rows(rated, "participants") == whole
    assert [row["wave"] for row in export_rows(rated, "participants", wave="1")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_items": "0"}, "n_items: enter a whole number from 1"),
        ({"n_items": "²"}, "n_items: enter a whole number"),
        ({"n_items": "2"}, "one of each of 3 categories"),
        ({"seed": "x"}, "seed: enter a whole number from 0"),
        ({"colour": "red"}, "no filter colour; it has n_items, seed, status"),
    ],
)
def test_an_invalid_selection_of_items_is_refused_with_a_message(rated, options, message):
    with pytest.raises(ExportError, match=message):
        export_chunks(rated, "participants", "csv", options)


def test_participants_of_an_experiment_without_ratings_are_refused():
    with pytest.raises(ExportError, match="has no ratings"):
        export_chunks(factories.make_experiment(), "participants", "csv")


def test_rating_counts_contain_each_scale_point_of_each_item(rated):
    expected = Counter(
        (trial.run.wave.number, trial.item.key, trial.dimension.name, trial.rating)
        for trial in Trial.objects.select_related("item", "dimension", "run__wave")
    )
    table = {
        (row["wave"], row["item_key"], row["dimension"], row["rating"]): row["n"]
        for row in export_rows(rated, "rating_counts")
    }
    assert {key: n for key, n in table.items() if n} == expected
    assert table[0, "animal 0", "valence", None] == 1
    assert set(table) == {
        (wave, item, dimension, point) for wave, item, dimension, _ in expected for point in (*range(1, 8), None)
    }, "a point that no answer chose has n = 0"


def test_rating_counts_of_long_scales_omit_zeros_and_keep_ratings_outside_the_scale():
    table = export_rows(make_rated(arousal=3, valence=500), "rating_counts")
    valence = [row for row in table if row["dimension"] == "valence"]
    assert all(row["n"] for row in valence if row["rating"] is not None)
    assert max(row["rating"] or 0 for row in table if row["dimension"] == "arousal") == 7
    assert sum(row["n"] for row in table) == Trial.objects.filter(status="done").count()


@pytest.fixture
def graded():
    experiment = factories.make_experiment(samples=2)
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(
        run,
        answer=lambda item, _, index: factories.build_failed_fields("server") if index else f"ANSWER: {item.target}",
    )
    grade(experiment, scorers=["numeric"], by="test")
    make_gradings(experiment, "quality", lambda trial: None if trial.item.position == 1 else 3.5)
    return experiment


def test_answers_have_the_input_the_target_and_a_column_for_each_measure(graded):
    table = export_rows(graded, "answers")
    assert len(table) == 6
    (judge,) = [name for name in table[0] if name.startswith("score_quality--")]
    for row, trial in zip(table, Trial.objects.select_related("item").order_by("pk"), strict=True):
        scores = dict(Grading.objects.filter(trial=trial).values_list("condition__kind", "score"))
        assert (row["trial_id"], row["input"], row["target"]) == (trial.pk, trial.item.input, trial.item.target)
        assert (row["answer"], row["status"]) == (trial.answer, trial.status)
        assert (row["score_numeric"], row[judge]) == (scores.get("rule"), scores.get("judge"))
    assert {row[judge] for row in table} == {3.5, None}
    assert len(export_rows(graded, "answers", status="failed")) == 3


def test_answers_of_rated_items_have_a_column_for_each_dimension(rated):
    by_trial = {row["trial_id"]: row for row in export_rows(rated, "answers")}
    for trial in Trial.objects.select_related("dimension"):
        names = {f"score_{name}": None for name in ("arousal", "valence")}
        expected = names | {f"score_{trial.dimension.name}": trial.rating}
        assert {name: by_trial[trial.pk][name] for name in names} == expected


def test_column_names_are_safe_and_unique():
    texts = ["a b", "a_b", '=1+"x"', "{%}", "象-1", "..."]
    assert make_unique_names(texts) == ["a_b", "a_b_2", "1_x_", "column", "象-1", "column_2"]


def test_the_command_takes_the_number_of_items_and_the_seed(rated, tmp_path):
    out = tmp_path / "p.csv"
    call_command("export", "pilot", "--table", "participants", "--n-items", "3", "--seed", "5", "--out", str(out))
    with out.open(newline="") as file:
        header = next(csv.reader(file))
    assert sum(name.endswith("_arousal") for name in header) == 3


def test_the_page_of_files_offers_them_with_the_warning(rated, client):
    client.force_login(rated.owner)
    page = client.get(reverse("experiment_files", args=["pilot"]))
    assert NO_PARTICIPANTS in page_text(page)
    address = reverse("experiment_export", args=["pilot", "participants", "csv"])
    assert f'formaction="{address}"' in page.content.decode()
    answer = client.get(address, {"n_items": "3", "seed": "1"})
    assert answer.getvalue().decode().count("_valence") == 3
    response = client.get(address, {"n_items": "many"})
    assert (response.status_code, b"n_items" in response.content) == (400, True)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"n_items": "many", "seed": "7"}, "Enter a whole number."),
        ({"n_items": "0", "seed": "7"}, "Ensure this value is greater than or equal to 1."),
        ({"n_items": "2", "seed": "7"}, "one of each of 3 categories"),
        ({"n_items": "4", "seed": "-1"}, "Ensure this value is greater than or equal to 0."),
        ({"n_items": "4", "seed": ""}, "This field is required."),
    ],
)
def test_a_browser_with_wrong_options_gets_the_form_with_its_entries(rated, client, entries, message):
    client.force_login(rated.owner)
    address = reverse("experiment_export", args=["pilot", "participants", "csv"])
    page = client.get(address, entries, follow=True, headers={"accept": "text/html,*/*;q=0.8"})
    assert page.redirect_chain[0][0].endswith("#participants")
    form = page.context["participants"]["form"]
    assert message in " ".join(error for errors in form.errors.values() for error in errors)
    assert message in page_text(page)
    for name, value in entries.items():
        assert form[name].value() == value


def test_a_browser_with_valid_options_gets_the_file(rated, client):
    client.force_login(rated.owner)
    address = reverse("experiment_export", args=["pilot", "participants", "csv"])
    for options in ({}, {"n_items": "3", "seed": "1"}):
        answer = client.get(address, options, headers={"accept": "text/html,*/*;q=0.8"})
        assert answer.getvalue().decode().count("_valence") in (3, 12)
