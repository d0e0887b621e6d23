"""The read-only admin of experiments, runs and workers. The site's own pages design, launch and control them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from evalsite.lib.web.admin import ReadOnlyAdmin, history_list
from runs_app.experiment_options import GROUPS, iterate_rows
from runs_app.models import Experiment, Run, Worker


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
