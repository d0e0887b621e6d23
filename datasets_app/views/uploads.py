"""Views of imports: items to a new draft in two steps, norms to a draft in one. A file is saved whole or not at all.

A worker reads the files. Until it has finished, the page of the upload shows its progress and refreshes by itself.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRefresh

from datasets_app import pending_uploads
from datasets_app.forms import MappingForm, NormsForm, UploadForm
from datasets_app.importing.limited_reader import TableColumns
from datasets_app.models import Dataset
from datasets_app.pending_uploads import Job, Outcome, PendingUpload
from datasets_app.views.permissions import visible_draft
from evalsite.lib.permissions import members_only
from evalsite.lib.web.htmx import wants_part

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_new(request: HttpRequest) -> HttpResponse:
    """Store the files in the first step, without database rows. The files remain if another field has an error."""
    kept = _items_upload(request, request.POST.get("upload", request.GET.get("upload", "")))
    initial = {"slug": kept.slug, **kept.about} if kept else None
    sent = (request.POST, request.FILES) if request.method == "POST" else ()  # Bind the form even if no field was sent.
    form = UploadForm(*sent, kept=kept, initial=initial)
    if request.method == "POST":
        valid = form.is_valid()
        waiting = _stage(request, form, kept)
        if valid and waiting and form.is_valid():
            waiting.ask("columns")
            return redirect("dataset_import", waiting.token)
        if waiting:
            form.keep(waiting)
    return render(request, "datasets_app/dataset_new.html", {"form": form})


def _items_upload(request: HttpRequest, token: str) -> PendingUpload | None:
    waiting = pending_uploads.find_upload(request.user.pk, token)
    return waiting if waiting and waiting.norms_of is None else None


def _stage(request: HttpRequest, form: UploadForm, kept: PendingUpload | None) -> PendingUpload | None:
    """Store the valid files that were sent and return the upload.

    Return None if there is nothing to store. If a file is too large, add an error to the form.
    """
    parts = form.parts()
    if not parts and kept is None:
        return None
    slug = form.cleaned_data.get("slug", "")
    try:
        return pending_uploads.stage_upload(request.user, parts, slug=slug, about=form.about(), kept=kept)
    except pending_uploads.TooLarge as error:
        form.add_error("file" if error.part == "items" else error.part, f"This file {error}.")
        return kept


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_import(request: HttpRequest, token: str) -> HttpResponse:
    """Map the columns in the second step, check the reading, and import it."""
    waiting = _items_upload(request, token)
    if waiting is None:
        raise Http404
    if request.method == "POST":
        return _asked(request, waiting)
    job, table = waiting.job, waiting.table
    if job and job.dataset:
        return _imported(request, waiting, job)
    if job is None or job.is_active or table is None:
        return _progress(request, waiting, job)
    if wants_part(request):
        return HttpResponseClientRefresh()
    return _mapping_page(request, waiting, table, _form_of(waiting, table, waiting.outcome))


def _asked(request: HttpRequest, waiting: PendingUpload) -> HttpResponse:
    """Perform the action of a button: discard the upload, retry, check or import it."""
    if "discard" in request.POST:
        waiting.discard()
        messages.success(request, "The upload was discarded; nothing was saved.")
        return redirect("dataset_new")
    table = waiting.table
    if "again" in request.POST:
        waiting.ask_again()
    elif table is not None and not (waiting.job and waiting.job.dataset):
        form = MappingForm(request.POST, columns=table.columns, guess=waiting.guess(table))
        if not form.is_valid():
            return _mapping_page(request, waiting, table, form)
        entered = {name: request.POST[name] for name in form.fields if name in request.POST}
        waiting.ask("check" if "check" in request.POST else "import", form.mapping, entered)
    return redirect("dataset_import", waiting.token)


def _progress(
    request: HttpRequest, waiting: PendingUpload, job: Job | None, norms_of: Dataset | None = None
) -> HttpResponse:
    """Show the worker's progress, or the reason why there is none. htmx reloads this part while the job is active."""
    context = {
        "waiting": waiting,
        "job": job,
        "orphaned": waiting.is_orphaned,
        "norms_of": norms_of,
        "address": _norms_url(norms_of, waiting) if norms_of else reverse("dataset_import", args=[waiting.token]),
        "other_files": _other_files(waiting, norms_of),
    }
    part = "datasets_app/partials/upload_progress.html"
    return render(request, part if wants_part(request) else "datasets_app/dataset_reading.html", context)


def _other_files(waiting: PendingUpload, norms_of: Dataset | None) -> str:
    """Return the address of the form that replaces the files."""
    if norms_of:
        return reverse("dataset_norms", args=[norms_of.slug, norms_of.version])
    if waiting.job and waiting.job.kind == "parametric":
        return f"{reverse('parametric_new')}?upload={waiting.token}"
    return f"{reverse('dataset_new')}?upload={waiting.token}"


