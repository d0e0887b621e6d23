"""Middleware that asks a blind reader to reveal names before a page shows them.

It denies by default. A view of an experiment runs for a blind reader only if `hides_model_names` marks it. A page
without the mark asks first, also a page that is added later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_names_for
from evalsite.lib.web.problem_responses import is_for_programs, make_problem
from grading_app.models import BlindReading, ShareLink
from runs_app.models import Experiment, Preregistration

ROUTES_WITHOUT_EXPERIMENT = re.compile(
    r"(?!admin/)(accounts/|help/|welcome/|datasets/|assets/|endpoints/|workers/|healthz|llms\.txt$|styleguide/|ratings/(?!queues/<))"
    r"|admin/(?:$|(?:auth|datasets_app|lib)/|(?:login|logout|jsi18n|password_change)/"
    r"|runs_app/(?:$|(?:prompt|sampler|dimension|endpoint|languagemodel|worker)/)"
    r"|grading_app/(?:$|(?:rubric|panel)/))"
    r"|metrics$|api/v1/(?:$|openapi\.json|experiments$|(?:datasets|prompts|models)(?:/|$))"
)
"""Routes of pages of no experiment: accounts, help, datasets, the site's models, a rater's blind pages."""
FILE_VIEWS = frozenset({"trial_text", "trial_message", "experiment_message"})
"""Names of addresses of files that look like pages."""
EXPERIMENT_LOOKUPS: dict[str, str] = {
    "experiments/<slug:slug>/": "slug",
    "runs/<int:pk>/": "runs",
    "trials/<int:pk>/": "runs__trials",
    "batches/<int:pk>/": "runs__batches",
    "items/<int:pk>/": "dataset__items",
    "ratings/queues/<slug:name>/": "rating_queues__name",
    "api/v1/experiments/<slug:name>": "slug",
    "gateway/<slug:slug>/": "slug",
    "api/v1/runs/<int:number>": "runs",
    "api/v1/trials/<int:number>": "runs__trials",
}
"""The lookup of the experiments that a page belongs to, by the beginning of its route. Others belong to all of them."""
FILTERED_LISTS = frozenset({"trial_list", "batch_list"})
"""Names of lists that show rows of one experiment only, if the parameter `experiment` or `run` names it."""
LARGEST_RUN = 2**63 - 1
SHOWN_WHILE_A_PLAN_RUNS = frozenset(
    {
        "experiment_detail", "experiment_preregistration", "preregistration_text", "experiment_edit", "experiment_yaml",
        "experiment_manifest", "experiment_preview", "experiment_message", "experiment_duplicate", "experiment_extend",
        "experiment_preflight", "experiment_launch", "experiment_progress", "run_detail", "experiment_ledger", "ledger",
        "batch_list", "batch_detail", "batch_cancel", "leaderboard", "leaderboard_figure", "study_import_new",
        "study_import", "text_sets", "text_set", "text_of_item", "text_set_act",
        "experiment", "design", "status", "estimate", "launch", "pause", "resume", "cancel", "archive",
        "experiment_runs", "run", "gateway_models", "gateway_chat", "gateway_messages",
    }
)  # fmt: skip
"""Names of addresses without scores of a running experiment. A preregistered plan does not hide names on them."""


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
        if ROUTES_WITHOUT_EXPERIMENT.match(match.route) or not _may_hide(request.user):
            return None
        name, hides_names = match.url_name or "", hides_names_for(view, request)
        experiments, shows_all = _find_experiments(request, match.route, name, kwargs)
        runs_a_plan, is_read = name in SHOWN_WHILE_A_PLAN_RUNS, request.method in ("GET", "HEAD")
        if is_read and not runs_a_plan and not shows_all:
            BlindReading.objects.start_for_plans(request.user, experiments)
        if hides_names:
            return None
        hidden = BlindReading.objects.hidden_for(request.user).filter(experiment__in=experiments)
        readings = list(hidden.select_related("experiment__dataset", "experiment__owner"))
        if runs_a_plan:
            readings = [reading for reading in readings if not reading.must_stay_hidden]
        elif shows_all and is_read:
            # Rows of plans that have not run may be among those of all experiments. Nothing of them was read yet.
            plans = BlindReading.objects.list_unread_plans(request.user, experiments)
            readings += [BlindReading(experiment=plan, reader=request.user) for plan in plans]
        return _render_question(request, readings) if readings else None


def _may_hide(user: Any) -> bool:
    """Return whether names are hidden from this user, or a preregistered plan may hide some."""
    hidden = BlindReading.objects.hidden_for(user).order_by().values("pk")
    return hidden.union(Preregistration.objects.unfinished().values("pk")).exists()


def _find_experiments(
    request: HttpRequest, route: str, name: str, kwargs: Mapping[str, Any]
) -> tuple[QuerySet[Experiment], bool]:
    """Return the experiments that the page belongs to and that the user may see, and whether these are all of them."""
    visible = Experiment.objects.visible_to(request.user)
    if route.startswith("shared/"):
        link = ShareLink.objects.find(kwargs["token"])
        return visible.filter(pk=link.experiment_id if link else None), False
    lookup = next((lookup for start, lookup in EXPERIMENT_LOOKUPS.items() if route.startswith(start)), "")
    if lookup:
        return visible.filter(**{lookup: next(iter(kwargs.values()))}).distinct(), False
    if name in FILTERED_LISTS:
        for parameter, lookup in (("experiment", "slug"), ("run", "runs")):
            chosen = request.GET.get(parameter, "").strip()
            is_usable = chosen and (lookup == "slug" or (chosen.isdecimal() and int(chosen) <= LARGEST_RUN))
            if is_usable and (found := visible.filter(**{lookup: chosen})).exists():
                return found, False
    return visible, True


def _render_question(request: HttpRequest, readings: list[BlindReading]) -> HttpResponse:
    """Return the page that offers to reveal names. Its status is 200 in place of a page, 403 for files and changes."""
    if is_for_programs(request):
        names = ", ".join(reading.experiment.slug for reading in readings)
        if any(reading.must_stay_hidden for reading in readings):
            return make_problem(
                403, f"The plan of {names} is preregistered. Names stay hidden until its runs have ended."
            )
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
