"""Views of imports: items to a new draft in two steps, norms to a draft in one. A file is saved whole or not at all.

A worker reads the files. Until it has finished, the page of the upload shows its progress and refreshes by itself.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRefresh

from datasets_app import pending_uploads
from datasets_app.forms import HubForm, MappingForm, NormsForm, UploadForm
from datasets_app.importing.column_map import SHEET
from datasets_app.importing.item_reader import IMAGE_ONLY_COLUMNS
from datasets_app.importing.limited_reader import TableColumns
from datasets_app.job_texts import describe_job
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.pending_uploads import JobResult, PendingUpload
from datasets_app.views.items import send_image
from datasets_app.views.permissions import get_visible_draft
from evalsite.lib.permissions import members_only
from evalsite.lib.text.spreadsheet import format_csv_line
from evalsite.lib.web.htmx import wants_part

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_new(request: HttpRequest) -> HttpResponse:
    """Store the files in the first step, without database rows. The files remain if another field has an error."""
    previous = _find_items_upload(request, request.POST.get("upload", request.GET.get("upload", "")))
    initial = {"slug": previous.slug, **previous.about} if previous else None
    data = (request.POST, request.FILES) if request.method == "POST" else ()  # Bind the form even if no field was sent.
    form = UploadForm(*data, previous=previous, initial=initial)
    if request.method == "POST":
        valid = form.is_valid()
        upload = _stage(request, form, previous)
        if valid and upload and form.is_valid():
            upload.request_job("columns")
            return redirect("dataset_import", upload.token)
        if upload:
            form.reuse_files(upload)
    return render(request, "datasets_app/dataset_new.html", {"form": form})


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_hub(request: HttpRequest) -> HttpResponse:
    """Ask a worker for a split of a dataset on the Hugging Face hub. The second step maps its columns."""
    previous = _find_items_upload(request, request.POST.get("upload", request.GET.get("upload", "")))
    if previous and previous.job and previous.job.is_waited_for:
        return redirect("dataset_import", previous.token)
    initial = {"slug": previous.slug, **previous.about, **previous.download} if previous else None
    form = HubForm(request.POST if request.method == "POST" else None, initial=initial)
    if request.method == "POST" and form.is_valid():
        hub_request = form.read_request()
        upload = pending_uploads.stage_upload(
            request.user,
            {},
            slug=form.cleaned_data["slug"],
            about=form.read_description(),
            previous=previous,
            download=hub_request,
        )
        upload.request_job("download", hub_request)
        return redirect("dataset_import", upload.token)
    context = {"form": form, "previous": previous}
    return render(request, "datasets_app/dataset_hub.html", context)


def _find_items_upload(request: HttpRequest, token: str) -> PendingUpload | None:
    upload = pending_uploads.find_upload(request.user.pk, token)
    return upload if upload and upload.norms_of is None else None


def _stage(request: HttpRequest, form: UploadForm, previous: PendingUpload | None) -> PendingUpload | None:
    """Store the valid files that were sent and return the upload.

    Return None if there is nothing to store. If a file is too large, add an error to the form.
    """
    parts = form.list_files()
    if not parts and previous is None:
        return None
    slug = form.cleaned_data.get("slug", "")
    try:
        return pending_uploads.stage_upload(
            request.user, parts, slug=slug, about=form.read_description(), previous=previous
        )
    except pending_uploads.TooLarge as error:
        form.add_error("file" if error.part == "items" else error.part, f"This file {error}.")
        return previous


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_import(request: HttpRequest, token: str) -> HttpResponse:
    """Map the columns in the second step, check the reading, and import it."""
    upload = _find_items_upload(request, token)
    if upload is None:
        raise Http404
    if request.method == "POST":
        return _handle_import_button(request, upload)
    job, table = upload.job, upload.table
    if job and job.result:
        # Redirect to the items, or to the details page if there are warnings. htmx then loads the whole page.
        if wants_part(request):
            return HttpResponseClientRefresh()
        slug, version = job.result["dataset"]
        dataset = Dataset.objects.filter(slug=slug, version=version).first()
        if dataset is None:
            raise Http404
        messages.success(request, f"{dataset} is a draft of {dataset.item_count} items.")
        outcome = upload.outcome
        if outcome and (outcome.report.warning_total or outcome.norms_report.warning_total):
            return redirect("dataset_about", slug, version)
        return redirect(dataset)
    if job is None or job.is_active or job.is_lost or table is None:
        return _render_progress(request, upload, job)
    if wants_part(request):
        return HttpResponseClientRefresh()
    # The mapping form with the last input and its errors, or with the guessed mapping.
    outcome = upload.outcome
    entered = outcome.entered if outcome else None
    form = MappingForm(entered or None, columns=table.columns, guess=upload.guess_mapping(table), sheets=table.sheets)
    if outcome and entered and form.is_valid():
        form.add_mapping_errors(pending_uploads.collect_mapping_errors(outcome.report.errors))
        if outcome.error:
            form.add_error(None, outcome.error)
    return _render_mapping(request, upload, table, form)


@require_safe
@members_only
def dataset_left_out(request: HttpRequest, token: str) -> HttpResponse:
    """Download the rows that the last reading left out, each with its problem, to correct and upload them."""
    upload = _find_items_upload(request, token)
    outcome = upload.outcome if upload else None
    if upload is None or outcome is None or not outcome.report.left_out:
        raise Http404
    rows = outcome.report.left_out
    columns = dict.fromkeys(column for row in rows for column in row)
    lines = [list(columns), *([row.get(column, "") for column in columns] for row in rows)]
    name = f"{upload.slug}-left-out.csv"
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(map(format_csv_line, lines), content_type="text/csv; charset=utf-8", headers=disposition)


@require_safe
@members_only
def upload_thumbnail(request: HttpRequest, token: str, sha256: str) -> FileResponse:
    """Send the thumbnail of one of the first items, which a worker made from the decoded image."""
    upload = _find_items_upload(request, token)
    if upload is None:
        raise Http404
    return send_image(lambda: upload.get_thumbnail_file(sha256), "image/jpeg")


def _handle_import_button(request: HttpRequest, upload: PendingUpload) -> HttpResponse:
    """Perform the action of a button: discard the upload, retry, check or import it."""
    if "discard" in request.POST:
        upload.discard()
        messages.success(request, "The upload was discarded; nothing was saved.")
        return redirect("dataset_new")
    table = upload.table
    if "again" in request.POST:
        upload.retry_job()
    elif table is not None and not (upload.job and upload.job.result):
        form = MappingForm(request.POST, columns=table.columns, guess=upload.guess_mapping(table), sheets=table.sheets)
        if not form.is_valid():
            return _render_mapping(request, upload, table, form)
        if table.sheets and (sheet := form.mapping.get(SHEET, "")) != (table.sheet or table.sheets[0]):
            upload.forget_reading()
            upload.request_job("columns", {SHEET: sheet})
            return redirect("dataset_import", upload.token)
        entered = {name: request.POST[name] for name in form.fields if name in request.POST}
        upload.request_job("check" if "check" in request.POST else "import", form.mapping, entered)
    return redirect("dataset_import", upload.token)


def _render_progress(
    request: HttpRequest, upload: PendingUpload, job: BackgroundJob | None, norms_of: Dataset | None = None
) -> HttpResponse:
    """Show the worker's progress, or the reason why there is none. htmx reloads this part while the job is active."""
    address = reverse("dataset_import", args=[upload.token])
    # The form that replaces the files.
    form_name = "parametric_new" if upload.job and upload.job.kind == "parametric" else "dataset_new"
    other_files = reverse("dataset_hub" if upload.download else form_name, query={"upload": upload.token})
    if norms_of:
        address = _make_norms_url(norms_of, upload)
        other_files = reverse("dataset_norms", args=[norms_of.slug, norms_of.version])
    context = {
        "upload": upload,
        "job": job,
        "texts": describe_job(upload, job),
        "polls": bool(job and job.is_waited_for),
        "norms_of": norms_of,
        "address": address,
        "other_files": other_files,
    }
    part = "datasets_app/partials/upload_progress.html"
    return render(request, part if wants_part(request) else "datasets_app/dataset_reading.html", context)


