"""The pages of the help: each document becomes a page whose links and terms lead somewhere."""

import re

import pytest

from evalsite.lib.ops.installation import ROOT
from evalsite.lib.text import manual
from runs_app.planning.power import compute_detectable_effect

DOCS = ROOT / "docs"
BASE = "/help/"
PAGES = manual.list_pages(DOCS)
TERM = re.compile(r"""{% term ["']([^"']+)["']""")


def load(name):
    return manual.load_page(DOCS, name, BASE)


def list_anchors(name):
    return {load(name).anchor, *re.findall(r'<h[1-6] id="([^"]+)"', load(name).html)}


def test_the_first_page_comes_first_and_every_document_is_a_page():
    assert PAGES[0] == "index"
    assert set(PAGES) == {file.stem for file in DOCS.glob("*.md")}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_to_a_page_a_section_or_a_picture(name):
    page = load(name)
    for target in re.findall(r'(?:href|src)="([^"]+)"', page.html):
        path, _, anchor = target.partition("#")
        if path.startswith(f"{BASE}images/"):
            assert (DOCS / path.removeprefix(BASE)).is_file(), target
        elif not path.startswith("http"):
            other = path.removeprefix(BASE).strip("/") or (name if not path else "index")
            assert other in PAGES, target
            assert not anchor or anchor in list_anchors(other), target


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_reached_by_keyboard_and_every_column_has_a_head(name):
    html = load(name).html
    assert re.findall(r"<table(?![^>]*tabindex)|<pre(?![^>]*tabindex)[^>]*><code(?![^>]*tabindex)", html) == []
    assert re.findall(r"<th[^>]*>\s*</th>", html) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_a_title_and_no_html_of_its_file(name):
    page = load(name)
    assert page.title != name
    assert "<script" not in page.html
    assert not re.search(r"<h1", page.html), "the page shows its title above the text"


def test_html_in_a_document_stays_text(tmp_path):
    (tmp_path / "index.md").write_text("# Title\n\n<b onclick=x>bold</b> [a](javascript:alert(1)) [b](../secret.md)\n")
    page = manual.load_page(tmp_path, "index", BASE)
    assert "<b" not in page.html
    assert "&lt;b onclick" in page.html
    assert "href" not in page.html


@pytest.mark.parametrize("name", ["../README", "..", "Index", "", "no-such-page", "deploy/compose"])
def test_a_name_that_is_no_page_gives_none(name):
    assert manual.load_page(DOCS, name, BASE) is None


def test_terms_on_pages_lead_to_sections_of_the_help():
    templates = [file.read_text(encoding="utf-8") for file in (ROOT / "templates").rglob("*.html")]
    addresses = {address for text in templates for address in TERM.findall(text)}
    assert addresses, "pages link to the help"
    for address in addresses:
        page, _, anchor = address.partition("#")
        assert anchor in list_anchors(page), address


def test_a_search_finds_sections_by_all_words_and_headings_come_first():
    hits = manual.search(DOCS, "Wave")
    assert hits[0].section.heading.lower().startswith(("wave", "comparing wave"))
    assert all("wave" in f"{hit.section.heading} {hit.section.text}".lower() for hit in hits)
    assert manual.search(DOCS, "wave zebra-unicorn") == []
    assert manual.search(DOCS, "  ") == []


def test_the_glossary_is_in_the_order_of_the_alphabet_and_explains_each_term():
    terms = [section for section in manual.list_sections(DOCS) if section.page == "glossary" and section.anchor]
    assert [term.heading.lower() for term in terms] == sorted(term.heading.lower() for term in terms)
    assert len(terms) > 30
    assert all(term.text for term in terms)


def test_the_sizes_of_a_study_are_those_of_the_design_page():
    rows = re.findall(r"^\| (\d+) \| (\d+) percentage points \|", (DOCS / "fit.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == 3
    for items, points in rows:
        assert round(compute_detectable_effect(int(items), 1).percentage_points) == int(points)
