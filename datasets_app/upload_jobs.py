"""The jobs of a worker on an upload: find columns, check, import items, import norms, build a space.

A job may start twice, on two machines. The upload's lock and the job's key ensure that only one of them performs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from datasets_app.drafts import CurationError, note
from datasets_app.importing import FileError, NormReading, Reading
from datasets_app.importing.dataset_writer import create_dataset, save_norms
from datasets_app.importing.file_reader import report_to_json
from datasets_app.importing.limited_reader import Watch, read_norm_table, read_table_columns, read_upload
from datasets_app.importing.records import Report
from datasets_app.importing.table_readers import hash_file
from datasets_app.models import Dataset, TransitionError
from datasets_app.models.history import Actor
from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.seeds import SEED
from datasets_app.parametric.spaces import resolve
from datasets_app.parametric.spec import SpaceError, read_space
from datasets_app.pending_uploads import READ_UPLOAD, Job, PendingUpload, find_upload

FAILED = "the worker failed; its log says why"
Perform = Callable[[PendingUpload, Job, User], str]


def run_job(user_key: int, token: str, key: str, *, task: str = READ_UPLOAD, perform: Perform | None = None) -> str:
    """Perform the job with this key in a worker. Return its final state as text.

    A second call for the same job does nothing. perform: for uploads of another task than datasets have.
    """
    waiting = find_upload(user_key, token, task)
    if waiting is None:
        return "discarded"
    with waiting.held() as free:
        job = waiting.job
        if not free or job is None or job.key != key or not job.is_active:
            return "done by another worker"
        try:
            return (perform or _perform)(waiting, job, User.objects.get(pk=user_key))
        except FileNotFoundError:
            if waiting.folder.exists():
                raise
            return "discarded"  # The user discarded it during the job.


def _perform(waiting: PendingUpload, job: Job, user: User) -> str:
    stored = _stored_before(waiting, job, user)
    if stored:
        return finish(waiting, job, dataset=[stored.slug, stored.version])
    job = replace(job, state="reading", seen_at=time.time())
    waiting.put_job(job)

    def watch(rows: int) -> None:
        waiting.put_job(replace(job, rows=rows, seen_at=time.time()))

    try:
        if job.kind == "columns":
            waiting.store("columns", read_table_columns(waiting.files["items"], watch=watch)._asdict())
            return finish(waiting, job)
        if job.kind == "norms":
            return _import_norms(waiting, job, user, watch)
        if job.kind == "parametric":
            return _build_space(waiting, job, user)
        reading, norms = read_upload(waiting.files, job.mapping or {}, watch=watch)
        return _conclude(waiting, job, user, reading, norms)
    except FileError as error:
        return finish(waiting, job, state="failed", error=str(error))
    except FileNotFoundError:
        raise
    except Exception:
        _report(waiting, job, Reading([], [], {}, "", "", Report()), NormReading(), FAILED)
        finish(waiting, job, state="failed", error=FAILED)
        raise


def _conclude(waiting: PendingUpload, job: Job, user: User, reading: Reading, norms: NormReading) -> str:
    """Save the dataset if this is an import without errors, and store the report."""
    error, dataset = "", None
    if job.kind == "import" and reading.ok and norms.ok:
        job = replace(job, state="saving", seen_at=time.time(), saving_since=time.time())
        waiting.put_job(job)
        try:
            dataset = save(waiting, reading, norms, by=user)
        except CurationError as refusal:
            error = str(refusal)
    _report(waiting, job, reading, norms, error)
    return finish(waiting, job, dataset=[dataset.slug, dataset.version] if dataset else None)


def _import_norms(waiting: PendingUpload, job: Job, user: User, watch: Watch) -> str:
    """Import the norms of the upload into its draft. If the reading has an error, nothing is saved.

    A second import of the same table, after a worker was killed, stores the same norms again.
    """
    dataset = Dataset.objects.filter(pk=waiting.norms_of or 0).first()
    if dataset is None:
        raise FileError("the dataset was deleted")
    known = dict(dataset.items.values_list("key", "category"))
    norms, error = read_norm_table(waiting.files["norms"], known, watch=watch), ""
    if norms.ok and norms.norms:
        waiting.put_job(replace(job, state="saving", seen_at=time.time()))
        try:
            with transaction.atomic():
                save_norms(dataset, norms.norms, by=user)
                store_warnings(dataset, norms.report, waiting.names["norms"], by=user)
        except (CurationError, TransitionError) as refusal:
            error = str(refusal)
    _report(waiting, job, Reading([], [], {}, "", "", Report()), norms, error)
    return finish(waiting, job)


def _build_space(waiting: PendingUpload, job: Job, user: User) -> str:
    """Create a draft from the space in the upload. Its cases are counted while they are stored."""
    text = waiting.files["items"].path.read_text(encoding="utf-8")
    how = job.mapping or {}
    try:
        space = resolve(
            read_space(text),
            precision=how.get("precision") or None,
            degree=int(how.get("degree", 0)),
            density=how.get("density", "normal"),
            seed=int(how.get("seed", SEED)),
        )
        job = replace(job, state="saving", total=space.most_cases, seen_at=time.time(), saving_since=time.time())
        waiting.put_job(job)

        def watch(saved: int) -> None:
            waiting.put_job(replace(job, rows=saved, seen_at=time.time()))

        files = SpaceFiles(text, waiting.table_name)
        dataset = create_parametric_dataset(space, files, slug=waiting.slug, by=user, watch=watch, **waiting.about)
    except (SpaceError, CurationError) as refusal:
        return finish(waiting, job, state="failed", error=str(refusal))
    return finish(waiting, job, dataset=[dataset.slug, dataset.version])


def _report(waiting: PendingUpload, job: Job, reading: Reading, norms: NormReading, error: str) -> None:
    counts = {"items": len(reading.items), "norms": len(norms.norms), "error": error, "entered": job.entered or {}}
    reports = {"report": report_to_json(reading.report), "norms_report": report_to_json(norms.report)}
    waiting.store("report", counts | reports)


def finish(waiting: PendingUpload, job: Job, **how: Any) -> str:
    """Record the end of a job, and delete the files of an upload that was imported. Return the state as text."""
    ended = replace(job, **{"state": "done", **how}, seen_at=time.time())
    waiting.put_job(ended)
    if ended.dataset or ended.experiment or (ended.kind == "norms" and ended.state == "done"):
        waiting.remove_files()
    return f"{ended.kind}: {ended.state}"


def _stored_before(waiting: PendingUpload, job: Job, user: User) -> Dataset | None:
    """Return the dataset that a killed worker stored before it could record it in the job, or None."""
    if not job.saving_since:
        return None
    with (waiting.folder / "items").open("rb") as file:
        source_sha256 = hash_file(file)
    since = datetime.fromtimestamp(job.saving_since, UTC)
    rows: Any = Dataset.objects.filter(created_by=user, slug=waiting.slug, source_sha256=source_sha256)
    found: Dataset | None = rows.filter(created_at__gte=since).first()
    return found


def save(waiting: PendingUpload, reading: Reading, norms: NormReading, *, by: Actor) -> Dataset:
    """Create a draft from a reading without errors, with the warnings in its history."""
    with transaction.atomic():
        dataset = create_dataset(reading, slug=waiting.slug, by=by, norms=norms.norms, **waiting.about)
        store_warnings(dataset, reading.report, waiting.names["items"], by=by)
        store_warnings(dataset, norms.report, waiting.names.get("norms", ""), by=by)
    return dataset


def store_warnings(dataset: Dataset, report: Report, name: str, *, by: Actor) -> None:
    """Write one line of history with every stored warning of the report."""
    if not report.warning_total:
        return
    lines = [str(remark) for remark in report.warnings]
    if report.warning_total > len(lines):
        lines.append(f"and {report.warning_total - len(lines)} more")
    total = report.warning_total
    note(dataset, "warnings", f"{total} warning{'' if total == 1 else 's'} in {name}", by=by, reason="\n".join(lines))
