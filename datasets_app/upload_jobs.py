"""The jobs of a worker on an upload: download, find columns, check, import items, import norms, build a space.

A job may start twice, on two machines. The job's lock ensures that only one of them performs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from datasets_app.importing import FileError, ItemReading, NormReading
from datasets_app.importing.column_map import SHEET
from datasets_app.importing.dataset_writer import create_dataset, save_norms
from datasets_app.importing.hub_dataset import download_split
from datasets_app.importing.image_reader import make_thumbnail
from datasets_app.importing.limited_reader import Watch, read_norm_table, read_table_columns, read_upload
from datasets_app.importing.reader_output import report_to_json
from datasets_app.importing.records import ReadingReport
from datasets_app.importing.table_readers import hash_file
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.models.background_jobs import READING, SAVING
from datasets_app.models.datasets import CurationError
from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.spaces import SEED, resolve_space
from datasets_app.parametric.spec import SpaceError, read_space
from datasets_app.pending_uploads import PendingUpload, find_upload_of
from evalsite.lib.history import Actor, TransitionError

FIRST_ITEMS, SHOWN_CHARS, SHOWN_CHOICES = 5, 500, 10
FAILED = "the worker failed; its log has the reason"
Perform = Callable[[PendingUpload, BackgroundJob, User], str]


def run_job(job_key: int, *, perform: Perform | None = None) -> str:
    """Perform the job with this key in a worker. Return its final state as text.

    A second call for the same job does nothing. perform: for uploads of another task than datasets have.
    """
    job = BackgroundJob.objects.select_related("by").filter(pk=job_key).first()
    upload = find_upload_of(job) if job else None
    if job is None or upload is None or job.by is None:
        return "discarded"
    with job.perform() as is_mine:
        if not is_mine:
            return "done by another worker"
        try:
            return (perform or _perform)(upload, job, job.by)
        except FileNotFoundError:
            if upload.folder.exists():
                raise
            return "discarded"  # The user discarded it during the job.


def _perform(upload: PendingUpload, job: BackgroundJob, user: User) -> str:
    stored = _find_stored_dataset(upload, job, user)
    if stored:
        return finish(upload, job, dataset=[stored.slug, stored.version])
    job.enter(READING)
    watch = upload.watch(job)
    try:
        if job.kind == "columns":
            _store_columns(upload, job, watch)
            return finish(upload, job)
        if job.kind == "download":
            # Download the split that the user named, and find its columns. Without HF_TOKEN: it may open datasets
            # that not every user of the site should read.
            hub_request: dict[str, Any] = dict(job.parameters["mapping"])
            split = download_split(**hub_request, uses_token=False, watch=upload.watch(job))
            origin = {"source": split.source, "licence": split.licence, "recipe": split.recipe}
            upload = upload.add_download(split.file.path, split.file.name, origin)
            upload.store("columns", read_table_columns(upload.files["items"])._asdict())
            return finish(upload, job)
        if job.kind == "norms":
            return _import_norms(upload, job, user, watch)
        if job.kind == "parametric":
            # Create a draft from the space in the upload. Its cases are counted while they are stored.
            text = upload.files["items"].path.read_text(encoding="utf-8")
            options = job.parameters["mapping"]
            try:
                space = resolve_space(
                    read_space(text),
                    precision=options.get("precision") or None,
                    degree=int(options.get("degree", 0)),
                    density=options.get("density", "normal"),
                    seed=int(options.get("seed", SEED)),
                )
                job.enter(SAVING, total=space.max_cases)
                files = SpaceFiles(text, upload.table_name)
                dataset = create_parametric_dataset(
                    space, files, slug=upload.slug, by=user, watch=upload.watch(job), **upload.about
                )
            except (SpaceError, CurationError) as refusal:
                return finish(upload, job, str(refusal))
            return finish(upload, job, dataset=[dataset.slug, dataset.version])
        return _read_items(upload, job, user, watch)
    except FileError as error:
        return finish(upload, job, str(error))
    except FileNotFoundError:
        raise
    except Exception:
        _store_result(upload, job, ItemReading([], [], {}, "", "", ReadingReport()), NormReading(), FAILED)
        finish(upload, job, FAILED)
        raise


def _store_columns(upload: PendingUpload, job: BackgroundJob, watch: Watch) -> None:
    sheet = job.parameters["mapping"].get(SHEET, "")
    files = upload.files
    table = read_table_columns(files["items"], watch=watch, images=files.get("images"), sheet=sheet)
    upload.store("columns", table._asdict())


def _read_items(upload: PendingUpload, job: BackgroundJob, user: User, watch: Watch) -> str:
    """Read the items. Save the dataset if this is an import without errors, and store the report."""
    if job.kind == "preview":
        _store_columns(upload, job, watch)
    reading, norms = read_upload(
        upload.files, job.parameters["mapping"], watch=watch, leaves_out=job.parameters["leaves_out"]
    )
    error, dataset = "", None
    if job.kind == "import" and reading.ok and norms.ok:
        job.enter(SAVING)
        try:
            dataset = save_reading(upload, reading, norms, by=user)
        except CurationError as refusal:
            error = str(refusal)
    _store_result(upload, job, reading, norms, error)
    return finish(upload, job, **({"dataset": [dataset.slug, dataset.version]} if dataset else {}))


def _import_norms(upload: PendingUpload, job: BackgroundJob, user: User, watch: Watch) -> str:
    """Import the norms of the upload into its draft. If the reading has an error, nothing is saved.

    A second import of the same table, after a worker was killed, stores the same norms again.
    """
    dataset = Dataset.objects.filter(pk=upload.norms_of or 0).first()
    if dataset is None:
        raise FileError("the dataset was deleted")
    categories = dict(dataset.items.values_list("key", "category"))
    norms, error = read_norm_table(upload.files["norms"], categories, watch=watch), ""
    if norms.ok and norms.norms:
        job.enter(SAVING)
        try:
            with transaction.atomic():
                save_norms(dataset, norms.norms, by=user)
                store_warnings(dataset, norms.report, upload.names["norms"], by=user)
        except (CurationError, TransitionError) as refusal:
            error = str(refusal)
    _store_result(upload, job, ItemReading([], [], {}, "", "", ReadingReport()), norms, error)
    return finish(upload, job)


def _store_result(
    upload: PendingUpload, job: BackgroundJob, reading: ItemReading, norms: NormReading, error: str
) -> None:
    counts = {
        "items": len(reading.items),
        "norms": len(norms.norms),
        "error": error,
        "entered": job.parameters["entered"],
    }
    first_items = reading.items[:FIRST_ITEMS]
    previews = [
        {
            "key": item.key,
            "input": item.input[:SHOWN_CHARS],
            "image": item.image.original_name if item.image else "",
            "sha256": item.image.sha256 if item.image else "",
            "target": item.target[:SHOWN_CHARS],
            "choices": [choice[:SHOWN_CHARS] for choice in item.choices[:SHOWN_CHOICES]],
            "category": item.category,
            "norms": [f"{norm.dimension} {norm.mean:g}" for norm in item.norms],
        }
        for item in first_items
    ]
    shown = {"mapping": reading.mapping, "first_items": previews}
    reports = {"report": report_to_json(reading.report), "norms_report": report_to_json(norms.report)}
    images = {item.image.sha256: item.image.path for item in first_items if item.image}
    upload.store_thumbnails({sha256: make_thumbnail(path.read_bytes()) for sha256, path in images.items()})
    upload.store("report", counts | shown | reports)


def finish(upload: PendingUpload, job: BackgroundJob, problem: str = "", /, **result: Any) -> str:
    """Record the end of a job, and delete the files of an upload that was imported. Return the state as text."""
    job.finish(problem, **result)
    if result or (job.kind == "norms" and not problem):
        upload.remove_files()
    return f"{job.kind}: {job.state}"


def _find_stored_dataset(upload: PendingUpload, job: BackgroundJob, user: User) -> Dataset | None:
    """Return the dataset that a killed worker stored before it could record it in the job, or None."""
    if not job.saving_since:
        return None
    with (upload.folder / "items").open("rb") as file:
        source_sha256 = hash_file(file)
    rows: Any = Dataset.objects.filter(created_by=user, slug=upload.slug, source_sha256=source_sha256)
    dataset: Dataset | None = rows.filter(created_at__gte=job.saving_since).first()
    return dataset


def save_reading(upload: PendingUpload, reading: ItemReading, norms: NormReading, *, by: Actor) -> Dataset:
    """Create a draft from a reading without errors, with the warnings in its history."""
    with transaction.atomic():
        dataset = create_dataset(reading, slug=upload.slug, by=by, norms=norms.norms, **upload.dataset_fields)
        store_warnings(dataset, reading.report, upload.names["items"], by=by)
        store_warnings(dataset, norms.report, upload.names.get("norms", ""), by=by)
    return dataset


def store_warnings(dataset: Dataset, report: ReadingReport, name: str, *, by: Actor) -> None:
    """Write one line of history with every stored warning of the report."""
    if not report.warning_total:
        return
    lines = [str(remark) for remark in report.warnings]
    if report.warning_total > len(lines):
        lines.append(f"and {report.warning_total - len(lines)} more")
    total = report.warning_total
    dataset.add_history_line(
        "warnings", f"{total} warning{'' if total == 1 else 's'} in {name}", by=by, reason="\n".join(lines)
    )
