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
from evalsite.lib.web.long_text import numbered_file
from grading_app.admin.forms import AnswerForm, RubricForm, TryForm, fetch_item_text
from grading_app.judging.default_sampler import get_default_sampler
from grading_app.judging.rubric_preview import PreviewCost, RubricPreview, list_previewed_verdicts, request_preview
from grading_app.models import GradeCondition, Grading, Preference, Rubric
from runs_app.admin.designs import VersionedAdmin, approving, archiving, copying, shown_turns
from runs_app.llm import judge_prompt, prompts, rubric_checks
from runs_app.models import Experiment, Run
from runs_app.planning.work import PlanError
from runs_app.prompt_preview import Turns, preview_verdict, preview_writer

MOST_USES = 50


@admin.register(Rubric)
class RubricAdmin(VersionedAdmin):
    form = RubricForm
    add_form_template = change_form_template = "admin/grading_app/rubric/change_form.html"
    row_actions = (
        approving("grading_app.approve_rubric", "judges can grade with it"),
        archiving("grading_app.change_rubric"),
        copying("grading_app.add_rubric"),
    )
    list_display = [*VersionedAdmin.list_display, "kind"]
    list_filter = [*VersionedAdmin.list_filter, "kind"]
    content = ("kind", "system", "user", "scale_min", "scale_max", "criteria", "labels", "messages")
    frozen_content = ("kind", "turns", "verdict")

    @admin.display(description="turns")
    def turns(self, rubric: Rubric) -> SafeString:
        return shown_turns(rubric.messages)

    @admin.display(description="verdict")
    def verdict(self, rubric: Rubric) -> SafeString:
        return format_html("<pre>{}</pre>", "\n\n".join(text for _, text in parts_of(rubric)))

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
            "uses": uses_of(rubric, request.user) if rubric else [],
            "makes_judges": rubric is not None and rubric.can_judge and request.user.has_perm("grading_app.add_grader"),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def _found(self, request: HttpRequest, pk: int) -> Rubric:
        rubric: Rubric | None = self.get_object(request, str(pk))
        if rubric is None:
            raise Http404
        if not self.has_view_permission(request, rubric):
            raise PermissionDenied
        return rubric

    def preview(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the exact messages that a judge would get about a stored answer. No model is called."""
        rubric = self._found(request, pk)
        form = answer_form(request.GET or None, rubric, request.user)
        shown = shown_on(rubric, form)
        if "whole" in request.GET:
            return _whole_turn(request, shown, rubric.name)
        return self._page(request, "preview", f"Preview of {rubric}", rubric, form=form, shown=shown)

    def preview_unsaved(self, request: HttpRequest) -> HttpResponse:
        """Show the same preview for the text in the form, saved or not."""
        if request.method != "POST":
            raise Http404
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        written = RubricForm(request.POST)
        written.is_valid()
        rubric = written.instance
        form = answer_form(request.POST, rubric, request.user)
        problems = [problem for name, found in written.errors.items() if name != "name" for problem in found]
        shown = {"problems": problems} if problems else shown_on(rubric, form)
        if "whole" in request.GET:
            return _whole_turn(request, shown, "rubric")
        unsaved = [
            (name, value) for name, values in request.POST.lists() for value in values if name != "csrfmiddlewaretoken"
        ]
        context = {"shown": shown, "form": form, "unsaved": unsaved}
        if wants_part(request):
            return TemplateResponse(request, "admin/grading_app/rubric/shown.html", context)
        return self._page(request, "preview", "Preview of an unsaved rubric", None, **context)

    def compare(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Compare two versions. The older one is `?with=`, or the version before this one."""
        rubric = self._found(request, pk)
        others = list(Rubric.objects.filter(name=rubric.name).exclude(pk=pk).order_by("-version"))
        wanted = request.GET.get("with", "")
        older = [other for other in others if other.version < rubric.version]
        chosen = [other for other in others if str(other.pk) == wanted] if wanted else older or others
        if wanted and not chosen:
            raise Http404
        before = chosen[0] if chosen else None
        changes = differences(before, rubric) if before else []
        title = f"{before} and {rubric}" if before else f"{rubric} has no other version"
        return self._page(request, "compare", title, rubric, before=before, others=others, changes=changes)

    def try_on_answers(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the results of tests (GET), or request verdicts on five stored answers (POST)."""
        rubric = self._found(request, pk)
        if not self.has_change_permission(request):
            raise PermissionDenied
        with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
        form = TryForm(request.POST if request.method == "POST" else None, user=request.user, with_texts=with_texts)
        cost = None
        if request.method == "POST" and form.is_valid():
            attempt = _try_of(rubric, form)
            cost = attempt.cost()
            if "look" not in request.POST and _asked(request, attempt, cost, form):
                return redirect("admin:grading_app_rubric_try", pk)
        tried = list_previewed_verdicts(rubric, Experiment.objects.visible_to(request.user))
        shown = {"tried": tried, "waits": any(one.verdict is None and not one.trial.error_class for one in tried)}
        if wants_part(request):
            return TemplateResponse(request, "admin/grading_app/rubric/tried.html", {"rubric": rubric, **shown})
        return self._page(request, "try", f"{rubric} on five answers", rubric, form=form, cost=cost, **shown)

    def _page(
        self, request: HttpRequest, name: str, title: str, rubric: Rubric | None, **context: Any
    ) -> TemplateResponse:
        shared = {**self.admin_site.each_context(request), "title": title, "opts": self.opts, "rubric": rubric}
        return TemplateResponse(request, f"admin/grading_app/rubric/{name}.html", {**shared, **context})


def _whole_turn(request: HttpRequest, shown: dict[str, Any] | None, name: str) -> HttpResponse:
    """Return the turn of the preview that `?whole=` chooses, as a file."""
    turns = shown["turns"].turns if shown and "turns" in shown else []
    return numbered_file((turn.text for turn in turns), request.GET["whole"], f"{name}-message")


def _try_of(rubric: Rubric, form: TryForm) -> RubricPreview:
    said = form.cleaned_data
    return RubricPreview(
        rubric, said["experiment"], said["model"], said["sampler"] or get_default_sampler(), said.get("texts")
    )


def _asked(request: HttpRequest, tried: RubricPreview, cost: PreviewCost, form: TryForm) -> bool:
    asks = tried.experiment.needs_confirmation(cost.ceiling_usd) and not any(tried.problems())
    if asks and not form.cleaned_data["confirmed"]:
        limit = format_money(tried.experiment.confirm_above_usd)
        said = (
            f"This may cost {format_money(cost.ceiling_usd)}, and {tried.experiment} asks from {limit} on: confirm it."
        )
        form.add_error("confirmed", said)
        return False
    try:
        request_preview(tried, by=request.user)
    except PlanError as problem:
        form.add_error(None, [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in problem.problems])
        return False
    return True


def uses_of(rubric: Rubric, user: Any) -> list[GradeCondition]:
    """Return the grade conditions that use this rubric, newest first, each with `n_verdicts`.

    Only experiments that the user may see are included. A judge's verdicts are counted by its runs. A person's verdicts
    are few, and have no run.
    """
    seen = GradeCondition.objects.filter(rubric=rubric, experiment__in=Experiment.objects.visible_to(user))
    of_judges = _sum_parts(Run.objects.filter(condition=OuterRef("judge_condition")), "condition", Sum("n_done"))
    of_people = _sum_parts(Grading.objects.filter(condition=OuterRef("pk")), "condition", Count("pk")) + _sum_parts(
        Preference.objects.filter(condition=OuterRef("pk")), "condition", Count("pk")
    )
    verdicts = Case(When(kind=GradeCondition.Kind.PERSON, then=of_people), default=of_judges)
    rows = seen.select_related("experiment", "grader", "assignment__queue").annotate(n_verdicts=verdicts)
    return list(rows.order_by("-pk")[:MOST_USES])


def _sum_parts(rows: Any, by: str, what: Aggregate) -> Any:
    return Coalesce(Subquery(rows.order_by().values(by).annotate(n=what).values("n")), 0)


def answer_form(data: Any, rubric: Rubric, user: Any) -> AnswerForm:
    with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
    return AnswerForm(data, user=user, kind=rubric.kind, with_texts=with_texts)


def shown_on(rubric: Rubric, form: AnswerForm) -> dict[str, Any] | None:
    """Return the messages about the chosen answer, and warnings; None if no answer is chosen."""
    if not form.is_valid():
        return None
    try:
        answers = form.chosen()
    except ValueError as problem:
        return {"turns": Turns([], str(problem))}
    texts = fetch_item_text(form.cleaned_data.get("text_set"), answers[0])
    rival = answers[1] if len(answers) > 1 else None
    if rubric.kind == Rubric.Kind.WRITER:
        turns = preview_writer(rubric.messages, answers[0])
    else:
        turns = preview_verdict(rubric.content, answers[0], rival, texts)
    return {"turns": turns, "answers": answers, "warnings": rubric_checks.find_warnings(rubric.messages)}


def parts_of(rubric: Rubric) -> list[tuple[str, str]]:
    """Return the parts that define a judge's verdict, as (name, text)."""
    if rubric.kind == Rubric.Kind.WRITER:
        return [("kind", rubric.get_kind_display())]
    told = judge_prompt.rubric_variables(rubric.content)
    named = [("scale", told["scale"]), ("criteria", told["criteria"]), ("labels", told["labels"])]
    return [("kind", rubric.get_kind_display()), *((name, text) for name, text in named if text)]


def differences(before: Rubric, after: Rubric) -> list[dict[str, Any]]:
    """Return the differences of each part, in reading order. A part that neither version has is left out."""
    old, new = (dict([*parts_of(rubric), *_turns_of(rubric)]) for rubric in (before, after))
    names = list(dict.fromkeys([*old, *new]))
    return [{"name": name, "rows": compare_lines(old.get(name, ""), new.get(name, ""))} for name in names]


def _turns_of(rubric: Rubric) -> list[tuple[str, str]]:
    return [(f"turn {at}, {turn['role']}", turn["content"]) for at, turn in enumerate(rubric.messages, 1)]
