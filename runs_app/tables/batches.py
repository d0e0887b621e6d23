"""The tables of workers and of provider batches."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.ops.versions import get_version
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Preregistration, ProviderBatch, Worker
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn, TimeColumn


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


class BatchTable(tables.Table):
    """The batches of one run, latest first. How they ended is hidden until a preregistered plan has run."""

    id = tables.Column(verbose_name="Batch", linkify=True, attrs=TIGHT)
    status = tables.Column(attrs=TIGHT)
    provider_id = tables.Column(verbose_name="At the provider", attrs={"td": {"class": "mono clip clip-short"}})
    n_requests = CountColumn(verbose_name="Calls")
    n_answered = CountColumn(verbose_name="Answered")
    n_failed = CountColumn(verbose_name="Failed")
    spent_usd = MoneyColumn(verbose_name="Spent")
    saved_usd = MoneyColumn(verbose_name="Saved")
    submitted_at = TimeColumn(verbose_name="Submitted")

    class Meta:
        model = ProviderBatch
        fields = ()
        default = number_format.MISSING
        orderable = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans = set(Preregistration.objects.unfinished().values_list("experiment", flat=True))

    def render_id(self, value: int) -> str:
        return f"batch {value}"

    def render_n_answered(self, record: ProviderBatch) -> str:
        return self._hide(record, number_format.format_count(record.n_answered))

    def render_n_failed(self, record: ProviderBatch) -> str:
        return self._hide(record, number_format.format_count(record.n_failed))

    def render_spent_usd(self, record: ProviderBatch) -> str:
        return self._hide(record, tags.money(record.spent_usd))

    def render_saved_usd(self, record: ProviderBatch) -> str:
        return self._hide(record, tags.money(record.saved_usd))

    def _hide(self, record: ProviderBatch, text: str) -> str:
        return number_format.MISSING if record.run.experiment_id in self.plans else text

    def render_status(self, record: ProviderBatch) -> SafeString:
        badge = tags.status_badge(record.status, title=record.error, label=record.get_status_display())
        if record.search_ends_at is None:
            return badge
        return format_html(
            '{} <small class="muted">searched until {}</small>', badge, tags.local_time(record.search_ends_at)
        )


class BatchListTable(BatchTable):
    """The batches of several runs and endpoints."""

    run = tables.Column(linkify=True, attrs=TIGHT)
    experiment = tables.Column(verbose_name="Experiment", accessor="run__experiment__slug")
    endpoint = tables.Column()

    class Meta(BatchTable.Meta):
        sequence = ("id", "status", "run", "experiment", "endpoint", "...")
