"""Figures of a report: drawn once with their text as paths, so that every output shows the same picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.publish.figures.kinds import PaperFigure
from grading_app.publish.report.document import FigureBlock
from grading_app.publish.report.report_source import ReportSource
from grading_app.results import plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = plot_style.WIDE


def make_figure_block(source: ReportSource, figure: PaperFigure, **query: str) -> FigureBlock:
    """Return a figure of the registry as a block. query: the choices with which the figures page shows the same."""
    svg, size = draw_picture(figure)
    address = reverse("experiment_figures", args=[source.experiment.slug])
    spec = f"{address}{'?' + urlencode(query) if query else ''}"
    table = figure.table()
    return FigureBlock(figure.name, figure.title, figure.caption, figure.alt, svg, size, table.content(), spec)


def draw_picture(figure: PaperFigure) -> tuple[str, tuple[int, int]]:
    """Return the SVG of a figure, and its size in CSS pixels."""
    drawings: list[Figure] = []

    def draw() -> Figure:
        drawings.append(figure.draw(WIDTH))
        return drawings[0]

    svg = plot_style.render_path_svg(draw)
    width, height = (round(inches * 72 / plot_style.PIXEL) for inches in drawings[0].get_size_inches())
    return svg, (width, height)
