"""A snapshot whose checksums match proves nothing about its values: each is checked before any row is written."""

import json
import resource
import zipfile
from dataclasses import replace

import pytest

from datasets_app.importing.limited_reader import FileToRead
from datasets_app.importing.limits import LIMITS
from datasets_app.models import Dataset
from evalsite.lib import permissions
from evalsite.lib.text.hashing import hash_content
from grading_app.grading.judging.grade_conditions import find_rubric_problems, select_usable, select_usable_graders
from grading_app.models import GradeCondition, Rubric
from grading_app.publish.export import snapshots
from grading_app.publish.export.row_checks import RowError, check_row
from grading_app.publish.export.snapshot_check import SnapshotFileError
from grading_app.publish.export.snapshots import SnapshotError, make_snapshot
from grading_app.publish.export.study_rows import build_rules
from grading_app.study_import import upload_reader
from grading_app.study_import.study import StudyError
from grading_app.study_import.upload_reader import load_rules, read_study_upload
from runs_app.models import Experiment, Prompt, Run, Sampler, Trial
from runs_app.planning.design import Design
from tests import factories
from tests.factories.imports import import_snapshot
from tests.integration.study_import.test_snapshot_import import (
    RECORDED,
    change_first_line,
    read_parts,
    write_forged_copy,
)
from tests.system.fuzz.forged_snapshots import parse_line
from tests.system.fuzz.forged_snapshots import read_parts as read_raw_parts
from tests.system.fuzz.test_forged_snapshots import WHOLE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
FILE = RECORDED / "schema-5.zip"
PROMPT, SAMPLER = "rows/runs_app_prompt.jsonl", "rows/runs_app_sampler.jsonl"


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def owner():
    return factories.make_user("importer", permissions.RESEARCHER)


def forge(tmp_path, part, /, **changes):
    return write_forged_copy(FILE, tmp_path, **{part: change_first_line(read_parts(FILE)[part], **changes)})


def rename(tmp_path, table, name, **parts):
    """Return a copy whose first row of this table has another name."""
    names = json.loads(read_parts(FILE)["names.json"])
    names[table]["1"] = name
    return write_forged_copy(FILE, tmp_path, **{"names.json": json.dumps(names).encode(), **parts})


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("runs_app_attempt", "cost_usd", "-1000", "cost_usd is '-1000', not a number"),
        ("runs_app_attempt", "cost_usd", -1000, "cost_usd is -1000, not between 0.0 and 999,999"),
        ("runs_app_attempt", "cost_usd", float("nan"), "NaN is not a number of JSON"),
        ("runs_app_attempt", "kept_usd", 1e300, "kept_usd is 1e\\+300, not between"),
        ("runs_app_attempt", "input_tokens", -(2**31), "input_tokens is -2147483648, not between 0"),
        ("runs_app_attempt", "finished_at", "infinity", "finished_at is 'infinity', not a time"),
        ("runs_app_run", "started_at", "4713-01-01T00:00:00+00:00 BC", "started_at is '4713"),
        ("runs_app_run", "n_pending", -500, "n_pending is -500, not between 0"),
        ("runs_app_prompt", "messages", 5, "messages has not the shape"),
        ("runs_app_experiment", "adaptive", "x", "adaptive has not the shape"),
        ("runs_app_experiment", "graders", [{}], "graders has not the shape"),
        ("runs_app_condition", "content", 5, "it has not the shape that its table holds, at content"),
        ("datasets_app_dataset", "mapping", 5, "mapping has not the shape"),
        ("runs_app_trial", "id", "1", "id is '1', not the number of a row"),
        ("runs_app_trial", "answer", "a\0b", "answer contains a NUL"),
        ("runs_app_trial", "answer", "\ud800", "answer is not Unicode"),
        ("runs_app_trial", "latency_ms", "250", "latency_ms is '250', not a whole number"),
    ],
)
def test_a_value_that_no_table_holds_is_refused_by_row_and_column(owner, tmp_path, table, column, value, message):
    part = f"rows/{table}.jsonl"
    with pytest.raises(SnapshotFileError, match=rf"{part}, row 1: .*{message}"):
        import_snapshot(forge(tmp_path, part, **{column: value}), owner)
    assert not Experiment.objects.exists()


