"""The admin of prompts, samplers, dimensions, endpoints, experiments, runs and the task queue.

A draft of a prompt, a sampler or a dimension can be edited. Any other version can only be approved, archived, or copied
to a new version. The library of the site has previews, tries and the comparison of versions. Endpoints hold the names
of API keys, never the keys. Experiments, runs, workers and batches are read-only: the site's own pages control them.
Only superusers see the task queue, because it shows arguments and tracebacks. The site does not use schedules.
"""

from __future__ import annotations

from typing import Any, ClassVar

import django_q.admin  # noqa: F401 - the import registers its models, so that they can be guarded here
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten
from django.db import models, transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django_q.models import Failure, Schedule
from django_q.tasks import async_task

from datasets_app.admin_transitions import RowAction, RowActionAdmin, call_on_each
from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.history import record_changes, save_with_history
from evalsite.lib.web.admin import ReadOnlyAdmin, SuperusersOnly, history_list
from evalsite.lib.web.form_fields import NUMBER_FIELDS
from runs_app import run_control
from runs_app.experiment_options import GROUPS, iterate_rows
from runs_app.forms.definitions import DimensionForm, MappingsForm, PromptForm, SamplerForm
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Prompt, ProviderBatch, Run, Sampler, Worker
from runs_app.models.designs import Versioned, check_archivable
from runs_app.taskqueue.task_payloads import TaskRefused

SAVE_BUTTONS = ("show_save", "show_save_and_continue", "show_save_and_add_another")
MAX_EXPERIMENTS = 100
"""Experiments that the page of a prompt, a sampler or a dimension lists."""


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
        call_on_each("archive"),
        sources=Versioned.IN_USE,
        check=check_archivable,
    )


def build_copy_action(permission: str) -> RowAction:
    consequence = "Creates the next version as a draft with the same content."
    return RowAction("new_version", "New version", consequence, permission, _new_version, needs_reason=False)


def build_approve_action(permission: str, purpose: str) -> RowAction:
    consequence = f"Freezes this version permanently, so that {purpose}. To change it later, create a new version."
    return RowAction(
        "approve", "Approve", consequence, permission, call_on_each("approve"), sources=Versioned.UNAPPROVED
    )


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


class HistoryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin base class that records each change in the history, as the site's own pages do."""

    actions = None
    form = MappingsForm
    formfield_overrides = {
        models.JSONField: {"form_class": BoundedJSONField},
        **{column: {"form_class": field} for column, field in NUMBER_FIELDS.items()},
    }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        save_with_history(obj, by=request.user)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with transaction.atomic():
            record_changes([(obj, str(obj), "deleted")], by=request.user, reason="")
            super().delete_model(request, obj)


@admin.register(Endpoint)
class EndpointAdmin(HistoryAdmin):
    list_display = ["name", "provider", "base_url", "key_env", "max_concurrency", "in_flight", "is_free", "is_active"]
    list_filter = ["provider", "is_free", "is_active"]
    search_fields = ["name", "base_url"]
    readonly_fields: ClassVar[Any] = ["in_flight", "paused_until", "pause_reason", "created_at", history_list]


@admin.register(LanguageModel)
class LanguageModelAdmin(HistoryAdmin):
    list_display = ["name", "endpoint", "model", "input_price", "output_price", "price_date", "is_active"]
    list_filter = ["endpoint", "is_active", "sees_images", "structured_output"]
    list_select_related = ["endpoint"]
    search_fields = ["name", "model"]
    readonly_fields: ClassVar[Any] = ["last_preflight", history_list]

    @admin.display(description="last preflight")
    def last_preflight(self, model: LanguageModel) -> str:
        last = model.preflights.first() if model.pk else None
        return f"{last.get_status_display()}, by {last.actor}. {last.result_text}" if last else "-"


class VisibleAdmin(ReadOnlyAdmin):
    """A read-only admin of the rows that the user can see on the site, each with its history."""

    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: Any = self.model._default_manager
        visible: QuerySet[Any] = rows.visible_to(request.user)
        return visible

    @admin.display(description="history")
    def changes(self, row: Any) -> SafeString | str:
        return history_list(row)


