"""The files of a report, by format."""

from __future__ import annotations

import base64
import io
import re
import threading
from collections import OrderedDict
from typing import Any

from django.template.loader import render_to_string

from evalsite.lib.checksummed_zip import ArchiveWriter
from evalsite.lib.text.characters import mark_html
from evalsite.lib.text.hashing import hash_content
from grading_app.publish.report.document import Block, Document, FigureBlock, TableBlock
from grading_app.publish.report.pdf import render_pdf
from grading_app.publish.report.typst_process import TypesettingError, convert_figures
from grading_app.publish.report.words import format_moment
from grading_app.results.plot_style import apply_theme


def render_html(document: Document) -> bytes:
    """Return the file. The template escapes texts; figures are embedded as pictures, which cannot run scripts."""
    sections = [
        {
            "name": section.name,
            "title": section.title,
            "blocks": [_prepare_block(block) | {"label": label} for label, block in labelled_blocks],
        }
        for section, labelled_blocks in document.label_sections()
    ]
    page = render_to_string(
        "grading_app/report/file.html",
        {"document": document, "sections": sections, "read_at": format_moment(document.made_at)},
    )
    return mark_html(page).encode()


def _prepare_block(block: Block) -> dict[str, Any]:
    if isinstance(block, TableBlock):
        table = block.shown_table
        cells = [[(column, text) for column, text in zip(table.columns, row, strict=True)] for row in table.cells()]
        return {"kind": block.kind, "block": block, "table": table, "cells": cells}
    if isinstance(block, FigureBlock):
        picture = apply_theme(block.svg, "light").encode()
        address = f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"
        return {"kind": block.kind, "block": block, "address": address}
    return {"kind": block.kind, "block": block}


FILE_TYPES = {"html": "text/html; charset=utf-8", "pdf": "application/pdf", "zip": "application/zip"}
MAX_CACHED_FILES = 4
"""Files that a process caches, because readers of a shared report ask for the same one."""
WAIT_S = 20.0
_cached_files: OrderedDict[str, bytes] = OrderedDict()
_typesetting_lock = threading.Lock()


def _render_zip(document: Document) -> bytes:
    """Return a zip of the HTML, the PDF, the tables (LaTeX, CSV) and the figures (SVG, PDF, PNG, CSV).

    The same document gives the same bytes. Raise TypesettingError if a figure takes too long.
    """
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


_WRITERS = {"html": render_html, "pdf": render_pdf, "zip": _render_zip}


def write_report(document: Document, file_format: str) -> bytes:
    """Return the document in one of FILE_TYPES. Raise TypesettingError if a PDF takes too long."""
    return _WRITERS[file_format](document)


def get_file(document: Document, file_format: str) -> bytes:
    """Return a file for a page: the cached one, or a new one as soon as this process typesets no other.

    Anonymous readers may ask for files, so a process typesets one at a time. Raise TypesettingError after WAIT_S.
    """
    key = hash_content([document.dump(), file_format])
    if not _typesetting_lock.acquire(timeout=WAIT_S):
        raise TypesettingError("another report is being typeset; try again in a minute")
    try:
        if key not in _cached_files:
            _cached_files[key] = write_report(document, file_format)
            while len(_cached_files) > MAX_CACHED_FILES:
                _cached_files.popitem(last=False)
        _cached_files.move_to_end(key)
        return _cached_files[key]
    finally:
        _typesetting_lock.release()
