"""The page of the workers on all machines."""

from __future__ import annotations

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.ops.versions import get_version
from evalsite.lib.permissions import members_only
from evalsite.lib.web.htmx import wants_part
from runs_app.models import ProviderBatch, Worker
from runs_app.tables.batches import BatchTable, WorkerTable

MAX_ROWS = 100  # Of the most recently seen workers, because drains of the task queue start and end each minute.


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
