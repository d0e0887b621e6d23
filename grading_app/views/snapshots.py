"""The creation of a snapshot from the page of files, and the download of its file."""

from __future__ import annotations

from django.contrib import messages
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from datasets_app.models import BackgroundJob
from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.exports import SnapshotForm
from grading_app.models import Snapshot
from grading_app.publish.export.snapshots import SnapshotError, refuse_while_live
from grading_app.views.files import render_files
from runs_app.views.permissions import get_editable_experiment, get_visible_experiment

SNAPSHOT_TASK = "grading_app.tasks.snapshot_experiment"
# The time limit of a task that writes all tables. It is below the retry time of the queue.
TIMEOUT_SECONDS = 3000


@require_POST
@members_only
@hides_model_names()
def snapshot_make(request: HttpRequest, slug: str) -> HttpResponse:
    """Request a snapshot; the task queue writes it. While one is requested, a second request changes nothing."""
    experiment = get_editable_experiment(request, slug)
    form = SnapshotForm(request.POST)
    if form.is_valid():
        try:
            refuse_while_live(experiment)
        except SnapshotError as error:
            form.add_error(None, str(error))
    if not form.is_valid():
        return render_files(request, experiment, form)
    _, is_new = BackgroundJob.objects.request(
        Snapshot.get_job_subject(experiment),
        "snapshot",
        task=SNAPSHOT_TASK,
        timeout_s=TIMEOUT_SECONDS,
        by=request.user,
        parameters={**form.cleaned_data, "experiment": experiment.pk},
    )
    if not is_new:
        messages.info(request, "A snapshot is already being created, so no second one was requested.")
    return redirect(f"{reverse('experiment_files', args=[slug])}#snapshots")


@require_safe
@readers_only
def snapshot_file(request: HttpRequest, slug: str, digest: str) -> FileResponse:
    # Snapshots of the same second, label and author have the same digest, and share one file.
    snapshot = Snapshot.objects.filter(experiment=get_visible_experiment(request, slug), digest=digest).first()
    if snapshot is None:
        raise Http404
    try:
        file = snapshot.path.open("rb")
    except FileNotFoundError:
        raise Http404 from None
    name = f"{slug}-{digest[:12]}.zip"
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/zip")
