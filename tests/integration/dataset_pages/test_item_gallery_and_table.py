"""The gallery and the table of items: keyset pages, filters in the URL, neighbours within the same filter."""

import re

import pytest
from django.urls import reverse

from datasets_app import item_pagination
from tests import factories
from tests.integration.dataset_pages.conftest import build_address

BOTH = ["dataset_detail", "dataset_table"]


@pytest.fixture
def hundred_items(db):
    items = [{"key": f"k{n:03}", "input": f"Text {n}", "category": ("", "even")[n % 2 == 0]} for n in range(100)]
    return factories.make_dataset("hundred", items, approved=False)


def read_keys(client, address):
    text = client.get(address).content.decode()
    return re.findall(r'data-item="\d+"[^>]*>([^<]+)</a>', text), text


def find_link(text, rel):
    match = re.search(rf'rel="{rel}" href="([^"]+)"', text)
    return match[1].replace("&amp;", "&") if match else None


@pytest.mark.parametrize("name", BOTH)
def test_every_item_is_on_one_page_and_only_one(hundred_items, as_, name):
    client, address, keys_seen = as_("researcher"), build_address(hundred_items, name), []
    keys, text = read_keys(client, address)
    while True:
        keys_seen += keys
        following = find_link(text, "next")
        if not following:
            break
        keys, text = read_keys(client, address + following)
    assert keys_seen == [f"k{n:03}" for n in range(100)]
    back, text = read_keys(client, address + find_link(text, "prev"))
    assert back == [f"k{n:03}" for n in range(48, 96)]
    first, text = read_keys(client, address + find_link(text, "prev"))
    assert first == [f"k{n:03}" for n in range(48)]
    assert find_link(text, "prev") is None


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("query", "number"),
    [("q=k01", 10), ("q=Text+7", 11), ("category=even", 50), ("category=+", 50), ("category=unheard+of", 0),
     ("image=true", 0), ("image=false", 100), ("excluded=true", 3), ("excluded=false&category=even", 48)],
)  # fmt: skip
def test_items_are_narrowed_by_the_address(hundred_items, as_, name, query, number):
    hundred_items.exclude_items(["k000", "k001", "k002"], by="a test", reason="x")
    keys, text = read_keys(as_("researcher"), f"{build_address(hundred_items, name)}?{query}")
    assert len(keys) == min(number, 48)
    assert f"{number} of 100 match the filter" in text


def test_texts_open_as_a_table_with_targets(as_, db):
    factories.make_dataset("texts", [{"key": "a", "input": "Capital of France?", "target": "Paris"}])
    client = as_("researcher")
    (address,) = set(re.findall(r'href="(/datasets/texts/[^"]*)"', client.get("/datasets/").content.decode()))
    page = client.get(address).content.decode()
    table = re.search(r"<table.*?</table>", page, re.DOTALL)[0]
    assert ">Target</" in re.sub(r"\s+", "", table)
    assert "Paris" in table
    assert 'class="gallery"' not in page
    (tabs,) = re.findall(r'<nav class="tabs".*?</nav>', page, re.DOTALL)
    assert re.findall(r"</svg>\s*(\w+)", tabs) == ["Items", "About"]


def test_images_open_as_a_gallery_and_have_a_table(as_, pictures):
    client = as_("researcher")
    page = client.get(build_address(pictures)).content.decode()
    assert 'class="gallery"' in page
    assert f'href="{build_address(pictures, "dataset_table")}"' in page
    assert "<table" in client.get(build_address(pictures, "dataset_table")).content.decode()


def test_pages_keep_to_the_filter(hundred_items, as_):
    client, address = as_("researcher"), build_address(hundred_items)
    _, text = read_keys(client, f"{address}?category=even")
    keys, _ = read_keys(client, address + find_link(text, "next"))
    assert keys == ["k096", "k098"]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", "-1.2", "1.2.3", "1." + "9" * 30, "<script>", "0.0"])
def test_an_invalid_cursor_is_not_an_error(hundred_items, as_, cursor):
    keys, _ = read_keys(as_("researcher"), f"{build_address(hundred_items)}?after={cursor}")
    assert keys[0] == "k000"


def test_cursors_are_parsed_as_written():
    assert item_pagination.parse_cursor(str(item_pagination.Cursor(3, 44))) == (3, 44)


def test_an_item_has_its_neighbours_under_the_filter(hundred_items, as_):
    item = hundred_items.items.get(key="k010")
    page = (
        as_("researcher").get(build_address(hundred_items, "item_detail", item.pk) + "?category=even").content.decode()
    )
    before, after = (
        build_address(hundred_items, "item_detail", hundred_items.items.get(key=key).pk) for key in ("k008", "k012")
    )
    assert f'href="{before}?category=even"' in page
    assert f'href="{after}?category=even"' in page


def test_the_first_item_has_no_previous_item(hundred_items, as_):
    page = (
        as_("researcher")
        .get(build_address(hundred_items, "item_detail", hundred_items.items.first().pk))
        .content.decode()
    )
    assert 'rel="prev"' not in page
    assert 'rel="next"' in page


def test_an_item_shows_everything_about_it(as_, db):
    dataset = factories.make_dataset(
        "full",
        [{"key": "a", "input": "\n  spaced", "target": "B", "choices": ["one", "two"], "grading_scheme": "Be strict",
          "category": "c", "metadata": {"items": "tricky", "deep": {"x": [1]}}, "norms": {"valence": 3.25}}],
    )  # fmt: skip
    text = as_("researcher").get(build_address(dataset, "item_detail", dataset.items.get().pk)).content.decode()
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
        text = client.get(build_address(dataset, name)).content.decode()
        assert "x" * 240 + "…" in text
        assert "x" * 241 not in text
    assert "x" * 5000 in client.get(build_address(dataset, "item_detail", dataset.items.get().pk)).content.decode()


def test_the_categories_are_counted_and_lead_to_their_items(hundred_items, as_):
    hundred_items.exclude_items(["k000"], by="a test", reason="x")
    text = as_("researcher").get(build_address(hundred_items)).content.decode()
    assert f'href="{build_address(hundred_items)}?category=even"' in text
    assert f'href="{build_address(hundred_items)}?category=+"' in text
    assert '49 <span class="muted">of 50</span>' in text


def test_a_thousand_categories_are_not_all_listed(as_, db):
    dataset = factories.make_dataset(
        "many", [{"key": f"k{n}", "category": f"c{n:04}", "input": "x"} for n in range(1000)]
    )
    text = as_("researcher").get(build_address(dataset)).content.decode()
    assert "and 800 more" in text
    assert "c0999" not in text
    keys, _ = read_keys(as_("researcher"), f"{build_address(dataset)}?category=c0999")
    assert keys == ["k999"]


def test_the_norms_are_summed_up_for_each_dimension(draft, as_):
    text = as_("researcher").get(build_address(draft, "dataset_about")).content.decode()
    for number in ("4.40", "4.00", "4.80"):
        assert number in text


def test_the_filter_says_when_nothing_matches(hundred_items, as_):
    text = as_("researcher").get(f"{build_address(hundred_items)}?q=nowhere").content.decode()
    assert "No item matches this filter" in text


def test_a_name_without_a_version_is_not_found(draft, as_):
    assert as_("researcher").get(f"{reverse('dataset_list')}set/").status_code == 404
    assert as_("researcher").get(f"{reverse('dataset_list')}set/2/").status_code == 404
    assert as_("researcher").get(f"{reverse('dataset_list')}set/{'9' * 40}/").status_code == 404
