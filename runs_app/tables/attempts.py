"""The tables of the attempts of a trial or a run."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Attempt
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn

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
    finished_at = tables.Column(verbose_name="Ended", attrs=TIGHT)
    outcome = tables.Column()
    error = tables.Column(empty_values=())
    http_status = tables.Column(verbose_name="HTTP", attrs=NUMBER)
    latency_ms = tables.Column(verbose_name="Latency", attrs=NUMBER)
    input_tokens = CountColumn(verbose_name="Tokens in")
    output_tokens = CountColumn(verbose_name="Tokens out")
    cost_usd = tables.Column(verbose_name="Cost", attrs=NUMBER, empty_values=())
    worker = tables.Column()

    class Meta:
        model = Attempt
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_finished_at(self, value: Any) -> SafeString:
        return tags.local_time(value, seconds=True)

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

    def render_cost_usd(self, record: Attempt) -> SafeString:
        return tags.money(record.cost_usd)


class RecentAttemptTable(AttemptTable):
    """The attempts of a run, each with its trial."""

    trial = tables.Column(accessor="trial_id", linkify=("trial_detail", {"pk": tables.A("trial_id")}), attrs=TIGHT)

    class Meta(AttemptTable.Meta):
        sequence = ("trial", "...")