def _render_mapping(
    request: HttpRequest, upload: PendingUpload, table: TableColumns, form: MappingForm
) -> HttpResponse:
    context = {
        "upload": upload,
        "form": form,
        "asks_sheet": SHEET in form.fields,
        "columns": table.columns,
        "first_rows": table.first_rows,
        "is_image_zip": table.brings_images and table.columns == IMAGE_ONLY_COLUMNS,
        "outcome": upload.outcome,
    }
    return render(request, "datasets_app/dataset_import.html", context)


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_norms(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Import a table of norms into a draft. The URL's `upload` names the table that a worker reads."""
    dataset = get_visible_draft(request, slug, version)
    upload = pending_uploads.find_upload(request.user.pk, request.GET.get("upload", ""))
    if upload is None or upload.norms_of != dataset.pk:
        return (
            _store_norms(request, dataset) if request.method == "POST" else _render_norms(request, dataset, NormsForm())
        )
    if request.method == "POST":
        # Perform the action of a button: discard the table or read it again. A new table replaces the upload.
        if "again" in request.POST:
            upload.retry_job()
            return redirect(_make_norms_url(dataset, upload))
        upload.discard()
        if "discard" not in request.POST:
            return _store_norms(request, dataset)
        messages.success(request, "The upload was discarded; nothing was saved.")
        return redirect("dataset_norms", dataset.slug, dataset.version)
    job = upload.job
    if job is None or job.is_active or job.state == "failed":
        return _render_progress(request, upload, job, dataset)
    if wants_part(request):
        return HttpResponseClientRefresh()
    # Redirect to the dataset's details after an import, or show the errors of the table above the form.
    outcome = upload.outcome
    if outcome and outcome.ok and outcome.norms:
        upload.discard()
        messages.success(request, f"{outcome.norms} norms are stored.")
        return redirect("dataset_about", dataset.slug, dataset.version)
    return _render_norms(request, dataset, NormsForm(), outcome, upload.table_name)


def _store_norms(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    """Store the table for a worker."""
    form = NormsForm(request.POST, request.FILES)
    if form.is_valid():
        try:
            files = {"norms": form.cleaned_data["norms"]}
            upload = pending_uploads.stage_upload(request.user, files, slug=dataset.slug, about={}, norms_of=dataset.pk)
        except pending_uploads.TooLarge as error:
            form.add_error("norms", f"This file {error}.")
        else:
            upload.request_job("norms")
            return redirect(_make_norms_url(dataset, upload))
    return _render_norms(request, dataset, form)


def _render_norms(
    request: HttpRequest, dataset: Dataset, form: NormsForm, outcome: JobResult | None = None, name: str = ""
) -> HttpResponse:
    context = {"form": form, "dataset": dataset, "outcome": outcome, "table_name": name}
    return render(request, "datasets_app/dataset_norms.html", context)


def _make_norms_url(dataset: Dataset, upload: PendingUpload) -> str:
    return f"{reverse('dataset_norms', args=[dataset.slug, dataset.version])}?upload={upload.token}"
