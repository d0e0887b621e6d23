"""The pages of provider batches: the list, one batch with its history, and its cancellation."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from datasets_app.tables import HistoryTable
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.list_page import ListPage
from runs_app import run_control
from runs_app.filters import BatchFilter
from runs_app.forms.run_control import RunControlForm
from runs_app.models import ProviderBatch
from runs_app.tables.batches import BatchListTable
from runs_app.views.permissions import get_editable_experiment, get_visible_batch, may_edit

BATCHES = ListPage(BatchListTable, "runs_app/batch_list.html", BatchFilter, per_page=50)


@require_safe
@readers_only
def batch_list(request: HttpRequest) -> HttpResponse:
    """Show the batches of all experiments that the user can see, latest first."""
    visible = ProviderBatch.objects.visible_to(request.user).select_related("run__experiment", "endpoint")
    hidden = () if is_member(request.user) else ("endpoint",)
    return BATCHES.render(request, BATCHES.load(request, visible, exclude=hidden))


@require_safe
@readers_only
def batch_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one batch. A poll gets the live part only."""
    batch = get_visible_batch(request, pk)
    experiment = batch.run.experiment
    context = {
        "batch": batch,
        "experiment": experiment,
        "history": HistoryTable(list(batch.history[:50])),
        "hides_outcomes": experiment.runs_a_plan,
        "can_cancel": batch.can_be_cancelled and may_edit(request, experiment),
    }
    is_poll = wants_part(request)
    return render(request, "runs_app/partials/batch_live.html" if is_poll else "runs_app/batch_detail.html", context)


@require_POST
@members_only
def batch_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    batch = get_visible_batch(request, pk)
    get_editable_experiment(request, batch.run.experiment.slug)
    form = RunControlForm(request.POST, reason_required=True)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
    elif run_control.cancel_batch(batch, by=request.user, reason=form.cleaned_data["reason"]):
        messages.success(request, "The batch is being cancelled. Its run is paused. Received answers are kept.")
    else:
        messages.warning(request, "Nothing changed: the batch has already ended.")
    return redirect(batch)
