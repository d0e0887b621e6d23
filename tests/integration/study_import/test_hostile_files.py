"""Untrusted study files: archives, links, wrong types and huge values."""

import csv
import json
import stat
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from grading_app.models import Grading
from grading_app.study_import import importers
from grading_app.study_import.importers import FORMATS, read_source
from runs_app.models import Experiment, Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study

pytestmark = pytest.mark.django_db
LOGS = Path(__file__).parent / "logs"
TRIALS = "run_id,image_id,dimension,sample_idx,status,rating,attempts,raw_response\nrun,Cat 1,valence,0,done,6,1,six\n"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def import_hostile_study(path):
    return import_refused_study(path, "--name", "study")


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_every_format_states_what_an_upload_must_contain():
    for one in FORMATS.values():
        assert one.content
        assert all(suffix.startswith(".") and suffix != ".zip" for suffix in one.suffixes)


def test_a_zipped_folder_is_read_like_the_folder(tmp_path):
    path = write_zip(tmp_path / "pilot.zip", {"results/trials.csv": TRIALS})
    call_command("import_study", str(path))
    assert Experiment.objects.get().slug == "results"
    assert Trial.objects.get().rating == 6
    call_command("import_study", str(path))
    assert Trial.objects.count() == 1


def test_unpacked_files_are_deleted_with_the_study(tmp_path):
    study = read_source(write_zip(tmp_path / "pilot.zip", {"trials.csv": TRIALS}))
    folders = [study.scratch.path, study.folders[0].path]
    assert len(list(study.trials())) == 1
    assert all(folder.exists() for folder in folders)
    del study
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("name", ["../trials.csv", "/trials.csv", "a/../../trials.csv", "C:\\trials.csv"])
def test_an_archive_with_paths_outside_itself_is_refused(tmp_path, name):
    inside = tmp_path / "uploads"
    inside.mkdir()
    assert "names a file outside itself" in import_refused_study(
        write_zip(inside / "pilot.zip", {name: TRIALS}), "--name", "study"
    )
    assert not (tmp_path / "trials.csv").exists()


def test_a_link_in_an_archive_is_refused(tmp_path):
    link = zipfile.ZipInfo("trials.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "'trials.csv' in the archive is a link" in import_refused_study(
        write_zip(tmp_path / "pilot.zip", {link: "/etc/passwd"}), "--name", "study"
    )


def test_a_link_that_leaves_its_folder_is_refused(tmp_path):
    folder = tmp_path / "pilot"
    folder.mkdir()
    (tmp_path / "secret.csv").write_text(TRIALS)
    (folder / "trials.csv").symlink_to(tmp_path / "secret.csv")
    assert "trials.csv: a link to a place outside the folder" in import_hostile_study(folder)


def test_a_file_that_unpacks_to_many_times_its_size_is_refused(tmp_path):
    bomb = write_zip(tmp_path / "pilot.zip", {"trials.csv": TRIALS + "0" * 20_000_000})
    assert "unpacks to more than 200 times its size" in import_hostile_study(bomb)


def test_an_archive_that_exceeds_its_declared_size_is_refused(tmp_path):
    path = write_zip(tmp_path / "pilot.zip", {"trials.csv": TRIALS})
    content = bytearray(path.read_bytes())
    size = len(TRIALS).to_bytes(4, "little")
    content[:] = content.replace(size, (10).to_bytes(4, "little"))
    path.write_bytes(content)
    assert "'trials.csv' in the archive cannot be unpacked" in import_hostile_study(path)


def test_a_folder_with_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(importers, "LIMITS", type("Few", (), {"zip_members": 1}))
    for name in ("trials", "more"):
        (tmp_path / f"{name}.csv").write_text(TRIALS)
    assert "more than 1 files" in import_hostile_study(tmp_path)


def write_sums(**change):
    """Write an inspect_ai JSON log of one sample, with changes to the sample."""
    sample = {"id": "a", "epoch": 1, "input": "1 + 1", "target": "2", "output": {"choices": []}} | change
    return {"version": 2, "status": "success", "eval": {"task": "sums", "model": "mock/m"}, "samples": [sample]}


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "first"},
        {"epoch": [1]},
        {"output": ["text"]},
        {"output": {"usage": {"input_tokens": "many"}}},
        {"messages": 7},
        {"metadata": [1]},
        {"scores": [1]},
        {"started_at": "yesterday"},
        {"attachments": [1], "input": "attachment://x"},
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_location(tmp_path, change):
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(write_sums(**change)))
    assert "sums.json, sample 1: cannot be read" in import_hostile_study(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 1_000_000}, "sample 1: the repetition 999999 is not between 0 and 9,999"),
        ({"epoch": 0}, "sample 1: the repetition -1"),
        ({"error_retries": [{}] * 5000}, "sample 1: attempts is 5001"),
        ({"output": {"usage": {"output_tokens": 2**40}}}, "sample 1: output_tokens is"),
        ({"output": {"usage": {"total_cost": "NaN"}}}, "sample 1: cost_usd is NaN"),
        ({"output": {"choices": [{"message": {"content": "a\0b"}}]}}, "sample 1: answer contains a NUL character"),
        ({"metadata": {"a": "\0"}}, "item 'a': metadata contains a NUL character"),
        ({"scores": {"\ud800": {"value": 1}}}, "sample 1: the name of a score is not Unicode text"),
        ({"id": ""}, "item '': its key must have 1 to 200 characters"),
    ],
)
def test_a_value_that_the_database_cannot_store_is_refused_with_its_location(tmp_path, change, message):
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(write_sums(**change)))
    assert message in import_hostile_study(path)


