"""The search finds experiments, datasets, the library, items and pages, but only those that the reader may see."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evalsite.lib import permissions
from evalsite.views import search_site
from tests import factories
from tests.shared_rows import shared_rows


@shared_rows
def experiment():
    items = [
        {"key": "geo-01", "input": "Which river flows through Budapest?", "target": "Danube"},
        {"key": "geo-02", "input": "Which sea is the saltiest?", "target": "Dead Sea"},
    ]
    owner = factories.make_user("ana", permissions.RESEARCHER)
    return factories.make_experiment("rivers", owner=owner, title="Do models know rivers?",
        dataset=factories.make_dataset("geography", items))  # fmt: skip


def find(user, text):
    return {group.title: [found.name for found in group.found] for group in search_site(user, text)}


def test_each_kind_is_found_by_the_beginning_of_a_word(experiment):
    owner = experiment.owner
    assert find(owner, "river") == {
        "Experiments": ["rivers"],
        "Library": ["rivers-prompt", "rivers-sampler"],
        "Items": ["Which river flows through Budapest?"],
    }
    assert find(owner, "budap which")["Items"] == ["Which river flows through Budapest?"]
    assert find(owner, "geo-02")["Items"] == ["Which sea is the saltiest?"]
    assert find(owner, "geograph")["Datasets"] == [str(experiment.dataset)]
    prompt = experiment.prompts.get()
    assert prompt.name in find(owner, prompt.name)["Library"]
    assert find(owner, "leaderboard")["Pages"] == ["Task leaderboard"]
    assert find(owner, "zzz") == {}


def test_a_reader_finds_only_what_they_may_open(client, experiment):
    viewer = factories.make_user("vera", permissions.VIEWER)
    assert find(viewer, "river") == {}
    assert "Pages" not in find(viewer, "costs")
    experiment.shared_with.add(viewer)
    assert find(viewer, "river") == {"Experiments": ["rivers"], "Items": ["Which river flows through Budapest?"]}
    client.force_login(viewer)
    for group in search_site(viewer, "river"):
        for found in group.found:
            assert client.get(found.url).status_code == 200, found


def test_the_page_works_without_javascript_and_the_dialog_gets_a_part(client, experiment):
    client.force_login(experiment.owner)
    page = client.get("/search/", {"q": "river"}).content.decode()
    assert 'method="get" role="search" aria-label="Search the site"' in page
    assert "Do models know rivers?" in page
    part = client.get("/search/", {"q": "river"}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert "Do models know rivers?" in part


@pytest.mark.parametrize("text", ["'", "a & | !b", "\\", ":*", "%", "<script>", "x" * 5000, "(((", "☃ ☃"])
def test_any_text_is_a_search(client, experiment, text):
    client.force_login(experiment.owner)
    response = client.get("/search/", {"q": text})
    assert response.status_code == 200
    assert "<script>alert" not in response.content.decode()


def test_items_are_found_through_the_index_of_words(experiment):
    """Also for a word of no item: with many items, the database would otherwise compute the words of each."""
    factories.make_dataset("fillers", [{"key": f"filler-{n}", "input": f"Filler number {n}"} for n in range(5_000)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE datasets_app_item")
    for text, names in (("saltiest", ["Which sea is the saltiest?"]), ("nowhere", None)):
        with CaptureQueriesContext(connection) as queries:
            assert find(experiment.owner, text).get("Items") == names
        (statement,) = [query["sql"] for query in queries if "tsquery" in query["sql"]]
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {statement}")
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert re.search("item_words", plan), plan
