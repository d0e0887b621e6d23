"""The share of right answers in each category of items: a panel for each condition, all with the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figures import share_rows
from grading_app.results.figures.kinds import FigureKind, FigureTable, describe_hidden_panels
from grading_app.results.frames import Frames
from grading_app.results.scores import ConditionScore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_HEIGHT = 20
MAX_PANELS = 24
MAX_NAME_WIDTH = 150  # CSS pixels for the names of categories.


@dataclass(frozen=True, slots=True)
class CategoryPanel:
    measure: str
    condition: str
    lines: dict[str, ConditionScore]


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
    panels = []
    for found in frames.scores:
        for key, label in frames.labels.items() if not found.measure.is_rating else ():
            scores = {category: of[key] for category, of in found.categories.items() if key in of and of[key].n}
            if scores:
                panels.append(CategoryPanel(found.measure.label, label, scores))
    shares: dict[str, list[float]] = {}
    for panel in panels:
        for category, score in panel.lines.items():
            shares.setdefault(category, []).append(score.mean or 0.0)
    if len(shares) < 2:
        return None
    ordered = sorted(sorted(shares), key=lambda category: -sum(shares[category]) / len(shares[category]))
    return CategoryData(panels, ordered, len({panel.measure for panel in panels}))


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