def test_a_log_whose_samples_are_not_objects_is_refused(tmp_path):
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(write_sums() | {"samples": ["text"]}))
    assert "sums.json, sample 1: not an object" in import_hostile_study(path)


@pytest.fixture
def usual_field_limit():
    """Set the limit of a new process: a test of datasets may have raised it for this one."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("usual_field_limit")
def test_a_csv_cell_of_megabytes_is_refused_with_its_row(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_text(TRIALS + f"run,Cat 1,valence,1,done,6,1,{'x' * 3_000_000}\n")
    assert "trials.csv, after row 2: field larger than field limit" in import_hostile_study(path)


def test_a_binary_csv_file_is_refused_with_its_row(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_bytes(TRIALS.encode() + b"run,Cat 1,valence,1,done,6,1,\xff\xfe\n")
    assert "trials.csv, after row" in import_hostile_study(path)


def test_two_providers_of_one_model_are_two_models(tmp_path):
    for name in ("one", "two"):
        log = write_sums() | {"eval": {"task": "sums", "model": f"{name}/small"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(log))
    call_command("import_study", str(tmp_path), "--name", "study")
    models = Experiment.objects.get().language_models.values_list("model", flat=True)
    assert sorted(models) == ["one/small", "two/small"]
    assert Trial.objects.count() == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("run,Cat 2,valence,0,done,6,1,six,more", "trials.csv, row 3: 9 cells, but 8 columns"),
        ("run,Cat 2,valence", "trials.csv, row 3: 3 cells, but 8 columns"),
        ("run,Cat 1,valence,0,done,5,1,five", "trials.csv, row 3: an earlier row has the same trial"),
    ],
)
def test_an_invalid_row_is_refused_with_its_number(tmp_path, row, message):
    path = tmp_path / "trials.csv"
    path.write_text(f"{TRIALS}{row}\n")
    assert message in import_hostile_study(path)


def test_a_missing_column_is_reported_without_a_selected_format(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_text(TRIALS.replace(",rating,", ",rank,"))
    assert "trials.csv: the header has no column rating" in import_hostile_study(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trials.csv", "", "trials.csv: the file is empty"),
        ("trials.csv", TRIALS.splitlines()[0], "the files have no trial"),
        ("folder/notes/", None, "folder: there is no file in it"),
    ],
)
def test_an_empty_file_or_folder_is_refused_with_a_message(tmp_path, name, content, message):
    path = tmp_path / name
    if content is None:
        path.mkdir(parents=True)
    else:
        path.write_text(content)
    assert message in import_hostile_study(tmp_path / name.split("/")[0])


def test_integers_that_pandas_wrote_as_floats_are_read(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_text(TRIALS.replace(",6,1,", ",6.0,1.0,"))
    call_command("import_study", str(path))
    assert Trial.objects.get().rating == 6
    path.write_text(TRIALS.replace(",6,1,", ",6.5,1,"))
    with pytest.raises(CommandError, match=r"row 2: rating cannot be read: '6\.5'"):
        call_command("import_study", str(path))


def test_unrelated_files_beside_a_study_are_reported_as_skipped(tmp_path, capsys):
    (tmp_path / "trials.csv").write_text(TRIALS)
    (tmp_path / "sums.json").write_text(json.dumps(write_sums()))
    call_command("import_study", str(tmp_path), "--name", "mixed")
    assert "Files of inspect_ai are here, too. They are not taken." in capsys.readouterr().out


def test_a_wrong_format_is_refused_with_its_requirements(tmp_path):
    (tmp_path / "trials.csv").write_text(TRIALS)
    needs = {
        "inspect": "no log of inspect_ai", "itemeval": "must have items.parquet and solutions.parquet",
        "reasonscape": "no file of records", "oasis-llm-duckdb": "no DuckDB file",
    }  # fmt: skip
    for name, message in needs.items():
        with pytest.raises(CommandError, match=message) as raised:
            call_command("import_study", str(tmp_path), "--format", name)
        assert raised.value.returncode == 2


def test_scorers_with_similar_names_keep_separate_scores(tmp_path):
    path = tmp_path / "sums.json"
    path.write_text(json.dumps(write_sums(scores={"my score": {"value": 1}, "my-score": {"value": 0}})))
    for _ in range(2):
        call_command("import_study", str(path), "--name", "study")
    assert sorted(Grading.objects.values_list("score", flat=True)) == [0, 1]
