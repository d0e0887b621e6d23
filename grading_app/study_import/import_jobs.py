"""The jobs of a worker on an uploaded study: a dry run ("check"), and the import itself.

Both read the files again and do the same; a dry run takes everything back. So its report is what the import does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import DataError, IntegrityError, transaction

from datasets_app.importing.records import FileError
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.models.background_jobs import READING, SAVING
from datasets_app.pending_uploads import PendingUpload
from datasets_app.upload_jobs import FAILED, finish, run_job
from evalsite.lib.history import StatusChange
from evalsite.lib.text.hashing import slugify_name
from grading_app.publish.export.bundle_kinds import ANALYSIS, DATASET, DESIGN
from grading_app.publish.export.snapshot_check import STUDY, SnapshotFileError
from grading_app.study_import.importers import FORMATS
from grading_app.study_import.snapshot_import import ASPECT, import_snapshot
from grading_app.study_import.study import (
    MAX_PROBLEMS,
    DesignNames,
    ImportReport,
    Study,
    StudyDesign,
    StudyError,
    StudyTrial,
)
from grading_app.study_import.upload_reader import place_files, read_study_upload, safe_name
from grading_app.study_import.writer import ITEMS, SKIPPED, TRIALS, create_draft, write_study
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.models import Experiment

TASK = "grading_app.tasks.import_uploaded_study"
REPORT = "report"
EVERY = 100  # Trials between two looks at the clock.
CHECK, IMPORT = "study check", "study import"
MAX_NOTES = 200
SOURCES = {
    STUDY: "Evalsite snapshot",
    DATASET: "Bundle of a dataset",
    DESIGN: "Bundle of a design",
    ANALYSIS: "Bundle of an analysis",
}
LABELS = {"assets": "Images"}
LINKS = "relationships"  # In the names of tables that only link rows.


def load_report(upload: PendingUpload) -> ImportReport | None:
    content = upload.load(REPORT)
    return ImportReport(**content) if content else None


def run_import(job_key: int) -> str:
    """Perform the job with this key on a user's upload. Return its final state as text."""
    return run_job(job_key, perform=_perform)


def _perform(upload: PendingUpload, job: BackgroundJob, user: User) -> str:
    if (earlier_import := _find_earlier_import(upload, job, user)) is not None:
        return finish(upload, job, **earlier_import)
    job.enter(READING)
    try:
        report = _import(upload, job, user)
    except (StudyError, SnapshotFileError, FileError) as error:
        problems = error.problems if isinstance(error, StudyError) else [str(error)]
        upload.store(REPORT, asdict(ImportReport(problems=problems[:MAX_PROBLEMS], problem_count=len(problems))))
        return finish(upload, job)
    except FileNotFoundError:
        raise
    except Exception:
        finish(upload, job, FAILED)
        raise
    upload.store(REPORT, asdict(report))
    result = {"experiment": report.experiment, "dataset": report.dataset}
    return finish(
        upload, job, **({name: value for name, value in result.items() if value} if job.kind == IMPORT else {})
    )


def _import(upload: PendingUpload, job: BackgroundJob, user: User) -> ImportReport:
    entries = job.parameters["mapping"]
    dataset = Dataset.objects.filter(pk=entries.get("dataset") or 0).first()
    names = DesignNames(entries.get("slug", ""), str(dataset or ""))
    reading = read_study_upload(upload.files, entries.get("format", ""), watch=upload.watch(job), names=names)
    if reading.design is not None:
        return _take_design(reading.design, job, user)
    job.enter(SAVING)
    if reading.study is None:
        return _take_snapshot(place_files(list(upload.files.values()), reading.scratch.path / "archive"), job, user)
    try:
        return _take_study(_report_progress(reading.study, upload, job), job, user)
    except (DataError, IntegrityError, ValueError) as error:
        raise StudyError([f"the database refuses a value of the study: {str(error).splitlines()[0][:300]}"]) from error


def _take_design(design: StudyDesign, job: BackgroundJob, user: User) -> ImportReport:
    """Create a draft from the design of another tool, with the rows that the user may create."""
    try:
        with transaction.atomic():
            experiment, notes = create_draft(design, user)
            counts = {"Models": experiment.language_models.count(), "Prompts": experiment.prompts.count()}
            transaction.set_rollback(job.kind == CHECK)
    except SpecError as error:
        raise StudyError(error.problems) from error
    if design.items:
        counts = {ITEMS: len(design.items), **counts}
    return ImportReport(f"Design of {design.tool}", experiment.slug, counts=counts, notes=notes[:MAX_NOTES])


def _take_study(study: Study, job: BackgroundJob, user: User) -> ImportReport:
    entries = job.parameters["mapping"]
    dataset = Dataset.objects.filter(pk=entries.get("dataset") or 0).first()
    if entries.get("dataset") and dataset is None:
        raise StudyError(["the dataset that you chose was deleted: choose another one"])
    slug = entries.get("slug") or slugify_name(study.name)
    report = write_study(study, slug, user, dataset, dry_run=job.kind == CHECK)
    if report.counts.get(SKIPPED) and not report.counts[TRIALS]:
        report.notes.insert(0, "All trials of these files are here already: the import adds no trial.")
    if dataset is not None:
        report.notes.append(f"Texts, categories and norms are those of {dataset}; those in the files are not taken.")
    source = FORMATS[study.tool].label if study.tool in FORMATS else study.tool
    return replace(report, source=source, notes=report.notes[:MAX_NOTES])


def _take_snapshot(path: Path, job: BackgroundJob, user: User) -> ImportReport:
    result = import_snapshot(path, user, dry_run=job.kind == CHECK)
    notes = []
    if job.parameters["mapping"].get("slug") or job.parameters["mapping"].get("dataset"):
        notes.append("A snapshot or bundle has its own names and dataset; those that you entered are not used.")
    dataset = result.dataset
    return ImportReport(
        source=SOURCES[result.kind],
        experiment=result.experiment.slug if result.experiment else "",
        dataset=[] if result.experiment else [dataset.slug, dataset.version],
        counts={
            LABELS.get(name, name.capitalize()): number
            for name, number in result.rows.items()
            if number and LINKS not in name
        },
        notes=[*notes, *result.remarks],
        renamed=result.renamed,
    )


def _report_progress(study: Study, upload: PendingUpload, job: BackgroundJob) -> Study:
    """Return the study; reading its trials updates the progress of the job."""
    watch = upload.watch(job)

    def trials() -> Iterator[StudyTrial]:
        for number, trial in enumerate(study.trials(), start=1):
            if number % EVERY == 0:
                watch(number)
            yield trial

    return replace(study, trials=trials)


def _find_earlier_import(upload: PendingUpload, job: BackgroundJob, user: User) -> dict[str, Any] | None:
    """Return what a killed worker imported from a snapshot before it could record it in the job, or None.

    Studies of other tools need no such check: a second import of the same trials adds nothing.
    """
    if job.kind != IMPORT or not job.saving_since:
        return None
    name = safe_name(upload.file_names[0])
    changes = StatusChange.objects.filter(aspect=ASPECT, by=user, at__gte=job.saving_since, reason__endswith=name)
    for change in changes.select_related("content_type").order_by("pk")[:1]:
        row: Any = change.content_type.get_object_for_this_type(pk=change.object_id)
        return {"experiment": row.slug} if isinstance(row, Experiment) else {"dataset": [row.slug, row.version]}
    return None
