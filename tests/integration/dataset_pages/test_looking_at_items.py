"""The gallery and the table: pages by key, filters in the address, neighbours under the same filter."""

import re

import pytest
from django.urls import reverse

from datasets_app import curation, item_pagination
from tests import factories
from tests.integration.dataset_pages.conftest import of

BOTH = ["dataset_detail", "dataset_table"]


@pytest.fixture
def hundred(db):
    items = [{"key": f"k{n:03}", "input": f"Text {n}", "category": ("", "even")[n % 2 == 0]} for n in range(100)]
    return factories.make_dataset("hundred", items, approved=False)


def keys_on(client, address):
    text = client.get(address).content.decode()
    return re.findall(r'data-item="\d+"[^>]*>([^<]+)</a>', text), text


def link(text, rel):
    found = re.search(rf'rel="{rel}" href="([^"]+)"', text)
    return found[1].replace("&amp;", "&") if found else None


@pytest.mark.parametrize("name", BOTH)
def test_every_item_is_on_one_page_and_only_one(hundred, as_, name):
    client, address, seen = as_("researcher"), of(hundred, name), []
    keys, text = keys_on(client, address)
    while True:
        seen += keys
        following = link(text, "next")
        if not following:
            break
        keys, text = keys_on(client, address + following)
    assert seen == [f"k{n:03}" for n in range(100)]
    back, text = keys_on(client, address + link(text, "prev"))
    assert back == [f"k{n:03}" for n in range(48, 96)]
    first, text = keys_on(client, address + link(text, "prev"))
    assert first == [f"k{n:03}" for n in range(48)]
    assert link(text, "prev") is None


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("query", "number"),
    [("q=k01", 10), ("q=Text+7", 11), ("category=even", 50), ("category=+", 50), ("category=unheard+of", 0),
     ("image=true", 0), ("image=false", 100), ("excluded=true", 3), ("excluded=false&category=even", 48)],
)  # fmt: skip
def test_items_are_narrowed_by_the_address(hundred, as_, name, query, number):
    curation.exclude_items(hundred, ["k000", "k001", "k002"], by="a test", reason="x")
    keys, text = keys_on(as_("researcher"), f"{of(hundred, name)}?{query}")
    assert len(keys) == min(number, 48)
    assert f"{number} of 100 match the filter" in text


def test_pages_keep_to_the_filter(hundred, as_):
    client, address = as_("researcher"), of(hundred)
    _, text = keys_on(client, f"{address}?category=even")
    keys, _ = keys_on(client, address + link(text, "next"))
    assert keys == ["k096", "k098"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", "-1.2", "1.2.3", "1." + "9" * 30, "<script>", "0.0"])
def test_an_invalid_cursor_is_not_an_error(hundred, as_, cursor):
    keys, _ = keys_on(as_("researcher"), f"{of(hundred)}?after={cursor}")
    assert keys[0] == "k000"


def test_cursors_are_parsed_as_written():
    assert item_pagination.parse_cursor(str(item_pagination.Cursor(3, 44))) == (3, 44)


def test_an_item_has_its_neighbours_under_the_filter(hundred, as_):
    item = hundred.items.get(key="k010")
    page = as_("researcher").get(of(hundred, "item_detail", item.pk) + "?category=even").content.decode()
    before, after = (of(hundred, "item_detail", hundred.items.get(key=key).pk) for key in ("k008", "k012"))
    assert f'href="{before}?category=even"' in page
    assert f'href="{after}?category=even"' in page


def test_the_first_item_has_no_previous_item(hundred, as_):
    page = as_("researcher").get(of(hundred, "item_detail", hundred.items.first().pk)).content.decode()
    assert 'rel="prev"' not in page
    assert 'rel="next"' in page


def test_an_item_shows_everything_about_it(as_, db):
    dataset = factories.make_dataset(
        "full",
        [{"key": "a", "input": "\n  spaced", "target": "B", "choices": ["one", "two"], "grading_scheme": "Be strict",
          "category": "c", "metadata": {"items": "tricky", "deep": {"x": [1]}}, "norms": {"valence": 3.25}}],
    )  # fmt: skip
    text = as_("researcher").get(of(dataset, "item_detail", dataset.items.get().pk)).content.decode()
    for words in (
        "\n\n  spaced",
        "one",
        "two",
        "Be strict",
        "tricky",
        "{&quot;x&quot;: [1]}",
        "valence",
        "3.25",
        "100",
    ):
        assert words in text, words


def test_long_texts_are_cut_in_lists_only(as_, db):
    dataset = factories.make_dataset("long", [{"key": "a", "input": "x" * 5000}])
    client = as_("researcher")
    for name in BOTH:
        text = client.get(of(dataset, name)).content.decode()
        assert "x" * 240 + "…" in text
        assert "x" * 241 not in text
    assert "x" * 5000 in client.get(of(dataset, "item_detail", dataset.items.get().pk)).content.decode()


def test_the_categories_are_counted_and_lead_to_their_items(hundred, as_):
    curation.exclude_items(hundred, ["k000"], by="a test", reason="x")
    text = as_("researcher").get(of(hundred)).content.decode()
    assert f'href="{of(hundred)}?category=even"' in text
    assert f'href="{of(hundred)}?category=+"' in text
    assert '49 <span class="muted">of 50</span>' in text


def test_a_thousand_categories_are_not_all_listed(as_, db):
    dataset = factories.make_dataset(
        "many", [{"key": f"k{n}", "category": f"c{n:04}", "input": "x"} for n in range(1000)]
    )
    text = as_("researcher").get(of(dataset)).content.decode()
    assert "and 800 more" in text
    assert "c0999" not in text
    keys, _ = keys_on(as_("researcher"), f"{of(dataset)}?category=c0999")
    assert keys == ["k999"]


def test_the_norms_are_summed_up_for_each_dimension(draft, as_):
    text = as_("researcher").get(of(draft, "dataset_about")).content.decode()
    for number in ("4.40", "4.00", "4.80"):
        assert number in text


def test_the_filter_says_when_nothing_matches(hundred, as_):
    text = as_("researcher").get(f"{of(hundred)}?q=nowhere").content.decode()
    assert "No item matches this filter" in text


def test_a_name_without_a_version_is_not_found(draft, as_):
    assert as_("researcher").get(f"{reverse('dataset_list')}set/").status_code == 404
    assert as_("researcher").get(f"{reverse('dataset_list')}set/2/").status_code == 404
    assert as_("researcher").get(f"{reverse('dataset_list')}set/{'9' * 40}/").status_code == 404
