"""The views of the health check and, in debug mode, the style guide."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs_app.monitoring.health import measure_worker_health


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the site can serve pages, and 503 while the database does not answer.

    With `?workers=1`, also answer 503 while workers are stale or blocked. Anybody may ask, so the answer contains only
    counts and ages.
    """
    try:
        health = measure_worker_health()
    except DatabaseError:
        return JsonResponse({"status": "unavailable"}, status=503)
    oldest = health.oldest_waiting_task_s
    content = {
        "status": "ok",
        "workers": health.state,
        "workers_alive": health.alive,
        "oldest_waiting_task_s": None if oldest is None else round(oldest),
    }
    if health.state != "ok" and request.GET.get("workers") == "1":
        return JsonResponse(content | {"status": health.state}, status=503)
    return JsonResponse(content)


@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    from evalsite.styleguide import build_context  # Import late: no other page needs these made-up rows.

    return render(request, "styleguide.html", build_context(request))
