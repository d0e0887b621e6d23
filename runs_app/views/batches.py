"""One batch: where it is at its provider, what came of it, and its history; cancelled by those who may."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from evalsite.lib.access import members_only, readers_only
from runs_app import steering
from runs_app.forms import SteeringForm
from runs_app.views.fetching import editable_experiment, first_error, may_edit, visible_batch


@require_safe
@readers_only
def batch_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """The live part alone for a poll."""
    batch = visible_batch(request, pk)
    experiment = batch.run.experiment
    context = {
        "batch": batch,
        "experiment": experiment,
        "history": list(batch.history[:50]),
        "can_cancel": batch.can_be_cancelled and may_edit(request, experiment),
    }
    is_poll = request.htmx  # type: ignore[attr-defined]
    return render(request, "runs_app/partials/batch_live.html" if is_poll else "runs_app/batch_detail.html", context)


@require_POST
@members_only
def batch_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    batch = visible_batch(request, pk)
    editable_experiment(request, batch.run.experiment.slug)
    form = SteeringForm(request.POST, reason_required=True)
    if not form.is_valid():
        messages.error(request, first_error(form))
    elif steering.cancel_batch(batch, by=request.user, reason=form.cleaned_data["reason"]):
        messages.success(request, "The batch will be cancelled; its run is paused. What was answered by then is kept.")
    else:
        messages.warning(request, "Nothing changed: the provider has ended already.")
    return redirect(batch)
