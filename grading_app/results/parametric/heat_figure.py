"""The figure of a heat map: shaded cells with text, for the leaderboard and for surfaces side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.plot_style import SMALL, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ROW_HEIGHT, HEAD_HEIGHT, GAP_HEIGHT = 24, 64, 22


@dataclass(frozen=True, slots=True)
class HeatPanel:
    """Rows of cells. A cell is a text and a shade from 0 to 4, or None for no shade."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, int | None]]]]

    @property
    def height(self) -> int:
        return HEAD_HEIGHT + ROW_HEIGHT * max(1, len(self.rows)) + GAP_HEIGHT


def compute_size(panels: Sequence[HeatPanel], width: int) -> tuple[int, int]:
    return width, sum(panel.height for panel in panels) + 8


def draw_heat_map(panels: Sequence[HeatPanel], width: int) -> Drawing:
    """Return a figure with the panels below each other."""
    _, height = compute_size(panels, width)
    figure = plot_style.make_figure(width, height)
    top = height - 4
    for panel in panels:
        widest = max((len(label) for label, _ in panel.rows), default=0)
        left = min(width * 0.4, 16 + widest * plot_style.LETTER)
        box = (left / width, (top - panel.height + GAP_HEIGHT) / height, (width - left - 4) / width)
        axes = figure.add_axes((*box, ROW_HEIGHT * max(1, len(panel.rows)) / height))
        _draw_panel(plot_style.style_axes(axes), panel, left, width)
        top -= panel.height
    return figure


def _draw_panel(axes: Axes, panel: HeatPanel, left: float, width: int) -> None:
    from matplotlib.patches import Rectangle

    n_rows, n_columns = max(1, len(panel.rows)), max(1, len(panel.columns))
    cell = (width - left - 4) / n_columns
    for row, (_, cells) in enumerate(panel.rows):
        for column, (text, shade) in enumerate(cells):
            if shade is not None:
                corner = (column + 0.02, n_rows - row - 0.96)
                axes.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=plot_style.SHADES[shade], edgecolor="none"))
            center = (column + 0.5, n_rows - row - 0.5)
            axes.text(*center, shorten(text, cell), ha="center", va="center", fontsize=SMALL, color=plot_style.TEXT)
    axes.set_xlim(0, n_columns)
    axes.set_ylim(0, n_rows)
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(
        [n_rows - row - 0.5 for row in range(len(panel.rows))], [shorten(label, left - 8) for label, _ in panel.rows]
    )
    axes.xaxis.tick_top()
    axes.set_xticks(
        [column + 0.5 for column in range(len(panel.columns))], [shorten(label, cell) for label in panel.columns]
    )
    if panel.title:
        plot_style.write_head(axes, shorten(panel.title, width - 20), left=left - 8, offset=26)
