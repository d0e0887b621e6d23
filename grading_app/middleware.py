"""Middleware that asks a blind reader to reveal names before a page shows them.

It denies by default. A view of an experiment runs for a blind reader only if `hides_model_names` marks it. A page
without the mark asks first, also a page that is added later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_names_for
from evalsite.lib.web.problem_responses import is_for_programs, make_problem
from grading_app.models import BlindReading, ShareLink
from runs_app.models import Experiment

ROUTES_WITHOUT_EXPERIMENT = re.compile(
    r"(?!admin/)(accounts/|datasets/|assets/|endpoints/|workers/|healthz|llms\.txt$|styleguide/|ratings/(?!queues/<))"
    r"|admin/(?:$|(?:auth|datasets_app|lib)/|(?:login|logout|jsi18n|password_change)/"
    r"|runs_app/(?:$|(?:prompt|sampler|dimension|endpoint|languagemodel|worker)/)"
    r"|grading_app/(?:$|(?:rubric|panel)/))"
    r"|metrics$|api/v1/(?:$|openapi\.json|experiments$|(?:datasets|prompts|models)(?:/|$))"
)
"""Routes of pages that do not belong to an experiment: accounts, datasets, the site's models, a rater's blind pages."""
FILE_VIEWS = frozenset({"trial_text", "trial_message", "experiment_message"})
"""Names of addresses of files that look like pages."""
EXPERIMENT_LOOKUPS: dict[str, str] = {
    "experiments/<slug:slug>/": "experiment__slug",
    "runs/<int:pk>/": "experiment__runs",
    "trials/<int:pk>/": "experiment__runs__trials",
    "batches/<int:pk>/": "experiment__runs__batches",
    "items/<int:pk>/": "experiment__dataset__items",
    "ratings/queues/<slug:name>/": "experiment__rating_queues__name",
    "api/v1/experiments/<slug:name>": "experiment__slug",
    "gateway/<slug:slug>/": "experiment__slug",
    "api/v1/runs/<int:number>": "experiment__runs",
    "api/v1/trials/<int:number>": "experiment__runs__trials",
}
"""The lookup of the experiments that a page belongs to, by the beginning of its route. Others belong to all of them."""
FILTERED_LISTS = frozenset({"trial_list", "batch_list"})
"""Names of lists that show rows of one experiment only, if the parameter `experiment` names one."""


class BlindPagesMiddleware:
    """Middleware that asks a reader whose names are hidden to reveal them, in place of a page that may show them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or not request.user.is_authenticated:
            return None
        if ROUTES_WITHOUT_EXPERIMENT.match(match.route) or hides_names_for(view, request):
            return None
        readings = _find_hidden_readings(request, match.route, match.url_name or "", kwargs)
        return _render_question(request, readings) if readings else None


def _find_hidden_readings(request: HttpRequest, route: str, name: str, kwargs: Mapping[str, Any]) -> list[BlindReading]:
    """Return the reader's blind readings of the experiments that the page belongs to; of all, if it shows all."""
    hidden = BlindReading.objects.hidden_for(request.user)
    if not hidden.exists():  # The usual case, at each request.
        return []
    visible = Experiment.objects.visible_to(request.user)
    hidden = hidden.filter(experiment__in=visible)
    if route.startswith("shared/"):
        link = ShareLink.objects.find(kwargs["token"])
        hidden = hidden.filter(experiment=link.experiment if link else None)
    lookup = next((lookup for start, lookup in EXPERIMENT_LOOKUPS.items() if route.startswith(start)), "")
    chosen = request.GET.get("experiment", "").strip() if name in FILTERED_LISTS else ""
    if lookup:
        hidden = hidden.filter(Q((lookup, next(iter(kwargs.values()))))).distinct()
    elif chosen and visible.filter(slug=chosen).exists():
        hidden = hidden.filter(experiment__slug=chosen)
    return list(hidden.select_related("experiment__dataset", "experiment__owner"))


def _render_question(request: HttpRequest, readings: list[BlindReading]) -> HttpResponse:
    """Return the page that offers to reveal names. Its status is 200 in place of a page, 403 for files and changes."""
    if is_for_programs(request):
        names = ", ".join(reading.experiment.slug for reading in readings)
        return make_problem(403, f"You read {names} blind. Reveal the names on its page first.")
    is_page = request.method in ("GET", "HEAD") and request.path.endswith("/")
    is_page = is_page and getattr(request.resolver_match, "url_name", "") not in FILE_VIEWS
    context = {
        "readings": readings,
        "experiment": readings[0].experiment if len(readings) == 1 else None,
        "next": request.get_full_path() if request.method in ("GET", "HEAD") else "",
    }
    response = render(request, "grading_app/names_hidden.html", context, status=200 if is_page else 403)
    if wants_part(request):
        response["HX-Refresh"] = "true"  # The question is a whole page, which must not replace a part of one.
    return response
