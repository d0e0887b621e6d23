"""The texts of a job's state on pages: what it does, for whom it waits, and what remains after a failure."""

from __future__ import annotations

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat

from datasets_app.models import BackgroundJob
from datasets_app.models.background_jobs import SAVING
from datasets_app.pending_uploads import PendingUpload
from evalsite.lib.text.number_format import format_count


@dataclass(frozen=True)
class JobTexts:
    """The texts that `templates/partials/job_state.html` shows of a job.

    subject: with its article. purpose: what the worker is to do. doing: a sentence about the current step, without its
    period. failed: what did not work. kept, kept_after_loss: a sentence about what remains then. unit: the label of the
    progress bar. names_requester: whether the page is also for other people than the requester.
    """

    subject: str
    purpose: str
    doing: str
    failed: str
    kept: str
    lost: str = "The worker that read these files has stopped."
    kept_after_loss: str = "Nothing is lost. Try again."
    unit: str = ""
    names_requester: bool = False


SNAPSHOT_JOB = JobTexts(
    subject="the snapshot",
    purpose="create a snapshot",
    doing="A snapshot is being created",
    failed="The snapshot was not created",
    kept="Request it again.",
    lost="The worker that created the snapshot has stopped.",
    kept_after_loss="Request it again.",
    names_requester=True,
)
"""The texts of a job that creates a snapshot."""


def describe_job(upload: PendingUpload, job: BackgroundJob | None) -> JobTexts | None:
    """Return the texts of an upload's job."""
    if job is None:
        return None
    verb = {"download": "downloaded", "parametric": "built"}.get(job.kind, "read")
    return JobTexts(
        subject="these files",
        purpose="download the files" if job.kind == "download" else "read the files",
        doing=_describe_step(upload, job),
        failed=f"{upload.table_name} cannot be {verb}",
        kept=f"Nothing was saved. Your {'entries are' if job.kind == 'download' else 'upload is'} still here.",
        unit="Bytes downloaded" if job.kind == "download" else "Cases stored",
    )


def describe_move(job: BackgroundJob) -> JobTexts:
    """Return the texts of a job that stores the rows of an experiment in a file, or brings them back."""
    is_stored = job.kind == "store"
    doing = "Comparing the rows with the file, and removing them from the database"
    if not is_stored:
        doing = "Reading the rows from the file, and comparing them"
    elif job.step == "writing":
        doing = f"Writing the rows to a file: {filesizeformat(job.done)} so far"
    return JobTexts(
        subject="these rows",
        purpose="store the rows in a file" if is_stored else "bring the rows back",
        doing=doing,
        failed="The rows were not stored" if is_stored else "The rows were not brought back",
        kept=f"Nothing was changed: the rows are in the {'database' if is_stored else 'file'}.",
        lost="The worker that moved these rows has stopped.",
        unit="Rows moved",
        names_requester=True,
    )


def _describe_step(upload: PendingUpload, job: BackgroundJob) -> str:
    done, is_saving = format_count(job.done), job.step == SAVING
    answers = f": {done} answers so far" if job.done else ""
    match job.kind:
        case "download":
            size = f": {filesizeformat(job.done)} of {filesizeformat(job.total)}" if job.total else ""
            return f"Downloading {upload.download['repository']}{size}"
        case "parametric":
            return f"Building the dataset: {done} of {format_count(job.total)} cases are stored"
        case "study check" | "study import" if is_saving:
            return f"{'Writing' if job.kind == 'study import' else 'Checking'} the rows{answers}"
        case "study check" | "study import":
            return f"Reading the files{answers}"
        case "norms":
            return "Saving the norms" if is_saving else "Reading the norms"
        case "columns":
            return "Reading the columns and the first rows"
        case _:
            return "Saving the items" if is_saving else f"Reading the files: {done} rows so far"
