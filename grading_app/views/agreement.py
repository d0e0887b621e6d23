"""The agreement of an experiment's raters: numbers with their formulas, and two figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from csp.decorators import csp_replace
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.comparison.comparison_cache import AGREEMENT, ComparisonQuery, Roles, roles_of
from grading_app.comparison.query import Question, QuestionForm
from grading_app.comparison.raters import Rater
from grading_app.paper_figures.agreement_figures import make_pictures
from grading_app.reports.cached_aggregates import Cached, get
from grading_app.reports.plot_style import NARROW, WIDE, Theme, svg
from grading_app.tables.agreement import (
    CoverageTable,
    MeasureTable,
    PairTable,
    ReferenceTable,
    ToldTable,
    told_against,
    told_means,
)
from grading_app.tables.results import behind
from runs_app.models import Experiment
from runs_app.monitoring.progress import Totals, find_experiment_state
from runs_app.views.permissions import may_edit, visible_experiment

if TYPE_CHECKING:
    from grading_app.comparison.agreement_report import Compared, Measured

FIGURES = ("differences", "confusion")
THEMES: dict[str, Theme] = {"": "auto", "light": "light", "dark": "dark"}
WIDTHS = {"": WIDE, "narrow": NARROW}


@require_safe
@readers_only
def experiment_agreement(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = visible_experiment(request, slug)
    form = QuestionForm(request.GET, experiment)
    question = form.question()
    context = {"experiment": experiment, "form": form, "state": page_state(experiment), "question": question}
    context["may_ask"] = may_edit(request, experiment)
    if question is not None:
        roles = roles_of(question, request.GET.dict())
        cached = _compared(question, roles)
        context |= {"roles": roles, "compared": cached.value, "cached": cached, "here": request.get_full_path()}
        context |= _shown(request, question, roles, cached.value, cached.fingerprint) if cached.value else {}
    return render(request, "grading_app/agreement.html", context)


@require_safe
@readers_only
@csp_replace(
    {"default-src": ["'none'"], "script-src": ["'none'"], "style-src": ["'unsafe-inline'"], "img-src": ["data:"]}
)  # type: ignore[untyped-decorator]
def agreement_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure of the agreement page as SVG, for the raters in the address."""
    experiment = visible_experiment(request, slug)
    question = QuestionForm(request.GET, experiment).question()
    theme, width = THEMES.get(request.GET.get("theme", "")), WIDTHS.get(request.GET.get("width", ""))
    if question is None or theme is None or width is None:
        raise Http404
    roles = roles_of(question, request.GET.dict())
    cached = _compared(question, roles)
    picture = make_pictures(question, roles, cached.value, width).get(name) if cached.value else None
    if picture is None:
        raise Http404
    kept = (
        "private, max-age=604800, immutable"
        if request.GET.get("state") == cached.fingerprint[:12]
        else "private, no-store"
    )
    return HttpResponse(svg(picture.draw, theme), content_type="image/svg+xml", headers={"Cache-Control": kept})


def _compared(question: Question, roles: Roles) -> Cached[Compared]:
    return get(AGREEMENT, question.experiment.pk, ComparisonQuery(question, roles))


def page_state(experiment: Experiment) -> str:
    return find_experiment_state(experiment, Totals.of(experiment.runs.generating()))


def _shown(request: HttpRequest, question: Question, roles: Roles, compared: Compared, state: str) -> dict[str, Any]:
    """Return the tables and figures for which there are ratings."""
    measured, raters = compared.measured, {rater.key: rater for rater in question.raters}
    if measured is None:
        return {}
    against = measured.against
    return {
        "coverage": CoverageTable(measured.covered, raters, in_pairs=question.in_pairs),
        "measures": MeasureTable(measured.lines) if measured.lines else None,
        "pairs": PairTable(measured.pairs, raters, in_pairs=question.in_pairs) if len(measured.pairs) > 1 else None,
        "against": ToldTable(told_against(against, in_pairs=question.in_pairs)) if against else None,
        "references": _references(question, measured),
        "means": ToldTable(told_means(against, in_pairs=question.in_pairs)) if against else None,
        "figures": {
            name: _figure(request, question, picture, state)
            for name, picture in make_pictures(question, roles, compared, WIDE).items()
        },
    }


def _references(question: Question, measured: Measured) -> list[tuple[Rater, ReferenceTable]]:
    """Return a table for each reference that has units in common with a rater."""
    raters = {rater.key: rater for rater in question.raters}
    lines = {
        reference: [line for line in measured.references if line.reference == reference.key]
        for reference in question.references
    }
    return [(one, ReferenceTable(compared, raters, one)) for one, compared in lines.items() if compared]


def _figure(request: HttpRequest, question: Question, picture: Any, state: str) -> dict[str, Any]:
    """Return a figure for the page. Its addresses hold every choice of the page, and the state of the data."""
    stem = reverse("agreement_figure", args=[question.experiment.slug, picture.name])
    query = request.GET.copy()
    query["state"] = state[:12]

    def address(**more: str) -> str:
        return f"{stem}?{query.urlencode()}{'&' + urlencode(more) if more else ''}"

    return {
        "picture": picture,
        "table": behind(picture.table),
        "address": address(),
        "narrow": address(width="narrow"),
        "light": address(theme="light"),
        "dark": address(theme="dark"),
    }
