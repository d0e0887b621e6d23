"""The table of workers."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.ops.versions import get_version
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Worker
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, TimeColumn


class WorkerTable(tables.Table):
    """Workers with their state at `now`, the time of the query."""

    BADGES: ClassVar = {"alive": ("running", "Alive"), "silent": ("dead", "Silent"), "stopped": ("finished", "Stopped")}

    host = tables.Column()
    pid = tables.Column(verbose_name="Process", attrs=NUMBER)
    state = tables.Column(empty_values=())
    version = tables.Column(attrs=TIGHT)
    in_flight = CountColumn(verbose_name="In flight")
    per_minute = CountColumn(verbose_name="Trials per minute")
    recorded = CountColumn(verbose_name="Recorded")
    started_at = TimeColumn(verbose_name="Started")
    seen_at = TimeColumn(verbose_name="Last heartbeat")
    stopped_at = TimeColumn(verbose_name="Stopped")

    class Meta:
        model = Worker
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_pid(self, value: int) -> str:
        return str(value)

    def render_state(self, record: Any) -> SafeString:
        status, label = self.BADGES[record.find_state(record.now)]
        return tags.status_badge(status, label=label)

    def render_version(self, value: str) -> SafeString:
        if value == get_version():
            return format_html('<span class="mono">{}</span>', value)
        return format_html('<span class="mono">{}</span> <span class="chip">different</span>', value)

    def render_per_minute(self, value: float) -> str:
        return number_format.format_count(round(value))
