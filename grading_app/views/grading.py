"""The grading tab of an experiment: its graders with progress and results, the form of a judge, pairs and lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.htmx import wants_part
from grading_app.forms.grading import ConfirmedJudgeForm, JudgeForm, PanelForm, RuleForm
from grading_app.grading.judging import panels
from grading_app.grading.judging.grade_conditions import select_usable_graders
from grading_app.grading.judging.graders import save_graders
from grading_app.grading.judging.judge_plan import JudgingReport, request_verdicts
from grading_app.grading.judging.judging_costs import estimate_judging
from grading_app.models import Panel
from grading_app.results.cached_aggregates import Cached
from grading_app.results.frames import load_condition_labels, load_dimensions
from grading_app.results.raters import disagreements
from grading_app.results.raters.grader_rows import (
    GraderRow,
    PairwiseRater,
    RubricUpgrade,
    find_rubric_upgrades,
    get_judge_form_url,
    is_changing,
    list_grader_rows,
    list_standings,
    make_strength_table,
    make_verdict_table,
)
from grading_app.results.raters.judge_checks import describe_checks
from grading_app.results.raters.length_bias import LENGTHS, ScoresByLength, make_length_figure
from grading_app.results.raters.pairwise_stats import PairwiseStanding
from grading_app.results.raters.rater_verdicts import find_pair, list_pair_verdicts, load_answer_pairs
from grading_app.results.raters.raters import PAIRS
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.raters.verdict_stats import get_aggregates_by_condition
from grading_app.results.table import ResultTable
from grading_app.results.waves import find_pooled_waves
from grading_app.statistics.intervals import STUDENT, describe_share_coverage, describe_skew_coverage
from grading_app.views.raters import get_rater_choice, get_spread_measure, get_stored_disagreements
from grading_app.views.tables_and_figures import get_table_context, make_figure_context, make_requested_file
from runs_app.grading_interface import GRADE
from runs_app.models import Experiment
from runs_app.models.conditions import load_labels, make_condition_labels
from runs_app.models.totals import Totals
from runs_app.planning.work import PlanError
from runs_app.pricing.costs import CostEstimate
from runs_app.prompt_preview import rebuild_turns
from runs_app.scorers.scoring_rules import read_rules
from runs_app.views.permissions import get_editable_experiment, get_visible_experiment, may_edit
from runs_app.views.run_control import list_actions

FLAGS = ("truncated", "refused")  # The judge grades these answers like other answers.
POLLING_S = 60  # The page refreshes for this time after a judge's last call, until its replies have been read.


@require_safe
@readers_only
def experiment_grading(request: HttpRequest, slug: str) -> HttpResponse:
    return _render_grading(request, get_visible_experiment(request, slug), RuleForm(auto_id="rule-%s"))


def _render_grading(request: HttpRequest, experiment: Experiment, rule_form: RuleForm) -> HttpResponse:
    rows = list_grader_rows(experiment)
    editable = may_edit(request, experiment)
    upgrades = find_rubric_upgrades(experiment, [row.condition for row in rows]) if editable else {}
    standings = list_standings(rows)
    tables = _list_tables(experiment, rows, standings)
    if (file := make_requested_file(request, tables.values(), f"{experiment.slug}-grading")) is not None:
        return file
    checks = describe_checks(experiment, [row.condition for row in rows])
    is_computing = any(shown.cached.is_under_way for shown in checks.values()) or any(
        row.cached.is_under_way for row in rows
    )
    is_computing = is_computing or any(standing.is_under_way for _, standing in standings)
    lines = [line for row in rows if not row.is_adjudication for line in row.scores.means]
    shares = describe_share_coverage(
        line.score.items
        for line in lines
        if line.is_share and line.score.low is not None and line.score.n == line.score.items
    )
    means = describe_skew_coverage(line.score.items for line in lines if line.score.method.startswith(STUDENT))
    answer_runs = list(experiment.answer_runs)
    context = {
        "experiment": experiment,
        "state": experiment.find_state(Totals.of(answer_runs)),
        "rows": [
            {
                **_make_row_context(experiment, row, editable, upgrades),
                "checks": checks.get(row.condition.pk),
                "means": get_table_context(table) if (table := tables.get(f"scores-{row.condition.pk}")) else None,
            }
            for row in rows
        ],
        "coverage_note": " ".join(filter(None, (shares, means))),
        "pooled": find_pooled_waves(experiment, None) if len({run.wave_id for run in answer_runs}) > 1 else None,
        "is_live": is_computing or is_changing((run for row in rows for run in row.runs), POLLING_S),
        "standings": [
            (rater, cached, get_table_context(tables[f"strengths-{rater.key}"])) for rater, cached in standings
        ],
        "rubric_tests": experiment.list_rubric_tests(),
        "editable": editable,
        "has_panels": editable and Panel.objects.exists(),
        "panel_form": PanelForm(user=request.user),
        "rule_form": rule_form if editable else None,
        "here": reverse("experiment_grading", args=[experiment.slug]),
    }
    page = "partials/grading_live.html" if wants_part(request) else "experiment_grading.html"
    return render(request, f"grading_app/{page}", context)


@require_POST
@members_only
def experiment_grade(request: HttpRequest, slug: str) -> HttpResponse:
    """Request grades by the chosen rules; the task queue computes them."""
    from django_q.tasks import async_task

    experiment = get_editable_experiment(request, slug)
    form = RuleForm(request.POST, auto_id="rule-%s")
    if not form.is_valid():
        return _render_grading(request, experiment, form)
    async_task(GRADE, experiment.pk, form.chosen_rules, request.user.get_username())
    rule_names = ", ".join(rule.text for rule in read_rules(form.chosen_rules))
    messages.success(
        request, f"Grading by {rule_names} has started. Scores appear here and on Results as they are ready."
    )
    return redirect("experiment_grading", slug)


def _list_tables(
    experiment: Experiment,
    rows: Sequence[GraderRow],
    standings: Sequence[tuple[PairwiseRater, Cached[PairwiseStanding]]],
) -> dict[str, ResultTable]:
    """Return the tables of numbers by name: the scores of each grader, and the strengths by each pairwise rater."""
    labels, dimensions = load_condition_labels(experiment), load_dimensions(experiment)
    tables = [
        make_verdict_table(f"scores-{row.condition.pk}", row.scores.means, labels, dimensions)
        for row in rows
        if row.scores.means and not row.is_adjudication
    ]
    tables += [
        make_strength_table(f"strengths-{rater.key}", cached.value.ranked if cached.value else ())
        for rater, cached in standings
    ]
    return {table.name: table for table in tables}


def _make_row_context(
    experiment: Experiment, row: GraderRow, editable: bool, upgrades: Mapping[int, RubricUpgrade]
) -> dict[str, Any]:
    """Return a row with its scores, its links and the buttons of its runs.

    An error code leads to the answers with this error; of pairs, to the judge's calls. A panel has the disagreements of
    its members, largest first.
    """
    condition, codes = row.condition, []
    for code, n in row.scores.codes:
        answers: dict[str, Any] = {"experiment": experiment.slug, "graded_by": condition.pk, "unread": code}
        query = answers if not row.in_pairs else {"run": row.runs[0].pk} if row.runs else {}
        codes.append((code, n, reverse("trial_list", query=query) if query else ""))
    repeat_url = disagreements_url = ""
    if editable and condition.grader and row.runs:
        repeat_url = get_judge_form_url(experiment, grader=condition.grader.name, force="on")
    if condition.panel_id and (members := condition.list_panel_members()):
        raters = {"rater": [f"g{pk}" for pk in members]}
        disagreements_url = reverse("experiment_disagreements", args=[experiment.slug], query=raters)
    return {
        "row": row,
        "totals": row.totals,
        "runs": [(run, list_actions([run]) if editable else []) for run in row.runs],
        "repeat_url": repeat_url,
        "upgrade": upgrades.get(condition.pk) if editable else None,
        "codes": codes,
        "disagreements": disagreements_url,
        "unasked": [(code, n) for code, n in row.scores.noted if code not in FLAGS],
        "flagged": [(code, n) for code, n in row.scores.noted if code in FLAGS],
    }


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_judge(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the choice of a judge and its cost (GET), or request its verdicts (POST)."""
    experiment = get_editable_experiment(request, slug)
    data = request.POST if request.method == "POST" else request.GET
    choice_form = JudgeForm(data if "grader" in data else None, experiment=experiment, user=request.user)
    estimate = (
        estimate_judging(
            experiment, [choice_form.make_grader()], choice_form.waves, force=choice_form.cleaned_data["force"]
        )
        if choice_form.is_valid()
        else None
    )
    form = None
    if estimate is not None:
        submitted = request.POST if request.method == "POST" else None
        form = ConfirmedJudgeForm(
            submitted,
            experiment=experiment,
            user=request.user,
            initial={**choice_form.cleaned_data, "grader": choice_form.cleaned_data["grader"].name},
            needs_confirmation=experiment.needs_confirmation(estimate.ceiling_usd),
        )
        if submitted is not None and form.is_valid() and _request_verdicts(request, experiment, form, estimate):
            return redirect("experiment_grading", experiment.slug)
    context = {"experiment": experiment, "choice_form": choice_form, "form": form, "estimate": estimate}
    if estimate is not None:
        context["spent"] = experiment.read_totals().find_known_cost(experiment.spent_usd)
        context["is_over_budget"] = experiment.may_exceed_budget(estimate.ceiling_usd)
    context["has_graders"] = select_usable_graders(experiment).exists()
    return render(request, "grading_app/experiment_judge.html", context)


