"""The views of the home page, the health check and, in debug mode, the style guide."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from datasets_app.models import Dataset
from evalsite.lib.permissions import is_member, is_operator, is_reader
from evalsite.lib.web.model_names import hides_model_names
from runs_app.models import Experiment, LanguageModel, Run
from runs_app.monitoring.health import measure_worker_health
from runs_app.monitoring.progress import Totals, annotate_totals, find_experiment_state, read_totals

MAX_RECENT = 8
MAX_STARRED = 12  # Of each kind.


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
@hides_model_names()
def home(request: HttpRequest) -> HttpResponse:
    if not is_reader(request.user):
        return _redirect_non_member(request)
    experiments = Experiment.objects.visible_to(request.user).with_star(request.user)
    visible = experiments.exclude(status=Experiment.Status.ARCHIVED)
    running = visible.filter(pk__in=Run.objects.filter(status__in=Run.UNDER_WAY).values("experiment"))
    context = {
        "favourites": _list_favourites(request.user),
        "running": _list_with_progress(running),
        "recent": _list_with_progress(visible.exclude(pk__in=running.values("pk"))),
        "steps": _list_setup_steps(request.user),
        "may_design": is_member(request.user),
    }
    return render(request, "home.html", context)


def _redirect_non_member(request: HttpRequest) -> HttpResponse:
    """Redirect a rater to the rating queue. Show a person without a role a page that says so, to avoid a loop."""
    try:
        return redirect(reverse("rating_queue"))
    except NoReverseMatch:
        return render(request, "home_without_role.html")


def _list_favourites(user: Any) -> list[dict[str, Any]]:
    """Return the experiments and datasets that the user starred, by name. The lists show any further ones."""
    return [
        {"kind": kind, "row": row}
        for kind, model in (("Experiment", Experiment), ("Dataset", Dataset))
        for row in model.objects.visible_to(user).with_star(user).filter(is_starred=True).order_by("slug")[:MAX_STARRED]
    ]


def _list_with_progress(experiments: Any) -> list[dict[str, Any]]:
    rows = annotate_totals(experiments.select_related("dataset", "owner"))[:MAX_RECENT]
    return [_summarise(row, read_totals(row)) for row in rows]


def _summarise(experiment: Any, totals: Totals) -> dict[str, Any]:
    return {
        "experiment": experiment,
        "totals": totals,
        "state": find_experiment_state(experiment, totals),
        "cost": totals.find_known_cost(experiment.spent_usd),
    }


def _list_setup_steps(user: Any) -> list[dict[str, Any]]:
    """Return the steps from an empty database to a first experiment, or [] once they are all done."""
    if not is_member(user):
        return []
    has_dataset = Dataset.objects.filter(status=Dataset.Status.APPROVED).exists()
    has_model = LanguageModel.objects.filter(is_active=True, endpoint__is_active=True).exists()
    has_experiment = Experiment.objects.visible_to(user).exists()
    if has_dataset and has_model and has_experiment:
        return []
    can_design = has_dataset and has_model
    return [
        _build_step("Import a dataset and have it approved", "dataset_list", has_dataset, "Datasets"),
        _build_step(
            "Add an endpoint and a model", "endpoint_list", has_model, "Endpoints", is_allowed=is_operator(user)
        ),
        _build_step(
            "Design an experiment",
            "experiment_new",
            has_experiment,
            "New experiment",
            is_allowed=can_design,
        ),
    ]


def _build_step(text: str, url_name: str, done: bool, label: str, *, is_allowed: bool = True) -> dict[str, Any]:
    try:
        url = reverse(url_name) if is_allowed and not done else ""
    except NoReverseMatch:
        url = ""
    return {"text": text, "url": url, "done": done, "label": label}


@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    from evalsite.styleguide import build_context  # Import late: no other page needs these made-up rows.

    return render(request, "styleguide.html", build_context(request))
