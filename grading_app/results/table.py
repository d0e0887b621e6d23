"""Tables of results: one declaration, shown on a page and written as CSV, JSON, Markdown or LaTeX.

A table holds values, not texts, so that every format has the same numbers and files keep all digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from evalsite.lib.text.hashing import slugify_name
from evalsite.lib.text.number_format import MISSING, format_count, format_money
from evalsite.lib.text.spreadsheet import format_csv_line
from grading_app.results import statistic_format

Kind = Literal["text", "count", "number", "share", "points", "signed", "signed_share", "coefficient", "p", "money",
               "count_of", "interval", "share_interval", "points_interval", "coefficient_interval"]  # fmt: skip
INTERVALS = ("interval", "share_interval", "points_interval", "coefficient_interval")
Value = str | int | float | bool | None
Row = Mapping[str, Any]
FORMATS = ("csv", "json", "md", "latex")
CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "md": "text/markdown; charset=utf-8",
    "latex": "application/x-latex; charset=utf-8",
}
SUFFIXES = {"csv": "csv", "json": "json", "md": "md", "latex": "tex"}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column. `name` is the key in rows and the header in files, `label` the heading for people.

    kind: how the value is formatted for people. Values of the INTERVALS are pairs (low, high), which are two columns
    in files: `name_low` and `name_high`. A "count_of" is a pair (count, total): `name` and `name_total` in files.
    places: the number of decimals.
    """

    name: str
    label: str
    kind: Kind = "text"
    places: int = 2

    @property
    def is_number(self) -> bool:
        return self.kind != "text"

    def text(self, value: Any) -> str:
        """Return the value as a page shows it."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        return _TEXTS[self.kind](value, self.places)


@dataclass(frozen=True)
class ResultTable:
    """A table of results with everything that a reader needs to cite it.

    name: the name in addresses and file names.
    rows: values by column name; a missing value is None.
    formula: how the numbers are computed, with the source.
    test: the name of the test. correction: the multiplicity correction and its family of tests.
    sentence: the result in one sentence, with its uncertainty. notes: remarks below the table.
    links: for rows that lead to trials, addresses by column name, in the order of the rows.
    details: for each row, paragraphs that a page shows when a reader opens the row; files do not have them.
    data: further data for a figure, as JSON-compatible values; files do not have it.
    is_sortable: the reader may sort the rows on the page.
    page_columns: the names of the columns on a page, which must fit its width; files have all. Empty: all columns.
    measure, measure_label: key and label of the measure, which files name beside the title; empty if there is none.
    """

    name: str
    title: str
    columns: Sequence[ResultColumn]
    rows: Sequence[Row]
    formula: str = ""
    test: str = ""
    correction: str = ""
    sentence: str = ""
    notes: Sequence[str] = ()
    links: Sequence[Mapping[str, str]] = field(default_factory=list)
    details: Sequence[Sequence[str]] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    is_sortable: bool = False
    measure: str = ""
    measure_label: str = ""
    page_columns: Sequence[str] = ()

    @property
    def full_title(self) -> str:
        """The title with the measure, for files, where no page names it."""
        return f"{self.title}: {self.measure_label}" if self.measure_label else self.title

    def sort_by(self, ordering: str) -> ResultTable:
        """Return the table sorted by a column, descending if the name has a minus sign. Missing values are last.

        The name of an unknown column changes nothing.
        """
        name, is_descending = ordering.removeprefix("-"), ordering.startswith("-")
        column = next((candidate for candidate in self.columns if candidate.name == name), None)
        if column is None:
            return self
        indices = range(len(self.rows))
        rows_with_value = [index for index in indices if self.rows[index].get(name) is not None]
        rows_with_value.sort(key=lambda index: self.rows[index][name], reverse=is_descending)
        order = [*rows_with_value, *(index for index in indices if self.rows[index].get(name) is None)]
        links = [self.links[index] for index in order] if self.links else self.links
        details = [self.details[index] for index in order] if self.details else self.details
        return replace(self, rows=[self.rows[index] for index in order], links=links, details=details)

    def cells(self) -> list[list[str]]:
        """Return the texts of the cells, row by row."""
        return [[column.text(row.get(column.name)) for column in self.columns] for row in self.rows]

    def records(self) -> list[dict[str, Value]]:
        """Return the rows for files, with plain values and with two values for each interval."""
        return [
            {name: value for column in self.columns for name, value in _flatten(column, row.get(column.name))}
            for row in self.rows
        ]

    def content(self) -> dict[str, Any]:
        """Return the table as JSON-compatible values. `from_content` reverses it."""
        rows = [
            {column.name: _encode(row.get(column.name)) for column in self.columns if row.get(column.name) is not None}
            for row in self.rows
        ]
        return {**asdict(self), "rows": rows}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> ResultTable:
        return cls(**{**content, "columns": [ResultColumn(**column) for column in content["columns"]]})

    def render(self, file_format: str) -> str:
        """Return the text of a file. Raise KeyError for a format that is not in FORMATS."""
        return _WRITERS[file_format](self)


def _flatten(column: ResultColumn, value: Any) -> list[tuple[str, Value]]:
    if column.kind == "count_of":
        count, total = value if value is not None else (None, None)
        return [(column.name, count), (f"{column.name}_total", total)]
    if column.kind in INTERVALS:
        low, high = value if value is not None else (None, None)
        return [(f"{column.name}_low", _make_finite(low)), (f"{column.name}_high", _make_finite(high))]
    return [(column.name, _make_finite(value))]


def _encode(value: Any) -> Any:
    return [_make_finite(end) for end in value] if isinstance(value, tuple | list) else _make_finite(value)


def _make_finite(value: Any) -> Value:
    """Return the value as JSON can hold it: None in place of NaN and infinity."""
    if value is None or isinstance(value, str | bool | int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def render_csv(tables: Sequence[ResultTable]) -> str:
    """Return one CSV file with the rows of tables of the same kind. A column that a table does not have is empty."""
    measures = ("measure", "measure_label") if any(table.measure for table in tables) else ()
    flat_columns = (flat for table in tables for column in table.columns for flat in _flatten(column, None))
    names = list(dict.fromkeys([*measures, *(name for name, _ in flat_columns)]))
    records = (
        {**record, "measure": table.measure, "measure_label": table.measure_label} if measures else record
        for table in tables
        for record in table.records()
    )
    lines = (format_csv_line(record.get(name) for name in names) for record in records)
    return "".join([format_csv_line(names), *lines])


def _render_json(table: ResultTable) -> str:
    description = {
        name: value
        for name in ("name", "title", "measure", "measure_label", "formula", "test", "correction", "sentence")
        if (value := getattr(table, name))
    }
    notes = {"notes": list(table.notes)} if table.notes else {}
    return json.dumps({**description, **notes, "rows": table.records()}, ensure_ascii=False, indent=1) + "\n"


def _render_markdown(table: ResultTable) -> str:
    head = "| " + " | ".join(_escape_markdown(column.label) for column in table.columns) + " |"
    rule = "| " + " | ".join("---:" if column.is_number else "---" for column in table.columns) + " |"
    body = ["| " + " | ".join(map(_escape_markdown, cells)) + " |" for cells in table.cells()]
    remarks = [table.sentence, table.formula, table.test, table.correction, *table.notes]
    return "\n".join(
        [
            f"**{_escape_markdown(table.full_title)}**",
            "",
            head,
            rule,
            *body,
            *[line for remark in remarks if remark for line in ("", _escape_markdown(remark))],
            "",
        ]
    )


def _escape_markdown(text: str) -> str:
    escaped = "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|" else sign for sign in text)
    return re.sub(r"\s*[\r\n]\s*", " ", escaped)


def _render_latex(table: ResultTable) -> str:
    """Return a table for the LaTeX package booktabs."""
    align = "".join("r" if column.is_number else "l" for column in table.columns)
    head = " & ".join(escape_latex(column.label) for column in table.columns)
    body = [" & ".join(map(escape_latex, cells)) + r" \\" for cells in table.cells()]
    label = f"{table.name}-{slugify_name(table.measure)}" if table.measure else table.name
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(' '.join(filter(None, (table.full_title + '.', table.test, table.correction))))}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$", "–": "--",
    "\u202f": r"\,", "\u00a0": "~",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Return the text on one line, with all special characters of LaTeX escaped."""
    return "".join(_LATEX.get(sign, sign if sign.isprintable() else " ") for sign in text)


