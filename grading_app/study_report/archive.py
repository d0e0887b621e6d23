"""A document as a zip: its HTML, its tables for LaTeX and as CSV, and its figures as SVG, PDF, PNG and CSV."""

from __future__ import annotations

import io
import re

from evalsite.lib.checksummed_zip import ArchiveWriter
from grading_app.reports.plot_style import apply_theme
from grading_app.study_report.document import Document, FigureBlock, TableBlock
from grading_app.study_report.html import render_html
from grading_app.study_report.pdf import render_pdf
from grading_app.study_report.typst_process import convert_figures


def render_zip(document: Document) -> bytes:
    """Return the zip. The same document gives the same bytes. Raise TypesettingError if a figure takes too long."""
    buffer = io.BytesIO()
    writer = ArchiveWriter(buffer)
    writer.add("report.html", [render_html(document)])
    writer.add("report.pdf", [render_pdf(document)])
    for block in document.list_blocks(TableBlock):
        name, table = _make_file_name(block.table.name), block.table
        writer.add(f"tables/{name}.tex", [block.shown_table.render("latex").encode()])
        writer.add(f"tables/{name}.csv", [table.render("csv").encode()])
    figures = {_make_file_name(figure.name): figure for figure in document.list_blocks(FigureBlock)}
    figure_files = convert_figures({name: figure.svg for name, figure in figures.items()})
    for name, figure in figures.items():
        writer.add(f"figures/{name}.svg", [apply_theme(figure.svg, "light").encode()])
        writer.add(f"figures/{name}.csv", [figure.table.render("csv").encode()])
        for suffix in ("pdf", "png"):
            writer.add(f"figures/{name}.{suffix}", [figure_files[f"{name}.{suffix}"]])
    writer.close()
    return buffer.getvalue()


def _make_file_name(name: str) -> str:
    """Return the name as a plain file name."""
    return re.sub("[^A-Za-z0-9_-]", "-", name)[:80]
