"""Middleware for pages that cannot hide the names of models: they ask a blind reader to reveal the names first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from grading_app.models import BlindReading
from runs_app.models import Experiment, Trial

PAGES = frozenset({
    "experiment_report", "experiment_figures", "explorer", "experiment_points", "experiment_waves",
    "experiment_agreement", "experiment_disagreements", "disagreement", "pair_disagreement", "grading_length",
    "experiment_annotations", "trial_list", "trial_detail", "item_page",
})  # fmt: skip
FILES = frozenset({
    "report_file", "report_figure", "figure_file", "figures_summary", "explorer_figure", "agreement_figure",
    "grading_length_figure", "trial_text", "trial_message",
})  # fmt: skip
"""Names of addresses. A page answers 200 with the question, a file 403."""


class BlindPagesMiddleware:
    """Middleware that asks a reader whose names are hidden to reveal them, in place of a page that shows them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> HttpResponse | None:
        name = request.resolver_match.url_name if request.resolver_match else ""
        # The address of a printed figure is that of the figure on Results, with the parameter `mm`.
        is_file = name in FILES or (name == "experiment_figure" and "mm" in request.GET)
        if not (is_file or name in PAGES) or request.method not in ("GET", "HEAD") or not request.user.is_authenticated:
            return None
        readings = _hidden_readings(request, name, kwargs)
        if not readings:
            return None
        context = {"readings": readings, "experiment": readings[0].experiment if len(readings) == 1 else None}
        return render(request, "grading_app/names_hidden.html", context, status=403 if is_file else 200)


def _hidden_readings(request: HttpRequest, name: str | None, kwargs: Mapping[str, Any]) -> list[BlindReading]:
    """Return the reader's blind readings of the experiments that the page shows; of all, if it shows all of them."""
    hidden = BlindReading.objects.hidden_for(request.user).select_related("experiment__dataset", "experiment__owner")
    hidden = hidden.filter(experiment__in=Experiment.objects.visible_to(request.user))
    chosen = kwargs.get("slug") or request.GET.get("experiment")
    if name == "item_page":
        hidden = hidden.filter(experiment__dataset__items=kwargs["pk"])
    elif "pk" in kwargs and "slug" not in kwargs:
        hidden = hidden.filter(experiment__runs__in=Trial.objects.filter(pk=kwargs["pk"]).values("run"))
    elif chosen:
        hidden = hidden.filter(experiment__slug=chosen)
    return list(hidden)
