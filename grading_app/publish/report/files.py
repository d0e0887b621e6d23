"""The files of a report, by format: HTML, a zip file, and PDF, which typst typesets in a process of its own."""

from __future__ import annotations

import base64
import io
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from django.template.loader import render_to_string

from evalsite.lib.checksummed_zip import ArchiveWriter
from evalsite.lib.text.characters import mark_html, mark_text
from evalsite.lib.text.hashing import hash_content
from grading_app.publish.report.document import (
    Block,
    Code,
    Document,
    FigureBlock,
    Listing,
    Paragraph,
    Span,
    TableBlock,
    format_moment,
)
from grading_app.publish.report.typst_process import TypesettingError, convert_figures, typeset
from grading_app.results.plot_style import apply_theme

TEMPLATE = Path(__file__).with_name("report.typ")
FONTS = ["Libertinus Serif", "New Computer Modern", "DejaVu Sans Mono"]
BREAK = "\u200b"
LONG_WORD, PIECE = 18, 12
"""Words of cells that are longer may break after PIECE letters or at a sign."""
FULL_WIDTH = 640  # CSS pixels of a figure that is as wide as the text.
TALL = 0.5  # A higher figure goes to the top or bottom of a page, and text fills the rest.
TALLEST = 1.25  # The height of a figure as a multiple of the text's width: its caption fits on the same page.
ONE_LINE, GAP, WIDEST = 112, 3, 66
"""Characters of a table whose columns are as wide as their texts, between two columns, and of the widest column of a
wider table."""
MAX_LINES_TOGETHER = 16  # Shorter tables and code stay on one page.
OTHER_SCRIPTS = re.compile("[\u0590-\u1dbf\u2e80-\ud7ff\uf900-\ufdff\ufe70-\ufeff\U00010000-\U0010ffff]")
"""Scripts that the fonts in the wheel do not have. Documents with them use the fonts of the system too."""
FILE_TYPES = {"html": "text/html; charset=utf-8", "pdf": "application/pdf", "zip": "application/zip"}
MAX_CACHED_FILES = 4
"""Files that a process caches, because readers of a shared report ask for the same one."""
WAIT_S = 20.0
_cached_files: OrderedDict[str, bytes] = OrderedDict()
_typesetting_lock = threading.Lock()


def render_pdf(document: Document) -> bytes:
    """Return the PDF. The same document gives the same bytes. Raise TypesettingError if it takes too long."""
    figures = {_name_file(figure): figure.svg for figure in document.list_blocks(FigureBlock)}
    data = {
        "title": _mark_controls(document.title),
        "experiment": document.experiment,
        "made_at": format_moment(document.made_at),
        "software": document.software,
        "fonts": FONTS,
        "sections": [
            {
                "title": section.title,
                "blocks": [_prepare_pdf_block(block) | {"label": label} for label, block in labelled_blocks],
            }
            for section, labelled_blocks in document.label_sections()
        ],
    }
    return typeset(TEMPLATE, data, figures, is_plain=not OTHER_SCRIPTS.search(str(data)))


def _name_file(figure: FigureBlock) -> str:
    return f"figure-{re.sub('[^a-z0-9-]', '-', figure.name.lower())}.svg"


def _mark_controls(text: str) -> str:
    """Return the text with invisible controls made visible."""
    return str(mark_text(text))


def _prepare_pdf_block(block: Block) -> dict[str, Any]:
    if isinstance(block, Paragraph):
        return {"kind": block.kind, "tone": block.tone, "spans": [_prepare_span(span) for span in block.spans]}
    if isinstance(block, Listing):
        items = [[_prepare_span(span) for span in item] for item in block.items]
        return {"kind": block.kind, "is_ordered": block.is_ordered, "items": items}
    if isinstance(block, Code):
        is_short = block.text.count("\n") < MAX_LINES_TOGETHER
        return {
            "kind": block.kind,
            "text": _mark_controls(_allow_breaks(block.text, 80)),
            "heading": _mark_controls(block.label),
            "is_short": is_short,
        }
    if isinstance(block, TableBlock):
        return {"kind": block.kind, **_prepare_table(block)}
    if isinstance(block, FigureBlock):
        texts = {name: _mark_controls(getattr(block, name)) for name in ("title", "caption", "alt")}
        width, height = block.size
        # A share of the text's width, so that a tall figure fits on a page.
        scale = min(1.0, width / FULL_WIDTH, TALLEST * width / height)
        is_tall = scale * height / width > TALL
        return {"kind": block.kind, "file": _name_file(block), "scale": scale, "is_tall": is_tall, **texts}
    return {"kind": block.kind, "text": _mark_controls(block.text)}


def _prepare_span(span: Span) -> dict[str, Any]:
    return {
        "text": _mark_controls(_allow_breaks(span.text, 60)),
        **{name: getattr(span, name) for name in ("strong", "emphasis", "code", "href")},
    }


def _prepare_table(block: TableBlock) -> dict[str, Any]:
    table = block.shown_table
    cells = [[_mark_controls(_allow_breaks(cell)) for cell in row] for row in table.cells()]
    full_widths = [
        max([len(column.label), *(len(row[index]) for row in cells)]) + GAP
        for index, column in enumerate(table.columns)
    ]
    word_widths = [max(len(word) for word in f"{column.label} .".split()) for column in table.columns]
    text_widths = [
        max(word_widths[index], *(len(row[index]) for row in cells), 0) for index in range(len(table.columns))
    ]
    return {
        "title": _mark_controls(table.title),
        "head": [_mark_controls(column.label) for column in table.columns],
        "numbers": [column.is_number for column in table.columns],
        "widths": [] if sum(full_widths) <= ONE_LINE else [min(WIDEST, max(6, longest)) for longest in text_widths],
        "is_short": len(cells) <= MAX_LINES_TOGETHER,
        "rows": cells,
        "remarks": _mark_controls(" ".join(filter(None, (table.formula, table.test, table.correction, *table.notes)))),
    }


def _allow_breaks(text: str, longest: int = LONG_WORD) -> str:
    """Return the text with places in long words where a line may end."""

    def split(match: re.Match[str]) -> str:
        word = re.sub(r"([-_/.:@=&?,])(?=.)", rf"\1{BREAK}", match[0])
        return re.sub(rf"([^{BREAK}\s]{{{PIECE}}})(?=[^{BREAK}\s])", rf"\1{BREAK}", word)

    return re.sub(rf"\S{{{longest + 1},}}", split, text)


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
