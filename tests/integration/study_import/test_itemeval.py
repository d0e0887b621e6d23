"""A study of itemeval, written by the tool with its mock model.

Two solvers, two prompts, three items, two epochs, two waves, a judge and a numeric scorer.
"""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from datasets_app.importing.limited_reader import FileToRead
from grading_app.models import Grading
from grading_app.study_import.upload_reader import read_study_upload
from runs_app.models import Answer, Experiment, Run, Trial, Wave
from tests import factories
from tests.integration.study_import.import_command import export_rows, import_refused_study, import_study
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "itemeval"
STORES = ("items", "solutions", "gradings", "ledger")


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "project"))


def read_rows(folder, store):
    from pyarrow import parquet

    return parquet.read_table(folder / f"studies/sums/{store}.parquet").to_pylist()


def rewrite_store(folder, store, where=lambda row: True, drop=(), **values):
    """Rewrite a store with other values in the first row that `where` accepts, and without the columns to drop."""
    import pyarrow
    from pyarrow import parquet

    path = folder / f"studies/sums/{store}.parquet"
    table = parquet.read_table(path).drop_columns(list(drop))
    rows = table.to_pylist()
    next(row for row in rows if where(row)).update(values)
    try:
        table = pyarrow.Table.from_pylist(rows, table.schema)
    except (pyarrow.ArrowException, TypeError):  # A value of another type changes the type of the whole column.
        name = next(iter(values))
        columns = {one: [row[one] for row in rows] for one in table.column_names if one != name}
        table = pyarrow.table({**columns, name: [values[name]] * len(rows)})
    parquet.write_table(table, path)


@pytest.mark.django_db(transaction=True)
def test_solutions_become_trials_with_their_costs_waves_and_scores(folder, capsys):
    experiment = import_study(folder)
    assert (experiment.slug, experiment.imported_from, experiment.samples) == ("sums", "itemeval", 2)
    assert experiment.dataset.source == f"Imported from itemeval: lab/sums@{'0123456789abcdef' * 2}01234567"
    solutions, gradings = read_rows(folder, "solutions"), read_rows(folder, "gradings")
    stored = Trial.objects.filter(pk__in=Answer.objects.values("pk")).values_list(
        "run__condition__model__model", "run__condition__prompt__name", "item__key", "run__wave__epoch_offset",
        "sample_idx", "answer", "cost_usd", "input_tokens", "output_tokens", "latency_ms",
    )  # fmt: skip
    assert {
        (model, prompt.startswith("itemeval-short"), item, offset + index + 1): (answer, float(usd), *usage)
        for model, prompt, item, offset, index, answer, usd, *usage in stored
    } == {
        (row["model"], row["prompt_name"] == "short", row["item_id"], row["epoch"]): (
            row["solution"], pytest.approx(row["usd"]), row["input_tokens"], row["output_tokens"],
            round(1000 * row["latency_s"]),
        )
        for row in solutions
    }  # fmt: skip
    assert len(solutions) == Answer.objects.count() == 48
    assert list(Wave.objects.values_list("number", "label", "epoch_offset")) == [(0, "", 0), (1, "recheck", 2)]
    assert Run.objects.filter(condition__stage="generate").filter(status="done").count() == 8
    scores = Grading.objects.values_list("condition__kind", "trial__answer", "score")
    answers = {(row["condition_id"], row["item_id"], row["epoch"]): row["solution"] for row in solutions}
    assert sorted(scores) == sorted(
        ("rule" if row["scorer_name"] else "judge", answers[get_identity(row)], row["score"]) for row in gradings
    )
    call_command("reconcile")
    output = capsys.readouterr().out
    assert "48 trials, 0 of them failed; 96 attempts" in output
    assert "96 scores, 48 of them by judges" in output
    assert "The ledger of all calls has generate 0.0226 USD" in output
    assert "hold a placeholder" not in output


def get_identity(row):
    return row["gen_condition_id"], row["item_id"], row["epoch"]


