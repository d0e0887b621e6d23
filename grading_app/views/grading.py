"""The grading tab of an experiment: its graders, their progress and results, and the form that adds a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.form_errors import get_first_error
from evalsite.lib.web.htmx import wants_part
from grading_app.forms.judges import ConfirmedJudgeForm, JudgeForm, PanelForm
from grading_app.forms.rules import RuleForm
from grading_app.judging import grader_lookup, panels
from grading_app.judging.judge_plan import JudgingReport, request_verdicts
from grading_app.judging.judging_costs import estimate_judging
from grading_app.models import Grader, Panel
from grading_app.reports.frames import load_condition_labels, load_dimensions
from grading_app.reports.grader_rows import GraderRow, is_changing, list_grader_rows, list_rubric_tests, list_standings
from grading_app.reports.rubric_upgrades import RubricUpgrade, find_rubric_upgrades, get_judge_form_url
from grading_app.statistics.known_coverage import describe_share_coverage
from grading_app.tables.grading import AnswerNames, AnswerScoreTable
from runs_app.models import Experiment
from runs_app.monitoring.progress import load_experiment_state
from runs_app.planning.work import PlanError
from runs_app.pricing.estimated_costs import Estimate
from runs_app.views.permissions import editable_experiment, may_edit, visible_experiment
from runs_app.views.run_control import Action, list_actions

FLAGS = ("truncated", "refused")  # Flags of answers that are judged like any other.
POLLED_S = 60  # The page refreshes for this time after a judge's last call, until its replies have been read.


@require_safe
@readers_only
def experiment_grading(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = visible_experiment(request, slug)
    rows = list_grader_rows(experiment)
    editable = may_edit(request, experiment)
    newer = find_rubric_upgrades(experiment, [row.condition for row in rows]) if editable else {}
    chose = list_standings(rows)
    names = AnswerNames(load_condition_labels(experiment), load_dimensions(experiment))
    is_added_up = any(row.cached.is_under_way for row in rows) or any(one.is_under_way for _, one in chose)
    context = {
        "experiment": experiment,
        "state": load_experiment_state(experiment),
        "rows": [_make_row_context(experiment, row, editable, newer, names) for row in rows],
        "shares_note": _describe_shares(rows),
        "is_live": is_added_up or is_changing((run for row in rows for run in row.runs), POLLED_S),
        "standings": chose,
        "rubric_tests": list_rubric_tests(experiment),
        "editable": editable,
        "has_panels": editable and Panel.objects.exists(),
        "panel_form": PanelForm(user=request.user),
        "rule_form": RuleForm(auto_id="rule-%s") if editable else None,
        "here": reverse("experiment_grading", args=[slug]),
    }
    page = "partials/grading_live.html" if wants_part(request) else "experiment_grading.html"
    return render(request, f"grading_app/{page}", context)


def _describe_shares(rows: Sequence[GraderRow]) -> str:
    shown = [one.estimate for row in rows if not row.is_adjudication for one in row.scores.means if one.estimate]
    return describe_share_coverage(
        one.clusters for one in shown if one.is_share and one.low is not None and one.n == one.clusters
    )


def _make_row_context(
    experiment: Experiment, row: GraderRow, editable: bool, newer: Mapping[int, RubricUpgrade], names: AnswerNames
) -> dict[str, Any]:
    """Return a row with its scores, its links and the buttons of its runs."""
    means = () if row.is_adjudication else row.scores.means
    return {
        "row": row,
        "means": AnswerScoreTable(means, names) if means else None,
        "totals": row.totals,
        "runs": [(run, _list_actions(run) if editable else []) for run in row.runs],
        "again": _get_repeat_url(experiment, row) if editable else "",
        "newer": newer.get(row.condition.pk) if editable else None,
        "codes": [(code, n, _get_answers_url(experiment, row, code)) for code, n in row.scores.codes],
        "disagreements": _get_disagreements_url(experiment, row),
        "unasked": [(what, n) for what, n in row.scores.noted if what not in FLAGS],
        "flagged": [(what, n) for what, n in row.scores.noted if what in FLAGS],
    }


def _list_actions(run: Any) -> list[Action]:
    return list_actions([run])


def _get_repeat_url(experiment: Experiment, row: GraderRow) -> str:
    if row.condition.grader is None or not row.runs:
        return ""
    return get_judge_form_url(experiment, grader=row.condition.grader.name, force="on")


def _get_answers_url(experiment: Experiment, row: GraderRow, code: str) -> str:
    """Return the address of the answers with this error code; for pairs, of the calls."""
    if row.in_pairs:
        return f"{reverse('trial_list')}?{urlencode({'run': row.runs[0].pk})}" if row.runs else ""
    query: dict[str, Any] = {"experiment": experiment.slug, "graded_by": row.condition.pk, "unread": code}
    return f"{reverse('trial_list')}?{urlencode(query)}"


def _get_disagreements_url(experiment: Experiment, row: GraderRow) -> str:
    """Return the address of the panel members' disagreements, largest first."""
    members = row.condition.parameters.get("members", []) if row.condition.panel_id else []
    if not members:
        return ""
    query = urlencode({"rater": [f"g{pk}" for pk in members]}, doseq=True)
    return f"{reverse('experiment_disagreements', args=[experiment.slug])}?{query}"


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_judge(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the judge's request and its cost (GET), or ask the judge (POST)."""
    experiment = editable_experiment(request, slug)
    data = request.POST if request.method == "POST" else request.GET
    choice = JudgeForm(data if "grader" in data else None, experiment=experiment, user=request.user)
    estimate = _estimate_cost(experiment, choice) if choice.is_valid() else None
    form = None
    if estimate is not None:
        sent = request.POST if request.method == "POST" else None
        form = ConfirmedJudgeForm(
            sent,
            experiment=experiment,
            user=request.user,
            initial={**choice.cleaned_data, "grader": choice.cleaned_data["grader"].name},
            needs_confirmation=experiment.needs_confirmation(estimate.ceiling_usd),
        )
        if sent is not None and form.is_valid() and _ask_judge(request, experiment, form, estimate):
            return redirect("experiment_grading", experiment.slug)
    context = {"experiment": experiment, "choice": choice, "form": form, "estimate": estimate}
    if estimate is not None:
        context["is_over_budget"] = experiment.may_exceed_budget(estimate.ceiling_usd)
    context["has_graders"] = Grader.objects.usable().exists()
    return render(request, "grading_app/experiment_judge.html", context)


def _estimate_cost(experiment: Experiment, form: JudgeForm) -> Estimate:
    return estimate_judging(experiment, [form.chosen()], form.waves, force=form.cleaned_data["force"])


def _ask_judge(request: HttpRequest, experiment: Experiment, form: JudgeForm, estimate: Estimate) -> bool:
    if estimate.problems:
        form.add_error(None, estimate.problems)
        return False
    try:
        report = request_verdicts(
            experiment,
            grader_lookup.save_graders([form.chosen()], request.user),
            form.waves,
            by=request.user,
            force=form.cleaned_data["force"],
            approved=estimate,
            revive=True,
        )
    except PlanError as problem:
        form.add_error(None, problem.problems)
        return False
    messages.success(request, describe_reports(report))
    return True


def describe_reports(report: Sequence[JudgingReport]) -> str:
    """Describe what was requested and what was not, in sentences."""
    added, unasked = (sum(getattr(one, name) for one in report) for name in ("added", "unasked"))
    sentences = [f"{format_count(added)} {'verdict is' if added == 1 else 'verdicts are'} requested."] if added else []
    if unasked:
        answers = "answer got its score" if unasked == 1 else "answers got their scores"
        sentences.append(f"{format_count(unasked)} {answers} without a call.")
    sentences = sentences or ["Nothing was requested: every answer already has a verdict."]
    return " ".join([*sentences, *(f"{one.unusual_answers.capitalize()}." for one in report if one.unusual_answers)])


@require_POST
@members_only
def experiment_convene(request: HttpRequest, slug: str) -> HttpResponse:
    """Combine the scores of a panel's members, during the request."""
    experiment = editable_experiment(request, slug)
    form = PanelForm(request.POST, user=request.user)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
    else:
        try:
            panels.add_panel(experiment, form.cleaned_data["panel"])
        except PlanError as problem:
            messages.error(request, f"{problem}".capitalize())
        else:
            messages.success(
                request,
                f"The panel {form.cleaned_data['panel']} is added.",
            )
    return redirect("experiment_grading", slug)
