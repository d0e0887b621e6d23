"""The database file of OASIS-LLM, built by the tests with the tool's tables and columns."""

import json
import shutil

import pytest
from django.core.management import call_command

from datasets_app.importing.limited_reader import FileToRead
from grading_app.study_import.formats import oasis_llm
from grading_app.study_import.importers import read_source
from grading_app.study_import.upload_reader import read_study_upload
from runs_app.models import Attempt, Experiment, Trial
from tests import factories
from tests.factories.recordings import find_recording
from tests.integration.study_import.import_command import import_refused_study

duckdb = pytest.importorskip("duckdb", reason="the optional package duckdb is not installed")
pytestmark = pytest.mark.django_db

SCHEMA = """
CREATE TABLE runs (run_id TEXT PRIMARY KEY, config_json TEXT, config_hash TEXT, status TEXT, created_at TIMESTAMP,
    finished_at TIMESTAMP, queued_at TIMESTAMP, queue_priority INTEGER);
CREATE TABLE trials (run_id TEXT, image_id TEXT, dimension TEXT, sample_idx INTEGER, status TEXT, rating INTEGER,
    raw_response TEXT, reasoning TEXT, prompt_hash TEXT, latency_ms INTEGER, input_tokens INTEGER,
    output_tokens INTEGER, cost_usd DOUBLE, error TEXT, attempts INTEGER, claimed_at TIMESTAMP, completed_at TIMESTAMP,
    finish_reason TEXT, response_id TEXT, trace_id TEXT, PRIMARY KEY (run_id, image_id, dimension, sample_idx));
CREATE TABLE datasets (dataset_id TEXT, name TEXT, description TEXT, status TEXT, source TEXT, generation_params JSON,
    created_at TIMESTAMP, approved_at TIMESTAMP);
CREATE TABLE dataset_images (dataset_id TEXT, image_id TEXT, excluded BOOLEAN, note TEXT, added_at TIMESTAMP);
CREATE TABLE experiments (experiment_id TEXT, name TEXT, description TEXT, dataset_id TEXT, status TEXT,
    created_at TIMESTAMP, finished_at TIMESTAMP);
"""
CONFIG = {"provider": "openrouter", "model": "openrouter/lab/small", "image_set": "pilot", "temperature": 0.5}
NORMS = (
    ",Theme,Category,Source,Valence_mean,Valence_SD,Valence_N,Arousal_mean,Arousal_SD,Arousal_N\n"
    "I1,Cat 1,Animal,web,6.1,0.9,101,3.2,1.1,99\n"
    "I2,Crosswalk 1 ,Scene,web,4.1,1.2,100,2.5,1.3,98\n"
)


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pilot"
    folder.mkdir()
    (folder / "OASIS.csv").write_text(NORMS)
    with duckdb.connect(str(folder / "llm_runs.duckdb")) as database:
        database.execute(SCHEMA)
        add_run(database, "exp__small", CONFIG, "2026-04-01")
        add_trial(database, "exp__small", "Cat 1", 0, rating=6, cost=0.001, raw="six", tokens=(511, 4))
        add_trial(database, "exp__small", "Cat 1", 1, rating=None, finish="length", raw="six or")
        add_trial(database, "exp__small", "Crosswalk 1 ", 0, status="failed", error="inappropriate content", attempts=3)
        add_trial(database, "exp__small", "Crosswalk 1 ", 1, status="pending", attempts=0)
        sets = '{"strategy": "stratified", "n": 3, "seed": 42, "shuffled_at": "2026-04-01"}'
        database.execute("INSERT INTO datasets (dataset_id, generation_params) VALUES ('pilot', ?)", [sets])
        for image, excluded, note in (("Cat 1", False, ""), ("Crosswalk 1 ", False, ""), ("Wall 2", True, "blurred")):
            row = ["pilot", image, excluded, note]
            database.execute("INSERT INTO dataset_images VALUES (?, ?, ?, ?, now()::TIMESTAMP)", row)
        database.execute("INSERT INTO experiments (experiment_id) VALUES ('exp')")
    return folder


def add_run(database, name, config, day, status="done"):
    values = [name, json.dumps(config), status, f"{day} 12:00:00"]
    database.execute("INSERT INTO runs (run_id, config_json, status, created_at) VALUES (?, ?, ?, ?)", values)