@pytest.mark.slow
def test_imported_items_keep_target_scheme_and_metadata(folder):
    items = import_study(folder).dataset.items.values_list("key", "input", "target", "grading_scheme", "metadata")
    assert list(items) == [
        ("p0", "What is 0 + 0?", "0", "", {"topic": "sums"}),
        ("p1", "What is 1 + 1?", "2", "1 point for the sum.", {"topic": "sums"}),
        ("p2", "What is 2 + 2?", "4", "1 point for the sum.", {"topic": "sums"}),
    ]


@pytest.mark.slow
def test_a_prompt_is_imported_only_if_its_hash_matches_the_store(folder, capsys):
    (folder / "prompts/solver/short.md").write_text("Another text.\n\n{input}\n")
    (folder / "prompts/solver/minimal.md").write_text("Not the packaged text.\n\n{input}\n")
    experiment = import_study(folder)
    prompts = {one.prompt.name: one.prompt.messages[0]["content"] for one in experiment.answer_conditions}
    assert prompts["itemeval-short-b034baff0c5b"] == "{{input}}"
    assert prompts["itemeval-builtin-minimal-13fd87721413"].startswith("Solve the following problem.")
    assert "2 conditions hold a placeholder" in capsys.readouterr().out
    texts = [messages[0]["content"] for messages in experiment.prompts.values_list("messages", flat=True)]
    assert "Another text.\n\n{{input}}\n" in texts, "the changed prompt is in the design"
    sampler = Experiment.objects.get().samplers.get()
    assert (sampler.temperature, sampler.max_tokens) == (0.7, 1024)


@pytest.mark.slow
def test_a_judge_stays_a_judge_with_its_rubric_its_reasons_and_its_costs(folder):
    experiment = import_study(folder)
    exported = {
        (row["item_key"], row["condition_id"].split("_")[0].removeprefix("itemeval-"), row["epoch"], row["prompt"]): row
        for row in export_rows(experiment, "gradings")
        if row["kind"] == "judge"
    }
    logged = [row for row in read_rows(folder, "gradings") if row["grade_kind"] == "judge"]
    assert len(exported) == len(logged) == 48
    for row in logged:
        solver, prompt, _ = row["gen_condition_id"].split("_")
        (copy,) = [
            copy
            for (item, model, epoch, name), copy in exported.items()
            if (item, model, epoch) == (row["item_id"], solver, row["epoch"]) and name.startswith(f"itemeval-{prompt}")
        ]
        assert (copy["score"], copy["grade_reasoning"]) == (row["score"], row["reasoning"])
        # A row that the tool repeated from its cache has neither tokens nor a cost.
        assert copy["grade_cost_usd"] == (pytest.approx(row["usd"], abs=1e-8) if row["input_tokens"] else None)
        assert [copy[name] for name in ("grader", "rubric", "rubric_hash")] == [
            "mock_judge", "builtin:standard", "3acd1566de95"
        ]  # fmt: skip
        assert (copy["judge_model"], copy["scorer"]) == ("itemeval-judge", "")
        call = Trial.objects.get(pk=copy["judge_trial_id"])
        assert (call.answer, call.input_tokens, call.output_tokens) == (
            row["judge_completion"], row["input_tokens"], row["output_tokens"]
        )  # fmt: skip
    rules = [row for row in export_rows(experiment, "gradings") if row["kind"] == "rule"]
    assert {(row["scorer"], row["grader"], row["rubric"], float(row["grade_cost_usd"])) for row in rules} == {
        ("numeric", None, None, 0.0)
    }
    spent = sum(Decimal(str(row["usd"])) for row in [*logged, *read_rows(folder, "solutions")])
    assert experiment.spent_usd == round(spent, 8)


