"""The share of right answers in each category of items: a panel for each condition, all with the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figure import Figure, describe_counts, describe_hidden_panels
from grading_app.results.figures import share_rows
from grading_app.results.frames import Frames
from grading_app.results.scores import ConditionScore

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

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


def make_figure(frames: Frames) -> Figure | None:
    """Return the figure of all measures but ratings; None for fewer than two categories."""
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
    data = CategoryData(panels, ordered, len({panel.measure for panel in panels}))
    rows = [
        (panel.measure, panel.condition, category or "no category", panel.lines[category])
        for panel in panels
        for category in ordered
        if category in panel.lines
    ]
    return Figure(
        "categories",
        "Accuracy by category",
        "Share of right answers in each category, from the easiest to the hardest over all conditions, with 95 % "
        "intervals. Categories with few items have wide intervals."
        + describe_hidden_panels(panels, data.visible_panels)
        + describe_counts([score.n for *_, score in rows], "answers per row"),
        f"Accuracy in {len(ordered)} categories for {len(panels)} conditions; the table has the numbers.",
        lambda width: (width, _make_grid(data, width).height),
        lambda width: _draw(data, width),
        lambda: share_rows.make_score_table("categories", "Accuracy by category", rows, has_categories=True),
    )


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
        gap_x=46,
        gap_y=64,
    )


def _draw(data: CategoryData, width: int) -> Drawing:
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
