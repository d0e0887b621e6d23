"""The help: every page opens for every account, finds words, and is linked from each page."""

import pytest

from evalsite.lib.ops.installation import ROOT
from evalsite.lib.text import manual
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def rater(client):
    client.force_login(factories.make_user("rita"))
    return client


@pytest.mark.parametrize("name", manual.list_pages(ROOT / "docs"))
def test_each_document_is_a_page(rater, name):
    page = rater.get("/help/" if name == "index" else f"/help/{name}/")
    assert page.status_code == 200
    text = page.content.decode()
    assert text.count("<h1") == 1
    assert 'aria-current="page"' in text


def test_a_search_shows_the_sections_that_it_finds(rater):
    text = rater.get("/help/", {"q": "lease"}).content.decode()
    assert "/help/engine/#leases" in text
    assert "0 sections with" in rater.get("/help/", {"q": "<b>zebra"}).content.decode()
    assert "<b>zebra" not in rater.get("/help/", {"q": "<b>zebra"}).content.decode()


@pytest.mark.parametrize("path", ["no-such-page/", "images/no.png", "images/../index.md", "images/..%2Findex.md"])
def test_other_addresses_are_404(rater, path):
    assert rater.get(f"/help/{path}").status_code == 404


def test_a_picture_is_sent_with_its_type(rater):
    picture = rater.get("/help/images/experiment.png")
    assert picture.headers["Content-Type"] == "image/png"
    assert b"".join(picture.streaming_content).startswith(b"\x89PNG")


def test_every_page_links_to_the_help(rater):
    assert 'href="/help/"' in rater.get("/help/glossary/").content.decode()


@pytest.mark.parametrize("name", manual.MOVED)
def test_a_former_page_leads_to_its_section(rater, name):
    response = rater.get(f"/help/{name}/", follow=True)
    page, _, anchor = manual.MOVED[name].partition("#")
    assert response.redirect_chain == [(f"/help/{page}/#{anchor}", 301)]
    assert f'id="{anchor}"' in response.content.decode()
