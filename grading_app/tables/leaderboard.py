"""The leaderboard on the results page: a row per condition and a sortable column per measure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.reports import statistic_format
from grading_app.reports.leaderboard import BoardRow, Leaderboard
from grading_app.reports.leaderboard_tables import CompareUrl
from grading_app.results.scores import Measure
from grading_app.tables.results import NUMBER, BodyTable


class ScoreColumn(tables.Column):
    """One measure: its mean with interval, and its n. The mean links to a comparison, n to the counted trials."""

    def __init__(self, board: Leaderboard, measure: Measure, slug: str, make_url: CompareUrl) -> None:
        self.board, self.measure, self.slug, self.make_url = board, measure, slug, make_url
        super().__init__(verbose_name=measure.label, attrs=NUMBER, empty_values=())

    def render(self, record: dict[str, Any]) -> SafeString | str:
        row: BoardRow = record["row"]
        score = row.scores[self.measure.key]
        if score.mean is None:
            return number_format.MISSING
        is_share = self.measure.is_share
        mean = statistic_format.format_mean(score.mean, is_share)
        ends = statistic_format.format_mean_interval(score.low, score.high, is_share)
        interval = score.reason if score.low is None else ends
        address = self.make_url(row, self.measure)
        score_html = (
            format_html('<a href="{}"><b>{}</b></a>', address, mean) if address else format_html("<b>{}</b>", mean)
        )
        if self.board.is_best(row, self.measure):
            score_html = format_html('<span><span class="board-best">{}</span> {}</span>', "Best", score_html)
        return format_html(
            '<span class="board-score">{}<small class="muted">{}</small>'
            '<small class="muted">n <a href="{}">{}</a>{}</small></span>',
            score_html,
            interval,
            self._get_trials_url(row),
            number_format.format_count(score.n),
            f" of {number_format.format_count(score.planned)}: {score.missing_text}" if score.missing else "",
        )

    def _get_trials_url(self, row: BoardRow) -> str:
        """Return the address of the trials behind n, including trials without a score."""
        query = {"experiment": self.slug, "condition": row.condition, "status": "done"}
        if self.measure.dimension is not None:
            query["dimension"] = self.measure.dimension
        if self.measure.grade_condition is not None:
            query["graded_by"] = self.measure.grade_condition
        return f"{reverse('trial_list')}?{urlencode(query)}"


class LeaderboardTable(BodyTable):
    condition = tables.Column(attrs={"td": {"class": "primary"}})
    cost = tables.Column(verbose_name="Cost", attrs=NUMBER, empty_values=())
    tokens = tables.Column(attrs=NUMBER)
    latency = tables.Column(verbose_name="Median latency", attrs=NUMBER)

    class Meta(BodyTable.Meta):
        default = number_format.MISSING

    def __init__(self, board: Leaderboard, slug: str, make_url: CompareUrl) -> None:
        names = [(get_column_name(measure), measure) for measure in board.measures]
        rows = [
            {
                "row": row,
                "condition": row.label,
                "cost": row.cost_usd,
                "tokens": row.input_tokens + row.output_tokens,
                "latency": row.latency_s,
                **{name: row.scores[measure.key].mean for name, measure in names},
            }
            for row in board.rows
        ]
        super().__init__(
            rows,
            extra_columns=[(name, ScoreColumn(board, measure, slug, make_url)) for name, measure in names],
            sequence=("condition", *(name for name, _ in names), "..."),
            attrs={"class": "data-table keep-table board"},
        )

    def render_cost(self, value: float | None, record: dict[str, Any]) -> SafeString:
        cost_per_answer = record["row"].cost_per_answer
        if cost_per_answer is None:
            return tags.money(value)
        return format_html(
            '<span class="board-score">{} <small class="muted">{} per answer</small></span>',
            tags.money(value),
            tags.money(cost_per_answer),
        )

    def render_tokens(self, record: dict[str, Any]) -> SafeString:
        row: BoardRow = record["row"]
        return format_html(
            '<span class="board-score">{} <small class="muted">{} in, {} out</small></span>',
            number_format.format_count(row.input_tokens + row.output_tokens),
            number_format.format_count(row.input_tokens),
            number_format.format_count(row.output_tokens),
        )

    def render_latency(self, value: float) -> str:
        return number_format.format_duration(value)


def get_column_name(measure: Measure) -> str:
    """Return the name of the measure's column in the address (`sort=`)."""
    return f"of-{measure.key.replace(':', '-')}"
