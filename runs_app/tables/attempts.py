"""The tables of the attempts of a trial or a run, and of the preflights of a model."""

from __future__ import annotations

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Attempt, Preflight
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn, TimeColumn

# The status whose badge style each outcome shares.
OUTCOME_STATUS: dict[str, str] = {
    Attempt.Outcome.OK: "done",
    Attempt.Outcome.TRANSIENT: "failed",
    Attempt.Outcome.PERMANENT: "failed",
    Attempt.Outcome.ENDPOINT: "paused",
    Attempt.Outcome.RELEASED: "cancelled",
    Attempt.Outcome.LOST: "failed",
    Attempt.Outcome.LATE: "paused",
    Attempt.Outcome.CACHED: "done",
}


class AttemptTable(tables.Table):
    finished_at = TimeColumn(seconds=True, verbose_name="Ended")
    outcome = tables.Column()
    error = tables.Column(empty_values=())
    http_status = tables.Column(verbose_name="HTTP", attrs=NUMBER)
    latency_ms = tables.Column(verbose_name="Latency", attrs=NUMBER)
    input_tokens = CountColumn(verbose_name="Tokens in")
    output_tokens = CountColumn(verbose_name="Tokens out")
    cost_usd = MoneyColumn(verbose_name="Cost", empty_values=())
    worker = tables.Column()

    class Meta:
        model = Attempt
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_outcome(self, record: Attempt) -> SafeString:
        # The served model and provider share this column, because two more columns would not fit on the page.
        badge = tags.status_badge(OUTCOME_STATUS[record.outcome], label=record.get_outcome_display())
        provider = f"by {record.served_provider}" if record.served_provider else ""
        served = " ".join(part for part in (record.served_model, provider) if part)
        return format_html('{}<br><small class="muted">{}</small>', badge, served) if served else badge

    def render_error(self, record: Attempt) -> str:
        return ": ".join(part for part in (record.error_class, record.error) if part) or number_format.MISSING

    def render_latency_ms(self, value: int) -> str:
        return number_format.format_duration(value / 1000)


class RecentAttemptTable(AttemptTable):
    """The attempts of a run, each with its trial."""

    trial = tables.Column(accessor="trial_id", linkify=("trial_detail", {"pk": tables.A("trial_id")}), attrs=TIGHT)

    class Meta(AttemptTable.Meta):
        sequence = ("trial", "...")


class PreflightTable(tables.Table):
    asked_at = TimeColumn(seconds=True, verbose_name="Time")
    status = tables.Column(verbose_name="Outcome")
    result_text = tables.Column(verbose_name="Details")
    cost_usd = MoneyColumn(verbose_name="Cost", empty_values=())
    actor = tables.Column(verbose_name="By")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_status(self, record: Preflight) -> SafeString:
        badge = tags.status_badge(record.status)
        if not record.outdated_since:
            return badge
        return format_html('{} <span class="muted small">{}</span>', badge, "checked before the endpoint changed")

    def render_cost_usd(self, record: Preflight) -> SafeString | str:
        return tags.money(record.cost_usd) if record.was_made and record.finished_at else number_format.MISSING