def test_counters_and_money_come_from_the_rows_and_not_from_the_file(owner, tmp_path):
    claims = {
        "n_attempts": 64,
        "n_done": 1,
        "n_failed": 99,
        "spent_usd": 7,
        "input_tokens": 1,
        "errors": {"lie": 5},
    }
    parts = {
        "rows/runs_app_run.jsonl": claims,
        "rows/runs_app_experiment.jsonl": {"spent_usd": 99},
        "rows/datasets_app_dataset.jsonl": {"item_count": 40, "active_count": 30},
    }
    forged = {part: change_first_line(read_parts(FILE)[part], **changes) for part, changes in parts.items()}
    experiment = import_snapshot(write_forged_copy(FILE, tmp_path, **forged), owner).experiment
    run = Run.objects.filter(experiment=experiment).order_by("pk").first()
    assert (run.n_attempts, run.n_done, run.n_failed, run.errors) == (run.attempt_rows.count(), 4, 4, {})
    assert experiment.spent_usd == sum(one.spent_usd for one in Run.objects.all()) < 1
    dataset = Dataset.objects.get()
    assert (dataset.item_count, dataset.active_count) == (4, 4)


# --- definitions ------------------------------------------------------------------------------------------------------


def test_an_imported_definition_is_not_approved_and_never_found_by_its_bare_name(owner, tmp_path):
    ours = factories.make_prompt("plain", messages=[{"role": "user", "content": "Ours: {{input}}"}])
    result = import_snapshot(rename(tmp_path, "runs_app_prompt", "plain"), owner)
    imported = result.experiment.prompts.get()
    assert (str(imported), imported.status, imported.approved_at) == ("plain-2@1", "imported", None)
    assert ("prompt plain", "plain-2") in result.renamed
    assert Prompt.objects.named("plain").get() == ours
    assert not Prompt.objects.named("plain-2").exists()
    assert Prompt.objects.named("plain-2@1").get() == imported
    assert imported.created_by == owner
    assert imported.history.get().actor == "importer"
    assert Dataset.objects.get().approved_at > imported.created_at


def test_a_curator_approves_an_imported_prompt_and_nobody_changes_it(owner):
    prompt = import_snapshot(FILE, owner).experiment.prompts.get()
    duplicate = factories.make_experiment("again", prompts=[prompt])
    problem = f"prompt {prompt} is imported; a curator must approve it before it is used"
    assert problem in Design.load(duplicate).find_problems()
    curator = factories.make_user("curator", permissions.CURATOR)
    prompt.approve(by=curator, reason="Read it")
    assert Prompt.objects.named(prompt.name).get() == prompt
    assert prompt.approved_at is not None
    assert problem not in Design.load(duplicate).find_problems()


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("grading_app_rubric", "labels", [{"name": 5, "score": "x"}], "labels has not the shape"),
        ("grading_app_rubric", "criteria", [{"name": "short", "weight": "x"}], "criteria has not the shape"),
        ("runs_app_point", "guess_chances", 1000, "n_correct and guess_chances are at most n_total"),
        ("runs_app_point", "n_correct", 2**31 - 1, "n_correct and guess_chances are at most n_total"),
    ],
)
def test_a_value_that_breaks_pages_beside_the_rest_of_its_row_is_refused(table, column, value, message):
    row = parse_line(read_raw_parts(WHOLE), f"rows/{table}.jsonl", 0)
    rules = load_rules(build_rules())[table]
    check_row(row, table, rules)
    with pytest.raises(RowError, match=message):
        check_row({**row, column: value}, table, rules)


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "{{target}}"}], [{"role": "boss", "content": "x"}]])
def test_an_imported_prompt_follows_the_rules_of_prompts(owner, tmp_path, messages):
    content_hash = hash_content({"messages": messages, "answer_format": "text"})
    forged = forge(tmp_path, PROMPT, messages=messages, content_hash=content_hash)
    with pytest.raises(SnapshotFileError, match=r"prompt .*: messages: "):
        import_snapshot(forged, owner)


def test_the_settings_of_a_condition_are_those_of_its_sampler(owner, tmp_path):
    """A call is sent with the condition's settings, and its cost is reserved by the sampler's."""
    part = "rows/runs_app_condition.jsonl"
    content = json.loads(read_parts(FILE)[part].splitlines()[0])["content"]
    with pytest.raises(SnapshotFileError, match="its sampler is not that of the row"):
        import_snapshot(forge(tmp_path, part, content=content | {"sampler": {"max_tokens": 100_000}}), owner)
    with pytest.raises(SnapshotFileError, match=r"Cannot be set: n\."):
        import_snapshot(forge(tmp_path, part, content=content | {"sampler": {"n": 64}}), owner)


