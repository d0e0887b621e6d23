"""Rows of shares or means with their intervals, in panels one below the other, for several figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.scores import ConditionScore
from grading_app.results.statistic_format import format_number, format_share
from grading_app.results.table import ResultColumn, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MAX_TICKS = 8


def make_score_table(
    name: str, title: str, rows: Iterable[tuple[str, str, str, ConditionScore]], *, has_categories: bool = False
) -> ResultTable:
    """Return the table of shares, given by measure, condition and category."""
    columns = [
        ResultColumn("measure", "Measure"),
        ResultColumn("condition", "Condition"),
        *([ResultColumn("category", "Category")] if has_categories else []),
        ResultColumn("n", "n", "count"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("mean", "Correct", "share"),
        ResultColumn("interval", "95 % interval", "share_interval"),
        ResultColumn("se", "SE by item", "points"),
        ResultColumn("missing", "No score", "count"),
    ]
    records = [
        {
            "measure": measure,
            "condition": condition,
            "category": category,
            **{key: getattr(score, key) for key in ("n", "items", "mean", "interval", "se", "missing")},
        }
        for measure, condition, category, score in rows
    ]
    return ResultTable(name, title, columns, records)


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A share from 0 to 1, or a mean on the scale of its panel, with the ends of its interval."""

    name: str
    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, condition: str, score: ConditionScore) -> ShareRow:
        return cls(f"{condition}{score.mark}", score.mean or 0.0, score.low, score.high)


@dataclass(frozen=True, slots=True)
class RowPanel:
    """A group of rows with a title. scale: the ends of the scale of means; None for shares."""

    title: str
    rows: Sequence[ShareRow]
    scale: tuple[int, int] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        return self.scale or (0.0, 1.0)

    @property
    def ticks(self) -> tuple[list[float], list[str]]:
        if self.scale is None:
            return [0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"]
        low, high = self.scale
        steps = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
        step = next(step for step in steps if (high - low) / step <= MAX_TICKS)
        points = [float(point) for point in range(-(-low // step) * step, high + 1, step)]
        return points, [format_number(point, 0) for point in points]

    def text(self, value: float) -> str:
        return format_share(value) if self.scale is None else format_number(value)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the rows. Names are beside their rows, or above them if space is short. Sizes are CSS pixels."""

    width: int
    left: int
    row: int

    @classmethod
    def of(cls, panels: Sequence[RowPanel], width: int) -> Layout:
        name_width = 16 + int(plot_style.LETTER * max(len(row.name) for panel in panels for row in panel.rows))
        return cls(width, name_width, 26) if name_width <= 0.4 * width else cls(width, 12, 42)

    @property
    def is_stacked(self) -> bool:
        return self.row > 26

    @property
    def axis_width(self) -> int:
        return self.width - self.left - 74

    def height(self, panel: RowPanel) -> int:
        return self.row * len(panel.rows) + 66


def compute_size(panels: Sequence[RowPanel], width: int) -> tuple[int, int]:
    layout = Layout.of(panels, width)
    return width, sum(layout.height(panel) for panel in panels)


def draw_panels(panels: Sequence[RowPanel], width: int) -> Drawing:
    layout, (_, height) = Layout.of(panels, width), compute_size(panels, width)
    figure = plot_style.make_figure(width, height)
    top = 0
    for panel in panels:
        panel_height = layout.row * len(panel.rows)
        box = (
            layout.left / width,
            1 - (top + 30 + panel_height) / height,
            layout.axis_width / width,
            panel_height / height,
        )
        axis = plot_style.style_axes(figure.add_axes(box))
        plot_style.write_head(axis, plot_style.shorten(panel.title, width - 24), left=layout.left - 12, offset=8)
        rows, (first, last) = panel.rows, panel.ends
        plot_style.draw_gridlines(axis, "x")
        plot_style.draw_intervals(axis, [(at, row.value, row.low, row.high) for at, row in enumerate(rows)])
        axis.set_ylim(-len(rows) + (0.7 if layout.is_stacked else 0.4), 0.7 if layout.is_stacked else 0.6)
        axis.set_xlim(first, last)
        axis.set_xticks(*panel.ticks)
        axis.set_yticks([-at for at in range(len(rows))], [""] * len(rows))
        for place, row in enumerate(rows):
            plot_style.write_beside(axis, (last, -place), panel.text(row.value), right=8)
            if layout.is_stacked:
                plot_style.write_beside(axis, (first, -place), plot_style.shorten(row.name, layout.axis_width), up=16)
            else:
                plot_style.write_beside(axis, (first, -place), row.name, right=-8, ha="right")
        top += layout.height(panel)
    return figure
