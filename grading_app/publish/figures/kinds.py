"""One figure that can be printed: its drawing at any width, its numbers and its texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results.table import ResultColumn, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from grading_app.results.figures.kinds import FigureTable


@dataclass(frozen=True)
class PaperFigure:
    """A figure of an experiment. name: in addresses, unique among the experiment's figures.

    draw: the picture at a width in CSS pixels. table: the numbers behind it. page: the name of the URL whose page shows
    the same numbers. in_report: the written report includes it.
    """

    name: str
    title: str
    draw: Callable[[int], Figure]
    table: Callable[[], ResultTable]
    caption: str
    alt: str
    page: str = "experiment_results"
    in_report: bool = False


def make_text_table(name: str, title: str, table: FigureTable) -> ResultTable:
    """Return a table of texts, as the page shows it."""
    keys = [label.lower().replace(" ", "_") or f"column_{index}" for index, label in enumerate(table.head)]
    columns = [ResultColumn(key, label) for key, label in zip(keys, table.head, strict=True)]
    return ResultTable(name, title, columns, [dict(zip(keys, row, strict=True)) for row in table.rows])
