"""The admin of grading: rubrics, judges and panels, and queues of ratings by people.

Judges and panels can be changed only until they have graded. Queues are read-only, because they are changed on their
own pages. The library of the site has the editor of rubrics, their previews, tests and the comparison of versions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from datasets_app.admin_transitions import RowAction, RowActionAdmin, call_on_each
from evalsite.lib.web.admin import ReadOnlyAdmin, history_list
from grading_app.forms.grading import GraderForm
from grading_app.forms.rubrics import RubricForm
from grading_app.grading.judging import panels
from grading_app.models import GradeCondition, Grader, Panel, RaterAssignment, RatingQueue, Rubric
from runs_app.admin import (
    VersionedAdmin,
    VisibleAdmin,
    build_approve_action,
    build_archive_action,
    build_copy_action,
    render_turns,
)
from runs_app.llm import judge_prompt


class UntilUsedAdmin(RowActionAdmin):
    """An admin of rows that can be changed and deleted until a grade condition uses them."""

    content: tuple[str, ...] = ()

    def is_used(self, row: Any) -> bool:
        return GradeCondition.objects.filter(**{self.opts.model_name or "": row}).exists()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not self.is_used(obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = ("created_by", "created_at")
        return (*self.content, *fixed) if obj is not None and self.is_used(obj) else fixed

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.content if obj is None else (*self.content, "created_by", "created_at")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = request.user
        if form.changed_data:
            super().save_model(request, obj, form, change)


@admin.register(Grader)
class GraderAdmin(UntilUsedAdmin):
    form = GraderForm
    row_actions = (
        RowAction(
            "archive",
            "Archive",
            "The judge cannot grade new answers. Existing gradings stay.",
            "grading_app.change_grader",
            call_on_each("archive"),
            check=Grader.check_archivable,
        ),
    )
    content = ("name", "language_model", "rubric", "sampler", "text_set", "on_empty", "longest_answer")
    list_display = ["name", "language_model", "rubric", "sampler", "text_set", "created_at", "archived_at"]
    list_filter = [("archived_at", admin.EmptyFieldListFilter), "language_model"]
    list_select_related = ["language_model", "rubric", "sampler", "text_set"]
    search_fields = ["name", "rubric__name"]


class PanelAdminForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Panel
        fields = ("name", "graders", "rule", "quorum")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        quorum, graders = cleaned.get("quorum"), cleaned.get("graders")
        if graders is not None and len(graders) < 2:
            self.add_error("graders", "Choose at least two judges.")
        elif graders is not None and (problem := next(panels.find_member_problems(list(graders)), "")):
            self.add_error("graders", f"{problem[:1].upper()}{problem[1:]}.")
        elif quorum and graders is not None and quorum > len(graders):
            self.add_error("quorum", f"The panel has {len(graders)} members. Enter at most this number.")
        return cleaned


@admin.register(Panel)
class PanelAdmin(UntilUsedAdmin):
    form = PanelAdminForm
    content = ("name", "graders", "rule", "quorum")
    list_display = ["name", "rule", "quorum", "members", "created_at"]
    filter_horizontal = ["graders"]
    search_fields = ["name"]

    @admin.display(description="members")
    def members(self, panel: Panel) -> str:
        return ", ".join(grader.name for grader in panel.graders.all())

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("graders")


@admin.register(RatingQueue)
class RatingQueueAdmin(VisibleAdmin):
    list_display = ["name", "status", "dataset", "raters_wanted", "owner", "created_at"]
    list_filter = ["status"]
    list_select_related = ["dataset", "owner"]
    search_fields = ["name", "title"]
    readonly_fields: ClassVar[Any] = [history_list]


@admin.register(RaterAssignment)
class RaterAssignmentAdmin(ReadOnlyAdmin):
    list_display = ["queue", "number", "user", "dimension", "by_link", "started_at", "finished_at", "excluded_at"]
    list_filter = [("queue", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["queue", "user", "dimension"]
    exclude = ["seed"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RaterAssignment]:
        """Return assignments of the queues that the user may see.

        A queue over answers is as private as its experiment.
        """
        return super().get_queryset(request).filter(queue__in=RatingQueue.objects.visible_to(request.user))


@admin.register(Rubric)
class RubricAdmin(VersionedAdmin):
    form = RubricForm
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
        variables = judge_prompt.build_rubric_variables(rubric.content) if rubric.kind != Rubric.Kind.WRITER else {}
        parts = [rubric.get_kind_display(), *(variables.get(name, "") for name in ("scale", "criteria", "labels"))]
        return format_html("<pre>{}</pre>", "\n\n".join(filter(None, parts)))
