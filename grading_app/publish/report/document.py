"""The model of a document: sections of blocks, as plain values that JSON can hold, and words of its sentences. Pure.

Texts are plain texts in every block; each renderer escapes them. So names and answers cannot become markup. Pages read
the names of sections here, because they must not load what the sections need.

The author's Markdown is parsed to tokens and only known tokens become blocks, so no HTML of the author reaches any
output. HTML and pictures stay visible as text. Links keep only http, https and mailto addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from evalsite.lib.text.number_format import format_count
from grading_app.results.table import ResultTable

if TYPE_CHECKING:
    from markdown_it.token import Token

SECTION_NAMES = {
    "abstract": "Abstract",
    "methods": "Methods paragraph",
    "results_paragraph": "Results paragraph",
    "question": "Question and design",
    "preregistration": "Preregistration",
    "data": "Data",
    "models": "Models",
    "procedure": "Procedure",
    "results": "Results",
    "agreement": "Agreement",
    "costs": "Costs",
    "limitations": "Limitations that the data show",
    "references": "References",
    "prompts": "Appendix: prompts",
    "settings": "Appendix: settings",
    "reproduction": "Appendix: reproduction",
}
PASTED = ("abstract", "methods", "results_paragraph")
"""The sections that are one text to paste into a paper."""
FOLDED = ("data", "models", "procedure", "references", "prompts", "settings", "reproduction")
"""The sections that a page shows folded, because the paragraphs to paste sum them up. Files show them open."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a paragraph.

    href: a web address that the author wrote. rows: the page of the site with the rows that the sentence counts.
    """

    text: str
    strong: bool = False
    emphasis: bool = False
    code: bool = False
    href: str = ""
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    spans: list[Span]
    tone: Literal["", "note", "quote"] = ""
    kind: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    kind: Literal["heading"] = "heading"


@dataclass(frozen=True, slots=True)
class Listing:
    items: list[list[Span]]
    is_ordered: bool = False
    kind: Literal["listing"] = "listing"


@dataclass(frozen=True, slots=True)
class Code:
    """A text as it is, such as a prompt. label: the line above it."""

    text: str
    label: str = ""
    kind: Literal["code"] = "code"


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A result table. content: the whole table, as `ResultTable.content` writes it.

    shown: the names of the columns that a page has room for; empty for all. Files hold every column. rows: the page of
    the site with the same numbers. is_detail: a page shows the table folded; files show it in place.
    """

    content: dict[str, Any]
    shown: list[str] = field(default_factory=list)
    rows: str = ""
    is_detail: bool = False
    kind: Literal["table"] = "table"

    @property
    def table(self) -> ResultTable:
        return ResultTable.from_content(self.content)

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def shown_table(self) -> ResultTable:
        table = self.table
        columns = [column for column in table.columns if not self.shown or column.name in self.shown]
        return replace(table, columns=columns)


@dataclass(frozen=True, slots=True)
class FigureBlock:
    """A figure. svg: the picture in light colours, with its text as paths. size: CSS pixels. content: the table of the
    numbers behind it. spec: the address of the figure on the site, where it can be drawn in other ways. is_detail: a
    page shows the figure folded; files show it in place. narrow_svg, narrow_size: the picture for a phone, on pages."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    size: tuple[int, int]
    content: dict[str, Any]
    spec: str = ""
    is_detail: bool = False
    narrow_svg: str = ""
    narrow_size: tuple[int, int] = (0, 0)
    kind: Literal["figure"] = "figure"

    @property
    def table(self) -> ResultTable:
        return ResultTable.from_content(self.content)


Block = Paragraph | Heading | Listing | Code | TableBlock | FigureBlock


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of a report. failed: a fault of the program kept it from being written, so its numbers are missing."""

    name: str
    title: str
    blocks: list[Block]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A report. made_at: when the rows were read, as ISO 8601 in UTC. state: the fingerprint of these rows."""

    experiment: str
    title: str
    made_at: str
    state: str
    software: str
    sections: list[ReportSection]

    @property
    def failed(self) -> list[str]:
        """Return the titles of the sections that could not be written."""
        return [section.title for section in self.sections if section.failed]

    def list_blocks(self, kind: type) -> Iterator[Any]:
        for section in self.sections:
            yield from (block for block in section.blocks if isinstance(block, kind))

    def label_sections(self) -> Iterator[tuple[ReportSection, list[tuple[str, Block]]]]:
        """Yield each section with its blocks and their labels: `Table 1`, `Figure 1`; "" for other blocks."""
        counts = {"table": 0, "figure": 0}
        for section in self.sections:
            labelled_blocks = []
            for block in section.blocks:
                if block.kind in counts:
                    counts[block.kind] += 1
                    labelled_blocks.append((f"{block.kind.title()} {counts[block.kind]}", block))
                else:
                    labelled_blocks.append(("", block))
            yield section, labelled_blocks

    def find_figure(self, name: str) -> FigureBlock | None:
        return next((figure for figure in self.list_blocks(FigureBlock) if figure.name == name), None)

    def dump(self) -> dict[str, Any]:
        content: dict[str, Any] = _get_adapter().dump_python(self, mode="json")
        return content

    @classmethod
    def load(cls, content: Any) -> Document:
        """Return the document of `dump`. Raise ValueError for other content."""
        document: Document = _get_adapter().validate_python(content)
        return document


@cache
def _get_adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Document)


def make_sentence(text: str, rows: str = "") -> Span:
    """Return a generated sentence, with the page that shows the rows which it counts."""
    return Span(text, rows=rows)


def make_paragraph(*sentences: Span | str | None, tone: Literal["", "note", "quote"] = "") -> Paragraph | None:
    """Return a paragraph of the sentences that are not empty; None without one."""
    spans = [Span(sentence) if isinstance(sentence, str) else sentence for sentence in sentences if sentence]
    return Paragraph([span for span in spans if span.text], tone) if any(span.text for span in spans) else None


def make_table_block(
    table: ResultTable, shown: Sequence[str] = (), rows: str = "", *, is_detail: bool = False
) -> TableBlock:
    return TableBlock(table.content(), list(shown), rows, is_detail)


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


def count_noun(n: int, singular: str, plural: str = "") -> str:
    """Return a text such as `1 item` or `12 items`."""
    return f"{format_count(n)} {singular if n == 1 else plural or singular + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Return a text such as `a, b and c`; with semicolons if a word has a comma itself, outside of brackets."""
    if any(", " in re.sub(r"\([^)]*\)", "", word) for word in words):
        return "; ".join(words)
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def format_times(n: int) -> str:
    """Return `once`, or a text such as `3 times`."""
    return "once" if n == 1 else f"{format_count(n)} times"


def format_moment(moment: str) -> str:
    """Return an ISO time as `2026-03-01 14:05 UTC`; a text of another form unchanged."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return moment


def format_day(moment: datetime | None) -> str:
    """Return the date in UTC; "" for none."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d") if moment else ""


def format_days(first: datetime | None, last: datetime | None) -> str:
    """Return a text such as `2026-03-01 to 2026-03-04`, or one date."""
    ends = [format_day(first), format_day(last)]
    return ends[0] if ends[0] == ends[1] else " to ".join(filter(None, ends))
