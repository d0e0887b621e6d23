"""The creation of a snapshot from the results page, and the download of its file."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.web.form_errors import get_first_error
from evalsite.lib.web.model_names import hides_model_names
from grading_app.export.snapshots import SnapshotError, refuse_while_live
from grading_app.models import Snapshot
from runs_app.views.permissions import editable_experiment, visible_experiment

SNAPSHOT_TASK = "grading_app.tasks.snapshot_experiment"
# The time limit of a task that writes all tables. It is below the retry time of the queue.
TIMEOUT_SECONDS = 3000


class SnapshotForm(forms.Form):
    label = forms.CharField(max_length=80, required=False, help_text="For example: submission")
    reason = forms.CharField(max_length=500, label="Reason", help_text="The purpose; stored in the study card")


@require_POST
@members_only
@hides_model_names()
def snapshot_make(request: HttpRequest, slug: str) -> HttpResponse:
    """Request a snapshot; the task queue writes it."""
    from django_q.tasks import async_task

    experiment = editable_experiment(request, slug)
    form = SnapshotForm(request.POST)
    try:
        refuse_while_live(experiment)
    except SnapshotError as error:
        messages.error(request, str(error))
        return redirect("experiment_results", slug)
    if form.is_valid():
        cleaned = form.cleaned_data
        async_task(
            SNAPSHOT_TASK, experiment.pk, cleaned["label"], cleaned["reason"], request.user.pk, timeout=TIMEOUT_SECONDS
        )
        messages.success(request, "The snapshot is being created. It appears here when it is complete.")
    else:
        messages.error(request, get_first_error(form))
    return redirect("experiment_results", slug)


@require_safe
@readers_only
def snapshot_file(request: HttpRequest, slug: str, digest: str) -> FileResponse:
    # Snapshots of the same second, label and author have the same digest, and share one file.
    snapshot = Snapshot.objects.filter(experiment=visible_experiment(request, slug), digest=digest).first()
    if snapshot is None:
        raise Http404
    try:
        file = snapshot.path.open("rb")
    except FileNotFoundError:
        raise Http404 from None
    name = f"{slug}-{digest[:12]}.zip"
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/zip")
