"""ReasonScape records: exported with all fields, imported as dataset, experiment, trials and gradings."""

import json
from collections import Counter

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from datasets_app.models import Item
from grading_app.grading.consistency_check import find_differences
from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.publish.export.file_formats import ExportError, export_chunks
from grading_app.results.parametric.point_counts import PointQuery, count_points, list_graders
from runs_app.models import Attempt, Experiment, Trial
from tests import factories
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.page_text import page_text

pytestmark = pytest.mark.django_db

# One line of the tool's documentation with shortened texts.
RECORD = {
    "task": "000_movies_choice_count-3_reference_count-4",
    "version": 1,
    "base_task": "movies",
    "key": "000_movies_choice_count-3_reference_count-4-0",
    "input": "Which movie belongs with this group: 12 Years a Slave, Braveheart?\n\n"
    "Options:\n(A) Dark Phoenix\n(C) Hacksaw",
    "target": "(C)",
    "response_enum": ["(A)", "(B)", "(C)"],
    "genresult": {"reference_movies": ["12 Years a Slave", "Braveheart"], "selected_themes": []},
    "messages": [
        {
            "role": "user",
            "content": "Recommend a film. Think step by step.\nWhich movie belongs with this group: 12 Years a Slave, "
            "Braveheart?\n\nOptions:\n(A) Dark Phoenix\n(C) Hacksaw",
        }
    ],
    "answer": "To recommend a film ...\n\nFinal Answer: (C) Hacksaw Ridge",
    "usage": {"completion_tokens": 269, "prompt_tokens": 76, "prompt_tokens_details": None, "total_tokens": 345},
    "timings": {"termination_reason": None, "finish_reason": "stop"},
    "step": 0,
    "params": {"reference_count": 4, "choice_count": 3, "count": 128},
    "model": "Phi-4-mini-instruct-fp16",
    "template": "zerocot-nosys",
    "sampler": "greedy-4k",
    "guess_chance": 0.3333333333333333,
    "normalized_answer": "(C) Hacksaw Ridge",
    "extracted_answer": "(C)",
    "is_valid": True,
    "is_correct": True,
    "is_truncated": False,
}


@pytest.fixture
def owner():
    return factories.make_user("boss", superuser=True)


def write_records(tmp_path, *records, name="results"):
    folder = tmp_path / name / "2026-01-01_movies_Phi_zerocot_greedy"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step0.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    return folder.parent


def export_records(experiment):
    text = b"".join(export_chunks(experiment, "records", "jsonl")).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.django_db(transaction=True)
def test_an_imported_record_is_exported_unchanged(owner, tmp_path):
    call_command("import_study", str(write_records(tmp_path, RECORD)), "--name", "films")
    experiment = Experiment.objects.get()
    trial = Trial.objects.select_related("item", "run__condition__prompt").get()
    assert (experiment.imported_from, trial.status) == ("reasonscape", "done")
    assert (trial.input_tokens, trial.output_tokens) == (76, 269)
    assert trial.item.key == "movies_choice_count-3_reference_count-4-0"
    assert trial.item.metadata["params"] == {"reference_count": 4, "choice_count": 3}
    assert trial.item.metadata["guess_chance"] == pytest.approx(1 / 3)
    assert Grading.objects.get().score == 1
    assert Attempt.objects.count() == 1
    assert export_records(experiment) == [RECORD]
    assert list(export_records(experiment)[0]) == list(RECORD)
    assert find_differences() == []


def test_unknown_fields_of_a_record_are_kept(owner, tmp_path):
    record = RECORD | {"reasoning_effort": "low"}
    call_command("import_study", str(write_records(tmp_path, record)), "--name", "films")
    assert export_records(Experiment.objects.get()) == [record]


def list_incomplete(experiment):
    """Return the tasks of each condition that the leaderboard marks as incomplete."""
    rule = list_graders([experiment])[experiment.pk][0]
    counts = count_points(PointQuery(experiment, rule.pk))
    names = dict(experiment.conditions.values_list("pk", "model__model"))
    return {
        (names[condition], task)
        for condition in counts.by_condition
        for task in counts.task_names
        if counts.is_incomplete(condition, task, 0)
    }