def _form_of(waiting: PendingUpload, table: TableColumns, outcome: Outcome | None) -> MappingForm:
    """Return the mapping form with the last input and its errors, or with the guessed mapping."""
    sent = outcome.entered if outcome else None
    form = MappingForm(sent or None, columns=table.columns, guess=waiting.guess(table))
    if outcome and sent and form.is_valid():
        form.point_at(pending_uploads.mapping_errors(outcome.report.errors))
        if outcome.error:
            form.add_error(None, outcome.error)
    return form


def _mapping_page(request: HttpRequest, waiting: PendingUpload, table: TableColumns, form: MappingForm) -> HttpResponse:
    context = {
        "waiting": waiting,
        "form": form,
        "columns": table.columns,
        "first_rows": table.first_rows,
        "outcome": waiting.outcome,
    }
    return render(request, "datasets_app/dataset_import.html", context)


def _imported(request: HttpRequest, waiting: PendingUpload, job: Job) -> HttpResponse:
    """Redirect to the dataset, or to its details page if there are warnings. htmx then loads the whole page."""
    if wants_part(request):
        return HttpResponseClientRefresh()
    slug, version = job.dataset or ("", 0)
    dataset = Dataset.objects.filter(slug=slug, version=version).first()
    if dataset is None:
        raise Http404
    messages.success(request, f"{dataset} is a draft of {dataset.item_count} items.")
    outcome = waiting.outcome
    if outcome and (outcome.report.warning_total or outcome.norms_report.warning_total):
        return redirect("dataset_about", slug, version)
    return redirect(dataset)


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_norms(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Import a table of norms into a draft. The URL's `upload` names the table that a worker reads."""
    dataset = visible_draft(request, slug, version)
    waiting = _norms_upload(request, dataset)
    if waiting is None:
        return _norms_sent(request, dataset) if request.method == "POST" else _norms_page(request, dataset, NormsForm())
    if request.method == "POST":
        return _norms_asked(request, dataset, waiting)
    job = waiting.job
    if job is None or job.is_active or job.state == "failed":
        return _progress(request, waiting, job, dataset)
    if wants_part(request):
        return HttpResponseClientRefresh()
    return _norms_read(request, dataset, waiting)


def _norms_upload(request: HttpRequest, dataset: Dataset) -> PendingUpload | None:
    waiting = pending_uploads.find_upload(request.user.pk, request.GET.get("upload", ""))
    return waiting if waiting and waiting.norms_of == dataset.pk else None


def _norms_sent(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    """Store the table for a worker."""
    form = NormsForm(request.POST, request.FILES)
    if form.is_valid():
        try:
            files = {"norms": form.cleaned_data["norms"]}
            waiting = pending_uploads.stage_upload(
                request.user, files, slug=dataset.slug, about={}, norms_of=dataset.pk
            )
        except pending_uploads.TooLarge as error:
            form.add_error("norms", f"This file {error}.")
        else:
            waiting.ask("norms")
            return redirect(_norms_url(dataset, waiting))
    return _norms_page(request, dataset, form)


def _norms_asked(request: HttpRequest, dataset: Dataset, waiting: PendingUpload) -> HttpResponse:
    """Perform the action of a button: discard the table or read it again. A new table replaces the upload."""
    if "again" in request.POST:
        waiting.ask_again()
        return redirect(_norms_url(dataset, waiting))
    waiting.discard()
    if "discard" not in request.POST:
        return _norms_sent(request, dataset)
    messages.success(request, "The upload was discarded; nothing was saved.")
    return redirect("dataset_norms", dataset.slug, dataset.version)


def _norms_read(request: HttpRequest, dataset: Dataset, waiting: PendingUpload) -> HttpResponse:
    """Redirect to the dataset's details after an import, or show the errors of the table above the form."""
    outcome = waiting.outcome
    if outcome and outcome.ok and outcome.norms:
        waiting.discard()
        messages.success(request, f"{outcome.norms} norms are stored.")
        return redirect("dataset_about", dataset.slug, dataset.version)
    return _norms_page(request, dataset, NormsForm(), outcome, waiting.table_name)


def _norms_page(
    request: HttpRequest, dataset: Dataset, form: NormsForm, outcome: Outcome | None = None, name: str = ""
) -> HttpResponse:
    context = {"form": form, "dataset": dataset, "outcome": outcome, "table_name": name}
    return render(request, "datasets_app/dataset_norms.html", context)


def _norms_url(dataset: Dataset, waiting: PendingUpload) -> str:
    return f"{reverse('dataset_norms', args=[dataset.slug, dataset.version])}?upload={waiting.token}"
