"""Every page opens without queries in its template, and with a constant number of queries."""

import pytest
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse

from datasets_app.models import Dataset
from tests import factories
from tests.integration.dataset_pages.conftest import build_address
from tests.integration.pages.test_pages_open import forbid_queries_in_templates

OF_A_DATASET = ["dataset_detail", "dataset_table", "dataset_about", "dataset_sample"]
OF_A_DRAFT = ["dataset_edit", "dataset_norms"]


def build_addresses(draft, pictures):
    yield from (reverse(name) for name in ("dataset_list", "dataset_new", "dataset_hub"))
    for dataset in (draft, pictures):
        yield from (build_address(dataset, name) for name in OF_A_DATASET)
        yield from (build_address(dataset, "item_detail", item.pk) for item in dataset.items.all()[:2])
    yield from (build_address(draft, name) for name in OF_A_DRAFT)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["researcher", "curator", "operator"])
def test_every_page_opens_for_members_and_no_template_queries(draft, pictures, as_, role, monkeypatch):
    client = as_(role)
    with forbid_queries_in_templates(monkeypatch):
        for address in build_addresses(draft, pictures):
            response = client.get(address)
            assert response.status_code == 200, address
            assert b"</html>" in response.content, address


@pytest.mark.parametrize("name", ["dataset_list", "dataset_detail", "dataset_table"])
def test_more_rows_need_no_more_queries(as_, django_assert_max_num_queries, name):
    client = as_("researcher")
    few, many = factories.make_dataset("few", 2, approved=False), factories.make_dataset("many", 40, approved=False)
    ContentType.objects.get_for_model(Dataset)  # Django caches it for the whole process, at its first use.
    counts = []
    for dataset in (few, many):
        address = reverse(name) if name == "dataset_list" else build_address(dataset, name)
        with django_assert_max_num_queries(20) as captured:
            client.get(address)
        counts.append(len(captured))
        factories.make_dataset(f"more-{dataset.slug}", 3)
    assert counts[0] == counts[1]


def test_the_empty_list_says_what_to_do(as_):
    text = as_("researcher").get(reverse("dataset_list")).content.decode()
    assert "No datasets yet" in text
    assert "samples/questions.jsonl" in text
    assert reverse("dataset_new") in text


def test_the_empty_list_offers_a_viewer_no_import(as_):
    text = as_("viewer").get(reverse("dataset_list")).content.decode()
    assert reverse("dataset_new") not in text


def test_the_list_shows_the_facts_of_each_dataset(draft, as_):
    text = as_("researcher").get(reverse("dataset_list")).content.decode()
    for words in ("set", "Draft", "A paper", "CC0"):
        assert words in text


@pytest.mark.parametrize(
    ("query", "found"), [("q=paper", True), ("q=nothing", False), ("status=draft", True), ("status=approved", False)]
)
def test_the_list_is_narrowed_by_text_and_status(draft, as_, query, found):
    text = as_("researcher").get(f"{reverse('dataset_list')}?{query}").content.decode()
    assert (draft.get_absolute_url() in text) is found
    assert ("No dataset matches" in text) is not found