@pytest.mark.slow
def test_pages_show_an_imported_judge_and_offer_no_further_verdict(folder, client, owner):
    experiment = import_study(folder)
    client.force_login(owner)
    page = client.get("/experiments/sums/grading/").content.decode()
    assert "Builtin:standard (mock_judge)" in page
    assert "itemeval-judge" in page
    assert "This judge cannot judge again here" in page
    assert "Grade again" not in page
    for address in ("results/", "grading/agreement/", "report/", "analysis/", "waves/", "progress/", "ledger/"):
        assert client.get(f"/experiments/sums/{address}", follow=True).status_code in (200, 404), address
    call = Trial.objects.filter(run__experiment=experiment, subject__isnull=False).first()
    text = page_text(client.get(f"/trials/{call.pk}/"))
    assert "A judge's call: its verdict is on" in text
    assert "You are grading a candidate solution" in text, "the rubric is the packaged one"
    assert call.subject.answer.splitlines()[0] in text


@pytest.mark.slow
def test_a_rubric_without_its_text_is_not_invented(folder, client, owner):
    for row in read_rows(folder, "gradings"):
        if row["grade_kind"] == "judge":
            rewrite_store(folder, "gradings", lambda one: one["rubric_hash"] == "3acd1566de95", rubric_hash="0" * 12)
    import_study(folder)
    client.force_login(owner)
    call = Trial.objects.filter(subject__isnull=False).first()
    assert "The imported files do not have the messages of this call." in page_text(client.get(f"/trials/{call.pk}/"))


@pytest.mark.slow
def test_importing_a_folder_twice_creates_its_rows_once(folder, capsys):
    import_study(folder)
    before = (list(Trial.objects.values_list("pk", flat=True)), Grading.objects.count())
    import_study(folder)
    assert (list(Trial.objects.values_list("pk", flat=True)), Grading.objects.count()) == before
    assert "48 trials already existed" in capsys.readouterr().out


@pytest.mark.slow
def test_later_scores_are_added(folder):
    aside = folder / "gradings.aside"
    (folder / "studies/sums/gradings.parquet").rename(aside)
    import_study(folder)
    assert not Grading.objects.exists()
    aside.rename(folder / "studies/sums/gradings.parquet")
    import_study(folder)
    assert (Answer.objects.count(), Grading.objects.count()) == (48, 96)


@pytest.mark.slow
def test_errors_empty_answers_and_unknown_costs_are_preserved(folder, capsys):
    unknown = {"usd": 0.0, "input_tokens": None, "output_tokens": None}
    rewrite_store(folder, "solutions", lambda row: row["epoch"] == 1, solution=None, error="Timeout", **unknown)
    rewrite_store(folder, "solutions", lambda row: row["epoch"] == 2, solution="", stop_reason="max_tokens")
    rewrite_store(folder, "solutions", lambda row: row["epoch"] == 3, **unknown)
    rewrite_store(folder, "solutions", lambda row: row["epoch"] == 4, usd=None)
    import_study(folder)
    failed = Trial.objects.get(status="failed")
    assert (failed.error, failed.cost_usd, failed.input_tokens) == ("Timeout", None, None)
    assert not Grading.objects.filter(trial=failed).exists()
    empty = Trial.objects.get(answer="", status="done")
    assert (empty.truncated, empty.finish_reason) == (True, "length")
    assert Answer.objects.filter(cost_usd=None).count() == 3
    output = capsys.readouterr().out
    assert "1 solutions are errors" in output
    assert "The cost of 3 solutions is unknown" in output
    assert "2 gradings are of answers that are not in the store, or that failed" in output


@pytest.mark.slow
def test_unscored_pending_and_older_gradings_are_distinguished(folder, capsys):
    judged = {"grade_kind": "judge"}
    unread = {"parse_ok": False, "score": None, "parse_error": None, "judge_completion": ""}
    rewrite_store(folder, "gradings", lambda row: row["epoch"] == 1 and row | judged == row, **unread)
    rewrite_store(folder, "gradings", lambda row: row["epoch"] == 2, error="Rate limit", score=None)
    rewrite_store(folder, "gradings", lambda row: row["epoch"] == 3, created_at="2020-01-01T00:00:00Z")
    import_study(folder)
    unreadable = Grading.objects.get(parse_ok=False)
    assert (unreadable.score, unreadable.parse_error) == (None, "empty_reply")
    assert Grading.objects.count() == 95
    output = capsys.readouterr().out
    assert "1 gradings failed and are left out" in output
    assert "1 gradings have no score" in output
    assert "1 gradings are older than their answers" in output


