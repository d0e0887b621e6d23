"""Archived experiments whose answers, calls, grades and ratings move to a file, and back to the same rows.

The file is a snapshot with further parts (`site/`). They hold the keys of the rows on this site, and the columns and
rows that a snapshot leaves out. Runs, conditions, counters, costs and the ledger stay in the database.

Each step is safe against a crash. The file is on disk and verified before a transaction deletes the rows; another one
restores them. Both compare the rows with the checksums of the file, and the counters with the rows. No step reads rows
of other experiments. A page requests a job for either way; a command does the work itself.
"""

# ruff: noqa: S608 (names of tables and columns come from the models of this project, values are parameters)

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from datasets_app.models import BackgroundJob
from evalsite.lib.checksummed_zip import SUMS
from evalsite.lib.history import Actor, TransitionError
from evalsite.lib.sql import fetch_rows
from grading_app.grading.consistency_check import compare_counters, read_counters
from grading_app.models import (
    Adjudication,
    CachedAggregate,
    Grading,
    Preference,
    RatedAnswer,
    Rating,
    RatingQueue,
    StoredRows,
    SupersededVerdict,
)
from grading_app.publish.export.snapshot_check import SnapshotFileError, verify
from grading_app.publish.export.snapshots import SnapshotError, write_archive
from grading_app.publish.export.study_rows import (
    BY_MODEL,
    KEYS,
    RULES,
    RUNS,
    TABLES,
    StudyRowReader,
    iterate_lines,
    select,
)
from grading_app.results.cached_aggregates import WORKER_FAILED
from grading_app.results.headlines import load_headlines
from grading_app.study_import.row_writer import ROWS_OF, execute, insert_lines, insert_part, load_lines
from runs_app.deletion import delete_trials
from runs_app.models import Annotation, Attempt, CachedAnswer, Experiment, ExternalCall, ItemText, LedgerEntry, Trial

SITE = "site/"
LATE_HOURS = 24  # A call that was lost may still be answered, and its answer completes its row.
TRIALS = f"({select('id', Trial, f'run_id IN {RUNS}')})"
# The tables whose rows leave, in the order in which they return. A snapshot holds them.
MOVED = tuple(BY_MODEL[model] for model in (Trial, Attempt, RatedAnswer, Rating, Grading, Preference, Adjudication))
# The tables to which they refer: their keys are needed to translate those of the snapshot.
_RELATED = {column.related_model for part in MOVED for column in part.list_columns()}
REFERENCES = tuple(part for part in TABLES if part.model in _RELATED and part.has_key and part not in MOVED)
# Rows `t` that leave, too, and that a snapshot holds in part or not at all.
WHOLE: dict[type[models.Model], str] = {
    ExternalCall: f"t.trial_id IN {TRIALS}",
    SupersededVerdict: f"t.condition_id IN {RULES}",
    Annotation: "t.experiment_id = %(experiment)s",
    CachedAnswer: f"t.trial_id IN {TRIALS}",
}
# Item texts stay, but not their link to the call that wrote them.
LINKS = f"{select('id, trial_id', ItemText, f'trial_id IN {TRIALS}')} ORDER BY id"
TASK = "grading_app.tasks.move_experiment_rows"
TIMEOUT_SECONDS = 3000  # Below the retry time of the queue.
WRITING, MOVING = "writing", "moving"  # The steps of a job. The second is one transaction.


class StorageError(TransitionError):
    """Rows that cannot move to a file, or not come back from it. Nothing was changed."""


@dataclass
class _Progress:
    """The progress of a job in bytes. Each row counts when it is compared, and when it is deleted or inserted.

    size: the bytes of the rows that leave or return, without compression.
    """

    job: BackgroundJob | None
    path: Path
    done: int = 0

    def __post_init__(self) -> None:
        with zipfile.ZipFile(self.path) as archive:
            names = {part.file_name for part in MOVED}
            parts = [e for e in archive.infolist() if e.filename in names or e.filename.startswith(SITE)]
        self.size = sum(part.file_size for part in parts)
        if self.job:
            self.job.enter(MOVING, total=2 * self.size)

    def add(self, size: int) -> None:
        self.done += size
        if self.job:
            self.job.report(min(self.done, 2 * self.size), 2 * self.size)


class _ReportedFile(io.FileIO):
    """A file that reports its size to a job while it is written."""

    job: BackgroundJob | None = None

    def write(self, data: Any, /) -> int:
        size = super().write(data)
        if self.job:
            self.job.report(self.tell())
        return size


def request_move(experiment: Experiment, kind: str, *, by: Actor, reason: str) -> bool:
    """Request a job that stores rows or brings them back. Return False if one of this experiment is open already.

    Raise TransitionError if that is impossible.
    """
    if kind == StoredRows.STORE:
        refuse_unready(experiment)
    parameters = {"experiment": experiment.pk, "reason": reason}
    subject = StoredRows.get_job_subject(experiment)
    _, is_new = BackgroundJob.objects.request(
        subject, kind, task=TASK, timeout_s=TIMEOUT_SECONDS, by=by, parameters=parameters
    )
    return is_new


