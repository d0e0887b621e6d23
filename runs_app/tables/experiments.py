"""The tables of experiments: their runs, waves, planned points and manifests."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from runs_app.models import Experiment, Manifest, Run
from runs_app.models.totals import Totals
from runs_app.monitoring.progress import WaveTotals
from runs_app.planning.points import PointForecast
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn, TimeColumn


class ExperimentTable(tables.Table):
    """Experiments with their headline scores. `headlines` holds the scores by primary key.

    Users can select two experiments with scores for a comparison.
    """

    tick = tables.Column(verbose_name="Compare", empty_values=(), orderable=False, attrs=TIGHT)
    slug = tables.Column(verbose_name="Experiment")
    status = tables.Column()
    dataset = tables.Column(order_by=("dataset__slug", "-dataset__version"))
    owner = tables.Column(order_by="owner__username")
    n_conditions = CountColumn(verbose_name="Conditions", orderable=True)
    progress = tables.Column(verbose_name="Trials", empty_values=(), orderable=False)
    score = tables.Column(verbose_name="Highest score", empty_values=(), orderable=False, attrs=NUMBER)
    spent_usd = tables.Column(verbose_name="Spent", attrs=NUMBER)
    created_at = tables.Column(verbose_name="Created", attrs=TIGHT)

    class Meta:
        model = Experiment
        fields = ()
        default = number_format.MISSING
        order_by = "-created_at"
        sequence = ("slug", "...", "tick")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headlines: Mapping[int, Any] = {}

    def render_slug(self, record: Any) -> SafeString:
        link = format_html('<a href="{}">{}</a>', record.get_absolute_url(), record.slug)
        return format_html('<span class="starred">{}{}</span>', tags.star(record), link)

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
        headline = self.headlines.get(record.pk)
        if headline is None:
            return number_format.MISSING
        lines = [text for text in (headline.label, ", ".join(filter(None, (headline.subject, headline.basis)))) if text]
        return format_html(
            '<span class="board-score"><span><a href="{}">{}</a> <small class="muted">{}</small></span>{}</span>',
            reverse("experiment_results", args=[record.slug]),
            headline.text,
            headline.interval,
            format_html_join("", ' <small class="muted measure-name">{}</small>', ((line,) for line in lines)),
        )

    def render_created_at(self, value: Any) -> SafeString:
        return tags.local_time(value, date_only=True)

    def render_status(self, record: Any) -> SafeString:
        return tags.status_badge(record.find_state(record.read_totals()))

    def render_progress(self, record: Any) -> SafeString | str:
        totals = record.read_totals()
        if not totals.trials:
            return number_format.MISSING
        return format_html("{} {}", number_format.format_count(totals.trials), render_progress_bar(totals, record.slug))

    def render_spent_usd(self, record: Any) -> SafeString:
        limit = f"of {number_format.format_money(record.max_usd)}" if record.max_usd is not None else "no budget"
        cost = record.read_totals().find_known_cost(record.spent_usd)
        return format_html('{} <span class="muted">{}</span>', tags.money(cost), limit)


class RunTable(tables.Table):
    condition = tables.Column(verbose_name="Run", linkify=True)
    wave = tables.Column()
    status = tables.Column()
    progress = tables.Column(empty_values=(), orderable=False)
    n_done = CountColumn(verbose_name="Done")
    n_failed = CountColumn(verbose_name="Failed")
    n_attempts = CountColumn(verbose_name="Attempts")
    spent_usd = MoneyColumn(verbose_name="Spent")

    class Meta:
        model = Run
        fields = ()
        default = number_format.MISSING
        orderable = False

    def __init__(self, rows: Any, *, labels: Mapping[int, str], hides_outcomes: bool = False) -> None:
        """labels: names of the conditions, from `condition_labels`. Runs of one wave have no column for it.

        hides_outcomes: a preregistered plan has not run, so no number beside a name tells how its calls ended.
        """
        self.labels, self.hides_outcomes = labels, hides_outcomes
        hidden = ["n_done", "n_failed", "n_attempts", "spent_usd"] if hides_outcomes else []
        super().__init__(rows, exclude=hidden + ([] if len({run.wave_id for run in rows}) > 1 else ["wave"]))

    def render_condition(self, record: Run) -> str:
        return self.labels[record.condition_id]

    def render_status(self, record: Run) -> SafeString:
        return tags.status_badge(record.state, title=record.current_stop_reason)

    def render_spent_usd(self, record: Run) -> SafeString:
        return tags.money(Totals.of([record]).find_known_cost(record.spent_usd))

    def render_progress(self, record: Run) -> SafeString:
        ended = record.n_done + record.n_failed
        return tags.progress(
            ended if self.hides_outcomes else record.n_done,
            record.n_running,
            0 if self.hides_outcomes else record.n_failed,
            record.n_pending,
            record.n_cancelled,
            legend=False,
            label=f"Run {record.pk}",
        )


class WaveTable(tables.Table):
    wave = tables.Column()
    state = tables.Column(accessor="totals__state")
    done = CountColumn(accessor="totals__done")
    failed = CountColumn(accessor="totals__failed")
    remaining = CountColumn(accessor="totals__remaining", verbose_name="Pending")
    spent_usd = MoneyColumn(verbose_name="Spent")

    class Meta:
        orderable = False

    def render_state(self, value: str) -> SafeString:
        return tags.status_badge(value)

    def render_done(self, value: int, record: WaveTotals) -> SafeString:
        trials = number_format.format_count(record.totals.trials)
        return format_html('{} <span class="muted">of {}</span>', number_format.format_count(value), trials)

    def render_spent_usd(self, value: Decimal, record: WaveTotals) -> SafeString:
        return tags.money(record.totals.find_known_cost(value))


class PointForecastTable(tables.Table):
    """The planned points of an adaptive design, with the scale of their ratings or their chance level."""

    label = tables.Column(verbose_name="Point", attrs={"td": {"class": "primary"}})
    items = CountColumn()
    scale = tables.Column(attrs=NUMBER, empty_values=())
    most = CountColumn(verbose_name="Maximum cases")
    expected = CountColumn(verbose_name="Expected cases")

    class Meta:
        orderable = False
        attrs = {"class": "data-table keep-table"}

    def __init__(self, points: list[PointForecast]) -> None:
        super().__init__(points)
        if not any(point.scale for point in points):
            self.columns["scale"].column.verbose_name = "Chance level"

    def render_scale(self, value: str, record: PointForecast) -> str:
        return value or f"{record.guess_percent} %"


class ManifestTable(tables.Table):
    created_at = TimeColumn(seconds=True, verbose_name="Time")
    summary = tables.Column(verbose_name="Launched")
    to_do = CountColumn(accessor="launch__estimate__to_do", verbose_name="Trials to run")
    ceiling_usd = MoneyColumn(accessor="launch__estimate__ceiling_usd", verbose_name="Maximum cost")
    file = tables.Column(accessor="pk")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, manifests: list[Manifest], slug: str) -> None:
        super().__init__(manifests)
        self.slug = slug

    def render_summary(self, value: str) -> str:
        return capfirst(value)

    def render_file(self, value: int) -> SafeString:
        address = reverse("experiment_manifest", args=[self.slug, value])
        return format_html(
            '<a href="{}" aria-label="Manifest {} as JSON">{} JSON</a>', address, value, tags.icon("download")
        )


def render_progress_bar(totals: Any, label: str) -> SafeString:
    return tags.progress(
        totals.done, totals.running, totals.failed, totals.pending, totals.cancelled, legend=False, label=label
    )
