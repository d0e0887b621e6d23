"""The jobs of a worker on an uploaded study: a dry run ("check"), and the import itself.

Both read the files again and do the same; a dry run takes everything back. So its report is what the import does.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from django.contrib.auth.models import User

from datasets_app.importing.records import FileError
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.models.background_jobs import READING, SAVING
from datasets_app.pending_uploads import PendingUpload
from datasets_app.upload_jobs import FAILED, finish, run_job
from evalsite.lib.history import StatusChange
from grading_app.study_import.snapshot_import import ASPECT, SnapshotImport
from grading_app.study_import.source_import import ImportOptions, ImportReport
from grading_app.study_import.study import MAX_PROBLEMS, DesignNames, StudyDesign, StudyError
from grading_app.study_import.study_files import Study
from grading_app.study_import.upload_reader import SnapshotFile, read_study_upload, safe_name
from grading_app.study_import.writer import DesignImport, StudyImport
from runs_app.models import Experiment

TASK = "grading_app.tasks.import_uploaded_study"
REPORT = "report"
CHECK, IMPORT = "study check", "study import"
MAX_NOTES = 200


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
        entries = job.parameters["mapping"]
        chosen = entries.get("dataset")
        dataset = Dataset.objects.filter(pk=chosen or 0).first()
        names = DesignNames(entries.get("slug", ""), str(dataset or ""))
        watch = upload.watch(job)
        source = read_study_upload(upload.files, entries.get("format", ""), watch=watch, names=names)
        if chosen and isinstance(source, Study) and not Dataset.objects.filter(pk=chosen).exists():
            raise StudyError(["the dataset that you chose was deleted: choose another one"])
        job.enter(SAVING)
        options = ImportOptions(user, names, dataset, dry_run=job.kind == CHECK, watch=watch)
        report = import_source(source, options)
        if isinstance(source, SnapshotFile) and any(asdict(names).values()):
            note = "A snapshot or bundle has its own names and dataset; those that you entered are not used."
            report.notes.insert(0, note)
        report = replace(report, notes=report.notes[:MAX_NOTES])
    except FileError as error:
        shown = error.problems[:MAX_PROBLEMS]
        upload.store(REPORT, asdict(ImportReport(problems=shown, problem_count=len(error.problems))))
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


def import_source(source: Study | StudyDesign | SnapshotFile, options: ImportOptions) -> ImportReport:
    """Write what was read as rows. Raise FileError, and change nothing, if it cannot be imported."""
    if isinstance(source, Study):
        return StudyImport(source, options).run()
    if isinstance(source, StudyDesign):
        return DesignImport(source, options).run()
    return SnapshotImport(source, options).run()


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
