"""The pages of provider batches and of the workers on all machines, with their tables.

A batch has a page with its history and its cancellation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.contrib import messages
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from datasets_app.tables import HistoryTable
from evalsite.lib.ops.versions import get_version
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.list_page import ListPage
from runs_app import run_control
from runs_app.filters import BatchFilter
from runs_app.forms.run_control import RunControlForm
from runs_app.models import Preregistration, ProviderBatch, Worker
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn, TimeColumn
from runs_app.views.permissions import get_editable_experiment, get_visible_batch, may_edit


class WorkerTable(tables.Table):
    """Workers with their state at `now`, the time of the query."""

    BADGES: ClassVar = {"alive": ("running", "Alive"), "silent": ("dead", "Silent"), "stopped": ("finished", "Stopped")}

    host = tables.Column()
    pid = tables.Column(verbose_name="Process", attrs=NUMBER)
    state = tables.Column(empty_values=())
    version = tables.Column(attrs=TIGHT)
    in_flight = CountColumn(verbose_name="In flight")
    per_minute = CountColumn(verbose_name="Trials per minute")
    recorded = CountColumn(verbose_name="Recorded")
    started_at = TimeColumn(verbose_name="Started")
    seen_at = TimeColumn(verbose_name="Last heartbeat")
    stopped_at = TimeColumn(verbose_name="Stopped")

    class Meta:
        model = Worker
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_pid(self, value: int) -> str:
        return str(value)

    def render_state(self, record: Any) -> SafeString:
        status, label = self.BADGES[record.find_state(record.now)]
        return tags.status_badge(status, label=label)

    def render_version(self, value: str) -> SafeString:
        if value == get_version():
            return format_html('<span class="mono">{}</span>', value)
        return format_html('<span class="mono">{}</span> <span class="chip">different</span>', value)

    def render_per_minute(self, value: float) -> str:
        return number_format.format_count(round(value))


class BatchTable(tables.Table):
    """The batches of one run, latest first. How they ended is hidden until a preregistered plan has run."""

    id = tables.Column(verbose_name="Batch", linkify=True, attrs=TIGHT)
    status = tables.Column(attrs=TIGHT)
    provider_id = tables.Column(verbose_name="At the provider", attrs={"td": {"class": "mono clip clip-short"}})
    n_requests = CountColumn(verbose_name="Calls")
    n_answered = CountColumn(verbose_name="Answered")
    n_failed = CountColumn(verbose_name="Failed")
    spent_usd = MoneyColumn(verbose_name="Spent")
    saved_usd = MoneyColumn(verbose_name="Saved")
    submitted_at = TimeColumn(verbose_name="Submitted")

    class Meta:
        model = ProviderBatch
        fields = ()
        default = number_format.MISSING
        orderable = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans = set(Preregistration.objects.unfinished().values_list("experiment", flat=True))

    def render_id(self, value: int) -> str:
        return f"batch {value}"

    def render_n_answered(self, record: ProviderBatch) -> str:
        return self._hide(record, number_format.format_count(record.n_answered))

    def render_n_failed(self, record: ProviderBatch) -> str:
        return self._hide(record, number_format.format_count(record.n_failed))

    def render_spent_usd(self, record: ProviderBatch) -> str:
        return self._hide(record, tags.money(record.spent_usd))

    def render_saved_usd(self, record: ProviderBatch) -> str:
        return self._hide(record, tags.money(record.saved_usd))

    def _hide(self, record: ProviderBatch, text: str) -> str:
        return number_format.MISSING if record.run.experiment_id in self.plans else text

    def render_status(self, record: ProviderBatch) -> SafeString:
        badge = tags.status_badge(record.status, title=record.error, label=record.get_status_display())
        if record.search_ends_at is None:
            return badge
        return format_html(
            '{} <small class="muted">searched until {}</small>', badge, tags.local_time(record.search_ends_at)
        )


class BatchListTable(BatchTable):
    """The batches of several runs and endpoints."""

    run = tables.Column(linkify=True, attrs=TIGHT)
    experiment = tables.Column(verbose_name="Experiment", accessor="run__experiment__slug")
    endpoint = tables.Column()

    class Meta(BatchTable.Meta):
        sequence = ("id", "status", "run", "experiment", "endpoint", "...")


MAX_ROWS = 100  # Of the most recently seen workers, because drains of the task queue start and end each minute.
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


@require_safe
@members_only
def worker_list(request: HttpRequest) -> HttpResponse:
    """Show the workers, without the process of the gateway. A poll gets the live part only.

    Liveness uses the database's clock, as heartbeats do.
    """
    workers = list(Worker.objects.filter(is_gateway=False).annotate(now=Now()).order_by("-seen_at", "-pk")[:MAX_ROWS])
    states = [worker.find_state(worker.now) for worker in workers]
    version = get_version()
    alive = [worker for worker, state in zip(workers, states, strict=True) if state == "alive"]
    # The open batches of visible experiments, or None without any. A batch needs no worker while its provider
    # processes it.
    batches = list(
        ProviderBatch.objects.visible_to(request.user).open().select_related("run").order_by("-pk")[:MAX_ROWS]
    )
    context = {
        "table": WorkerTable(workers),
        "alive": len(alive),
        "silent": states.count("silent"),
        "n_other_versions": sum(worker.version != version for worker in alive),
        "version": version,
        "batches": (BatchTable(batches) if batches else None),
    }
    is_poll = wants_part(request)
    return render(request, "runs_app/partials/workers_live.html" if is_poll else "runs_app/worker_list.html", context)
