"""The agreement of an experiment's raters: numbers with their formulas, and two figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.publish.report.words import count_noun
from grading_app.raters.agreement_cache import AGREEMENT, AgreementQuery, RaterRoles, assign_roles
from grading_app.raters.agreement_figures import make_figures
from grading_app.raters.agreement_tables import (
    list_judge_estimates,
    list_mean_estimates,
    make_coverage_table,
    make_judge_table,
    make_measure_table,
    make_pair_table,
    make_reference_table,
)
from grading_app.raters.judge_checks import ShownChecks, describe_checks
from grading_app.raters.raters import ANSWERS, Rater
from grading_app.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.cached_aggregates import get_aggregate
from grading_app.results.table import ResultTable
from grading_app.results.waves import find_pooled_waves
from grading_app.views.result_tables import get_table_context, make_requested_file
from grading_app.views.svg_figures import STATE_LENGTH, make_figure_context
from runs_app.views.permissions import get_visible_experiment, may_edit

if TYPE_CHECKING:
    from grading_app.raters.agreement_report import AgreementReport, AgreementResult


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
        cached = get_aggregate(AGREEMENT, selection.experiment.pk, AgreementQuery(selection, roles))
        report = cached.value.report if cached.value else None
        tables = _list_tables(selection, report) if report else []
        if (file := make_requested_file(request, tables, f"{slug}-agreement")) is not None:
            return file
        if len(experiment.waves.all()) > 1 and not selection.filters.get("wave"):
            context["pooled"] = find_pooled_waves(experiment, None)
        context |= {"roles": roles, "result": cached.value, "cached": cached, "here": request.get_full_path()}
        context["tables"] = {table.name: get_table_context(table) for table in tables}
        context |= (
            _make_report_context(request, selection, roles, cached.value, cached.fingerprint) if cached.value else {}
        )
    return render(request, "grading_app/agreement.html", context)


def _make_report_context(
    request: HttpRequest, selection: RatingSelection, roles: RaterRoles, result: AgreementResult, state: str
) -> dict[str, Any]:
    """Return the tables and figures of the report."""
    report = result.report
    if report is None:
        return {}
    fitting = [measure for measure in report.measures if measure.suits_scale and measure.estimate]
    query = request.GET.copy()
    query["state"] = state[:STATE_LENGTH]
    return {
        "checks": _list_checks(selection),
        "fitting": fitting[0] if fitting else None,
        "references": [
            (reference, get_table_context(table))
            for reference in selection.references
            if (table := _make_reference_table(selection, report, reference)).rows
        ],
        "figures": {
            figure.name.removeprefix("agreement-"): make_figure_context(
                figure, selection.experiment.slug, query.urlencode()
            )
            for figure in make_figures(selection, roles, result)
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


def _list_tables(selection: RatingSelection, report: AgreementReport) -> list[ResultTable]:
    """Return the tables of numbers that a reader can download."""
    raters = {rater.key: rater for rater in selection.raters}
    coverage = make_coverage_table(report.coverage, raters, in_pairs=selection.in_pairs)
    sentence = f"{count_noun(report.shared, 'unit')} with two or more ratings."
    tables = [replace(coverage, sentence=sentence)]
    if len(report.pairs) > 1:
        labels = {key: rater.label for key, rater in raters.items()}
        notes = ["Same rating: of the single ratings of a model, not their mean."] if selection.repetitions else []
        pairs = make_pair_table(report.pairs, labels, is_nominal=selection.in_pairs)
        tables.append(replace(pairs, notes=notes))
    if report.measures:
        tables.append(make_measure_table(report.measures))
    if comparison := report.judge_comparison:
        against = list_judge_estimates(comparison, in_pairs=selection.in_pairs)
        means = list_mean_estimates(comparison, in_pairs=selection.in_pairs)
        tables += [
            make_judge_table("judge", "Bias and agreement", against),
            make_judge_table("means", "Shares of wins" if selection.in_pairs else "Mean ratings", means),
        ]
    references = [_make_reference_table(selection, report, reference) for reference in selection.references]
    return [*tables, *(table for table in references if table.rows)]


def _make_reference_table(selection: RatingSelection, report: AgreementReport, reference: Rater) -> ResultTable:
    raters = {rater.key: rater for rater in selection.raters}
    return make_reference_table(reference, [row for row in report.references if row.reference == reference.key], raters)
