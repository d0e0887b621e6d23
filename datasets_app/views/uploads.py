"""From a file to a draft in two steps, and norms to a draft in one. Either all of a file is saved, or nothing."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from datasets_app import uploading
from datasets_app.drafts import CurationError
from datasets_app.forms import MappingForm, NormsForm, UploadForm
from datasets_app.importing import NormReading, Reading
from datasets_app.models import Dataset, TransitionError
from datasets_app.views.fetching import visible_draft
from evalsite.lib.access import members_only

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_new(request: HttpRequest) -> HttpResponse:
    """The first step keeps the files; nothing is in the database yet."""
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        waiting = _staged(request, form)
        if waiting:
            return redirect("dataset_import", waiting.token)
    return render(request, "datasets_app/dataset_new.html", {"form": form})


def _staged(request: HttpRequest, form: UploadForm) -> uploading.Waiting | None:
    """None where the table cannot be read at all; the form says why, and no file is kept."""
    slug = form.cleaned_data["slug"]
    try:
        waiting = uploading.stage(request.user, form.parts(), slug=slug, about=form.about())
    except uploading.TooLarge as error:
        form.add_error("file" if error.part == "items" else error.part, f"This file {error}.")
        return None
    problem = uploading.refusal(waiting)
    if problem:
        waiting.discard()
        form.add_error("file", f"This file cannot be read: {problem}.")
        return None
    return waiting


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_import(request: HttpRequest, token: str) -> HttpResponse:
    """The second step: which column is what, a trial reading, and the import."""
    waiting = uploading.waiting_upload(request.user, token)
    if waiting is None:
        raise Http404
    if "discard" in request.POST:
        waiting.discard()
        messages.success(request, "The upload was discarded; nothing was saved.")
        return redirect("dataset_new")
    columns, first_rows = waiting.columns()
    form = MappingForm(request.POST or None, columns=columns, guess=waiting.guess(columns))
    context = {"waiting": waiting, "form": form, "columns": columns, "first_rows": first_rows}
    if request.method == "POST" and form.is_valid():
        reading, norms = waiting.read(form.mapping)
        dataset = None if "check" in request.POST else _saved(request, waiting, form, reading, norms)
        if dataset:
            return _imported(request, dataset, reading, norms)
        context |= _report(form, reading, norms)
    return render(request, "datasets_app/dataset_import.html", context)


def _saved(
    request: HttpRequest, waiting: uploading.Waiting, form: MappingForm, reading: Reading, norms: NormReading
) -> Dataset | None:
    """None, and nothing saved, where the files have errors or the name cannot be one."""
    if not (reading.ok and norms.ok):
        return None
    try:
        return uploading.save(waiting, reading, norms, by=request.user)
    except CurationError as error:
        form.add_error(None, str(error))
        return None


def _imported(request: HttpRequest, dataset: Dataset, reading: Reading, norms: NormReading) -> HttpResponse:
    messages.success(request, f"{dataset} is a draft of {dataset.item_count} items.")
    if reading.report.warning_total or norms.report.warning_total:
        return redirect("dataset_about", dataset.slug, dataset.version)  # Where they are kept.
    return redirect(dataset)


def _report(form: MappingForm, reading: Reading, norms: NormReading) -> dict[str, Any]:
    """What the reading found; what concerns an expression is also said at its field."""
    form.point_at(uploading.misplaced(reading.errors))
    return {"reading": reading, "norms": norms, "all_right": reading.ok and norms.ok}


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_norms(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    dataset = visible_draft(request, slug, version)
    form = NormsForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"form": form, "dataset": dataset}
    if request.method == "POST" and form.is_valid():
        try:
            reading = uploading.import_norms(dataset, form.cleaned_data["norms"], by=request.user)
        except (CurationError, TransitionError) as error:
            form.add_error("norms", str(error))
        else:
            if reading.ok and reading.norms:
                messages.success(request, f"{len(reading.norms)} norms are stored.")
                return redirect("dataset_about", slug, version)
            context["norms"] = reading
    return render(request, "datasets_app/dataset_norms.html", context)