def add_trial(database, add_run, image, sample, *, status="done", tokens=(None, None), **values):
    names = {"rating": "rating", "cost": "cost_usd", "raw": "raw_response", "finish": "finish_reason"}
    row = {
        "run_id": add_run, "image_id": image, "dimension": "valence", "sample_idx": sample, "status": status,
        "attempts": values.pop("attempts", 1), "error": values.pop("error", None), "input_tokens": tokens[0],
        "output_tokens": tokens[1], "completed_at": "2026-04-26 18:20:19.910350",
    } | {names[name]: value for name, value in values.items()}  # fmt: skip
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO trials ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def change_database(folder, *statements):
    with duckdb.connect(str(folder / "llm_runs.duckdb")) as database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.django_db(transaction=True)
def test_trials_costs_and_failures_are_imported_and_other_values_are_unknown(folder):
    call_command("import_study", str(folder))
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.imported_from, experiment.samples) == ("pilot", "oasis-llm", 2)
    first = Trial.objects.get(item__key="Cat 1", sample_idx=0)
    assert (first.rating, float(first.cost_usd), first.input_tokens, first.output_tokens) == (6, 0.001, 511, 4)
    assert first.completed_at.isoformat() == "2026-04-26T18:20:19.910350+00:00"
    unread = Trial.objects.get(item__key="Cat 1", sample_idx=1)
    assert (unread.rating, unread.truncated, unread.cost_usd, unread.input_tokens) == (None, True, None, None)
    failed = Trial.objects.get(status="failed")
    assert (failed.error_class, failed.attempts) == ("content_refused", 3)
    assert Attempt.objects.filter(trial=failed).count() == 3
    condition = experiment.conditions.get()
    assert (condition.model.model, condition.sampler.temperature) == ("lab/small", 0.5)
    call_command("reconcile")


@pytest.mark.slow
def test_image_set_and_norms_become_the_dataset(folder):
    call_command("import_study", str(folder))
    dataset = Experiment.objects.get().dataset
    assert dataset.recipe == {"image_set": "pilot", "strategy": "stratified", "n": 3, "seed": 42}
    assert list(dataset.items.values_list("key", "category", "excluded", "note")) == [
        ("Cat 1", "Animal", False, ""),
        ("Crosswalk 1 ", "Scene", False, ""),
        ("Wall 2", "", True, "blurred"),
    ]
    norms = dataset.items.get(key="Cat 1").norms.values_list("dimension", "mean", "sd", "n")
    assert list(norms) == [("arousal", 3.2, 1.1, 99), ("valence", 6.1, 0.9, 101)]


@pytest.mark.slow
def test_the_report_lists_skipped_data(folder, capsys):
    call_command("import_study", str(folder))
    output = capsys.readouterr().out
    assert "3 trials, 1 of them failed; 5 attempts" in output
    assert "1 trials without an outcome (pending or running) are left out" in output
    assert "1 experiments are not taken" in output
    assert "Times have no zone" in output
    assert "1 images have no human means" in output


@pytest.mark.slow
def test_the_database_and_the_csv_files_of_the_same_trials_give_the_same_rows(tmp_path):
    folders = [tmp_path / "csv", tmp_path / "duckdb"]
    for folder in folders:
        folder.mkdir()
        shutil.copy(find_recording("uniform40-items.csv"), folder)
    files = [shutil.copy(find_recording(f"uniform40-trials-{name}.csv"), folders[0]) for name in ("gemma", "qwen")]
    with duckdb.connect(str(folders[1] / "llm_runs.duckdb")) as database:
        database.execute(SCHEMA)
        for file in files:
            table = f"read_csv('{file}', header = true, all_varchar = true)"
            database.execute(f"INSERT INTO trials BY NAME SELECT * EXCLUDE (model) FROM {table}")
        rows = database.execute(f"SELECT DISTINCT run_id, model FROM read_csv({files}, all_varchar = true)").fetchall()
        lines = ["provider,model_id,run_id", *(f"openrouter,{model},{name}" for name, model in rows)]
        (folders[0] / "models.csv").write_text("\n".join(lines) + "\n")
        for at, (name, model) in enumerate(sorted(rows)):
            add_run(database, name, {"provider": "openrouter", "model": model}, f"2026-04-{at + 1:02}")
    columns = (
        "item__key", "dimension__name", "sample_idx", "status", "rating", "attempts", "answer", "reasoning", "error",
        "finish_reason", "latency_ms", "input_tokens", "output_tokens", "cost_usd", "claimed_at", "completed_at",
        "run__condition__model__name", "run__condition__model__endpoint__provider",
    )  # fmt: skip
    for folder in folders:
        call_command("import_study", str(folder))
    stored = [set(Trial.objects.filter(run__experiment__slug=folder.name).values_list(*columns)) for folder in folders]
    assert len(stored[0]) == 3200
    assert stored[0] == stored[1]


