"""The admin of rubrics. The library of the site has their editor, previews, tests and the comparison of versions."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from grading_app.forms.rubrics import RubricForm
from grading_app.models import Rubric
from runs_app.admin.designs import (
    VersionedAdmin,
    build_approve_action,
    build_archive_action,
    build_copy_action,
    render_turns,
)
from runs_app.llm import judge_prompt


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
