"""The tables of the results page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar
from urllib.parse import urlencode

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.results import statistic_format
from grading_app.results.frames import Outcomes
from runs_app.monitoring.point_status import PointLine

BELOW_GUESSING = "below guessing"
NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}


class NumberColumn(tables.Column):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"attrs": NUMBER, **kwargs})


class TrialsColumn(NumberColumn):
    """A count with a link to the counted trials."""

    def __init__(self, query: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.query = query

    def render(self, value: int, record: Outcomes, table: Any) -> SafeString | str:
        if not value:
            return "0"
        query = urlencode({"experiment": table.slug, "condition": record.condition})
        address = f"{reverse('trial_list')}?{query}{self.query}"
        return format_html('<a href="{}">{}</a>', address, number_format.format_count(value))


class BodyTable(tables.Table):
    """A table that renders all rows at once and inspects each column's method once, not per cell."""

    class Meta:
        template_name = "tables/text_table.html"

    @property
    def body(self) -> SafeString:
        columns = [self._prepare_column(bound) for bound in self.columns]
        rows = (
            format_html_join("", "{}{}</div></td>", ((start, text(record)) for start, text in columns))
            for record in self.data
        )
        return format_html_join("", '<tr role="row">{}</tr>', ((row,) for row in rows))

    def _prepare_column(self, bound: Any) -> tuple[SafeString, Callable[[Any], Any]]:
        """Return the start of the column's cells, and the function from a record to the text of its cell."""
        start = format_html(
            '<td {} role="cell" data-label="{}"><div class="cell">', bound.attrs["td"].as_html(), bound.header
        )
        render = getattr(self, f"render_{bound.name}", bound.column.render)
        names = set(signature(render).parameters)

        def text(record: Any) -> Any:
            value = bound.accessor.resolve(record, quiet=True)
            if value in bound.column.empty_values:
                return bound.default
            arguments = {"value": value, "record": record, "table": self, "column": bound.column, "bound_column": bound}
            return render(**{name: argument for name, argument in arguments.items() if name in names})

        return start, text


class AnswerTable(BodyTable):
    """The outcomes of the trials, one row for each condition."""

    condition = tables.Column()
    trials = TrialsColumn("")
    done = TrialsColumn("&status=done")
    failed = TrialsColumn("&status=failed")
    open = NumberColumn(verbose_name="Pending")
    unread = TrialsColumn("&unparsed=true", verbose_name="No rating found")
    empty = TrialsColumn("&empty=true")
    truncated = TrialsColumn("&truncated=true")
    refused = TrialsColumn("&refused=true")

    class Meta(BodyTable.Meta):
        orderable = False

    def __init__(self, rows: Iterable[Outcomes], *, slug: str, labels: dict[int, str], rated: bool) -> None:
        self.slug, self.labels = slug, labels
        super().__init__(list(rows), exclude=() if rated else ("unread",))

    def render_condition(self, value: int) -> str:
        return self.labels[value]


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
                tables.Column(verbose_name=label, attrs=NUMBER if is_number else {}, orderable=is_sortable),
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
    saved = NumberColumn()
    reason = tables.Column(orderable=False)

    class Meta:
        default = number_format.MISSING

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
        return tags.status_badge(record.status, label=record.status_label)

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
