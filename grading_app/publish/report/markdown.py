"""The author's Markdown as blocks of a document. Pure.

The text is parsed to tokens and only known tokens become blocks, so no HTML of the author reaches any output. HTML and
pictures stay visible as text. Links keep only http, https and mailto addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from grading_app.publish.report.document import Block, Code, Heading, Listing, Paragraph, Span

if TYPE_CHECKING:
    from markdown_it.token import Token

LONGEST = 20_000
"""Characters of one text."""
SCHEMES = ("http://", "https://", "mailto:")
NESTING = 12  # Levels of quotes and lists that are parsed.


def read_markdown(text: str) -> list[Block]:
    """Return the blocks of a text: paragraphs, headings, lists, quotes and code."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING}).disable(["image", "html_block"])
    reader = _Reader()
    for token in parser.parse(text[:LONGEST]):
        reader.take(token)
    return reader.blocks


@dataclass
class _Reader:
    """Blocks so far. lists: one entry for each open list, True if it is ordered; items belong to the outermost one."""

    blocks: list[Block] = field(default_factory=list)
    quotes: int = 0
    lists: list[bool] = field(default_factory=list)
    items: list[list[Span]] = field(default_factory=list)
    is_heading: bool = False

    def take(self, token: Token) -> None:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            self.lists.append(token.type == "ordered_list_open")
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            is_ordered = self.lists.pop()
            if not self.lists:
                self.blocks.append(Listing([item for item in self.items if item], is_ordered))
                self.items = []
        elif token.type == "list_item_open":
            self.items.append([])
        elif token.type in ("blockquote_open", "blockquote_close"):
            self.quotes += token.nesting
        elif token.type in ("heading_open", "heading_close"):
            self.is_heading = token.nesting > 0
        elif token.type in ("fence", "code_block"):
            if self.lists:
                self.items[-1].append(Span(token.content.rstrip("\n"), code=True))
            else:
                self.blocks.append(Code(token.content.rstrip("\n")))
        elif token.type == "inline":
            spans = list(_read_spans(token.children or []))
            if self.is_heading:
                self.blocks.append(Heading("".join(span.text for span in spans)))
            elif self.lists:
                self.items[-1] += [Span(" "), *spans] if self.items[-1] else spans
            elif spans:
                self.blocks.append(Paragraph(spans, "quote" if self.quotes else ""))


def _read_spans(tokens: Sequence[Token]) -> Iterator[Span]:
    style = Span("")
    for token in tokens:
        if token.type in ("strong_open", "strong_close"):
            style = replace(style, strong=token.nesting > 0)
        elif token.type in ("em_open", "em_close"):
            style = replace(style, emphasis=token.nesting > 0)
        elif token.type == "link_open":
            address = str(token.attrGet("href") or "")
            style = replace(style, href=address if address.lower().startswith(SCHEMES) else "")
        elif token.type == "link_close":
            style = replace(style, href="")
        elif token.type in ("softbreak", "hardbreak"):
            yield replace(style, text=" ")
        elif token.type == "code_inline":
            yield replace(style, text=token.content, code=True)
        elif token.content:
            yield replace(style, text=token.content)
