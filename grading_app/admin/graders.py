"""Judges and panels: a judge is a model with a rubric. Both can be changed only until they have graded."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from datasets_app.admin_transitions import RowAction, RowActionAdmin
from grading_app.forms.grading import GraderForm
from grading_app.grading.judging import panels
from grading_app.models import GradeCondition, Grader, Panel


def _archive(rows: list[Grader], by: Any, reason: str) -> None:
    for row in rows:
        row.archive(by=by, reason=reason)


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
            _archive,
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
