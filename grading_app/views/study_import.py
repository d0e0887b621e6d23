"""The import of a study from files: upload with a dry run by a worker, then its report, then the import.

Nothing is saved before the second step. The files and the entries remain until then, and after an error.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRefresh

from datasets_app import pending_uploads
from datasets_app.job_texts import describe_job
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.pending_uploads import PendingUpload
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.htmx import wants_part
from grading_app.study_import.forms import StudyUploadForm
from grading_app.study_import.import_jobs import CHECK, IMPORT, TASK, load_report
from grading_app.study_import.importers import FORMATS
from runs_app.models import Experiment
from runs_app.views.permissions import get_visible_experiment

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def study_import_new(request: HttpRequest) -> HttpResponse:
    """Store the files and have a worker check them. The files remain if another field has an error."""
    token = request.POST.get("upload", request.GET.get("upload", ""))
    previous = pending_uploads.find_upload(request.user.pk, token, TASK)
    sent = (request.POST, request.FILES) if request.method == "POST" else ()
    initial = dict(previous.about) if previous else None
    form = StudyUploadForm(*sent, user=request.user, previous=previous, initial=initial)
    if request.method == "POST":
        valid = form.is_valid()
        upload = _stage(request, form, previous)
        if valid and upload and form.is_valid():
            upload.delete_result()
            upload.request_job(CHECK, form.about())
            return redirect("study_import", upload.token)
        if upload:
            form.reuse_files(upload)
    fetch_choices(form)
    return render(request, "grading_app/study_import_new.html", {"form": form, "formats": FORMATS.values()})


def _stage(request: HttpRequest, form: StudyUploadForm, previous: PendingUpload | None) -> PendingUpload | None:
    """Store the valid files that were sent, in place of all former ones, and return the upload; None for no files."""
    parts, about = form.parts(), form.about()
    if not parts:
        return previous.describe(about["slug"], about) if previous else None
    try:
        upload = pending_uploads.stage_upload(request.user, parts, slug=about["slug"], about=about, task=TASK)
    except pending_uploads.TooLarge as error:
        form.add_error("study", f"A file {error}.")
        return previous
    if previous:
        previous.discard()
    return upload


@require_http_methods(READ_OR_WRITE)
@members_only
def study_import(request: HttpRequest, token: str) -> HttpResponse:
    """Show the progress of the worker, then the report of the dry run, and import the study."""
    upload = pending_uploads.find_upload(request.user.pk, token, TASK)
    if upload is None:
        raise Http404
    job, report = upload.job, load_report(upload)
    if request.method == "POST":
        if "discard" in request.POST:
            upload.discard()
            messages.success(request, "The upload was discarded; nothing was saved.")
            return redirect("study_import_new")
        if "again" in request.POST:
            upload.retry_job()
        elif "import" in request.POST and report and report.is_ok and job and not job.result:
            upload.request_job(IMPORT, upload.about)
        return redirect("study_import", upload.token)
    if job and job.result:
        return HttpResponseClientRefresh() if wants_part(request) else _redirect_to_result(request, job)
    if job is None or job.is_active or job.is_lost or report is None:
        context = {
            "upload": upload,
            "job": job,
            "texts": describe_job(upload, job),
            "polls": bool(job and job.is_waited_for),
            "address": reverse("study_import", args=[upload.token]),
            "other_files": f"{reverse('study_import_new')}?upload={upload.token}",
        }
        part = "datasets_app/partials/upload_progress.html"
        return render(request, part if wants_part(request) else "grading_app/study_import_reading.html", context)
    if wants_part(request):
        return HttpResponseClientRefresh()
    return render(request, "grading_app/study_import.html", {"upload": upload, "report": report})


def _redirect_to_result(request: HttpRequest, job: BackgroundJob) -> HttpResponse:
    """Redirect to the results of the study, to the page of a design, or to the dataset of a bundle."""
    if "dataset" in job.result:
        slug, version = job.result["dataset"]
        dataset = Dataset.objects.visible_to(request.user).filter(slug=slug, version=version).first()
        if dataset is None:
            raise Http404
        messages.success(request, f"{dataset} was imported.")
        return redirect(dataset)
    experiment = get_visible_experiment(request, job.result["experiment"])
    messages.success(request, f"{experiment} was imported.")
    if experiment.status == Experiment.Status.DRAFT:
        return redirect(experiment)
    return redirect("experiment_results", experiment.slug)