_TEXTS: dict[Kind, Callable[[Any, int], str]] = {
    "text": lambda value, places: str(value),
    "count": lambda value, places: format_count(value),
    "count_of": lambda value, places: f"{format_count(value[0])} of {format_count(value[1])}",
    "number": statistic_format.format_number,
    "share": lambda value, places: statistic_format.format_share(value),
    "points": lambda value, places: statistic_format.format_points(value),
    "signed": lambda value, places: statistic_format.add_sign(statistic_format.format_number(value, places)),
    "signed_share": lambda value, places: statistic_format.add_sign(statistic_format.format_points(value)),
    "coefficient": lambda value, places: statistic_format.format_coefficient(value),
    "p": lambda value, places: statistic_format.format_p(value),
    "money": lambda value, places: format_money(value),
    "interval": lambda value, places: statistic_format.format_interval(value[0], value[1], places),
    "share_interval": lambda value, places: statistic_format.format_share_interval(*value),
    "points_interval": lambda value, places: statistic_format.format_points_interval(*value),
    "coefficient_interval": lambda value, places: statistic_format.format_coefficient_interval(*value),
}
_WRITERS: dict[str, Callable[[ResultTable], str]] = {
    "csv": lambda table: render_csv([table]),
    "json": _render_json,
    "md": _render_markdown,
    "latex": _render_latex,
}
