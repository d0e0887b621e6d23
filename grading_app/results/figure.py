"""A figure: a picture at any width, its texts, and the table of the numbers behind it.

There is one type for the pictures of the site, of papers and of the written report. A module that makes figures holds
functions from data to `Figure`; nothing is drawn until somebody calls `draw`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grading_app.results.plot_style import NARROW, WIDE
from grading_app.results.table import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MAX_ROWS = 100
"""The number of rows of a figure's table on a page. Files have all rows."""


@dataclass(frozen=True)
class Figure:
    """A figure of an experiment. Sizes and widths are CSS pixels.

    name: in addresses, unique among the experiment's figures. Its part before the first hyphen is its key in the
    registry.
    alt: the text for readers who do not see the picture.
    size: the width and height of the picture that `draw` returns for the same width.
    table: the numbers behind the picture.
    page: the name of the URL whose page shows the same numbers.
    in_report: the written report includes the figure.
    """

    name: str
    title: str
    caption: str
    alt: str
    size: Callable[[int], tuple[int, int]]
    draw: Callable[[int], Drawing]
    table: Callable[[], ResultTable]
    page: str = "experiment_results"
    in_report: bool = False

    def content(self) -> dict[str, Any]:
        """Return all but the picture as JSON-compatible values, with the first rows of the table."""
        table = self.table()
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "alt": self.alt,
            "size": list(self.size(WIDE)),
            "narrow_size": list(self.size(NARROW)),
            "table": replace(table, rows=table.rows[:MAX_ROWS]).content(),
            "n_rows": len(table.rows),
        }


def describe_hidden_panels(panels: Sequence[object], visible_panels: Sequence[object]) -> str:
    """Return a sentence for a caption if the figure does not show all panels."""
    if len(visible_panels) == len(panels):
        return ""
    return f" Only the first {len(visible_panels)} of {len(panels)} panels are drawn; the table lists all."


def describe_counts(counts: Sequence[int], noun: str) -> str:
    """Return a sentence for a caption: `20 to 24 answers per row.`"""
    least, most = min(counts), max(counts)
    return f" {least:,} {noun}." if least == most else f" {least:,} to {most:,} {noun}."