@pytest.mark.slow
def test_a_store_without_waves_and_manifests_is_one_wave(folder):
    shutil.rmtree(folder / "studies/sums/manifests")
    rewrite_store(folder, "solutions", drop=("wave", "wave_label"))
    assert import_study(folder).samples == 4
    assert Wave.objects.get().number == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "values", "message"),
    [
        ("solutions", {"item_id": "p9"}, "solutions.parquet, row 1: the item 'p9' is not in items.parquet"),
        ("solutions", {"epoch": 2}, "solutions.parquet, row 2: this condition, item and epoch are there twice"),
        ("solutions", {"epoch": -3}, "solutions.parquet, row 1: the repetition -4 is not between"),
        ("solutions", {"created_at": "yesterday"}, "solutions.parquet, row 1: created_at cannot be read"),
        ("solutions", {"solution": 7}, "solutions.parquet, row 1: solution is int, not str"),
        ("solutions", {"usd": -1.0}, "solutions.parquet, row 1: cost_usd is -1.0"),
        ("solutions", {"temperature_requested": 9.0}, "temperature is 9.0, not between 0 and 2"),
        ("solutions", {"wave": -1}, "solutions.parquet, row 1: wave is -1"),
        ("items", {"metadata_json": "[1]"}, "items.parquet, row 1: metadata_json is no JSON object"),
        ("items", {"item_id": "p1"}, "items.parquet, row 2: the item 'p1' is there twice"),
        ("items", {"input": 5}, "items.parquet, row 1: input is int, not str"),
        ("gradings", {"score": "high"}, "gradings.parquet, row 1: score is str, not float"),
        ("ledger", {"usd": "free"}, "ledger.parquet, row 1: cannot be read"),
    ],
)
def test_an_error_names_the_file_and_the_row(folder, store, values, message):
    rewrite_store(folder, store, **values)
    assert message in import_refused_study(folder)


@pytest.mark.slow
def test_a_missing_column_and_a_damaged_file_are_refused(folder):
    rewrite_store(folder, "solutions", drop=("solution",))
    assert "solutions.parquet, row 1: solution is missing" in import_refused_study(folder)
    (folder / "studies/sums/solutions.parquet").write_bytes(b"PAR1 and nothing more")
    assert "solutions.parquet: the file is not Parquet" in import_refused_study(folder)


@pytest.mark.slow
def test_a_damaged_manifest_or_configuration_is_refused_with_its_name(folder):
    (folder / "config.yaml").write_text("study: &a [*a]\n")
    assert "config.yaml: this is not YAML: aliases" in import_refused_study(folder)
    (folder / "config.yaml").unlink()
    manifest = next((folder / "studies/sums/manifests").glob("generate*.json"))
    manifest.write_text(json.dumps({"stage": "generate", "epoch_offset": "many", "endpoints_effective": [1]}))
    assert f"{manifest.name}: cannot be read" in import_refused_study(folder)


def test_a_folder_with_two_studies_is_refused(folder):
    shutil.copytree(folder / "studies/sums", folder / "studies/more")
    assert "one folder must have items.parquet and solutions.parquet; found: more, sums" in import_refused_study(folder)


@pytest.mark.slow
def test_copies_in_the_export_folder_are_not_a_second_study(folder):
    shutil.copytree(folder / "studies/sums", folder / "studies/sums/export/snapshots/first")
    assert import_study(folder).dataset.items.count() == 3


@pytest.mark.slow
def test_a_zip_of_the_folder_can_be_uploaded(folder, tmp_path):
    archive = Path(shutil.make_archive(str(tmp_path / "project"), "zip", folder))
    reading = read_study_upload({"file0": FileToRead(archive, archive.name)}, "")
    assert len(list(reading.trials())) == 48
    assert [wave.label for wave in reading.waves] == ["", "recheck"]
    assert [judge.name for judge in reading.judges.values()] == ["mock_judge"]