def _request_verdicts(request: HttpRequest, experiment: Experiment, form: JudgeForm, estimate: CostEstimate) -> bool:
    if estimate.problems:
        form.add_error(None, estimate.problems)
        return False
    try:
        report = request_verdicts(
            experiment,
            save_graders([form.make_grader()], request.user),
            form.waves,
            by=request.user,
            force=form.cleaned_data["force"],
            approved=estimate,
            revive=True,
        )
    except PlanError as error:
        form.add_error(None, error.problems)
        return False
    messages.success(request, describe_reports(report))
    return True


def describe_reports(report: Sequence[JudgingReport]) -> str:
    """Return sentences about the requested verdicts and the answers that needed no call."""
    added, unasked = (sum(getattr(line, name) for line in report) for name in ("added", "unasked"))
    sentences = [f"{format_count(added)} {'verdict is' if added == 1 else 'verdicts are'} requested."] if added else []
    if unasked:
        answers = "answer was" if unasked == 1 else "answers were"
        sentences.append(f"{format_count(unasked)} {answers} scored without a call.")
    sentences = sentences or ["Nothing was requested: every answer already has a verdict."]
    return " ".join([*sentences, *(f"{line.unusual_answers.capitalize()}." for line in report if line.unusual_answers)])


@require_POST
@members_only
def experiment_add_panel(request: HttpRequest, slug: str) -> HttpResponse:
    """Add a panel, and combine the scores of its members during the request."""
    experiment = get_editable_experiment(request, slug)
    form = PanelForm(request.POST, user=request.user)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
    else:
        try:
            panels.add_panel(experiment, form.cleaned_data["panel"])
        except PlanError as error:
            messages.error(request, f"{error}".capitalize())
        else:
            messages.success(
                request,
                f"Panel {form.cleaned_data['panel']} was added.",
            )
    return redirect("experiment_grading", slug)