def perform_move(job: BackgroundJob) -> str:
    """Perform a job that this worker holds. Return why it failed, or ""."""
    problem = WORKER_FAILED
    try:
        experiment = Experiment.objects.get(pk=job.parameters["experiment"])
        # After the commit of a worker that was killed, nothing is left to do.
        if experiment.is_stored != (job.kind == StoredRows.STORE):
            move = store_rows if job.kind == StoredRows.STORE else bring_back
            move(experiment, by=job.by or job.actor, reason=job.parameters["reason"], job=job)
        problem = ""
    except Experiment.DoesNotExist:
        problem = "the experiment was deleted"
    except TransitionError as error:
        problem = str(error)
    finally:
        job.finish(problem)
    return problem


def store_rows(experiment: Experiment, *, by: Actor, reason: str = "", job: BackgroundJob | None = None) -> StoredRows:
    """Move the rows of an archived experiment to a file.

    job: where to report the progress. Raise TransitionError, and change nothing, if that is impossible.
    """
    refuse_unready(experiment)
    if job:
        job.enter(WRITING)
    folder = StoredRows.folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with _ReportedFile(handle, "wb") as out:
            out.job = job
            digest, counts = write_archive(
                experiment, out, reason=reason, by=by, list_further_parts=_iterate_site_parts
            )
            os.fsync(out.fileno())
        path = Path(draft).replace(folder / f"{digest}.zip")
    except SnapshotError as error:
        raise StorageError(str(error)) from error
    finally:
        Path(draft).unlink(missing_ok=True)
    _sync_folder(folder)
    sums = _verify_file(path, digest)
    headlines = load_headlines([Experiment.objects.with_totals().get(pk=experiment.pk)], experiment.owner)
    headline = headlines.get(experiment.pk)
    progress = _Progress(job, path)
    with transaction.atomic():
        experiment.refuse_while_live()
        # Until the rows have left, no queue opens and no rater is excluded.
        list(experiment.rating_queues.select_for_update().order_by("pk"))
        refuse_unready(experiment)
        before = _list_differences(experiment)
        with StudyRowReader(experiment) as reader:
            _compare_with_file(experiment, reader, sums, progress)
        with experiment.permit_deletion():
            runs = list(experiment.runs.order_by("-condition__stage", "pk"))
            for run in runs:
                delete_trials(run)
                progress.add(progress.size // len(runs))
            # Verdicts are gone with their trials. Nothing may have been added since the comparison.
            leaving = {part.table: part.where for part in MOVED} | {m._meta.db_table: rows for m, rows in WHOLE.items()}
            for table, where in leaving.items():
                if fetch_rows(f"SELECT 1 FROM {table} t WHERE {where} LIMIT 1", reader.params):
                    raise StorageError(f"rows of {experiment} were added meanwhile; try again")
        stored = StoredRows.objects.create(
            experiment=experiment,
            digest=digest,
            size=path.stat().st_size,
            counts=counts,
            counters=read_counters(Experiment.objects.get(pk=experiment.pk)),
            headline=None
            if headline is None
            else json.loads(json.dumps(asdict(headline) | {"label": ""}, default=int)),
        )
        Experiment.objects.transition_one(
            experiment,
            sources=[Experiment.Status.ARCHIVED],
            target=Experiment.Status.STORED,
            by=by,
            reason=reason,
        )
        _refuse_new_differences(experiment, before)
    return stored


def bring_back(experiment: Experiment, *, by: Actor, reason: str = "", job: BackgroundJob | None = None) -> None:
    """Move the rows of a stored experiment from its file back to the database, with the same keys.

    job: where to report the progress. Raise TransitionError, and change nothing, if the file is missing or was changed.
    The file stays.
    """
    stored = StoredRows.objects.filter(experiment=experiment).first()
    if stored is None:
        raise StorageError(f"the rows of {experiment} are in the database already")
    sums = _verify_file(stored.path, stored.digest)
    progress = _Progress(job, stored.path)
    with zipfile.ZipFile(stored.path) as archive, transaction.atomic():
        experiment.refuse_while_live()
        Experiment.objects.transition_one(
            experiment,
            sources=[Experiment.Status.STORED],
            target=Experiment.Status.ARCHIVED,
            by=by,
            reason=reason,
        )
        before = _list_differences(experiment)
        stored.delete()
        for part in (*REFERENCES, *MOVED):
            table = f"{KEYS}{part.table}"
            load_lines(archive, f"{SITE}{part.table}.jsonl", table, ("n", "id"))
            execute(f"CREATE UNIQUE INDEX ON {table} (n); CREATE UNIQUE INDEX ON {table} (id); ANALYZE {table}")
        with experiment.permit_deletion():
            # The triggers add the restored attempts to the ledger again.
            LedgerEntry.objects.filter(run__experiment=experiment)._raw_delete(connection.alias)
            for part in MOVED:
                load_lines(archive, part.file_name, f"{ROWS_OF}{part.table}")
                local = {
                    column.attname: f"h.{connection.ops.quote_name(column.attname)}"
                    for column in part.list_local_columns()
                }
                joins = f"CROSS JOIN LATERAL jsonb_populate_record(NULL::{part.table}, m.line) h"
                insert_part(part, local, lookup=(KEYS, "n", "id"), joins=joins)
                progress.add(progress.size // len(MOVED))
        for model in WHOLE:
            lines = f"{ROWS_OF}{model._meta.db_table}"
            load_lines(archive, f"{SITE}{model._meta.db_table}.jsonl", lines)
            cells = {column.attname: f"r.{column.attname}" for column in model._meta.concrete_fields}
            conflict = "ON CONFLICT DO NOTHING" if model is CachedAnswer else ""
            insert_lines(model, f"{lines} x", cells, conflict=conflict)
        table = ItemText._meta.db_table
        load_lines(archive, f"{SITE}{table}.jsonl", f"{ROWS_OF}{table}", ("id", "trial_id"))
        execute(f"""UPDATE {table} t SET trial_id = x.trial_id FROM {ROWS_OF}{table} x
            WHERE t.id = x.id AND t.trial_id IS NULL""")
        _compare_with_file(experiment, StudyRowReader(experiment), sums, progress, with_cache=False)
        try:
            execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        except IntegrityError as error:
            problem = str(error).splitlines()[-1].removeprefix("DETAIL:").strip()
            raise StorageError(
                f"a row of {experiment} refers to a row that was deleted meanwhile: {problem}"
            ) from error
        CachedAggregate.objects.filter(experiment=experiment).delete()
        _refuse_new_differences(experiment, before)


def refuse_unready(experiment: Experiment) -> None:
    """Raise StorageError if the rows of the experiment cannot move to a file now."""
    if experiment.status != Experiment.Status.ARCHIVED:
        raise StorageError(f"{experiment} is {experiment.status}; archive it first")
    if queues := list_open_queues(experiment):
        names = f"queue{'' if len(queues) == 1 else 's'} {', '.join(queue.name for queue in queues)}"
        raise StorageError(f"people can still rate answers of {experiment}; close the rating {names} first")
    recently = timezone.now() - timedelta(hours=LATE_HOURS)
    lost = Attempt.objects.filter(run__experiment=experiment, outcome=Attempt.Outcome.LOST, finished_at__gte=recently)
    if lost.exists():
        raise StorageError(f"a call of {experiment} was lost today, and may still be answered; try again tomorrow")


def list_open_queues(experiment: Experiment) -> list[RatingQueue]:
    """Return the queues in which people can still rate answers of the experiment."""
    return list(experiment.rating_queues.filter(status=RatingQueue.Status.OPEN).order_by("name"))


def _iterate_site_parts(reader: StudyRowReader) -> Iterator[tuple[str, Iterable[bytes]]]:
    for part in (*REFERENCES, *MOVED):
        yield f"{SITE}{part.table}.jsonl", reader.iterate_site_chunks(part, is_whole=part in MOVED)
    for model, where in WHOLE.items():
        table, key = model._meta.db_table, model._meta.pk.column
        rows = f"SELECT t.* FROM {table} t WHERE {where} ORDER BY t.{key}"
        yield f"{SITE}{table}.jsonl", iterate_lines(rows, reader.params)
    yield f"{SITE}{ItemText._meta.db_table}.jsonl", iterate_lines(LINKS, reader.params)


def _compare_with_file(
    experiment: Experiment,
    reader: StudyRowReader,
    sums: dict[str, str],
    progress: _Progress,
    *,
    with_cache: bool = True,
) -> None:
    """Raise StorageError unless the rows equal those in the file.

    The response cache may have got another answer for a key while the rows were in the file.
    """
    parts = [(part.file_name, reader.iterate_chunks(part)) for part in MOVED]
    for name, chunks in (*parts, *_iterate_site_parts(reader)):
        if not with_cache and CachedAnswer._meta.db_table in name:
            continue
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
            progress.add(len(chunk))
        if digest.hexdigest() != sums.get(name):
            raise StorageError(f"the rows of {experiment} are not those of the file ({name}); nothing was changed")


def _verify_file(path: Path, digest: str) -> dict[str, str]:
    """Return the checksums of the parts. Raise StorageError if the file is missing, or is not what its digest says."""
    try:
        verdict = verify(path)
    except SnapshotFileError as error:
        raise StorageError(str(error)) from error
    if verdict.digest != digest or verdict.problems:
        raise StorageError(f"{path.name} was changed: {'; '.join(verdict.problems[:3]) or 'its digest differs'}")
    with zipfile.ZipFile(path) as archive:
        lines = archive.read(SUMS).decode().splitlines()
    return {name: checksum for checksum, name in (line.split("  ", 1) for line in lines)}


def _sync_folder(folder: Path) -> None:
    """Wait until the names of the files in this folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _list_differences(experiment: Experiment) -> set[str]:
    return set(map(str, compare_counters(experiment)))


def _refuse_new_differences(experiment: Experiment, before: set[str]) -> None:
    if new := sorted(_list_differences(experiment) - before):
        raise StorageError(f"the counters of {experiment} would not equal its rows: {'; '.join(new[:3])}")
