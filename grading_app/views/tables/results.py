"""The tables of the results page, result tables as HTML, and the cells of the matrix.

A cell of the matrix has a text, a colour and a histogram. Every colour comes with a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import django_tables2 as tables
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.text.number_format import format_count, format_duration, format_money, format_score
from grading_app.results import statistic_format
from grading_app.results.item_matrix import MatrixCell
from grading_app.results.scope import MISSING_WRONG, Scope
from grading_app.results.table import ResultTable
from grading_app.statistics.item_scores import TOLERANCE
from runs_app.monitoring.point_status import PointLine
from runs_app.tables.columns import NUMBER

BELOW_GUESSING = "below guessing"
MAX_ROWS = 100
"""The number of rows on a page. Files have all rows."""
LEVELS = 5
"""Shades of a score. Each end of the scale has its own shade."""
WIDTH, HEIGHT = 56, 16
"""The size of a histogram, in units of its view box."""
MAX_BINS = 11


class NumberColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, **kwargs})


class TextTable(tables.Table):
    """A table of texts, rendered at once: ten times as fast as cell by cell, for hundreds of rows.

    head: the labels of the columns by their names. numbers: for each column, whether it holds numbers. rows: the texts
    of the cells, or safe strings, in the order of the page. order: the sort column. is_cards: a phone shows a card for
    each row, not a table that scrolls sideways.
    """

    class Meta:
        template_name = "tables/text_table.html"
        attrs: ClassVar = {"class": "data-table keep-table"}

    def __init__(
        self,
        head: Mapping[str, str],
        numbers: Sequence[bool],
        rows: Sequence[Sequence[str]],
        *,
        is_sortable: bool = False,
        order: str = "",
        is_cards: bool = False,
    ) -> None:
        columns = [
            (
                name,
                tables.Column(
                    accessor=name.replace(".", "__"),  # No row is read by it: `rows` has the texts.
                    verbose_name=label,
                    attrs=NUMBER if is_number else {},
                    orderable=is_sortable,
                ),
            )
            for (name, label), is_number in zip(head.items(), numbers, strict=True)
        ]
        attrs = {"attrs": {"class": "data-table"}} if is_cards else {}
        super().__init__([], extra_columns=columns, order_by=order if is_sortable else "", **attrs)
        self.head, self.numbers, self.rows_of_text = list(head.values()), numbers, rows

    @property
    def body(self) -> SafeString:
        starts = []
        for index, (name, is_number) in enumerate(zip(self.head, self.numbers, strict=True)):
            kind = "num" if is_number else "row-name" if index else "primary row-name"
            starts.append(format_html('<td class="{}" role="cell" data-label="{}"><div class="cell">', kind, name))
        rows = (format_html_join("", "{}{}</div></td>", zip(starts, cells, strict=True)) for cells in self.rows_of_text)
        return format_html_join("", '<tr role="row">{}</tr>', ((row,) for row in rows))


class PointTable(tables.Table):
    """A row for each point and condition, and for each wave if there are several."""

    label = tables.Column(verbose_name="Point", attrs={"td": {"class": "primary"}})
    condition = tables.Column()
    wave = tables.Column()
    status = tables.Column()
    rated_items = NumberColumn(verbose_name="Items")
    scored = NumberColumn(verbose_name="n")
    mean = NumberColumn(verbose_name="Mean")
    right = NumberColumn(verbose_name="Correct")
    accuracy = NumberColumn(verbose_name="Corrected for guessing")
    interval = NumberColumn(verbose_name="Interval", empty_values=(), order_by="half_width")
    truncated = NumberColumn(verbose_name="Truncated")
    unread = NumberColumn(verbose_name="No score")
    failed = NumberColumn()
    rounds = NumberColumn()
    asked = NumberColumn()

    class Meta:
        default = number_format.MISSING
        order_by = "-interval"

    def __init__(self, lines: list[PointLine], *, labels: dict[int, str]) -> None:
        self.labels = labels
        shown = {
            "condition": len({line.condition for line in lines}) > 1,
            "wave": len({line.wave for line in lines}) > 1,
            "accuracy": any(line.guesses for line in lines),
            "right": not any(line.scale for line in lines),
            **dict.fromkeys(("mean", "rated_items"), any(line.scale for line in lines)),
            **{name: any(getattr(line, name) for line in lines) for name in ("truncated", "unread", "failed")},
        }
        super().__init__(lines, exclude=[name for name, is_shown in shown.items() if not is_shown])

    def render_condition(self, value: int) -> str:
        return self.labels[value]

    def render_status(self, record: PointLine) -> SafeString:
        badge = tags.status_badge(record.status, label=record.status_label)
        if not record.reason:
            return badge
        return format_html('<details class="point-reason"><summary>{}</summary>{}</details>', badge, record.reason)

    def render_right(self, value: float) -> str:
        return statistic_format.format_share(value)

    def render_accuracy(self, value: float) -> str:
        return statistic_format.format_share(value)

    def render_mean(self, value: float) -> str:
        return statistic_format.format_number(value)

    def render_interval(self, record: PointLine) -> str:
        if record.scale is not None:
            return statistic_format.format_interval(record.low, record.high)
        return (
            BELOW_GUESSING
            if record.is_below_guessing
            else statistic_format.format_share_interval(record.low, record.high)
        )

    def render_asked(self, record: PointLine) -> str:
        return f"{number_format.format_count(record.asked)} of {number_format.format_count(record.most)}"


def make_html_table(table: ResultTable, order: str = "", *, is_cards: bool = False) -> tables.Table:
    """Return the first rows of the table for `{% render_table %}`. Cells with an address in `links` become links, and
    the first cell of a row with `details` opens them.

    order: the sort column of a sortable table, with a minus sign for descending order. is_cards: as in TextTable.
    """
    if table.page_columns:
        table = replace(table, columns=[column for column in table.columns if column.name in table.page_columns])
    if table.is_sortable:
        table = table.sort_by(order)
    rows: list[list[str]] = replace(table, rows=table.rows[:MAX_ROWS]).cells()
    for row_index, links in enumerate(table.links[:MAX_ROWS]):
        for column_index, column in enumerate(table.columns):
            if address := links.get(column.name):
                rows[row_index][column_index] = format_html(
                    '<a href="{}">{}</a>', address, rows[row_index][column_index]
                )
    for row_index, texts in enumerate(table.details[:MAX_ROWS]):
        paragraphs = format_html_join("", "<p>{}</p>", ((text,) for text in texts))
        rows[row_index][0] = format_html(
            '<details class="more"><summary>{}</summary>{}</details>', rows[row_index][0], paragraphs
        )
    heads = {column.name: column.label for column in table.columns}
    numbers = [column.is_number for column in table.columns]
    shown = TextTable(heads, numbers, rows, is_sortable=table.is_sortable, order=order, is_cards=is_cards)
    shown.attrs["aria-label"] = table.title
    return shown


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell for the template. path: the bars of the histogram, as an SVG path. norm_x: the mark of the human norm."""

    address: str
    tone: str
    text: str
    detail: str
    label: str
    path: str = ""
    norm_x: str = ""


