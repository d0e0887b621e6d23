"""The raters of an experiment compared: their agreement, largest disagreements, and the adjudication of an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.web.form_fields import get_first_error
from grading_app.forms.rating import AdjudicationForm, list_scales
from grading_app.publish.report.document import count_noun
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.raters import disagreements
from grading_app.results.raters.agreement_cache import (
    AGREEMENT,
    DISAGREEMENTS,
    AgreementQuery,
    RaterRoles,
    assign_roles,
    is_large,
)
from grading_app.results.raters.agreement_figures import make_figures
from grading_app.results.raters.agreement_tables import (
    list_agreement_estimates,
    list_bias_estimates,
    list_mean_estimates,
    make_coverage_table,
    make_judge_table,
    make_measure_table,
    make_pair_table,
    make_reference_table,
)
from grading_app.results.raters.disagreements import (
    AdjudicationError,
    DisagreementPosition,
    SpreadMeasure,
    adjudicate,
    may_adjudicate,
)
from grading_app.results.raters.judge_checks import ShownChecks, describe_checks
from grading_app.results.raters.rater_verdicts import RaterVerdict, list_verdicts, load_answer_pairs, load_values
from grading_app.results.raters.raters import ANSWERS, Rater
from grading_app.results.raters.rating_selection import RatingSelection, RatingSelectionForm
from grading_app.results.table import ResultTable
from grading_app.results.waves import find_pooled_waves
from grading_app.views.tables_and_figures import (
    STATE_LENGTH,
    get_table_context,
    make_figure_context,
    make_requested_file,
)
from runs_app.models import Experiment, Trial
from runs_app.models.conditions import load_labels
from runs_app.prompt_preview import rebuild_turns
from runs_app.views.permissions import get_visible_experiment, may_edit

if TYPE_CHECKING:
    from grading_app.results.raters.agreement_report import AgreementReport, AgreementResult
EXCERPT_LENGTH = 240
CURSOR_PARAMETERS = ("after", "before")


@require_safe
@readers_only
def experiment_agreement(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    selection, context = _read_selection(request, experiment)
    context |= {"roles": None, "may_edit": may_edit(request, experiment)}
    if selection is not None:
        roles = assign_roles(selection, request.GET.dict())
        cached = get_aggregate(AGREEMENT, selection.experiment.pk, AgreementQuery(selection, roles))
        report = cached.value.report if cached.value else None
        tables = _list_tables(selection, report, roles.judge) if report else []
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


def _read_selection(request: HttpRequest, experiment: Experiment) -> tuple[RatingSelection | None, dict[str, Any]]:
    """Return the raters that the query selects, None if it is invalid, and the context of the page with its form."""
    form = RatingSelectionForm(request.GET, experiment)
    selection = form.get_selection()
    return selection, {"experiment": experiment, "form": form, "state": experiment.state, "selection": selection}


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


def _list_tables(selection: RatingSelection, report: AgreementReport, judge: Rater | None) -> list[ResultTable]:
    """Return the tables of numbers that a reader can download. judge: the rater that is compared with people."""
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
    if judge and (comparison := report.judge_comparison):
        in_pairs = selection.in_pairs
        bias, agreement, means = (
            list_estimates(comparison, judge, in_pairs=in_pairs)
            for list_estimates in (list_bias_estimates, list_agreement_estimates, list_mean_estimates)
        )
        tables.append(make_judge_table("bias", "Bias", bias, "points" if in_pairs else "number"))
        if agreement:
            tables.append(make_judge_table("people", "Agreement with people", agreement, "coefficient"))
        title = "Shares of wins" if in_pairs else "Mean ratings"
        tables.append(make_judge_table("means", title, means, "share" if in_pairs else "number"))
    references = [_make_reference_table(selection, report, reference) for reference in selection.references]
    return [*tables, *(table for table in references if table.rows)]


def _make_reference_table(selection: RatingSelection, report: AgreementReport, reference: Rater) -> ResultTable:
    raters = {rater.key: rater for rater in selection.raters}
    return make_reference_table(reference, [row for row in report.references if row.reference == reference.key], raters)


@require_safe
@readers_only
def experiment_disagreements(request: HttpRequest, slug: str) -> HttpResponse:
    """List the disagreements, largest first."""
    experiment = get_visible_experiment(request, slug)
    selection, context = _read_selection(request, experiment)
    if selection is not None:
        cached, spread_measure = get_stored_disagreements(selection), get_spread_measure(request)
        context |= {"cached": cached, "here": request.get_full_path(), "by": spread_measure}
        cursors = {name: request.GET.get(name, "") for name in CURSOR_PARAMETERS}
        page = disagreements.list_disagreements(
            selection, by=spread_measure, aggregate=cached.row if cached else None, **cursors
        )

        def make_address(name: str, cursor: str) -> str:
            query = get_rater_choice(request)
            query[name] = cursor
            return f"?{query.urlencode()}" if cursor else ""

        keys = [row.unit for row in page.disagreements]
        values = load_values(selection, keys)
        units = _load_units(selection, keys, names_wave=selection.experiment.has_several_waves())
        rows = [
            {
                "disagreement": row,
                **units[row.unit],
                "verdicts": [RaterVerdict(rater, values.get((row.unit, rater.key))) for rater in selection.all_raters],
            }
            for row in page.disagreements
            if row.unit in units  # In a stored comparison, a unit may have lost its ratings since.
        ]
        context |= {
            "rows": rows,
            "next_url": make_address("after", page.after),
            "previous_url": make_address("before", page.before),
        }
    return render(
        request, "grading_app/disagreements.html", {**context, "query": get_rater_choice(request).urlencode()}
    )


@require_safe
@readers_only
def disagreement(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one answer: question, answer, the scores and reasons of all raters, and adjudications."""
    experiment = get_visible_experiment(request, slug)
    trial = _get_answer(experiment, pk)
    selection = RatingSelectionForm(request.GET, experiment).get_selection()
    position = DisagreementPosition(None, None, 0, None, None)
    if selection is not None and selection.covers_answers:
        cached = get_stored_disagreements(selection)
        position = disagreements.find_position(
            selection, trial.pk, get_spread_measure(request), cached.row if cached else None
        )
    raters = selection.all_raters if selection is not None and selection.covers_answers else []
    is_total = selection is not None and not selection.criterion  # An adjudication is a score of the whole answer.
    may_decide = is_total and may_adjudicate(request.user, experiment)
    # Of several adjudications on one scale, the last one counts.
    adjudications = list(trial.adjudications.select_related("by", "condition").order_by("-pk"))
    last = {row.condition_id: row.pk for row in reversed(adjudications)}
    context = {
        "experiment": experiment,
        "trial": trial,
        "label": trial.run.get_label(load_labels([experiment.pk]), names_wave=experiment.has_several_waves()),
        "position": position,
        "turns": rebuild_turns(trial),
        "verdicts": list_verdicts(trial, raters, selection.criterion if selection else ""),
        "adjudications": [{"adjudication": row, "counts": last[row.condition_id] == row.pk} for row in adjudications],
        "forms": [AdjudicationForm(scale) for scale in list_scales(raters)] if may_decide else [],
        "query": get_rater_choice(request).urlencode(),
    }
    return render(request, "grading_app/disagreement.html", context)


