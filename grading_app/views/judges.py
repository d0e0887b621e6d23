"""The judges of the library, the draw of judges for an experiment, and the trial run of a rubric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import trigger_client_event

from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.text.number_format import format_money
from evalsite.lib.web.form_fields import fetch_choices, get_row_field
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.grading import DrawnJudgesForm, GraderForm
from grading_app.forms.rubrics import RubricForm, RubricPreviewForm, RubricTestForm
from grading_app.grading.judging.graders import get_or_create_default_sampler, pin_judges
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.judging_costs import estimate_judging
from grading_app.grading.judging.rubric_preview import PreviewCost, RubricPreview, list_previewed_verdicts
from grading_app.models import Grader, Rubric
from grading_app.views.grading import describe_reports
from grading_app.views.library import get_next_page, read_reason
from grading_app.views.library_previews import build_rubric_preview, describe_version, list_gradings
from runs_app.llm import judge_prompt, prompts, rubric_checks
from runs_app.models import Experiment
from runs_app.planning.work import PlanError
from runs_app.pricing.costs import CostEstimate
from runs_app.views.permissions import get_editable_experiment


def select_judges(user: Any) -> Any:
    rows = Grader.objects.visible_to(user).select_related("language_model", "rubric", "sampler", "created_by")
    return rows.annotate(n_experiments=Count("grade_conditions__experiment", distinct=True))


@require_safe
@members_only
@hides_model_names()
def judge_list(request: HttpRequest) -> HttpResponse:
    with_archived = "archived" in request.GET
    rows = select_judges(request.user).order_by("name")
    context = {
        "judges": list(rows if with_archived else rows.in_use()),
        "with_archived": with_archived,
        "may_add": request.user.has_perm("grading_app.add_grader"),
    }
    return render(request, "grading_app/library/judges.html", context)


@require_safe
@members_only
@hides_model_names()
def judge_page(request: HttpRequest, name: str) -> HttpResponse:
    judge = get_object_or_404(select_judges(request.user), name=name)
    gradings = [row for row in list_gradings(judge.rubric, request.user) if row.grader_id == judge.pk]
    context = {
        "judge": judge,
        "parts": describe_version(judge.rubric),
        "turns": judge.rubric.messages,
        "gradings": gradings,
        "may_archive": _may_archive(judge, request.user),
        "history": list(judge.history[:20]),
    }
    return render(request, "grading_app/library/judge.html", context)


def _may_archive(judge: Grader, user: Any) -> bool:
    try:
        judge.check_archivable(user)
    except TransitionError:
        return False
    return bool(user.has_perm("grading_app.change_grader"))


@require_POST
@members_only
@hides_model_names()
def judge_archive(request: HttpRequest, name: str) -> HttpResponse:
    judge = get_object_or_404(Grader.objects.visible_to(request.user), name=name)
    if not request.user.has_perm("grading_app.change_grader"):
        raise Http404
    reason = read_reason(request)
    if not reason:
        messages.error(request, "Enter a reason. It is stored in the history.")
        return redirect("judge_page", name)
    try:
        judge.archive(by=cast(User, request.user), reason=reason)
    except TransitionError as problem:
        messages.error(request, str(problem))
    else:
        messages.success(request, f"{judge} is archived. Existing gradings stay.")
    return redirect("judge_page", name)


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def judge_new(request: HttpRequest) -> HttpResponse:
    """Make a judge from a model and an approved rubric, or from a model and a rubric that is written here."""
    if not request.user.has_perm("grading_app.add_grader"):
        raise Http404
    data = request.POST if request.method == "POST" else None
    initial = {name: request.GET.get(name) for name in ("rubric", "text_set") if request.GET.get(name, "").isdecimal()}
    form = GraderForm(data, initial=initial, auto_id="editor-%s")
    form.fields["rubric"].required = False
    get_row_field(form, "rubric").empty_label = "A new rubric, written below"
    rubric_form = _build_rubric_form(request, data)
    if data is not None and form.is_valid() and (judge := _save(request, form, rubric_form)):
        waits = (
            "" if judge.rubric.can_judge else f" Its rubric {judge.rubric} is a draft: a curator must approve it first."
        )
        text = f"{judge} is saved.{waits}"
        if wants_part(request):
            detail = {"field": "judges", "value": judge.name, "text": text}
            return trigger_client_event(HttpResponse(status=204), "made", detail)
        messages.success(request, text)
        return redirect(get_next_page(request) or reverse("judge_page", args=[judge.name]))
    fetch_choices(form)
    fetch_choices(rubric_form)
    choice = RubricPreviewForm(data, user=request.user, auto_id="editor-%s")
    fetch_choices(choice)
    context = {
        "form": form,
        "rubric_form": rubric_form,
        "choice": choice,
        "preview": build_rubric_preview(rubric_form, choice),
        "variables": {name: rubric_checks.list_variables(name) for name in rubric_checks.STARTERS},
        "rubric_kind": rubric_form["kind"].value(),
        "may_approve": request.user.has_perm(Rubric.APPROVAL),
        "may_write": request.user.has_perm("grading_app.add_rubric"),
        "reason": read_reason(request),
        "next": get_next_page(request),
        "cancel_url": reverse("judge_list"),
    }
    part = wants_part(request)
    template = "judge_editor" if part else "judge_edit"
    return render(request, f"grading_app/library/{template}.html", context | {"in_dialog": part})


def _build_rubric_form(request: HttpRequest, data: Any) -> Any:
    """Return the form of the rubric that is written on the page. Its fields are empty if a stored one is chosen."""
    starter = rubric_checks.STARTERS["score"]
    initial = {"kind": "score", "system": starter.system, "user": starter.user, **starter.fields}
    form = RubricForm(None if data is None or data.get("rubric") else data, initial=initial, auto_id="editor-%s")
    del form.fields["name"]
    return form


def _save(request: HttpRequest, form: Any, rubric_form: Any) -> Grader | None:
    """Save the judge, and first the rubric that was written here. Return None, with errors, if that is impossible."""
    judge: Grader = form.instance
    user, reason = cast(User, request.user), read_reason(request)
    approves = request.POST.get("do") == "approve" and bool(user.has_perm(Rubric.APPROVAL))
    try:
        with transaction.atomic():
            if form.cleaned_data.get("rubric") is None:
                if not user.has_perm("grading_app.add_rubric"):
                    form.add_error("rubric", "Choose a rubric.")
                    return None
                if Rubric.objects.filter(name=judge.name).exists():
                    form.add_error("rubric", f"There is a rubric {judge.name}. Choose it, or name the judge otherwise.")
                    return None
                if not rubric_form.is_valid():
                    form.add_error(None, "The rubric has errors.")
                    return None
                if approves and not reason:
                    form.add_error(None, "Enter a reason for the approval. It is stored in the history.")
                    return None
                rubric: Rubric = rubric_form.save(commit=False)
                rubric.name = judge.name
                rubric.add_version(by=user)
                if approves:
                    rubric.approve(by=user, reason=reason)
                judge.rubric = rubric
            judge.created_by = user
            judge.save()
    except (ValueError, TransitionError) as problem:
        form.add_error(None, str(problem))
        return None
    return judge


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_draw_judges(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the form (GET). Draw judges and show their cost, or request their verdicts once confirmed (POST)."""
    experiment = get_editable_experiment(request, slug)
    form = DrawnJudgesForm(request.POST or None, experiment=experiment, user=request.user)
    if "draw" in request.POST:
        form.redraw()
    graders = form.draw_graders()
    waves = list(experiment.waves.all())
    estimate = estimate_judging(experiment, graders, waves, force=False) if graders else None
    if estimate is not None and "ask" in request.POST and _request_verdicts(request, form, graders, estimate):
        return redirect("experiment_grading", slug)
    context = {"experiment": experiment, "form": form, "draw_lines": form.lines, "estimate": estimate}
    if estimate is not None:
        context["needs_confirmation"] = experiment.needs_confirmation(estimate.ceiling_usd)
        context["spent"] = experiment.read_totals().find_known_cost(experiment.spent_usd)
        context["is_over_budget"] = experiment.may_exceed_budget(estimate.ceiling_usd)
    return render(request, "grading_app/draw_judges.html", context)


