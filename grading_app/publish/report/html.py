"""A document as one HTML file: the style and the pictures are inside, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
from typing import Any

from django.template.loader import render_to_string

from evalsite.lib.control_characters import mark_html
from grading_app.publish.report.document import Block, Document, FigureBlock, TableBlock
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