def test_cases_that_an_adaptive_study_did_not_ask_are_not_missing(owner, tmp_path):
    """The weak model was stopped after two cases of each point: natively its points are decided, in records unseen."""
    experiment = make_space_experiment("native")
    records = export_records(experiment)
    models = sorted({one["model"] for one in records})
    asked = [one for one in records if one["model"] == models[0] or int(one["key"].rpartition("-")[2]) < 2]
    assert len(asked) < len(records)
    call_command("import_study", str(write_records(tmp_path, *asked)), "--name", "stopped")
    assert list_incomplete(Experiment.objects.get(slug="stopped")) == set()


def test_a_point_without_any_answer_is_missing_in_an_imported_study(owner, tmp_path):
    records = export_records(make_space_experiment("native"))
    models = sorted({one["model"] for one in records})
    lost = records[0]["task"]
    kept = [one for one in records if (one["model"], one["task"]) != (models[1], lost)]
    call_command("import_study", str(write_records(tmp_path, *kept)), "--name", "gap")
    assert list_incomplete(Experiment.objects.get(slug="gap")) == {(models[1], records[0]["base_task"])}


def count_by_point(records):
    """Return the counts of each condition at each point, computed only from the records."""
    return Counter(
        (one["model"], one["task"], name)
        for one in records
        for name in ("is_correct", "is_valid", "is_truncated", "answer")
        if one[name]
    )


def test_reimporting_an_exported_experiment_gives_the_same_records_and_counts(owner, tmp_path):
    experiment = make_space_experiment("space")
    before = export_records(experiment)
    assert len(before) == Trial.objects.count() == 2 * 64
    call_command("import_study", str(write_records(tmp_path, *before)), "--name", "again")
    second_experiment = Experiment.objects.get(slug="again")
    after = export_records(second_experiment)
    key = lambda one: (one["model"], one["key"])  # noqa: E731
    assert sorted(after, key=key) == sorted(before, key=key)
    assert count_by_point(after) == count_by_point(before)
    assert second_experiment.dataset.is_parametric
    shared = ("key", "input", "target", "choices")
    assert list(second_experiment.dataset.items.order_by("key").values_list(*shared)) == list(
        experiment.dataset.items.order_by("key").values_list(*shared)
    )
    scores = [
        Counter(Grading.objects.filter(trial__run__experiment=one).values_list("score", "parse_error"))
        for one in (experiment, second_experiment)
    ]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_regraded_answers_get_the_scores_of_the_records(owner, tmp_path):
    experiment = make_space_experiment("space")
    call_command("import_study", str(write_records(tmp_path, *export_records(experiment))), "--name", "again")
    second_experiment = Experiment.objects.get(slug="again")
    grade(second_experiment, scorers=["final_answer"], by="test")
    first, second = (
        sorted(
            (trial.item.key, trial.run.condition.model.model, str(trial.gradings.get(condition__pk=rule.pk).score))
            for trial in Trial.objects.filter(run__experiment=second_experiment).select_related(
                "item", "run__condition__model"
            )
        )
        for rule in second_experiment.grade_conditions.order_by("pk")
    )
    assert len(first) == 128
    assert first == second


def test_importing_records_twice_creates_their_rows_once(owner, tmp_path, capsys):
    path = write_records(tmp_path, RECORD)
    for _ in range(2):
        call_command("import_study", str(path), "--name", "films")
    assert "1 trials already existed" in capsys.readouterr().out
    assert (Trial.objects.count(), Item.objects.count(), Grading.objects.count()) == (1, 1, 1)


def test_a_repeated_case_becomes_another_repetition(owner, tmp_path):
    other_record = RECORD | {"answer": "Final Answer: (A)", "extracted_answer": "(A)", "is_correct": False}
    call_command("import_study", str(write_records(tmp_path, RECORD, other_record)), "--name", "films")
    assert Experiment.objects.get().samples == 2
    assert list(Trial.objects.order_by("sample_idx").values_list("sample_idx", "gradings__score")) == [(0, 1), (1, 0)]


