"""A document as PDF, typeset by typst in a process of its own. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evalsite.lib.control_characters import mark_text
from grading_app.study_report.document import Block, Code, Document, FigureBlock, Listing, Paragraph, Span, TableBlock
from grading_app.study_report.typst_process import typeset

TEMPLATE = Path(__file__).with_name("report.typ")
FONTS = ["Libertinus Serif", "New Computer Modern", "DejaVu Sans Mono"]
BREAK = "\u200b"
LONG_WORD, PIECE = 18, 12
"""Words of cells that are longer may break after PIECE letters or at a sign."""
OTHER_SCRIPTS = re.compile("[\u0590-\u1dbf\u2e80-\ud7ff\uf900-\ufdff\ufe70-\ufeff\U00010000-\U0010ffff]")
"""Scripts that the fonts in the wheel do not have. Documents with them use the fonts of the system too."""


def render_pdf(document: Document) -> bytes:
    """Return the PDF. The same document gives the same bytes. Raise TypesettingError if it takes too long."""
    figures = {_file(one): one.svg for one in document.blocks(FigureBlock)}
    data = {
        "title": _text(document.title),
        "experiment": document.experiment,
        "made_at": document.made_at,
        "software": document.software,
        "fonts": FONTS,
        "sections": [
            {"title": one.title, "blocks": [_block(block) for block in one.blocks]} for one in document.sections
        ],
    }
    return typeset(TEMPLATE, data, figures, is_plain=not OTHER_SCRIPTS.search(str(data)))


def _file(figure: FigureBlock) -> str:
    return f"figure-{re.sub('[^a-z0-9-]', '-', figure.name.lower())}.svg"


def _text(text: str) -> str:
    """Return the text with invisible controls made visible."""
    return str(mark_text(text))


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Paragraph):
        return {"kind": block.kind, "tone": block.tone, "spans": [_span(one) for one in block.spans]}
    if isinstance(block, Listing):
        items = [[_span(one) for one in item] for item in block.items]
        return {"kind": block.kind, "is_ordered": block.is_ordered, "items": items}
    if isinstance(block, Code):
        return {"kind": block.kind, "text": _text(_breakable(block.text, 80)), "label": _text(block.label)}
    if isinstance(block, TableBlock):
        return {"kind": block.kind, **_table(block)}
    if isinstance(block, FigureBlock):
        texts = {name: _text(getattr(block, name)) for name in ("title", "caption", "alt")}
        return {"kind": block.kind, "file": _file(block), "width": block.size[0], **texts}
    return {"kind": block.kind, "text": _text(block.text)}


def _span(span: Span) -> dict[str, Any]:
    return {
        "text": _text(_breakable(span.text, 60)),
        **{name: getattr(span, name) for name in ("strong", "emphasis", "code", "href")},
    }


def _table(block: TableBlock) -> dict[str, Any]:
    table = block.shown_table
    cells = [[_text(_breakable(cell)) for cell in row] for row in table.cells()]
    words = [max(len(word) for word in f"{column.label} .".split()) for column in table.columns]
    texts = [max(words[at], *(len(row[at]) for row in cells), 0) for at in range(len(table.columns))]
    return {
        "title": _text(table.title),
        "head": [_text(column.label) for column in table.columns],
        "numbers": [column.is_number for column in table.columns],
        "widths": [min(40, max(6, longest)) for longest in texts],
        "rows": cells,
        "remarks": _text(" ".join(filter(None, (table.formula, table.test, table.correction, *table.notes)))),
    }


def _breakable(text: str, longest: int = LONG_WORD) -> str:
    """Return the text with places in long words where a line may end."""

    def split(found: re.Match[str]) -> str:
        word = re.sub(r"([-_/.:@=&?,])(?=.)", rf"\1{BREAK}", found[0])
        return re.sub(rf"([^{BREAK}\s]{{{PIECE}}})(?=[^{BREAK}\s])", rf"\1{BREAK}", word)

    return re.sub(rf"\S{{{longest + 1},}}", split, text)
