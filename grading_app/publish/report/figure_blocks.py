"""Figures of a report: drawn once with their text as paths, so that every output shows the same picture."""

from __future__ import annotations

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.publish.report.document import FigureBlock
from grading_app.publish.report.report_source import ReportSource
from grading_app.results import plot_style
from grading_app.results.figure import Figure

WIDTH = plot_style.WIDE


def make_figure_block(source: ReportSource, figure: Figure, **query: str) -> FigureBlock:
    """Return a figure of the registry as a block. query: the choices with which the figures page shows the same."""
    svg, size = draw_picture(figure)
    address = reverse("experiment_figures", args=[source.experiment.slug])
    spec = f"{address}{'?' + urlencode(query) if query else ''}"
    table = figure.table()
    return FigureBlock(figure.name, figure.title, figure.caption, figure.alt, svg, size, table.content(), spec)


def draw_picture(figure: Figure) -> tuple[str, tuple[int, int]]:
    """Return the SVG of a figure, and its size in CSS pixels."""
    return plot_style.render_path_svg(lambda: figure.draw(WIDTH)), figure.size(WIDTH)