def test_a_truncated_answer_has_no_score(owner, tmp_path):
    record = RECORD | {"is_truncated": True, "timings": {"termination_reason": None, "finish_reason": "length"}}
    call_command("import_study", str(write_records(tmp_path, record)), "--name", "films")
    assert Trial.objects.get().truncated
    assert Grading.objects.values_list("score", "parse_error").get() == (None, "truncated")
    assert export_records(Experiment.objects.get()) == [record]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": "x"}, 'step0.ndjson, line 2: params must be an object, not "x"'),
        ({"is_valid": 1}, "step0.ndjson, line 2: is_valid must be true or false, not 1"),
        ({"guess_chance": True}, "step0.ndjson, line 2: guess_chance must be a number, not true"),
        ({"input": ""}, "step0.ndjson, line 2: input must not be empty"),
        ({"key": "movies"}, "step0.ndjson, line 2: key must end with the number of the case, not 'movies'"),
        ({"messages": [{"role": "user"}]}, "step0.ndjson, line 2: messages[0] must have a role and a content"),
        ({"target": "(B)"}, "line 2: movies_choice_count-3_reference_count-4-0 has another input or target"),
    ],
)
def test_an_invalid_record_is_reported_with_its_line_and_nothing_is_saved(owner, tmp_path, change, message):
    with pytest.raises(CommandError) as caught:
        call_command("import_study", str(write_records(tmp_path, RECORD, RECORD | change)), "--name", "films")
    assert message in str(caught.value)
    assert caught.value.returncode == 2
    assert not Experiment.objects.exists()


def test_missing_fields_and_broken_lines_are_reported(owner, tmp_path):
    folder = write_records(tmp_path, RECORD, {name: value for name, value in RECORD.items() if name != "sampler"})
    file = next(folder.rglob("*.ndjson"))
    file.write_text(file.read_text() + "{broken\n")
    with pytest.raises(CommandError) as caught:
        call_command("import_study", str(folder))
    assert "step0.ndjson, line 2: sampler is missing" in str(caught.value)
    assert "step0.ndjson, line 3: not a JSON object" in str(caught.value)


def test_the_command_writes_records_and_the_page_offers_them(tmp_path, client):
    experiment = make_space_experiment("space", models=["strong"])
    out = tmp_path / "records.ndjson"
    call_command("export", "space", "--table", "records", "--format", "jsonl", "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines == export_records(experiment)
    assert list(lines[0]) == list(RECORD)
    client.force_login(experiment.owner)
    address = reverse("experiment_export", args=["space", "records", "jsonl"])
    assert address in page_text(client.get(reverse("experiment_files", args=["space"])))
    assert b"".join(client.get(address).streaming_content) == out.read_bytes()
    caught = client.get(reverse("experiment_export", args=["space", "records", "parquet"]))
    assert (caught.status_code, caught.content) == (400, b"the table records has only the format jsonl")


@pytest.mark.parametrize(("table", "form", "message"), [("records", "csv", "only the format jsonl"),
                                                     ("record", "jsonl", "there are .*records")])  # fmt: skip
def test_records_have_one_format(table, form, message):
    experiment = factories.make_experiment(dataset=make_space_dataset())
    with pytest.raises(ExportError, match=message):
        export_chunks(experiment, table, form)


def test_an_experiment_without_parametric_tasks_has_no_records():
    with pytest.raises(ExportError, match="is for parametric tasks, and pilot-items@1 has none"):
        export_chunks(factories.make_experiment(), "records", "jsonl")


SPACE = """
name: sums
precision: {low: {count: 2, targetci: 0.1, maximum: 4}}
tasks: [{name: arithmetic, mode: grid, params: {length: [8], max_depth: [2]}}]
"""


def test_an_experiment_file_alone_is_refused_with_the_command_to_use(owner, tmp_path):
    (tmp_path / "films.yaml").write_text(SPACE)
    for path in (tmp_path, tmp_path / "films.yaml"):
        with pytest.raises(CommandError) as caught:
            call_command("import_study", str(path))
        assert "films.yaml: an experiment of ReasonScape has tasks, but no models." in str(caught.value)
        assert "dataset parametric FILE" in str(caught.value)
    call_command("dataset", "parametric", str(tmp_path / "films.yaml"), "--name", "films")
    params = Item.objects.filter(dataset__slug="films").values_list("metadata__params", flat=True)
    assert list(params) == [{"length": 8, "max_depth": 2}] * 4


def test_an_experiment_file_beside_records_is_reported_as_skipped(owner, tmp_path, capsys):
    folder = write_records(tmp_path, RECORD)
    (folder / "films.yaml").write_text(SPACE)
    call_command("import_study", str(folder), "--name", "films")
    assert "films.yaml is not taken: the records have their points." in capsys.readouterr().out
    assert Trial.objects.count() == 1