@require_safe
@readers_only
def pair_disagreement(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one pair: the question, both answers, and each rater's choice and reasons side by side."""
    experiment = get_visible_experiment(request, slug)
    parameters = request.GET.copy()
    parameters["units"] = PAIRS
    selection, unit = RatingSelectionForm(parameters, experiment).get_selection(), find_pair(experiment, pk)
    pair = load_answer_pairs(selection, [unit]).get(unit) if selection is not None and unit is not None else None
    if selection is None or unit is None or pair is None:
        raise Http404
    cached = get_stored_disagreements(selection)
    labels, names_wave = load_labels([experiment.pk]), experiment.has_several_waves()
    context = {
        "experiment": experiment,
        "trial": pair[0],  # The template for one answer shows this trial's item.
        "first": pair[0],
        "second": pair[1],
        "first_label": pair[0].run.get_label(labels, names_wave=names_wave),
        "second_label": pair[1].run.get_label(labels, names_wave=names_wave),
        "position": disagreements.find_position(
            selection, unit, get_spread_measure(request), cached.row if cached else None
        ),
        "turns": rebuild_turns(pair[0]),
        "verdicts": list_pair_verdicts(selection, unit, pair),
        "query": get_rater_choice(request, units=PAIRS).urlencode(),
    }
    return render(request, "grading_app/pair_disagreement.html", context)


@require_safe
@readers_only
def grading_length(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    related = experiment.grade_conditions.select_related("grader", "rubric", "panel", "judge_condition")
    conditions = list(related.prefetch_related("panel__graders__rubric").order_by("pk"))
    key = request.GET.get("by", "")
    condition = next((condition for condition in conditions if key in ("", str(condition.pk))), None)
    context: dict[str, Any] = {
        "experiment": experiment,
        "state": experiment.state,
        "choices": [(row.pk, row.label) for row in conditions],
        "chosen": condition,
        "is_unknown": condition is None and bool(conditions),
    }
    if condition is not None:
        cached = get_aggregates_by_condition(LENGTHS, [condition], conditions)[condition.pk]
        context |= {"cached": cached, "here": request.get_full_path(), "label": condition.label}
        if isinstance(cached.value, ScoresByLength):
            answering = experiment.answer_conditions.select_related("model", "prompt", "sampler").order_by("pk")
            labels = make_condition_labels(list(answering))
            figure = make_length_figure("length", condition.label, cached.value, labels)
            query = {"by": str(condition.pk)}
            context["lengths"] = cached.value
            context["figure"] = make_figure_context(figure, experiment.slug, query) if figure else None
        elif cached.value:
            context["longer"] = cached.value
    return render(request, "grading_app/grading_length.html", context)
