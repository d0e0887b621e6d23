"""The share of right answers in each category of items: a panel for each condition, all with the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.reports import plot_style
from grading_app.reports.figures import share_rows
from grading_app.reports.figures.kinds import FigureKind, FigureTable, describe_hidden_panels
from grading_app.reports.frames import Frames
from grading_app.reports.score_summaries import ScoreSummary, summarize_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_HEIGHT = 20
MAX_PANELS = 24
MAX_NAME_WIDTH = 150  # CSS pixels for the names of categories.


@dataclass(frozen=True, slots=True)
class CategoryPanel:
    measure: str
    condition: str
    lines: dict[str, ScoreSummary]


@dataclass(frozen=True, slots=True)
class CategoryData:
    """The panels and categories. A panel may lack some categories.

    categories: from the easiest to the hardest, over all conditions.
    """

    panels: list[CategoryPanel]
    categories: list[str]
    measures: int

    @property
    def visible_panels(self) -> list[CategoryPanel]:
        return self.panels[:MAX_PANELS]


def select_data(frames: Frames) -> CategoryData | None:
    lines = [
        line for line in summarize_scores(frames.grades, frames, by_category=True) if line.measure.is_share and line.n
    ]
    categories = sorted({line.category or "" for line in lines})
    if len(categories) < 2:
        return None
    panels: dict[tuple[str, str], dict[str, ScoreSummary]] = {}
    for line in lines:
        panels.setdefault((line.measure.label, line.condition), {})[line.category or ""] = line
    ordered = sorted(categories, key=lambda category: -_compute_mean(lines, category))
    category_panels = [
        CategoryPanel(measure, condition, lines_by_category)
        for (measure, condition), lines_by_category in panels.items()
    ]
    return CategoryData(category_panels, ordered, len({panel.measure for panel in category_panels}))


def _compute_mean(lines: list[ScoreSummary], category: str) -> float:
    shares = [line.mean for line in lines if (line.category or "") == category and line.mean is not None]
    return sum(shares) / len(shares)


def _make_grid(data: CategoryData, width: int) -> plot_style.Grid:
    """Return a grid of up to three columns, wide enough for the names of the conditions."""
    left = int(min(MAX_NAME_WIDTH, 14 + plot_style.LETTER * max(8, *map(len, data.categories))))
    name = plot_style.LETTER * max(len(panel.condition) for panel in data.visible_panels) + 30
    columns = max(1, min(3, len(data.visible_panels), int((width - left) // max(name, 130))))
    panel_height = ROW_HEIGHT * len(data.categories)
    return plot_style.Grid(
        len(data.visible_panels),
        columns,
        width,
        panel_height=panel_height,
        left=left,
        right=26,
        top=42,
        bottom=30,
        gap_x=36,
        gap_y=64,
    )


def compute_size(data: CategoryData, width: int) -> tuple[int, int]:
    return width, _make_grid(data, width).height


def draw_figure(data: CategoryData, width: int) -> Figure:
    grid = _make_grid(data, width)
    figure, axes = grid.make_panels()
    names = [plot_style.shorten(category or "no category", grid.left - 6) for category in data.categories]
    for place, (axis, panel) in enumerate(zip(axes, data.visible_panels, strict=True)):
        plot_style.draw_gridlines(axis, "x")
        rows = [(at, panel.lines[category]) for at, category in enumerate(data.categories) if category in panel.lines]
        plot_style.draw_intervals(axis, [(at, line.mean or 0.0, line.low, line.high) for at, line in rows])
        axis.set_ylim(-len(names) + 0.4, 0.6)
        axis.set_xlim(0, 1)
        axis.set_xticks([0, 0.5, 1], ["0", "50", "100 %"])
        axis.set_yticks([-at for at in range(len(names))], names if place % grid.columns == 0 else [""] * len(names))
        axis.tick_params(axis="y", labelcolor=plot_style.TEXT)
        plot_style.write_head(axis, plot_style.shorten(panel.condition, grid.panel_width))
        if data.measures > 1:
            plot_style.write_note(axis, 0, 1, panel.measure, va="bottom", offset=20)
    return figure


def make_table(data: CategoryData) -> FigureTable:
    rows = [
        (panel.measure, panel.condition, category or "no category", *share_rows.format_share_cells(line))
        for panel in data.panels
        for category in data.categories
        if (line := panel.lines.get(category)) is not None
    ]
    return FigureTable(("Measure", "Condition", "Category", *share_rows.SHARE_HEAD), rows, first_number=3)


def write_caption(data: CategoryData) -> str:
    text = (
        "Share of right answers in each category, from the easiest to the hardest over all conditions, with 95 % "
        "intervals as above. Categories with few items have wide intervals."
    )
    return text + describe_hidden_panels(data.panels, data.visible_panels)


def write_alt_text(data: CategoryData) -> str:
    return (
        f"Accuracy in {len(data.categories)} categories for {len(data.panels)} conditions; the table has the numbers."
    )


FIGURE = FigureKind(
    "categories",
    "Accuracy by category",
    select_data,
    compute_size,
    draw_figure,
    make_table,
    write_caption,
    write_alt_text,
)
