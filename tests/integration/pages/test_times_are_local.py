"""Times on pages are `time` elements, which a script shows in the reader's zone with UTC on hover."""

import re

import pytest
from lxml import html

from tests.integration.pages.page_visits import open_every_page

pytestmark = pytest.mark.django_db
MOMENT = re.compile(r"\d\d\d\d-\d\d-\d\d[T ,]+\d\d:\d\d|\b\d\d:\d\d(:\d\d)?\s+UTC|\d UTC\b")


def find_bare_times(text):
    """Return the texts of a page with a date and a time, or a time in UTC, outside `time` elements."""
    page = html.fromstring(text)
    skipped = "ancestor::time or ancestor::script or ancestor::style or ancestor::pre or ancestor::textarea"
    texts = page.xpath(f"//body//text()[not({skipped})]")
    return [" ".join(one.split()) for one in texts if MOMENT.search(one)]


def test_the_search_finds_a_time_in_text():
    shown = "<p><time>2026-01-02 03:04</time></p><pre>2026-01-02 03:04</pre>"
    page = f"<html><body>{shown}<p>ended 2026-01-02 03:04</p><p>03:04 UTC</p></body></html>"
    assert find_bare_times(page) == ["ended 2026-01-02 03:04", "03:04 UTC"]


@pytest.mark.slow
def test_no_page_shows_a_bare_time(lab, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    bare, n_times = {}, 0
    for visit, text in open_every_page(lab):
        n_times += text.count("<time")
        if found := find_bare_times(text):
            bare[visit.name] = found
    assert not bare
    assert n_times > 50
