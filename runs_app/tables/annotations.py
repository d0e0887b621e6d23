"""The table of an experiment's notes, flags and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.text import number_format
from runs_app.models import Annotation
from runs_app.tables.columns import TIGHT, TimeColumn

EXCERPT = 300


class AnnotationTable(tables.Table):
    kind = tables.Column(attrs=TIGHT)
    text = tables.Column(orderable=False, attrs={"td": {"class": "prose-cell"}})
    item = tables.Column(order_by=("item__position", "item__key"), attrs={"td": {"class": "mono tight"}})
    trial = tables.Column(empty_values=(), attrs=TIGHT)
    condition = tables.Column(
        accessor="trial__run__condition", orderable=False, attrs={"td": {"class": "clip clip-short"}}
    )
    author = tables.Column(order_by="author__username", attrs=TIGHT)
    created_at = TimeColumn(verbose_name="Added")

    class Meta:
        model = Annotation
        fields = ()
        default = number_format.MISSING
        order_by = "-created_at"
        attrs = {"class": "data-table"}

    def __init__(self, rows: Any, *, labels: Mapping[int, str], **options: Any) -> None:
        """labels: names of the conditions, from `condition_labels`."""
        self.labels = labels
        super().__init__(rows, **options)

    def render_text(self, value: str) -> str:
        return value if len(value) <= EXCERPT else f"{value[:EXCERPT]}…"

    def render_item(self, record: Annotation) -> SafeString:
        return format_html('<a href="{}">{}</a>', reverse("item_page", args=[record.item_id]), record.item.key)

    def render_trial(self, record: Annotation) -> SafeString | str:
        if record.trial_id is None:
            return number_format.MISSING
        url = reverse("trial_detail", args=[record.trial_id])
        return format_html('<a href="{}#annotations">{}</a>', url, record.trial_id)

    def render_condition(self, record: Annotation) -> str:
        return self.labels[record.trial.run.condition_id] if record.trial else number_format.MISSING