@admin.register(Experiment)
class ExperimentAdmin(VisibleAdmin):
    list_display = ["slug", "title", "owner", "status", "sharing", "dataset", "max_usd", "spent_usd", "created_at"]
    list_filter = ["status", "sharing", ("owner", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["owner", "dataset"]
    search_fields = ["slug", "title"]
    fields = [
        ("slug", "status", "sharing"),
        "title",
        "description",
        ("owner", "shared_with"),
        "dataset",
        ("language_models", "prompts"),
        ("samplers", "dimensions"),
        "scorers",
        *(tuple(row) for group in GROUPS for row in iterate_rows(group)),
        ("spent_usd", "reserved_usd"),
        "created_at",
        "changes",
    ]
    readonly_fields = flatten(fields)


@admin.register(Run)
class RunAdmin(VisibleAdmin):
    list_display = [
        "__str__",
        "experiment",
        "condition",
        "wave",
        "status",
        "n_done",
        "n_failed",
        "n_pending",
        "spent_usd",
    ]
    list_filter = ["status"]
    list_select_related = ["experiment", "condition", "wave"]
    search_fields = ["experiment__slug", "condition__condition_id"]
    fields = [
        ("experiment", "wave", "status"),
        "condition",
        "stop_reason",
        ("max_concurrency", "reserve_usd"),
        ("n_pending", "n_running", "n_done", "n_failed", "n_cancelled"),
        ("n_attempts", "n_permanent", "n_unpriced"),
        "errors",
        ("spent_usd", "input_tokens", "output_tokens"),
        ("created_at", "started_at", "finished_at"),
        "changes",
    ]
    readonly_fields = flatten(fields)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ["name", "version", "in_flight", "recorded", "is_gateway", "started_at", "seen_at", "stopped_at"]
    list_filter = ["host", "is_gateway"]


def _cancel(rows: list[ProviderBatch], by: Any, reason: str) -> None:
    for row in rows:
        if not Experiment.objects.editable_by(by).filter(pk=row.run.experiment_id).exists():
            raise ValueError(f"You may not cancel {row}. Ask the owner of {row.run.experiment.slug}")
        if not run_control.cancel_batch(row, by=by, reason=reason):
            raise ValueError(f"{row} was not cancelled: it has ended, or is being collected or cancelled")


CANCEL = RowAction(
    "cancel",
    "Cancel",
    "Cancels the batch at the provider and pauses its run. Received answers are paid for and kept.",
    "runs_app.view_providerbatch",
    _cancel,
)


@admin.register(ProviderBatch)
class ProviderBatchAdmin(RowActionAdmin, VisibleAdmin):
    row_actions = (CANCEL,)
    change_form_template = (
        "admin/change_form.html"  # A read-only form never saves, so its verb buttons would do nothing.
    )
    list_display = [
        "__str__",
        "status",
        "run_link",
        "endpoint_link",
        "n_requests",
        "n_answered",
        "n_failed",
        "spent_usd",
        "created_at",
        "ended_at",
        "provider_id",
    ]
    list_filter = ["status", "endpoint"]
    list_select_related = ["run__experiment", "endpoint"]
    search_fields = ["=run__id", "=run__experiment__slug", "provider_id"]
    search_help_text = "Search by run number, experiment name or the provider's batch ID."
    fields = [
        ("status", "run_link", "endpoint_link"),
        ("provider_id", "provider_status", "provider_counts"),
        ("n_requests", "n_answered", "n_failed"),
        ("reserved_usd", "spent_usd", "discount"),
        ("tries", "error"),
        ("created_at", "submitted_at", "search_until", "last_polled_at", "next_poll_at", "expires_at", "ended_at"),
        ("key", "input_file", "output_files"),
        ("worker", "lease_until"),
        "changes",
    ]
    readonly_fields = flatten(fields)

    @admin.display(description="run", ordering="run")
    def run_link(self, batch: ProviderBatch) -> SafeString:
        return format_html(
            '<a href="{}">run {}</a> of {}', batch.run.get_absolute_url(), batch.run_id, batch.run.experiment.slug
        )

    @admin.display(description="endpoint", ordering="endpoint")
    def endpoint_link(self, batch: ProviderBatch) -> SafeString:
        url = reverse("admin:runs_app_endpoint_change", args=[batch.endpoint_id])
        return format_html('<a href="{}">{}</a>', url, batch.endpoint)


@admin.action(description="Queue the selected tasks again")
def requeue(model_admin: Any, request: Any, queryset: Any) -> None:
    """Replace django-q2's action, which would queue any function that a row names."""
    for task in queryset:
        args, kwargs = task.args or (), task.kwargs or {}
        try:
            if not (isinstance(args, tuple | list) and isinstance(kwargs, dict)):
                raise TaskRefused("its arguments cannot be read")
            async_task(task.func, *args, **kwargs)
        except TaskRefused as refusal:
            messages.error(request, f"Task {task.name} was not queued: {refusal}")
        else:
            if model_admin.model is Failure:
                task.delete()


def _guard(model: Any) -> None:
    model_admin: Any = type(admin.site._registry[model])
    actions = {"actions": [requeue]} if model_admin.actions else {}
    admin.site.unregister(model)
    admin.site.register(model, type(f"Guarded{model_admin.__name__}", (SuperusersOnly, model_admin), actions))


admin.site.unregister(Schedule)
for _model in apps.get_app_config("django_q").get_models():
    if admin.site.is_registered(_model):
        _guard(_model)
