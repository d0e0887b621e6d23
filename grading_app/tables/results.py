"""The tables of the results page, and result tables as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import django_tables2 as tables
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.results import statistic_format
from grading_app.results.table import ResultTable
from runs_app.monitoring.point_status import PointLine

BELOW_GUESSING = "below guessing"
NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}


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


MAX_ROWS = 100
"""The number of rows on a page. Files have all rows."""


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
    return TextTable(heads, numbers, rows, is_sortable=table.is_sortable, order=order, is_cards=is_cards)
