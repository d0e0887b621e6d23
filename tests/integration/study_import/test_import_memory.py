"""Memory of an import: constant in the number of trials, in the readers and in the writer."""

import gc
import json
import shutil
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from grading_app.models import Grading
from grading_app.study_import import writer
from grading_app.study_import.importers import read_source
from grading_app.study_import.study import StudyCondition, StudyItem, StudyScore
from grading_app.study_import.study_draft import StudyDraft
from runs_app.models import Experiment, Trial
from tests import factories
from tests.factories.imports import write_study
from tests.integration.study_import.test_reasonscape import RECORD

pytestmark = pytest.mark.django_db
ITEMEVAL = Path(__file__).parent / "itemeval"
FEW, MANY = 400, 2400
MAX_BYTES_EACH = 80  # A dict entry with an identity as its key needs more than 160 bytes.


def build_study(trials):
    """Return a study of five items with enough repetitions for this many trials."""
    draft = StudyDraft(Path("memory"), "reasonscape")
    draft.add_condition(StudyCondition("only", "m", "vendor/m"))
    for number in range(5):
        draft.add_item(StudyItem(f"item-{number}", input="?"))
    for number in range(trials):
        draft.add_trial(
            "only", f"item-{number % 5}", where=f"row {number}", is_done=True, answer=f"answer {number}",
            completed_at=datetime(2026, 11, 22, tzinfo=UTC), scores=(StudyScore("right", 1.0),),
        )  # fmt: skip
    draft.complete({})
    return draft


def measure_peak(work):
    """Return the peak number of bytes that Python allocated during the work.

    Garbage in cycles is collected early, so that it counts as little as possible.
    """
    gc.collect()
    thresholds = gc.get_threshold()
    gc.set_threshold(1000, 5, 5)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)


def count_trials(path):
    return sum(1 for _ in read_source(path).trials())


def assert_flat(few, many):
    assert (many - few) / (MANY - FEW) < MAX_BYTES_EACH


def collect_garbage_before_each(split_batches):
    """Return the same batches. Python collects old garbage only once it is a quarter of the heap, so it would count."""

    def split(study, watch):
        for batch in split_batches(study, watch):
            gc.collect()
            yield batch

    return split


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["new", "imported before"])
def test_the_writer_holds_only_one_batch_of_trials(monkeypatch, again):
    monkeypatch.setattr(writer, "BATCH", 50)
    monkeypatch.setattr(writer, "_split_batches", collect_garbage_before_each(writer._split_batches))
    connection.ensure_connection()
    # psycopg otherwise keeps the texts of up to 100 statements per connection, which earlier tests may have filled.
    monkeypatch.setattr(connection.connection, "prepare_threshold", None)
    owner = factories.make_user("owner")
    peaks = []
    write_study(build_study(50), "warm", owner)  # Loads the imports and caches of the first call.
    for trials in (FEW, MANY):
        if again:
            write_study(build_study(trials), f"study-{trials}", owner)
        peaks.append(measure_peak(lambda trials=trials: write_study(build_study(trials), f"study-{trials}", owner)))
        assert Trial.objects.filter(run__experiment__slug=f"study-{trials}").count() == trials
    assert_flat(*peaks)


def test_a_batch_looks_up_only_its_own_trials(monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 4)
    owner = factories.make_user("owner")
    report = write_study(build_study(10), "study", owner)
    assert (report.counts["Trials"], report.counts["Scores"]) == (10, 10)
    peaks = []
    look_up = writer._find_stored_trials

    def count_stored(trials):
        stored = look_up(trials)
        peaks.append((len(trials), len(stored)))
        return stored

    monkeypatch.setattr(writer, "_find_stored_trials", count_stored)
    report = write_study(build_study(13), "study", owner)
    assert peaks == [(4, 4), (4, 4), (4, 2), (1, 0)]
    assert [report.counts[label] for label in ("Trials", "Trials that are here already", "Scores")] == [3, 10, 3]
    assert (Trial.objects.count(), Grading.objects.count()) == (13, 13)
    assert Experiment.objects.get().samples == 3


def test_long_answers_make_shorter_batches(monkeypatch):
    monkeypatch.setattr(writer, "BATCH_CHARS", 48)  # A row has an answer of 8 characters also as the raw response.
    lengths = [len(batch) for batch in writer._split_batches(build_study(7))]
    assert lengths == [3, 3, 1]


def write_trials_csv(folder, trials):
    with (folder / "trials.csv").open("w") as out:
        out.write("run_id,image_id,dimension,sample_idx,status,rating,attempts,raw_response\n")
        out.writelines(f"run,Cat 1,valence,{number},done,6,1,six\n" for number in range(trials))


def write_records(folder, trials):
    with (folder / "step0.ndjson").open("w") as out:
        out.writelines(json.dumps(RECORD) + "\n" for _ in range(trials))


def write_stores(folder, trials):
    import pyarrow
    from pyarrow import parquet

    shutil.copytree(ITEMEVAL, folder, dirs_exist_ok=True)
    for store in ("solutions", "gradings"):
        path = folder / f"studies/sums/{store}.parquet"
        table = parquet.read_table(path)
        row = next(row for row in table.to_pylist() if row["wave"] == 0)
        rows = [row | {"epoch": number + 1} for number in range(trials)]
        parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), path)


@pytest.mark.parametrize("write", [write_trials_csv, write_records, pytest.param(write_stores, marks=pytest.mark.slow)])
def test_a_reader_holds_one_trial_at_a_time(tmp_path, write):
    peaks, counts = [], []
    for trials in (10, FEW, MANY):
        folder = tmp_path / str(trials)
        folder.mkdir()
        write(folder, trials)
        peaks.append(measure_peak(lambda folder=folder: counts.append(count_trials(folder))))
    assert counts == [10, FEW, MANY]
    assert_flat(*peaks[1:])