def test_importing_a_database_twice_creates_its_rows_once(folder, capsys):
    call_command("import_study", str(folder))
    before = list(Trial.objects.values_list("pk", flat=True))
    change_database(folder, "UPDATE trials SET status = 'done', rating = 4, attempts = 1 WHERE status = 'pending'")
    call_command("import_study", str(folder))
    assert list(Trial.objects.order_by("pk").values_list("pk", flat=True))[:-1] == sorted(before)
    assert "3 trials already existed" in capsys.readouterr().out


@pytest.mark.slow
def test_two_runs_with_equal_settings_are_two_conditions(folder, capsys):
    with duckdb.connect(str(folder / "llm_runs.duckdb")) as database:
        add_run(database, "exp__again", CONFIG, "2026-05-01", status="cancelled")
        add_trial(database, "exp__again", "Cat 1", 0, rating=2)
    call_command("import_study", str(folder))
    assert Experiment.objects.get().conditions.count() == 2
    assert sorted(Trial.objects.filter(item__key="Cat 1", sample_idx=0).values_list("rating", flat=True)) == [2, 6]
    output = capsys.readouterr().out
    assert "exp__again has the model and settings of exp__small" in output
    assert "1 runs were cancelled" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE trials SET rating = 9 WHERE rating = 6",
            "llm_runs.duckdb, trials, row 1: rating 9 is not on",
        ),
        ("UPDATE trials SET attempts = 100000 WHERE attempts = 3", "row 3: attempts is 100000"),
        ("UPDATE trials SET cost_usd = 'inf' WHERE rating = 6", None),
        ("UPDATE trials SET cost_usd = -1 WHERE rating = 6", "row 1: cost_usd is -1"),
        ("UPDATE trials SET sample_idx = 20000 WHERE sample_idx = 1", "the repetition 20000 is not between"),
        ("UPDATE runs SET config_json = '[1]'", "runs, row 1: config_json is no object"),
        ("UPDATE runs SET config_json = '{\"temperature\": 99}'", "temperature is 99, not between 0 and 2"),
        ("ALTER TABLE trials DROP COLUMN rating", "trials, row 1: rating missing"),
        ("DROP TABLE trials", "no table trials"),
    ],
)
def test_an_error_names_the_file_the_table_and_the_row(folder, statement, message):
    change_database(folder, statement)
    if message is None:  # A number that JSON cannot represent is unknown.
        call_command("import_study", str(folder))
        assert Trial.objects.get(rating=6).cost_usd is None
    else:
        assert message in import_refused_study(folder)


@pytest.mark.slow
def test_a_damaged_database_is_refused(folder):
    file = folder / "llm_runs.duckdb"
    file.write_bytes(file.read_bytes()[:20_000])
    message = import_refused_study(file)
    assert "llm_runs.duckdb" in message
    assert str(folder) not in message, "the page must not show a path of the server"


@pytest.mark.slow
def test_a_view_in_the_database_is_never_run(folder, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("run_id,image_id\nx,y\n")
    change_database(folder, "DROP TABLE trials", f"CREATE VIEW trials AS SELECT * FROM read_csv('{secret}')")
    assert "no table trials" in import_refused_study(folder)
    macro = "SELECT 'trials' AS table_name, 'main' AS schema_name, false AS internal"
    change_database(folder, f"CREATE MACRO duckdb_tables() AS TABLE {macro}")
    assert "no table trials" in import_refused_study(folder)


@pytest.mark.slow
def test_a_text_of_megabytes_is_refused_with_its_row(folder):
    change_database(folder, "UPDATE trials SET raw_response = repeat('x', 3000000) WHERE rating = 6")
    assert "trials, row" in (message := import_refused_study(folder))
    assert "raw_response is longer than 2,000,000 characters" in message


def test_a_missing_duckdb_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setattr(oasis_llm, "find_spec", lambda name: None)
    assert "pip install duckdb" in import_refused_study(folder)


@pytest.mark.slow
def test_the_database_is_read_in_a_separate_process(folder, monkeypatch):
    def fail(*args, **options):
        raise AssertionError("the site's own process must not open an uploaded database")

    monkeypatch.setattr(duckdb, "connect", fail)
    assert len(list(read_source(folder).trials())) == 3


@pytest.mark.slow
def test_an_upload_reads_the_database_within_the_limits_of_the_page(folder):
    file = folder / "llm_runs.duckdb"
    reading = read_study_upload({"file0": FileToRead(file, file.name)}, "")
    assert [add_trial.rating for add_trial in reading.trials()] == [6, None, None]
    assert next(iter(reading.conditions.values())).settings == {"temperature": 0.5}
