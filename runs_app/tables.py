"""The tables of the list pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.ops.versions import get_version
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Attempt, Experiment, ProviderBatch, Run, Worker
from runs_app.monitoring.progress import find_experiment_state, find_worker_state, read_totals

NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}
TIGHT = {"td": {"class": "tight"}}
# Outcomes by the status whose badge style they share.
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


class CountColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, "orderable": False, **kwargs})

    def render(self, value: Any) -> str:
        return number_format.format_count(value)


class TimeColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": TIGHT, **kwargs})

    def render(self, value: Any) -> SafeString:
        return tags.local_time(value)


class ExperimentTable(tables.Table):
    """Experiments with their headline scores, which `headlines` holds by primary key. Two can be ticked to compare."""

    tick = tables.Column(verbose_name="Compare", empty_values=(), orderable=False, attrs=TIGHT)
    slug = tables.Column(verbose_name="Experiment", linkify=True)
    status = tables.Column()
    dataset = tables.Column(order_by=("dataset__slug", "-dataset__version"))
    owner = tables.Column(order_by="owner__username")
    n_conditions = CountColumn(verbose_name="Conditions", orderable=True)
    trials = CountColumn(empty_values=())
    progress = tables.Column(empty_values=(), orderable=False)
    score = tables.Column(empty_values=(), orderable=False, attrs=NUMBER)
    spent_usd = tables.Column(verbose_name="Spent", attrs=NUMBER)
    created_at = TimeColumn(verbose_name="Created")

    class Meta:
        model = Experiment
        fields = ()
        default = number_format.MISSING
        order_by = "-created_at"
        sequence = ("slug", "...", "tick")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headlines: Mapping[int, Any] = {}

    def render_tick(self, record: Any) -> SafeString | str:
        if record.pk not in self.headlines:
            return ""
        return format_html(
            '<label class="tick"><input type="checkbox" name="experiment" value="{}">'
            '<span class="visually-hidden">Compare {}</span></label>',
            record.slug,
            record.slug,
        )

    def render_score(self, record: Any) -> SafeString | str:
        found = self.headlines.get(record.pk)
        if found is None:
            return number_format.MISSING
        return format_html(
            '<span class="board-score"><a href="{}">{}</a> <small class="muted">{}</small></span>',
            reverse("experiment_results", args=[record.slug]),
            found.text,
            found.measure,
        )

    def render_status(self, record: Any) -> SafeString:
        return tags.status_badge(find_experiment_state(record, read_totals(record)))

    def render_trials(self, record: Any) -> str:
        return number_format.format_count(read_totals(record).trials)

    def render_progress(self, record: Any) -> SafeString | str:
        totals = read_totals(record)
        if not totals.trials:
            return number_format.MISSING
        return progress_bar(totals, record.slug)

    def render_spent_usd(self, record: Any) -> SafeString:
        limit = f"of {number_format.format_money(record.max_usd)}" if record.max_usd is not None else "no budget"
        return format_html('{} <span class="muted">{}</span>', tags.money(record.spent_usd), limit)


class RunTable(tables.Table):
    condition = tables.Column(verbose_name="Run", linkify=True)
    wave = tables.Column()
    status = tables.Column()
    progress = tables.Column(empty_values=(), orderable=False)
    n_done = CountColumn(verbose_name="Done")
    n_failed = CountColumn(verbose_name="Failed")
    n_attempts = CountColumn(verbose_name="Attempts")
    spent_usd = tables.Column(verbose_name="Spent", attrs=NUMBER)

    class Meta:
        model = Run
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_condition(self, record: Run) -> str:
        return record.condition.label

    def render_status(self, record: Run) -> SafeString:
        return tags.status_badge(record.status, title=record.current_stop_reason, label=record.get_status_display())

    def render_progress(self, record: Run) -> SafeString:
        return tags.progress(
            record.n_done,
            record.n_running,
            record.n_failed,
            record.n_pending,
            record.n_cancelled,
            legend=False,
            label=f"Run {record.pk}",
        )

    def render_spent_usd(self, record: Run) -> SafeString:
        return tags.money(record.spent_usd)


def progress_bar(totals: Any, label: str) -> SafeString:
    return tags.progress(
        totals.done, totals.running, totals.failed, totals.pending, totals.cancelled, legend=False, label=label
    )


class BatchTable(tables.Table):
    """The batches of one run, latest first."""

    id = tables.Column(verbose_name="Batch", linkify=True, attrs=TIGHT)
    status = tables.Column(attrs=TIGHT)
    provider_id = tables.Column(verbose_name="At the provider", attrs={"td": {"class": "mono clip clip-short"}})
    n_requests = CountColumn(verbose_name="Calls")
    n_answered = CountColumn(verbose_name="Answered")
    n_failed = CountColumn(verbose_name="Failed")
    spent_usd = tables.Column(verbose_name="Spent", attrs=NUMBER)
    saved_usd = tables.Column(verbose_name="Saved", attrs=NUMBER)
    submitted_at = TimeColumn(verbose_name="Submitted")

    class Meta:
        model = ProviderBatch
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_id(self, value: int) -> str:
        return f"batch {value}"

    def render_status(self, record: ProviderBatch) -> SafeString:
        badge = tags.status_badge(record.status, title=record.error, label=record.get_status_display())
        if record.sought_until is None:
            return badge
        return format_html(
            '{} <small class="muted">searched until {}</small>', badge, tags.local_time(record.sought_until)
        )

    def render_spent_usd(self, value: Any) -> SafeString:
        return tags.money(value)

    def render_saved_usd(self, value: Any) -> SafeString:
        return tags.money(value)


class BatchListTable(BatchTable):
    """Batches of several runs and endpoints."""

    run = tables.Column(linkify=True, attrs=TIGHT)
    experiment = tables.Column(verbose_name="Experiment", accessor="run__experiment__slug")
    endpoint = tables.Column()

    class Meta(BatchTable.Meta):
        sequence = ("id", "status", "run", "experiment", "endpoint", "...")


class WorkerTable(tables.Table):
    """Workers with their state at `now`, the query time that each row carries."""

    LOOKS: ClassVar = {"alive": ("running", "Alive"), "silent": ("dead", "Silent"), "left": ("finished", "Left")}

    host = tables.Column()
    pid = tables.Column(verbose_name="Process", attrs=NUMBER)
    state = tables.Column(empty_values=())
    version = tables.Column(attrs=TIGHT)
    in_flight = CountColumn(verbose_name="In flight")
    per_minute = CountColumn(verbose_name="Trials per minute")
    recorded = CountColumn(verbose_name="Recorded")
    started_at = TimeColumn(verbose_name="Started")
    seen_at = TimeColumn(verbose_name="Last heartbeat")
    left_at = TimeColumn(verbose_name="Left")

    class Meta:
        model = Worker
        fields = ()
        default = number_format.MISSING
        orderable = False

    def render_pid(self, value: int) -> str:
        return str(value)

    def render_state(self, record: Any) -> SafeString:
        status, label = self.LOOKS[find_worker_state(record, record.now)]
        return tags.status_badge(status, label=label)

    def render_version(self, value: str) -> SafeString:
        if value == get_version():
            return format_html('<span class="mono">{}</span>', value)
        return format_html('<span class="mono">{}</span> <span class="chip">another</span>', value)

    def render_per_minute(self, value: float) -> str:
        return number_format.format_count(round(value))


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
        """Return the outcome with the served model and provider. Two more columns would not fit on the page."""
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
    """Attempts of a whole run, each with its trial."""

    trial = tables.Column(accessor="trial_id", linkify=("trial_detail", {"pk": tables.A("trial_id")}), attrs=TIGHT)

    class Meta(AttemptTable.Meta):
        sequence = ("trial", "...")


class LedgerTable(tables.Table):
    """Lines of the ledger. `by` is the key that groups them."""

    label = tables.Column(attrs=TIGHT)
    calls = CountColumn(accessor="sums__calls")
    input_tokens = CountColumn(accessor="sums__input_tokens", verbose_name="Tokens in")
    output_tokens = CountColumn(accessor="sums__output_tokens", verbose_name="Tokens out")
    list_usd = tables.Column(accessor="sums__list_usd", verbose_name="List price", attrs=NUMBER)
    saved_usd = tables.Column(accessor="sums__saved_usd", verbose_name="Saved", attrs=NUMBER)
    paid_usd = tables.Column(accessor="sums__paid_usd", verbose_name="Paid", attrs=NUMBER)
    unpriced = CountColumn(accessor="sums__unpriced", verbose_name="Unknown cost")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, lines: Any, *, by: str, **kwargs: Any) -> None:
        super().__init__(lines, **kwargs)
        self.by = by
        self.columns["label"].column.verbose_name = by.capitalize()

    def render_label(self, record: Any) -> SafeString | str:
        """Return the label, linked if the group is a run or an experiment. A preflight has no run and may have no
        experiment."""
        page = {"run": "run_detail", "experiment": "experiment_ledger"}.get(self.by)
        if page is None or record.key is None:
            return str(record.label)
        return format_html('<a href="{}">{}</a>', reverse(page, args=[record.key]), record.label)

    def render_calls(self, record: Any) -> SafeString:
        return _with_parts(record.sums.calls, (("reused", record.sums.reused),))

    def render_input_tokens(self, record: Any) -> SafeString:
        sums = record.sums
        return _with_parts(
            sums.input_tokens, (("from cache", sums.cache_read_tokens), ("into cache", sums.cache_write_tokens))
        )

    def render_output_tokens(self, record: Any) -> SafeString:
        return _with_parts(record.sums.output_tokens, (("reasoning", record.sums.reasoning_tokens),))

    def render_list_usd(self, value: Any) -> SafeString:
        return tags.money(value)

    def render_saved_usd(self, record: Any) -> SafeString | str:
        return tags.money(record.sums.saved_usd) if record.sums.saved_usd else number_format.MISSING

    def render_paid_usd(self, value: Any) -> SafeString:
        return tags.money(value)

    def render_unpriced(self, record: Any) -> SafeString | str:
        if not record.sums.unpriced:
            return number_format.MISSING
        kept = f"{number_format.format_money(record.sums.kept_usd)} kept" if record.sums.kept_usd else "nothing kept"
        return format_html('{} <span class="muted">{}</span>', number_format.format_count(record.sums.unpriced), kept)


def _with_parts(total: int, parts: tuple[tuple[str, int], ...]) -> SafeString:
    """Return a total with its non-zero parts, for example `1,200 (300 from cache)`."""
    parts_text = ", ".join(f"{number_format.format_count(n)} {name}" for name, n in parts if n)
    if not parts_text:
        return format_html("{}", number_format.format_count(total))
    return format_html('{} <span class="muted">{}</span>', number_format.format_count(total), parts_text)
