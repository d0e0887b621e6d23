"""The admin of datasets: datasets with their history, their items, and every transition as a POST with a reason."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.contrib.admin.widgets import AdminTextareaWidget
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from datasets_app import curation
from datasets_app.admin_transitions import RowAction, RowActionAdmin, call_on_each
from datasets_app.forms import AboutForm
from datasets_app.models import BackgroundJob, Dataset, Item, Norm
from datasets_app.models.datasets import ABOUT
from evalsite.lib.web.admin import ReadOnlyAdmin, SuperusersOnly

DRAFT, APPROVED = Dataset.Status.DRAFT, Dataset.Status.APPROVED


def _duplicate(rows: list[Dataset], by: Any, reason: str) -> None:
    for row in rows:
        curation.duplicate(row, by=by, reason=reason)


def _exclude(rows: list[Item], by: Any, reason: str) -> None:
    rows[0].dataset.exclude_items([row.key for row in rows], by=by, reason=reason)


def _include(rows: list[Item], by: Any, reason: str) -> None:
    rows[0].dataset.include_items([row.key for row in rows], by=by, reason=reason)


DATASET_ACTIONS = (
    RowAction(
        "approve",
        "Approve",
        "Freezes the items permanently for experiments. To change items later, duplicate the dataset.",
        "datasets_app.approve_dataset",
        call_on_each("approve"),
        sources=[DRAFT],
    ),
    RowAction(
        "archive",
        "Archive",
        "New experiments cannot use the dataset. Existing experiments keep it.",
        "datasets_app.approve_dataset",
        call_on_each("archive"),
        sources=[APPROVED],
    ),
    RowAction(
        "duplicate",
        "Duplicate",
        "Creates the next version as a draft, with copies of the active items.",
        "datasets_app.add_dataset",
        _duplicate,
        needs_reason=False,
    ),
)
ITEM_ACTIONS = (
    RowAction(
        "exclude",
        "Exclude",
        "Keeps the items in the draft but does not use them in samples or experiments.",
        "datasets_app.change_item",
        _exclude,
    ),
    RowAction(
        "include",
        "Include",
        "Makes excluded items active again.",
        "datasets_app.change_item",
        _include,
        needs_reason=False,
    ),
)


@admin.register(Dataset)
class DatasetAdmin(RowActionAdmin):
    row_actions = DATASET_ACTIONS
    form = AboutForm
    list_display = ["__str__", "title", "status", "active_count", "item_count", "created_by", "created_at"]
    list_filter = ["status", "created_at", ("created_by", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["created_by"]
    search_fields = ["slug", "title", "description"]
    fields = [
        ("slug", "version", "status"),
        ("active_count", "item_count", "items_link"),
        "title",
        "description",
        "source",
        "licence",
        "reason",
        ("content_hash", "approved_at"),
        ("source_name", "source_sha256"),
        ("mapping_text", "recipe_text", "parent"),
        ("created_by", "created_at"),
        "history_list",
    ]
    editable = frozenset({*ABOUT, "reason"})
    formfield_overrides = {models.TextField: {"widget": AdminTextareaWidget(attrs={"rows": 3})}}

    def get_readonly_fields(self, request: HttpRequest, obj: Dataset | None = None) -> list[str]:
        """Return all fields except those that the user may change. The status is always read-only."""
        editable = self.editable if obj is None or obj.may_be_described_by(request.user) else frozenset()
        return [name for name in flatten(self.fields) if name not in editable]

    def get_fields(self, request: HttpRequest, obj: Dataset | None = None) -> Any:
        """Return the fields. Leave out the reason if no reason is needed or the user cannot change the dataset."""
        may_change = self.has_change_permission(request, obj)
        needs_reason = obj is not None and not obj.is_draft and may_change and obj.may_be_described_by(request.user)
        return [name for name in self.fields if name != "reason" or needs_reason]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row = kwargs.get("obj")
        if row is not None and not row.may_be_described_by(request.user):
            context |= dict.fromkeys(("show_save", "show_save_and_continue"), False)
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Dataset, form: Any, change: bool) -> None:
        """Save the changes with a line in the dataset's history, as the site's own pages do."""
        obj.change_description(form.cleaned_data, by=request.user, reason=form.cleaned_data.get("reason", ""))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: datasets come from files on the site's own pages, or from other datasets."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Dataset | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.is_draft)

    def get_deleted_objects(self, objs: Iterable[Dataset], request: HttpRequest) -> Any:
        """Return the number of items instead of a list of them all. Datasets drawn from these count as protected."""
        rows = list(objs)
        protected = [str(child) for child in Dataset.objects.filter(parent__in=rows)]
        return [str(row) for row in rows], {"items": sum(row.item_count for row in rows)}, set(), protected

    def delete_model(self, request: HttpRequest, obj: Dataset) -> None:
        obj.delete_draft(by=request.user)

    @admin.display(description="items")
    def items_link(self, dataset: Dataset) -> SafeString:
        address = reverse("admin:datasets_app_item_changelist")
        return format_html('<a href="{}?dataset__id__exact={}">Show items</a>', address, dataset.pk)

    @admin.display(description="mapping")
    def mapping_text(self, dataset: Dataset) -> str:
        return ", ".join(f"{field}: {column}" for field, column in dataset.mapping.items()) or "-"

    @admin.display(description="recipe")
    def recipe_text(self, dataset: Dataset) -> str:
        return ", ".join(f"{name}: {value}" for name, value in dataset.recipe.items() if value) or "-"

    @admin.display(description="history")
    def history_list(self, dataset: Dataset) -> SafeString:
        lines = (
            (c.at.strftime("%Y-%m-%d %H:%M:%S UTC"), c.actor, c.aspect, c.change, c.reason) for c in dataset.history
        )
        return format_html("<ul>{}</ul>", format_html_join("", "<li>{} · {} · {}: {} <em>{}</em></li>", lines))


class NormInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Norm
    fields = ("dimension", "mean", "sd", "n")
    readonly_fields = fields
    can_delete = False
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Item | None = None) -> bool:
        return False


@admin.register(Item)
class ItemAdmin(RowActionAdmin):
    row_actions = ITEM_ACTIONS
    list_display = ["key", "image_link", "dataset", "category", "text", "target", "excluded", "note"]
    list_filter = ["excluded", ("dataset", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["dataset"]
    search_fields = ["key", "input"]
    show_full_result_count = False
    inlines = [NormInline]
    fields = [
        "dataset",
        "key",
        "input",
        "choices_text",
        "target",
        "grading_scheme",
        "category",
        "image_link",
        "metadata_text",
        "excluded",
        "note",
    ]
    editable = frozenset({"input", "target", "grading_scheme", "category"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Item]:
        return super().get_queryset(request).select_related("dataset", "image")

    def get_readonly_fields(self, request: HttpRequest, obj: Item | None = None) -> list[str]:
        return [name for name in flatten(self.fields) if name not in self.editable]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Item | None = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.dataset.is_draft)

    def has_delete_permission(self, request: HttpRequest, obj: Item | None = None) -> bool:
        return False

    def group_rows(self, rows: Iterable[Item]) -> Iterable[list[Item]]:
        """Group the items by dataset, so that each dataset has one change and one line of history."""
        by_dataset: dict[int, list[Item]] = defaultdict(list)
        for row in rows:
            by_dataset[row.dataset_id].append(row)
        return by_dataset.values()

    def save_model(self, request: HttpRequest, obj: Item, form: forms.ModelForm[Item], change: bool) -> None:
        """Save only the edited fields, so that a concurrent exclusion of the item is not overwritten."""
        if form.changed_data:
            with obj.dataset.change_draft():
                obj.save(update_fields=form.changed_data)
                obj.dataset.add_history_line(
                    "items", f"edited {obj.key}: {', '.join(form.changed_data)}", by=request.user
                )

    @admin.display(description="input")
    def text(self, item: Item) -> str:
        return item.input if len(item.input) <= 80 else item.input[:79] + "…"

    @admin.display(description="choices")
    def choices_text(self, item: Item) -> SafeString | str:
        return format_html_join("", "<div>{}</div>", ((choice,) for choice in item.choices)) or "-"

    @admin.display(description="metadata")
    def metadata_text(self, item: Item) -> str:
        return json.dumps(item.metadata, ensure_ascii=False, indent=1) if item.metadata else "-"

    @admin.display(description="image")
    def image_link(self, item: Item) -> SafeString | str:
        if item.image is None:
            return "-"
        picture = '<a href="{}"><img src="{}" alt="Image of item {}" width="120" loading="lazy"></a>'
        return format_html(picture, item.image.url, item.image.thumbnail_url, item.key)


@admin.register(BackgroundJob)
class BackgroundJobAdmin(SuperusersOnly, ReadOnlyAdmin):
    """The jobs that pages wait for, with the reason of each that failed."""

    list_display = ["subject", "kind", "actor", "state", "requested_at", "started_at", "ended_at", "problem"]
    list_filter = ["kind"]
    search_fields = ["subject", "actor", "problem"]
    date_hierarchy = "requested_at"
