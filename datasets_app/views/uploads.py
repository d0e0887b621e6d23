"""The views of imports: a file to a draft in two steps, norms to a draft in one. A file is saved whole or not at all.

A worker reads the files. Until it has finished, the page of the upload shows its progress and refreshes by itself.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRefresh

from datasets_app import pending_uploads, upload_jobs
from datasets_app.drafts import CurationError
from datasets_app.forms import MappingForm, NormsForm, UploadForm
from datasets_app.importing.limited_reader import TableColumns
from datasets_app.models import Dataset, TransitionError
from datasets_app.pending_uploads import Job, Outcome, Waiting
from datasets_app.views.permissions import visible_draft
from evalsite.lib.permissions import members_only
from evalsite.lib.web.htmx import wants_part

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_new(request: HttpRequest) -> HttpResponse:
    """Store the files in the first step, without database rows. The files remain if another field has an error."""
    kept = pending_uploads.waiting_upload(request.user.pk, request.POST.get("upload", request.GET.get("upload", "")))
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


def _stage(request: HttpRequest, form: UploadForm, kept: Waiting | None) -> Waiting | None:
    """Store the valid files that were sent and return the upload.

    Return None if there is nothing to store. If a file is too large, add an error to the form.
    """
    parts = form.parts()
    if not parts and kept is None:
        return None
    slug = form.cleaned_data.get("slug", "")
    try:
        return pending_uploads.stage(request.user, parts, slug=slug, about=form.about(), kept=kept)
    except pending_uploads.TooLarge as error:
        form.add_error("file" if error.part == "items" else error.part, f"This file {error}.")
        return kept


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_import(request: HttpRequest, token: str) -> HttpResponse:
    """Map the columns in the second step, check the reading, and import it."""
    waiting = pending_uploads.waiting_upload(request.user.pk, token)
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


def _asked(request: HttpRequest, waiting: Waiting) -> HttpResponse:
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


def _progress(request: HttpRequest, waiting: Waiting, job: Job | None) -> HttpResponse:
    """Show the worker's progress, or the reason why there is none. htmx reloads this part while the job is active."""
    context = {
        "waiting": waiting,
        "job": job,
        "orphaned": waiting.is_orphaned,
    }
    part = "datasets_app/partials/upload_progress.html"
    return render(request, part if wants_part(request) else "datasets_app/dataset_reading.html", context)


def _form_of(waiting: Waiting, table: TableColumns, outcome: Outcome | None) -> MappingForm:
    """Return the mapping form with the last input and its errors, or with the guessed mapping."""
    sent = outcome.entered if outcome else None
    form = MappingForm(sent or None, columns=table.columns, guess=waiting.guess(table))
    if outcome and sent and form.is_valid():
        form.point_at(pending_uploads.misplaced(outcome.report.errors))
        if outcome.error:
            form.add_error(None, outcome.error)
    return form


def _mapping_page(request: HttpRequest, waiting: Waiting, table: TableColumns, form: MappingForm) -> HttpResponse:
    context = {
        "waiting": waiting,
        "form": form,
        "columns": table.columns,
        "first_rows": table.first_rows,
        "outcome": waiting.outcome,
    }
    return render(request, "datasets_app/dataset_import.html", context)


def _imported(request: HttpRequest, waiting: Waiting, job: Job) -> HttpResponse:
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
    dataset = visible_draft(request, slug, version)
    form = NormsForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"form": form, "dataset": dataset}
    if request.method == "POST" and form.is_valid():
        try:
            reading = upload_jobs.import_norms(dataset, form.cleaned_data["norms"], by=request.user)
        except (CurationError, TransitionError, pending_uploads.TooLarge) as error:
            form.add_error("norms", str(error))
        else:
            if reading.ok and reading.norms:
                messages.success(request, f"{len(reading.norms)} norms are stored.")
                return redirect("dataset_about", slug, version)
            context["norms"] = reading
    return render(request, "datasets_app/dataset_norms.html", context)
