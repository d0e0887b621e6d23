"""The admin of rubrics: written with a list of variables, tested on stored answers, compared, approved, then frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Aggregate, Case, Count, OuterRef, Subquery, Sum, When
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.text.diff import compare_lines
from evalsite.lib.text.number_format import format_money
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.long_text import build_numbered_text_response
from grading_app.admin.forms import AnswerForm, PreviewForm, RubricForm, fetch_item_text
from grading_app.judging.default_sampler import get_or_create_default_sampler
from grading_app.judging.rubric_preview import PreviewCost, RubricPreview, list_previewed_verdicts, request_preview
from grading_app.models import GradeCondition, Grading, Preference, Rubric
from runs_app.admin.designs import (
    VersionedAdmin,
    build_approve_action,
    build_archive_action,
    build_copy_action,
    render_turns,
)
from runs_app.llm import judge_prompt, prompts, rubric_checks
from runs_app.models import Experiment, Run
from runs_app.planning.work import PlanError
from runs_app.prompt_preview import Turns, preview_verdict, preview_writer

MAX_USES = 50


@admin.register(Rubric)
class RubricAdmin(VersionedAdmin):
    form = RubricForm
    add_form_template = change_form_template = "admin/grading_app/rubric/change_form.html"
    row_actions = (
        build_approve_action("grading_app.approve_rubric", "judges can grade with it"),
        build_archive_action("grading_app.change_rubric"),
        build_copy_action("grading_app.add_rubric"),
    )
    list_display = [*VersionedAdmin.list_display, "kind"]
    list_filter = [*VersionedAdmin.list_filter, "kind"]
    content = ("kind", "system", "user", "scale_min", "scale_max", "criteria", "labels", "messages")
    frozen_content = ("kind", "turns", "verdict")

    @admin.display(description="turns")
    def turns(self, rubric: Rubric) -> SafeString:
        return render_turns(rubric.messages)

    @admin.display(description="verdict")
    def verdict(self, rubric: Rubric) -> SafeString:
        return format_html("<pre>{}</pre>", "\n\n".join(text for _, text in list_verdict_parts(rubric)))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return a starter text of the kind in the address, for example `?starter=label`."""
        kind = request.GET.get("starter", "score")
        starter = rubric_checks.STARTERS.get(kind)  # type: ignore[call-overload]
        if starter is None:
            raise Http404
        return {"kind": kind, "system": starter.system, "user": starter.user, **starter.fields}

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, Callable[..., HttpResponse], str]] = [
            ("<int:pk>/preview/", self.preview, "preview"),
            ("<int:pk>/compare/", self.compare, "compare"),
            ("<int:pk>/try/", self.try_on_answers, "try"),
            ("preview-unsaved/", self.preview_unsaved, "preview_unsaved"),
        ]
        own = [
            path(route, self.admin_site.admin_view(view), name=f"grading_app_rubric_{name}")
            for route, view, name in views
        ]
        return [*own, *super().get_urls()]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        rubric: Rubric | None = kwargs.get("obj")
        form = context["adminform"].form
        context |= {
            "variables": {name: rubric_checks.list_variables(name) for name in rubric_checks.STARTERS},
            "kind": form["kind"].value() if "kind" in form.fields else "",
            "kinds": Rubric.Kind.choices,
            "answer_form": AnswerForm(user=request.user, kind=Rubric.Kind.PAIRWISE, with_texts=True),
            "uses": list_uses(rubric, request.user) if rubric else [],
            "makes_judges": rubric is not None and rubric.can_judge and request.user.has_perm("grading_app.add_grader"),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _fetch_rubric(self, request: HttpRequest, pk: int) -> Rubric:
        rubric: Rubric | None = self.get_object(request, str(pk))
        if rubric is None:
            raise Http404
        if not self.has_view_permission(request, rubric):
            raise PermissionDenied
        return rubric

    def preview(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the exact messages that a judge would get about a stored answer. No model is called."""
        rubric = self._fetch_rubric(request, pk)
        form = build_answer_form(request.GET or None, rubric, request.user)
        result = build_preview(rubric, form)
        if "whole" in request.GET:
            return _download_turn(request, result, rubric.name)
        return self._render(request, "preview", f"Preview of {rubric}", rubric, form=form, result=result)

    def preview_unsaved(self, request: HttpRequest) -> HttpResponse:
        """Show the same preview for the text in the form, saved or not."""
        if request.method != "POST":
            raise Http404
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        rubric_form = RubricForm(request.POST)
        rubric_form.is_valid()
        rubric = rubric_form.instance
        form = build_answer_form(request.POST, rubric, request.user)
        problems = [problem for name, messages in rubric_form.errors.items() if name != "name" for problem in messages]
        result = {"problems": problems} if problems else build_preview(rubric, form)
        if "whole" in request.GET:
            return _download_turn(request, result, "rubric")
        unsaved = [
            (name, value) for name, values in request.POST.lists() for value in values if name != "csrfmiddlewaretoken"
        ]
        context = {"result": result, "form": form, "unsaved": unsaved}
        if wants_part(request):
            return TemplateResponse(request, "admin/grading_app/rubric/messages.html", context)
        return self._render(request, "preview", "Preview of an unsaved rubric", None, **context)

    def compare(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Compare two versions. The older one is `?with=`, or the version before this one."""
        rubric = self._fetch_rubric(request, pk)
        others = list(Rubric.objects.filter(name=rubric.name).exclude(pk=pk).order_by("-version"))
        requested = request.GET.get("with", "")
        older = [other for other in others if other.version < rubric.version]
        matches = [other for other in others if str(other.pk) == requested] if requested else older or others
        if requested and not matches:
            raise Http404
        before = matches[0] if matches else None
        changes = compare_versions(before, rubric) if before else []
        title = f"{before} and {rubric}" if before else f"{rubric} has no other version"
        return self._render(request, "compare", title, rubric, before=before, others=others, changes=changes)

    def try_on_answers(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the results of tests (GET), or request verdicts on five stored answers (POST)."""
        rubric = self._fetch_rubric(request, pk)
        if not self.has_change_permission(request):
            raise PermissionDenied
        with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
        form = PreviewForm(request.POST if request.method == "POST" else None, user=request.user, with_texts=with_texts)
        cost = None
        if request.method == "POST" and form.is_valid():
            test = _build_test(rubric, form)
            cost = test.estimate_cost()
            if "look" not in request.POST and _request_test(request, test, cost, form):
                return redirect("admin:grading_app_rubric_try", pk)
        verdicts = list_previewed_verdicts(rubric, Experiment.objects.visible_to(request.user))
        context = {
            "verdicts": verdicts,
            "waits": any(row.verdict is None and not row.trial.error_class for row in verdicts),
        }
        if wants_part(request):
            return TemplateResponse(request, "admin/grading_app/rubric/verdicts.html", {"rubric": rubric, **context})
        return self._render(request, "try", f"{rubric} on five answers", rubric, form=form, cost=cost, **context)

    def _render(
        self, request: HttpRequest, name: str, title: str, rubric: Rubric | None, **context: Any
    ) -> TemplateResponse:
        shared = {**self.admin_site.each_context(request), "title": title, "opts": self.opts, "rubric": rubric}
        return TemplateResponse(request, f"admin/grading_app/rubric/{name}.html", {**shared, **context})


def _download_turn(request: HttpRequest, result: dict[str, Any] | None, name: str) -> HttpResponse:
    """Return the turn of the preview that `?whole=` chooses, as a file."""
    turns = result["turns"].turns if result and "turns" in result else []
    return build_numbered_text_response((turn.text for turn in turns), request.GET["whole"], f"{name}-message")


def _build_test(rubric: Rubric, form: PreviewForm) -> RubricPreview:
    data = form.cleaned_data
    return RubricPreview(
        rubric, data["experiment"], data["model"], data["sampler"] or get_or_create_default_sampler(), data.get("texts")
    )


def _request_test(request: HttpRequest, test: RubricPreview, cost: PreviewCost, form: PreviewForm) -> bool:
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
        request_preview(test, by=request.user)
    except PlanError as error:
        form.add_error(None, [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in error.problems])
        return False
    return True


def list_uses(rubric: Rubric, user: Any) -> list[GradeCondition]:
    """Return the grade conditions that use this rubric, newest first, each with `n_verdicts`.

    Only experiments that the user may see are included. A judge's verdicts are counted by its runs. A person's verdicts
    are few, and have no run.
    """
    conditions = GradeCondition.objects.filter(rubric=rubric, experiment__in=Experiment.objects.visible_to(user))
    judge_verdicts = _aggregate_by(
        Run.objects.filter(condition=OuterRef("judge_condition")), "condition", Sum("n_done")
    )
    person_verdicts = _aggregate_by(
        Grading.objects.filter(condition=OuterRef("pk")), "condition", Count("pk")
    ) + _aggregate_by(Preference.objects.filter(condition=OuterRef("pk")), "condition", Count("pk"))
    verdicts = Case(When(kind=GradeCondition.Kind.PERSON, then=person_verdicts), default=judge_verdicts)
    rows = conditions.select_related("experiment", "grader", "assignment__queue").annotate(n_verdicts=verdicts)
    return list(rows.order_by("-pk")[:MAX_USES])


def _aggregate_by(rows: Any, by: str, aggregate: Aggregate) -> Any:
    return Coalesce(Subquery(rows.order_by().values(by).annotate(n=aggregate).values("n")), 0)


def build_answer_form(data: Any, rubric: Rubric, user: Any) -> AnswerForm:
    with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
    return AnswerForm(data, user=user, kind=rubric.kind, with_texts=with_texts)


def build_preview(rubric: Rubric, form: AnswerForm) -> dict[str, Any] | None:
    """Return the judge's messages for the chosen answer, and warnings; None without an answer."""
    if not form.is_valid():
        return None
    try:
        answers = form.fetch_answers()
    except ValueError as error:
        return {"turns": Turns([], str(error))}
    texts = fetch_item_text(form.cleaned_data.get("text_set"), answers[0])
    rival = answers[1] if len(answers) > 1 else None
    if rubric.kind == Rubric.Kind.WRITER:
        turns = preview_writer(rubric.messages, answers[0])
    else:
        turns = preview_verdict(rubric.content, answers[0], rival, texts)
    return {"turns": turns, "answers": answers, "warnings": rubric_checks.find_warnings(rubric.messages)}


def list_verdict_parts(rubric: Rubric) -> list[tuple[str, str]]:
    """Return the parts that define a judge's verdict, as (name, text)."""
    if rubric.kind == Rubric.Kind.WRITER:
        return [("kind", rubric.get_kind_display())]
    variables = judge_prompt.build_rubric_variables(rubric.content)
    parts = [("scale", variables["scale"]), ("criteria", variables["criteria"]), ("labels", variables["labels"])]
    return [("kind", rubric.get_kind_display()), *((name, text) for name, text in parts if text)]


def compare_versions(before: Rubric, after: Rubric) -> list[dict[str, Any]]:
    """Return the line differences of each part, in reading order."""
    old, new = (dict([*list_verdict_parts(rubric), *_list_turns(rubric)]) for rubric in (before, after))
    names = list(dict.fromkeys([*old, *new]))
    return [{"name": name, "rows": compare_lines(old.get(name, ""), new.get(name, ""))} for name in names]


def _list_turns(rubric: Rubric) -> list[tuple[str, str]]:
    return [(f"turn {number}, {turn['role']}", turn["content"]) for number, turn in enumerate(rubric.messages, 1)]
