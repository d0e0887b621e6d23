"""The agreement of an experiment's raters: numbers with their formulas, and two figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.publish.figures.agreement_figures import make_pictures
from grading_app.raters.agreement_cache import AGREEMENT, AgreementQuery, RaterRoles, assign_roles
from grading_app.raters.check_views import ShownChecks, describe_checks
from grading_app.raters.raters import ANSWERS, Rater
from grading_app.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.plot_style import NARROW, WIDE, render_svg
from grading_app.tables.agreement import (
    CoverageTable,
    JudgeEstimateTable,
    MeasureTable,
    PairTable,
    ReferenceTable,
    list_judge_estimates,
    list_mean_estimates,
)
from grading_app.views.svg_figures import make_figure_context, read_theme, read_width, svg_policy
from runs_app.views.permissions import get_visible_experiment, may_edit

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import AgreementReport, AgreementResult
    from grading_app.raters.rater_plots import RaterPlot

FIGURES = ("differences", "confusion")


@require_safe
@readers_only
def experiment_agreement(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    form = RatingSelectionForm(request.GET, experiment)
    selection = form.get_selection()
    context = {
        "experiment": experiment,
        "form": form,
        "state": experiment.state,
        "selection": selection,
        "roles": None,
    }
    context["may_edit"] = may_edit(request, experiment)
    if selection is not None:
        roles = assign_roles(selection, request.GET.dict())
        cached = _get_result(selection, roles)
        context |= {"roles": roles, "result": cached.value, "cached": cached, "here": request.get_full_path()}
        context |= (
            _make_report_context(request, selection, roles, cached.value, cached.fingerprint) if cached.value else {}
        )
    return render(request, "grading_app/agreement.html", context)


@require_safe
@readers_only
@svg_policy
def agreement_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure of the agreement page as SVG, for the raters in the address."""
    experiment = get_visible_experiment(request, slug)
    selection = RatingSelectionForm(request.GET, experiment).get_selection()
    theme, width = read_theme(request), read_width(request)
    if selection is None:
        raise Http404
    roles = assign_roles(selection, request.GET.dict())
    cached = _get_result(selection, roles)
    plot = make_pictures(selection, roles, cached.value, width).get(name) if cached.value else None
    if plot is None:
        raise Http404
    caching = (
        "private, max-age=604800, immutable"
        if request.GET.get("state") == cached.fingerprint[:12]
        else "private, no-store"
    )
    return HttpResponse(render_svg(plot.draw, theme), content_type="image/svg+xml", headers={"Cache-Control": caching})


def _get_result(selection: RatingSelection, roles: RaterRoles) -> Cached[AgreementResult]:
    return get_aggregate(AGREEMENT, selection.experiment.pk, AgreementQuery(selection, roles))


def _make_report_context(
    request: HttpRequest, selection: RatingSelection, roles: RaterRoles, result: AgreementResult, state: str
) -> dict[str, Any]:
    """Return the tables and figures of the report."""
    report, raters = result.report, {rater.key: rater for rater in selection.raters}
    if report is None:
        return {}
    comparison, narrow = report.judge_comparison, make_pictures(selection, roles, result, NARROW)
    fitting = [measure for measure in report.measures if measure.suits_scale and measure.estimate]
    return {
        "checks": _list_checks(selection),
        "fitting": fitting[0] if fitting else None,
        "coverage": CoverageTable(report.coverage, raters, in_pairs=selection.in_pairs),
        "measures": MeasureTable(report.measures) if report.measures else None,
        "pairs": PairTable(report.pairs, raters, in_pairs=selection.in_pairs) if len(report.pairs) > 1 else None,
        "against": JudgeEstimateTable(list_judge_estimates(comparison, in_pairs=selection.in_pairs))
        if comparison
        else None,
        "references": _make_reference_tables(selection, report),
        "means": JudgeEstimateTable(list_mean_estimates(comparison, in_pairs=selection.in_pairs))
        if comparison
        else None,
        "figures": {
            name: _make_figure(request, selection, plot, narrow[name], state)
            for name, plot in make_pictures(selection, roles, result, WIDE).items()
        },
    }


def _list_checks(selection: RatingSelection) -> list[ShownChecks]:
    """Return the checks of the chosen judges. They cover all answers, so a filtered selection has none."""
    if selection.units != ANSWERS or selection.is_filtered:
        return []
    conditions = list(
        selection.experiment.grade_conditions.select_related("grader", "rubric", "panel")
        .prefetch_related("panel__graders__rubric")
        .order_by("pk")
    )
    chosen = {rater.key for rater in selection.raters}
    checks = describe_checks(selection.experiment, conditions)
    return [shown for pk, shown in checks.items() if f"g{pk}" in chosen]


def _make_reference_tables(selection: RatingSelection, report: AgreementReport) -> list[tuple[Rater, ReferenceTable]]:
    """Return a table for each reference that shares units with a rater."""
    raters = {rater.key: rater for rater in selection.raters}
    comparisons = {
        reference: [row for row in report.references if row.reference == reference.key]
        for reference in selection.references
    }
    return [(reference, ReferenceTable(rows, raters, reference)) for reference, rows in comparisons.items() if rows]


def _make_figure(
    request: HttpRequest, selection: RatingSelection, plot: RaterPlot, narrow: RaterPlot, state: str
) -> dict[str, Any]:
    """Return a figure for the page. Its addresses hold the page's choices and the state of the data."""
    query = request.GET.copy()
    query["state"] = state[:12]
    return make_figure_context(
        plot.name,
        reverse("agreement_figure", args=[selection.experiment.slug, plot.name]),
        query.urlencode(),
        title=plot.title,
        caption=plot.caption,
        alt=plot.alt,
        size=plot.size,
        narrow_size=narrow.size,
        table=plot.table,
    )
