"""The admin of prompts, samplers and dimensions.

A draft can be edited. Any other version can only be approved, archived, or copied to a new version. The library of the
site has previews, tries and the comparison of versions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db import models
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from datasets_app.admin_transitions import RowAction, RowActionAdmin
from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.web.admin import history_list
from runs_app.forms.definitions import DimensionForm, PromptForm, SamplerForm
from runs_app.models import Dimension, Prompt, Sampler
from runs_app.models.designs import Versioned, check_archivable

SAVE_BUTTONS = ("show_save", "show_save_and_continue", "show_save_and_add_another")


MAX_EXPERIMENTS = 100
"""Experiments that the page of a prompt, a sampler or a dimension lists."""


def _approve(rows: list[Versioned], by: Any, reason: str) -> None:
    for row in rows:
        row.approve(by=by, reason=reason)


def _archive(rows: list[Versioned], by: Any, reason: str) -> None:
    for row in rows:
        row.archive(by=by, reason=reason)


def _new_version(rows: list[Versioned], by: Any, reason: str) -> None:
    for row in rows:
        row.create_new_version(by=by)


def build_archive_action(permission: str) -> RowAction:
    consequence = (
        "New designs cannot use this version. Existing experiments keep it. "
        "The author can do this unless other users use the version; curators always can."
    )
    return RowAction(
        "archive",
        "Archive",
        consequence,
        permission,
        _archive,
        sources=Versioned.IN_USE,
        check=check_archivable,
    )


def build_copy_action(permission: str) -> RowAction:
    consequence = "Creates the next version as a draft with the same content."
    return RowAction("new_version", "New version", consequence, permission, _new_version, needs_reason=False)


def build_approve_action(permission: str, purpose: str) -> RowAction:
    consequence = f"Freezes this version permanently, so that {purpose}. To change it later, create a new version."
    return RowAction("approve", "Approve", consequence, permission, _approve, sources=Versioned.UNAPPROVED)


class VersionedAdmin(RowActionAdmin):
    """The admin of versioned rows. A version that is not a draft is read-only, which the database also enforces."""

    list_display: Any = ["__str__", "status", "short_hash", "created_by", "created_at"]
    list_filter = ["status"]
    list_select_related = ["created_by"]
    search_fields = ["name"]
    content: ClassVar[tuple[str, ...]] = ()
    frozen_content: ClassVar[tuple[str, ...]] = ()
    formfield_overrides = {models.JSONField: {"form_class": BoundedJSONField}}
    about: tuple[str, ...] = ("version", "status", "content_hash", "created_by", "created_at", "changes")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return ["name", *self.content]
        content = self.content if obj.may_edit(request.user) else (self.frozen_content or self.content)
        return ["name", *content, *self.about]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # The name of a saved row is fixed: a version with another name would belong to another prompt.
        if obj is None:
            return []
        return ["name", *self.about] if obj.may_edit(request.user) else self.get_fields(request, obj)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = self.form if obj is None or obj.may_edit(request.user) else ModelForm
        return super().get_form(request, obj, change, form=form, **kwargs)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row = kwargs.get("obj")
        if row is not None and not row.may_edit(request.user):
            context |= dict.fromkeys(SAVE_BUTTONS, False)
        return super().render_change_form(request, context, *args, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.may_edit(request.user))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.add_version(by=request.user)
        elif form.changed_data:
            super().save_model(request, obj, form, change)

    @admin.display(description="hash")
    def short_hash(self, row: Versioned) -> str:
        return row.content_hash[:12]

    @admin.display(description="history")
    def changes(self, row: Versioned) -> SafeString | str:
        return history_list(row)


class DesignPartAdmin(VersionedAdmin):
    """The admin of rows that designs use. It lists the experiments with the row that the user can see."""

    about = (*VersionedAdmin.about, "used_by")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            row.seen_experiments = list(row.experiments.visible_to(request.user).order_by("slug")[:MAX_EXPERIMENTS])
        return row

    @admin.display(description="used by")
    def used_by(self, row: Any) -> SafeString | str:
        links = (
            (experiment.get_absolute_url(), experiment.slug) for experiment in getattr(row, "seen_experiments", ())
        )
        return format_html_join(", ", '<a href="{}">{}</a>', links) or "no experiment that you can see"


def render_turns(messages: list[dict[str, str]]) -> SafeString:
    """Return the turns of a read-only prompt as HTML."""
    lines = ((turn["role"], turn["content"]) for turn in messages)
    return format_html_join("", "<p><strong>{}</strong></p><pre>{}</pre>", lines)


@admin.register(Prompt)
class PromptAdmin(DesignPartAdmin):
    form = PromptForm
    row_actions = (
        build_approve_action("runs_app.approve_prompt", "experiments can ask with it"),
        build_archive_action("runs_app.change_prompt"),
        build_copy_action("runs_app.add_prompt"),
    )
    list_display = [*VersionedAdmin.list_display, "answer_format"]
    content = ("answer_format", "system", "user", "messages")
    frozen_content = ("answer_format", "turns")

    @admin.display(description="turns")
    def turns(self, prompt: Prompt) -> SafeString:
        return render_turns(prompt.messages)


@admin.register(Sampler)
class SamplerAdmin(DesignPartAdmin):
    form = SamplerForm
    row_actions = (
        build_approve_action(Sampler.APPROVAL, "its name means it in every new design"),
        build_archive_action("runs_app.change_sampler"),
        build_copy_action("runs_app.add_sampler"),
    )
    list_display = [*VersionedAdmin.list_display, "settings"]
    content = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort", "extra")

    @admin.display(description="settings")
    def settings(self, sampler: Sampler) -> str:
        return sampler.summary


@admin.register(Dimension)
class DimensionAdmin(DesignPartAdmin):
    form = DimensionForm
    row_actions = (
        build_approve_action(Dimension.APPROVAL, "its name means it in every new design"),
        build_archive_action("runs_app.change_dimension"),
        build_copy_action("runs_app.add_dimension"),
    )
    list_display = [*VersionedAdmin.list_display, "title", "scale_min", "scale_max"]
    content = ("title", "instructions", "scale_min", "scale_max", "labels")
    frozen_content = ("title", "instructions", "scale_min", "scale_max", "points")

    @admin.display(description="labels")
    def points(self, dimension: Dimension) -> SafeString | str:
        labels = sorted(dimension.labels.items(), key=lambda pair: int(pair[0]))
        return format_html("<ul>{}</ul>", format_html_join("", "<li>{} = {}</li>", labels)) if labels else "-"
