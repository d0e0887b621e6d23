"""The page of workers on all machines, alive and silent."""

from __future__ import annotations

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.ops.versions import get_version
from evalsite.lib.permissions import members_only
from evalsite.lib.web.htmx import wants_part
from runs_app.models import ProviderBatch, Worker
from runs_app.monitoring.progress import find_worker_state
from runs_app.tables.batches import BatchTable
from runs_app.tables.workers import WorkerTable

SHOWN = 100  # The most recently seen workers: drains of a task queue start and end each minute.


@require_safe
@members_only
def worker_list(request: HttpRequest) -> HttpResponse:
    """Show the workers; a poll gets the live part only. Liveness uses the database's clock, as heartbeats do."""
    workers = list(Worker.objects.annotate(now=Now()).order_by("-seen_at", "-pk")[:SHOWN])
    states = [find_worker_state(worker, worker.now) for worker in workers]
    others = [
        worker.version != get_version() for worker, state in zip(workers, states, strict=True) if state == "alive"
    ]
    context = {
        "table": WorkerTable(workers),
        "alive": states.count("alive"),
        "silent": states.count("silent"),
        "of_other_version": sum(others),
        "version": get_version(),
        "batches": _open_batches(request),
    }
    is_poll = wants_part(request)
    return render(request, "runs_app/partials/workers_live.html" if is_poll else "runs_app/worker_list.html", context)


def _open_batches(request: HttpRequest) -> BatchTable | None:
    """Return the open batches of visible experiments, or None. A batch needs no worker while its provider
    processes it."""
    batches = list(ProviderBatch.objects.visible_to(request.user).open().order_by("-pk")[:SHOWN])
    return BatchTable(batches) if batches else None
