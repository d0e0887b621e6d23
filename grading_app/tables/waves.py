"""The tables of two waves side by side."""

from __future__ import annotations

from collections.abc import Sequence

import django_tables2 as tables
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.text import number_format
from grading_app.results import statistic_format
from grading_app.results.frames import Outcomes
from grading_app.results.waves import WaveChange, WaveOutcome
from grading_app.statistics.paired import PairedChange
from grading_app.tables.results import NumberColumn
from runs_app.planning.drift import ServedModels

DRIFT = format_html('<span class="chip">{}</span>', "drift")
ALL_CONDITIONS = "all conditions"
FIRST_COLUMNS = ("measure", "condition", "items", "mean_a", "mean_b", "...")


class WaveScoreTable(tables.Table):
    """A row for each measure and condition, with its items' scores in both waves."""

    measure = tables.Column(accessor="measure__label", attrs={"td": {"class": "primary"}})
    condition = tables.Column(default=ALL_CONDITIONS)
    items = NumberColumn(accessor="change", empty_values=())
    difference = NumberColumn(accessor="change", verbose_name="Difference")
    se = NumberColumn(accessor="change", verbose_name="SE by item")
    interval = NumberColumn(accessor="change", verbose_name="95 % interval")
    p = NumberColumn(accessor="change", verbose_name="p")
    adjusted = NumberColumn(verbose_name="p, Holm")
    unread = NumberColumn(verbose_name="No score", empty_values=())
    verdict = tables.Column(verbose_name="Drift", accessor="has_drifted")

    class Meta:
        orderable = False
        default = number_format.MISSING

    def __init__(self, lines: list[WaveChange], a: str, b: str) -> None:
        shown = {
            "condition": len({line.condition for line in lines}) > 1,
            "unread": any(line.unread_a or line.unread_b for line in lines),
        }
        means = [("mean_a", NumberColumn(verbose_name=a)), ("mean_b", NumberColumn(verbose_name=b))]
        hidden = [name for name, is_shown in shown.items() if not is_shown]
        super().__init__(lines, exclude=hidden, extra_columns=means, sequence=FIRST_COLUMNS)

    def render_items(self, record: WaveChange) -> SafeString | str:
        shared = number_format.format_count(record.change.n if record.change else 0)
        if not record.unpaired:
            return shared
        return format_html(
            '{} <small class="muted">{} unpaired</small>', shared, number_format.format_count(record.unpaired)
        )

    def render_mean_a(self, value: float, record: WaveChange) -> str:
        return _format_amount(value, record)

    def render_mean_b(self, value: float, record: WaveChange) -> str:
        return _format_amount(value, record)

    def render_difference(self, value: PairedChange, record: WaveChange) -> str:
        return statistic_format.add_sign(statistic_format.format_difference(value.mean, record.measure.is_share))

    def render_se(self, value: PairedChange, record: WaveChange) -> str:
        return statistic_format.format_difference(value.se, record.measure.is_share, 3)

    def render_interval(self, value: PairedChange, record: WaveChange) -> SafeString | str:
        if value.reason:
            return format_html('<small class="muted">{}</small>', value.reason)
        return statistic_format.format_difference_interval(value.low, value.high, record.measure.is_share)

    def render_p(self, value: PairedChange) -> SafeString | str:
        return format_html('{} <small class="muted">{}</small>', statistic_format.format_p(value.p), value.test_text)

    def render_adjusted(self, value: float) -> str:
        return statistic_format.format_p(value)

    def render_unread(self, record: WaveChange) -> str:
        return f"{number_format.format_count(record.unread_a)}, then {number_format.format_count(record.unread_b)}"

    def render_verdict(self, value: bool, record: WaveChange) -> SafeString | str:
        if record.adjusted is None:
            return number_format.MISSING
        if record.judge_has_changed:
            return "judge changed"
        return DRIFT if value else "none shown"


class WaveOutcomeTable(tables.Table):
    """The outcomes of the trials: a row per condition and wave. Shares are of the done trials."""

    condition = tables.Column(default=ALL_CONDITIONS, attrs={"td": {"class": "primary"}})
    wave = tables.Column(accessor="is_b")
    done = NumberColumn(accessor="counts", verbose_name="Done")
    failed = NumberColumn(accessor="counts__failed")
    unread = NumberColumn(accessor="counts", verbose_name="No rating found")
    empty = NumberColumn(accessor="counts")
    truncated = NumberColumn(accessor="counts")
    refused = NumberColumn(accessor="counts")
    served = tables.Column(verbose_name="Served as")
    provider = tables.Column(accessor="served", verbose_name="By")

    class Meta:
        orderable = False
        default = number_format.MISSING

    def __init__(self, rows: list[WaveOutcome], names: tuple[str, str]) -> None:
        self.names = names
        shown = {
            "unread": any(row.counts.unread for row in rows),
            "served": any(row.served.models for row in rows),
            "provider": any(row.served.providers for row in rows),
        }
        super().__init__(rows, exclude=[name for name, is_shown in shown.items() if not is_shown])

    def render_wave(self, value: bool) -> str:
        return self.names[value]

    def render_done(self, value: Outcomes) -> str:
        return f"{number_format.format_count(value.done)} of {number_format.format_count(value.trials)}"

    def render_unread(self, value: Outcomes) -> str:
        return _format_share(value.unread, value)

    def render_empty(self, value: Outcomes) -> str:
        return _format_share(value.empty, value)

    def render_truncated(self, value: Outcomes) -> str:
        return _format_share(value.truncated, value)

    def render_refused(self, value: Outcomes) -> str:
        return _format_share(value.refused, value)

    def render_served(self, value: ServedModels, record: WaveOutcome) -> SafeString | str:
        return _describe_served(value.models, record.differs.models)

    def render_provider(self, value: ServedModels, record: WaveOutcome) -> SafeString | str:
        return _describe_served(value.providers, record.differs.providers)


def _format_amount(value: float, line: WaveChange) -> str:
    return statistic_format.format_mean(value, line.measure.is_share)


def _format_share(part: int, outcomes: Outcomes) -> str:
    return statistic_format.format_share(part / outcomes.done) if outcomes.done else number_format.MISSING


def _describe_served(names: Sequence[str], has_changed: bool) -> SafeString | str:
    text: str = ", ".join(names) or number_format.MISSING
    chip: SafeString = format_html('{} <span class="chip">changed</span>', text)
    return chip if has_changed else text
