"""The read-only admin of experiments, runs, workers and provider batches.

The site's own pages design, launch and control them. The page of a batch has an action that cancels it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from datasets_app.admin_transitions import RowAction, RowActionAdmin
from evalsite.lib.web.admin import ReadOnlyAdmin, history_list
from runs_app import run_control
from runs_app.experiment_options import GROUPS, iterate_rows
from runs_app.models import Experiment, ProviderBatch, Run, Worker


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