def _request_verdicts(
    request: HttpRequest, form: DrawnJudgesForm, graders: Sequence[Grader], estimate: CostEstimate
) -> bool:
    if form.experiment.needs_confirmation(estimate.ceiling_usd) and not form.cleaned_data["confirmed"]:
        form.add_error("confirmed", "Confirm the maximum cost.")
        return False
    draw, name = form.draw, form.cleaned_data["name"]
    if draw is None or estimate.problems:
        form.add_error(None, estimate.problems)
        return False
    try:
        judges = pin_judges(form.experiment, draw, graders, name=name, by=request.user)
        waves = list(form.experiment.waves.all())
        report = request_verdicts(form.experiment, judges, waves, by=request.user, approved=estimate, revive=True)
    except PlanError as error:
        form.add_error(None, error.problems)
        return False
    messages.success(request, describe_reports(report))
    return True


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def rubric_test(request: HttpRequest, name: str, version: int) -> HttpResponse:
    """Show the results of tests (GET), or request verdicts on five stored answers (POST)."""
    rubric: Rubric = get_object_or_404(Rubric.objects.visible_to(request.user), name=name, version=version)
    if not request.user.has_perm("grading_app.change_rubric"):
        raise Http404
    with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
    data = request.POST if request.method == "POST" else None
    form = RubricTestForm(data, user=request.user, with_texts=with_texts)
    cost = None
    if data is not None and form.is_valid():
        chosen = form.cleaned_data
        sampler = chosen["sampler"] or get_or_create_default_sampler()
        test = RubricPreview(rubric, chosen["experiment"], chosen["model"], sampler, chosen.get("texts"))
        cost = test.estimate_cost()
        if "look" not in data and _request_test(request, test, cost, form):
            return redirect("rubric_test", name, version)
    verdicts = list_previewed_verdicts(rubric, Experiment.objects.visible_to(request.user))
    context: dict[str, Any] = {
        "rubric": rubric,
        "verdicts": verdicts,
        "waits": any(row.verdict is None and not row.trial.error_class for row in verdicts),
    }
    if wants_part(request):
        return render(request, "grading_app/library/verdicts.html", context)
    fetch_choices(form)
    return render(request, "grading_app/library/test.html", context | {"form": form, "cost": cost})


def _request_test(request: HttpRequest, test: RubricPreview, cost: PreviewCost, form: RubricTestForm) -> bool:
    needs_confirmation = test.experiment.needs_confirmation(cost.ceiling_usd) and not any(test.find_problems())
    if needs_confirmation and not form.cleaned_data["confirmed"]:
        limit = format_money(test.experiment.confirm_above_usd)
        message = (
            f"This may cost {format_money(cost.ceiling_usd)}, and "
            f"{test.experiment} asks from {limit} on. Confirm the cost."
        )
        form.add_error("confirmed", message)
        return False
    try:
        test.request(by=request.user)
    except PlanError as error:
        form.add_error(None, [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in error.problems])
        return False
    return True