@require_POST
@members_only
def disagreement_adjudicate(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Adjudicate the answer, and return to its page."""
    experiment = get_visible_experiment(request, slug)
    trial = _get_answer(experiment, pk)
    if not may_adjudicate(request.user, experiment):
        raise Http404
    form = AdjudicationForm.from_post(request.POST)
    # The query is parsed and encoded again for safety.
    parameters = QueryDict(request.POST.get("query", ""), mutable=True).urlencode()
    return_url = reverse("disagreement", args=[slug, pk]) + (f"?{parameters}" if parameters else "")
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect(return_url)
    try:
        adjudicate(trial, scale=form.scale, score=form.cleaned_data["score"], reason=form.cleaned_data["reason"],
                   by=request.user)  # fmt: skip
    except AdjudicationError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Decision saved: {form.cleaned_data['score']:g}.")
    return redirect(return_url)


def get_stored_disagreements(selection: RatingSelection) -> Cached[int] | None:
    """Return the stored order of many disagreements, or None if they are few and read directly."""
    return get_aggregate(DISAGREEMENTS, selection.experiment.pk, selection) if is_large(selection) else None


def _get_answer(experiment: Any, pk: int) -> Trial:
    answers = Trial.objects.filter(run__experiment=experiment, run__condition__stage="generate", status="done")
    with_design = answers.select_related(
        "run__experiment", "run__wave", "run__condition__model__endpoint", "run__condition__prompt",
        "run__condition__sampler", "item__image", "dimension",
    )  # fmt: skip
    return get_object_or_404(with_design, pk=pk)


def get_spread_measure(request: HttpRequest) -> SpreadMeasure:
    return "variance" if request.GET.get("by") == "variance" else "range"


def get_rater_choice(request: HttpRequest, **parameters: str) -> QueryDict:
    """Return the choice of raters and the order as a query, without the page cursor."""
    query = request.GET.copy()
    for name in CURSOR_PARAMETERS:
        query.pop(name, None)
    for name, value in parameters.items():
        query[name] = value
    return query


def _load_units(selection: RatingSelection, keys: list[int], *, names_wave: bool) -> dict[int, dict[str, Any]]:
    """Return each unit's item and answers, shortened for a list."""
    labels = load_labels([selection.experiment.pk]) if selection.in_pairs or selection.covers_answers else {}
    if selection.in_pairs:
        pairs = load_answer_pairs(selection, keys)
        return {
            key: {
                "item": pair[0].item,
                "answers": [
                    (trial.run.get_label(labels, names_wave=names_wave), trial.answer[:EXCERPT_LENGTH])
                    for trial in pair
                ],
            }
            for key, pair in pairs.items()
        }
    if selection.covers_answers:
        trials = Trial.objects.filter(pk__in=keys).select_related("item", "run__wave")
        return {
            trial.pk: {
                "item": trial.item,
                "trial": trial,
                "label": trial.run.get_label(labels, names_wave=names_wave),
                "answers": [("", trial.answer[:EXCERPT_LENGTH])],
            }
            for trial in trials.defer("raw_response", "messages", "reasoning", "error")
        }
    return {key: {"item": item, "answers": []} for key, item in Item.objects.in_bulk(keys).items()}
