"""Each table has a name that a screen reader lists: a caption, or the heading above it."""

import pytest
from lxml import html

from tests.integration.pages.page_visits import open_every_page

pytestmark = pytest.mark.django_db


def find_unnamed_tables(text):
    """Return the header cells of each table of a page without a name that is read."""
    page = html.fromstring(text)
    unnamed = []
    for table in page.xpath("//table"):
        ids = table.get("aria-labelledby", "").split()
        parts = [table.get("aria-label", ""), *table.xpath("./caption//text()")]
        parts += [part for one in ids for part in page.xpath("//*[@id=$id]//text()", id=one)]
        if not " ".join(parts).strip():
            unnamed.append([" ".join(cell.text_content().split()) for cell in table.xpath(".//th")][:8])
    return unnamed


def test_the_search_finds_a_table_without_a_name():
    heading = '<h2 id="a">Runs</h2><table aria-labelledby="a"><tr><td>1</td></tr></table>'
    captioned = "<table><caption>Runs</caption><tr><td>1</td></tr></table>"
    empty = '<table aria-labelledby="b"><caption> </caption><tr><th>Model</th></tr></table>'
    assert find_unnamed_tables(f"<html><body>{heading}{captioned}{empty}</body></html>") == [["Model"]]


@pytest.mark.slow
def test_each_table_of_each_page_has_a_name(lab, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    unnamed, n_tables = {}, 0
    for visit, text in open_every_page(lab):
        n_tables += text.count("<table")
        if found := find_unnamed_tables(text):
            unnamed[visit.address] = found
    assert not unnamed
    assert n_tables > 50