class CellStyle:
    """The presentation of all cells of one measure. is_share: scores mean right or wrong."""

    def __init__(self, scope: Scope, is_share: bool, display: str) -> None:
        self.measure = scope.measure
        self.low, self.high = scope.measure.low, scope.measure.high
        self.counts_missing_as_wrong = scope.missing == MISSING_WRONG
        self.is_share = is_share
        self.display = display
        # Shares, and scales without ends, have no histogram.
        self.n_bins, low, high = 0, self.low, self.high
        if not is_share and low is not None and high is not None and high > low:
            points = high - low + 1
            self.n_bins = int(points) if points <= MAX_BINS and points == int(points) else 10

    def make_cell(self, cell: MatrixCell | None, norm: float, address: str, name: str) -> CellView | None:
        if cell is None:
            return None
        text = score = self._format_score(cell)
        detail = "" if self.measure.is_rating else cell.extracted
        if self.display:
            text, detail = self._format_amount(cell), score
        has_bars = self.n_bins > 0 and bool(cell.scores) and self.display == ""
        label = f"{name}: {self._describe(cell, score)}" + ("" if norm != norm else f", norm {norm:.2f}")
        return CellView(
            address=address,
            tone=self._choose_tone(cell),
            text=text,
            detail=detail,
            label=label,
            path=self._draw_bars(cell.scores) if has_bars else "",
            norm_x=f"{self._scale_position(norm) * WIDTH:.1f}" if has_bars and norm == norm else "",
        )

    def _format_score(self, cell: MatrixCell) -> str:
        if cell.mean is None:
            return "no score" if cell.missing else "failed" if cell.failed else "open" if cell.open else "not graded"
        if not self.is_share:
            return format_score(cell.mean) if len(cell.scores) == 1 else f"{cell.mean:.2f}".replace("-", "−")
        total = len(cell.scores) + (cell.missing if self.counts_missing_as_wrong else 0)
        right = sum(score > TOLERANCE for score in cell.scores)
        if total == 1:
            return "✓" if right else "✗"
        return f"{right}/{total}"

    def _describe(self, cell: MatrixCell, text: str) -> str:
        description = {"✓": "right", "✗": "wrong"}.get(text, text)
        if self.is_share and "/" in text:
            description = f"{text.replace('/', ' of ')} right"
        elif len(cell.scores) > 1:
            description = f"mean {text} of {len(cell.scores)}"
        counts = [
            (cell.missing, "without a score"),
            (cell.failed, "failed"),
            (cell.open, "open"),
        ]
        parts = [description, *(f"{n} {name}" for n, name in counts if n and cell.mean is not None)]
        return ", ".join([*parts, *([cell.extracted] if cell.extracted and not self.measure.is_rating else [])])

    def _format_amount(self, cell: MatrixCell) -> str:
        if self.display == "answer":
            return cell.extracted or "–"
        if cell.amount is None:
            return "–"
        if self.display == "cost":
            return format_money(cell.amount)
        return format_duration(cell.amount) if self.display == "latency" else format_count(round(cell.amount))

    def _choose_tone(self, cell: MatrixCell) -> str:
        """Return the CSS class of the colour, from low to high on the scale."""
        low, high = self.low, self.high
        if cell.mean is None:
            return "none"
        if low is None or high is None or high <= low:
            return "plain"
        position = min(1.0, max(0.0, (cell.mean - low) / (high - low)))
        level = (
            0
            if position <= TOLERANCE
            else LEVELS - 1
            if position >= 1 - TOLERANCE
            else 1 + min(LEVELS - 3, int(position * (LEVELS - 2)))
        )
        return f"{'rated' if self.measure.is_rating else 'level'}-{level}"

    def _draw_bars(self, scores: tuple[float, ...]) -> str:
        width = WIDTH / self.n_bins
        counts = Counter(
            min(self.n_bins - 1, max(0, int(self._scale_position(score) * self.n_bins))) for score in scores
        )
        highest = max(counts.values())
        return "".join(
            f"M{index * width + 0.5:.1f} {HEIGHT}v-{max(2.0, HEIGHT * n / highest):.1f}h{width - 1:.1f}V{HEIGHT}z"
            for index, n in sorted(counts.items())
        )

    def _scale_position(self, value: float) -> float:
        """Return a value's position in the histogram, from 0 to 1. A scale point is at the middle of its bar."""
        if self.low is None or self.high is None:
            return 0.0
        length = self.high - self.low
        position = (value - self.low + 0.5) / self.n_bins if self.n_bins == length + 1 else (value - self.low) / length
        return min(1.0, max(0.0, position))
