"""The documentation as pages: Markdown files of the folder `docs`, their headings, and a search in them. Pure.

The site shows these pages at /help/. It renders the files itself, because the wheel then needs no second build, and
because its content policy forbids the scripts of a generator's theme. `mkdocs.yml` publishes the same files elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it.token import Token

START = "index"
NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
MAX_HITS, EXCERPT = 30, 200
MOVED = {
    "accessibility": "fit#accessibility",
    "agreement": "judging#agreement",
    "by-command": "first-study#a-study-by-command",
    "deploy": "operating#deploying",
    "difficulty": "first-study#what-makes-a-task-hard",
    "first-provider": "first-study#from-a-key-to-a-paid-pilot",
    "gateway": "api#the-gateway",
    "images-and-norms": "first-study#images-against-human-norms",
    "money": "journeys#money",
    "operator-commands": "operating#commands-of-operators",
    "promises": "engine#the-engines-promises",
    "read-a-result": "results#read-a-first-result",
    "report": "exports#report-share-links-and-figures",
    "third-party": "index#third-party-material",
}
"""Former pages, and the sections that they became."""


@dataclass(frozen=True, slots=True)
class ManualSection:
    """A heading with the text below it, up to the next heading. anchor: "" for the top of the page."""

    page: str
    title: str
    anchor: str
    heading: str
    text: str

    @property
    def address(self) -> str:
        """The page and the anchor, such as `glossary#condition`."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


@dataclass(frozen=True, slots=True)
class ManualPage:
    """A page with its HTML. anchor: of its title. sections: its headings of the second level, as (anchor, text)."""

    name: str
    title: str
    anchor: str
    html: str
    sections: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A section that a search found, with the start of its text."""

    section: ManualSection
    excerpt: str


def make_anchor(heading: str) -> str:
    """Return the anchor that common renderers make from a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def list_pages(folder: Path) -> list[str]:
    """Return the names of all pages, in the order in which the first page links to them."""
    names = sorted(file.stem for file in folder.glob("*.md"))
    linked = re.findall(r"\]\(([a-z0-9-]+)\.md", (folder / f"{START}.md").read_text(encoding="utf-8"))
    order = {name: place for place, name in reversed(list(enumerate([START, *linked])))}
    return sorted(names, key=lambda name: order.get(name, len(order)))


@cache
def load_page(folder: Path, name: str, base: str) -> ManualPage | None:
    """Return the page, or None if there is none. base: the address of the first page, which links begin with.

    No HTML of a file is used. A link to a file outside the folder becomes text.
    """
    file = folder / f"{name}.md"
    if not NAME.match(name) or not file.is_file():
        return None
    parser = _make_parser()
    tokens = parser.parse(file.read_text(encoding="utf-8"))
    headings = _mark_headings(tokens)
    heading = "page-heading"  # The page shows its title itself.
    for token in tokens:
        if token.type == "heading_open" and token.tag != "h1":
            heading = str(token.attrGet("id"))
        if token.type == "table_open":
            token.attrSet("aria-labelledby", heading)
        if token.type in ("table_open", "fence", "code_block"):
            token.attrSet("tabindex", "0")  # It scrolls on a narrow screen, also by keyboard.
        if token.children:
            token.children = list(_rewrite_links(token.children, folder, base))
    title, top = next(((text, anchor) for tag, anchor, text in headings if tag == "h1"), (name, name))
    body = tokens[3:] if tokens and tokens[0].tag == "h1" else tokens  # The page shows its title above the text.
    sections = tuple((anchor, text) for tag, anchor, text in headings if tag == "h2")
    return ManualPage(name, title, top, str(parser.renderer.render(body, parser.options, {})), sections)


def _make_parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _mark_headings(tokens: list[Token]) -> list[tuple[str, str, str]]:
    """Give each heading its anchor. Return (tag, anchor, text) of each."""
    headings, seen = [], Counter[str]()
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or [])
        anchor = make_anchor(text)
        seen[anchor] += 1
        opening.attrSet("id", anchor if seen[anchor] == 1 else f"{anchor}-{seen[anchor] - 1}")
        headings.append((opening.tag, str(opening.attrGet("id")), text))
    return headings


def _rewrite_links(children: list[Token], folder: Path, base: str) -> Iterator[Token]:
    """Yield the tokens with addresses of the site. Leave out the tags of links that lead out of the folder."""
    open_links: list[bool] = []
    for token in children:
        if token.type == "link_open":
            address = find_address(str(token.attrGet("href") or ""), folder, base)
            open_links.append(bool(address))
            if address:
                token.attrSet("href", address)
                yield token
        elif token.type == "link_close":
            if open_links.pop():
                yield token
        else:
            if token.type == "image":
                source = str(token.attrGet("src") or "")
                token.attrSet("src", f"{base}{source}")
                token.attrSet("loading", "lazy")
            yield token


def find_address(target: str, folder: Path, base: str) -> str:
    """Return the address of a link's target on the site, or "" if it is neither a page nor a web address."""
    if target.startswith(("#", "https://", "http://", "mailto:")):
        return target
    path, _, anchor = target.partition("#")
    name = path.removesuffix(".md")
    if not path.endswith(".md") or not NAME.match(name) or not (folder / path).is_file():
        return ""
    page = base if name == START else f"{base}{name}/"
    return f"{page}#{anchor}" if anchor else page


@cache
def list_sections(folder: Path) -> tuple[ManualSection, ...]:
    """Return the sections of all pages, with their plain texts."""
    sections: list[ManualSection] = []
    for name in list_pages(folder):
        tokens = _make_parser().parse((folder / f"{name}.md").read_text(encoding="utf-8"))
        _mark_headings(tokens)
        title = anchor = heading = ""
        texts: list[str] = []
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                _add_section(sections, name, title, anchor, heading, texts)
                heading = "".join(child.content for child in tokens[at + 1].children or [])
                anchor = "" if token.tag == "h1" else str(token.attrGet("id"))
                title = heading if token.tag == "h1" else title
                texts = []
            elif token.type == "inline" and (at == 0 or tokens[at - 1].type != "heading_open"):
                texts.append(" ".join(child.content for child in token.children or [] if child.content))
            elif token.type in ("fence", "code_block"):
                texts.append(token.content)
        _add_section(sections, name, title, anchor, heading, texts)
    return tuple(sections)


def _add_section(
    sections: list[ManualSection], page: str, title: str, anchor: str, heading: str, texts: list[str]
) -> None:
    if heading:
        sections.append(ManualSection(page, title, anchor, heading, " ".join(" ".join(texts).split())))


def search(folder: Path, query: str) -> list[Hit]:
    """Return the sections that have all words of the query, those with a word in the heading first."""
    words = query.casefold().split()[:10]
    if not words:
        return []
    found = []
    for section in list_sections(folder):
        heading, text = section.heading.casefold(), section.text.casefold()
        if all(word in heading or word in text for word in words):
            found.append((-sum(word in heading for word in words), section))
    found.sort(key=lambda pair: pair[0])
    return [Hit(section, _cut(section.text, words[0])) for _, section in found[:MAX_HITS]]


def _cut(text: str, word: str) -> str:
    """Return the part of the text around a word."""
    start = max(0, text.casefold().find(word) - EXCERPT // 3)
    part = text[start : start + EXCERPT]
    return f"{'… ' if start else ''}{part}{' …' if start + EXCERPT < len(text) else ''}"