def test_an_imported_study_is_judged_again_by_its_own_rubric_and_no_other_study_is(owner):
    experiment = import_snapshot(FILE, owner).experiment
    judge = GradeCondition.objects.get(experiment=experiment, kind="judge")
    rubric, other = judge.rubric, factories.make_experiment("other")
    assert rubric.status == "imported"
    assert not list(find_rubric_problems(experiment, rubric, None, user_kind="grader", name="judge-a"))
    assert rubric in select_usable(Rubric, experiment)
    assert judge.grader in select_usable_graders(experiment)
    assert list(find_rubric_problems(other, rubric, None, user_kind="grader", name="judge-a")) == [
        f"rubric {rubric} is imported; a curator must approve it before it is used"
    ]
    assert rubric not in select_usable(Rubric, other)


def test_a_name_in_a_design_means_the_same_sampler_after_an_import(owner, tmp_path):
    greedy = factories.make_sampler("greedy-2k", temperature=0.0, max_tokens=2048)
    import_snapshot(rename(tmp_path, "runs_app_sampler", "greedy-2k"), owner)
    assert Sampler.objects.named("greedy-2k").get() == greedy
    assert set(Sampler.objects.offered().values_list("name", flat=True)) == {"greedy-2k"}


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["tables/trials.jsonl", "rows/runs_app_trial.jsonl", "rows/runs_app_worker.jsonl"])
def test_a_line_of_brackets_is_refused_before_it_fills_the_memory(owner, tmp_path, monkeypatch, part):
    """The objects of such a line need thirty times its size. The process that reads it has less here."""
    limits = replace(LIMITS, reader_memory_bytes=640 * 2**20)
    monkeypatch.setattr(upload_reader, "LIMITS", limits)
    bomb = b"[" + b",".join([b'{"":{}}'] * 4_000_000) + b"]"
    parts = {part: read_parts(FILE).get(part, b"") + bomb + b"\n"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SnapshotFileError, match="a line has more than 4 MiB besides its texts"):
        import_snapshot(write_forged_copy(FILE, tmp_path, **parts), owner)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000  # kB; the file alone has 32 MB.


def test_a_study_with_a_very_long_answer_is_exported_and_imported(owner):
    answer = 'He said "no", \\ and {"x": [1, 2]} again.\n' * 110_000  # 4.6 MB, more than a line may have besides.
    experiment = import_snapshot(FILE, owner).experiment
    failed = Trial.objects.filter(run__experiment=experiment, status="failed").first()
    Trial.objects.filter(pk=failed.pk).update(answer=answer, raw_response=answer)
    path = make_snapshot(experiment, by="test").path
    again = import_snapshot(path, owner).experiment
    assert Trial.objects.get(run__experiment=again, answer__startswith='He said "no"').raw_response == answer


def test_no_snapshot_is_written_that_no_import_reads(owner, monkeypatch):
    experiment = import_snapshot(FILE, owner).experiment
    monkeypatch.setattr(snapshots, "MAX_MARKUP", 10)
    monkeypatch.setattr("grading_app.publish.export.snapshot_check.MAX_LINE", 300)
    with pytest.raises(SnapshotError, match=r'tables/trials.jsonl: a line is longer than .*: \{"'):
        make_snapshot(experiment, by="test")


def test_an_upload_that_unpacks_to_many_times_its_size_is_refused(tmp_path):
    path = write_forged_copy(FILE, tmp_path, **{"tables/trials.jsonl": b" " * 3_000_000})
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(StudyError, match=r"'tables/trials.jsonl' in big.zip unpacks to more than 200 times"):
        read_study_upload({"file-0": FileToRead(path, "big.zip")}, "")


def test_a_judge_whose_rubric_asks_for_no_verdict_is_refused(owner, tmp_path):
    """Each page that prices or shows such a judge would fail."""
    messages = [{"role": "user", "content": "Write a rubric for {{input}}"}]
    content = Rubric(kind="writer", messages=messages).content
    forged = forge(
        tmp_path, "rows/grading_app_rubric.jsonl", kind="writer", messages=messages, content_hash=hash_content(content)
    )
    with pytest.raises(SnapshotFileError, match=r"judge .*: rubric: .* writes item rubrics and asks for no verdict"):
        import_snapshot(forged, owner)
