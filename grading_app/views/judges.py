"""The judges of the library: a judge is a model with a rubric, on one page."""

from __future__ import annotations

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
from evalsite.lib.web.choice_fields import fetch_choices, get_row_field
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.judges import GraderForm
from grading_app.forms.rubrics import RubricForm, RubricPreviewForm
from grading_app.models import Grader, Rubric
from grading_app.views.library import get_next_page, read_reason
from grading_app.views.library_previews import build_rubric_preview, describe_version, list_gradings
from runs_app.llm import rubric_checks


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
        return _finish(request, judge)
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


def _finish(request: HttpRequest, judge: Grader) -> HttpResponse:
    waits = "" if judge.rubric.can_judge else f" Its rubric {judge.rubric} is a draft: a curator must approve it first."
    text = f"{judge} is saved.{waits}"
    if wants_part(request):
        detail = {"field": "judges", "value": judge.name, "text": text}
        return trigger_client_event(HttpResponse(status=204), "made", detail)
    messages.success(request, text)
    return redirect(get_next_page(request) or reverse("judge_page", args=[judge.name]))
