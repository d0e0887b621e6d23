"""Actions on datasets and items: by POST with a reason in the history, or refused with a message."""

import pytest
from django.urls import reverse

from datasets_app import curation
from datasets_app.models import Dataset, Norm
from tests.factories.files import build_upload
from tests.integration.dataset_pages.conftest import build_action_address, build_address, build_item_action_address


@pytest.fixture
def sampled_dataset(draft):
    return curation.sample_dataset(draft, slug="few", strategy="uniform", n=3, seed=1, by="a test")


def list_messages(response):
    return [str(message) for message in response.context["messages"]]


def get_newest_change(dataset):
    change = dataset.history.first()
    return change.actor, change.aspect, change.to_value, change.reason


def test_an_item_is_excluded_with_its_note(draft, as_):
    item = draft.items.get(key="k1")
    response = as_("researcher").post(build_item_action_address(item, "exclude"), {"reason": "Ambiguous"}, follow=True)
    item.refresh_from_db()
    assert (item.excluded, item.note) == (True, "Ambiguous")
    assert get_newest_change(draft) == ("researcher", "excluded", "1 item: k1", "Ambiguous")
    assert list_messages(response) == ["k1 is excluded."]
    assert response.redirect_chain == [(build_address(draft, "item_detail", item.pk), 302)]


@pytest.mark.parametrize("reason", ["", "   "])
def test_an_exclusion_needs_a_note(draft, as_, reason):
    item = draft.items.first()
    response = as_("researcher").post(build_item_action_address(item, "exclude"), {"reason": reason}, follow=True)
    item.refresh_from_db()
    assert not item.excluded
    assert list_messages(response) == ["note: say why the items are excluded"]


def test_a_note_that_is_too_long_is_refused(draft, as_):
    response = as_("researcher").post(
        build_item_action_address(draft.items.first(), "exclude"), {"reason": "x" * 501}, follow=True
    )
    assert "at most 500 characters" in list_messages(response)[0]
    assert not draft.items.filter(excluded=True).exists()


def test_an_item_is_included_again_without_a_note(draft, as_):
    draft.exclude_items(["k1"], by="a test", reason="x")
    as_("researcher").post(build_item_action_address(draft.items.get(key="k1"), "include"))
    assert not draft.items.filter(excluded=True).exists()


@pytest.mark.parametrize(
    ("following", "leads_to"),
    [("/datasets/set/1/?q=k", "/datasets/set/1/?q=k"), ("https://elsewhere.example/", None),
     ("//elsewhere.example", None), ("javascript:alert(1)", None), ("", None)],
)  # fmt: skip
def test_redirects_lead_only_to_pages_of_the_site(draft, as_, following, leads_to):
    item = draft.items.first()
    response = as_("researcher").post(build_item_action_address(item, "exclude"), {"reason": "x", "next": following})
    assert response.url == (leads_to or build_address(draft, "item_detail", item.pk))


def test_an_item_of_a_sample_is_replaced_by_another_of_its_category(sampled_dataset, as_):
    item = sampled_dataset.items.first()
    response = as_("researcher").post(
        build_item_action_address(item, "replace"), {"seed": "5", "reason": "Dull"}, follow=True
    )
    assert sampled_dataset.items.count() == 3
    assert not sampled_dataset.items.filter(key=item.key).exists()
    assert sampled_dataset.items.filter(category=item.category).count() == 1
    assert get_newest_change(sampled_dataset)[3] == "Dull"
    assert response.redirect_chain == [(build_address(sampled_dataset), 302)]


def test_an_item_of_an_import_cannot_be_replaced(draft, as_):
    response = as_("researcher").post(build_item_action_address(draft.items.first(), "replace"), follow=True)
    assert list_messages(response) == ["set@1 was not drawn from another dataset"]


def test_an_item_is_removed(draft, as_):
    response = as_("researcher").post(
        build_item_action_address(draft.items.get(key="k1"), "remove"), {"reason": "Twice"}, follow=True
    )
    assert not draft.items.filter(key="k1").exists()
    assert get_newest_change(draft) == ("researcher", "items", "removed 1 item: k1", "Twice")
    assert response.redirect_chain == [(build_address(draft), 302)]


def test_items_of_the_parent_are_added_by_key(draft, sampled_dataset, as_):
    unused_keys = [
        key for key in draft.items.values_list("key", flat=True) if not sampled_dataset.items.filter(key=key).exists()
    ]
    response = as_("researcher").post(
        build_action_address(sampled_dataset, "add"),
        {"keys": f"{unused_keys[0]}\r\n {unused_keys[1]} \n\n"},
        follow=True,
    )
    assert list(sampled_dataset.items.values_list("key", flat=True))[-2:] == unused_keys[:2]
    assert list_messages(response) == [f"Added 2 items: {unused_keys[0]}, {unused_keys[1]}"]


@pytest.mark.parametrize("keys", ["", "nothing-like-it"])
def test_items_missing_in_the_parent_cannot_be_added(sampled_dataset, as_, keys):
    as_("researcher").post(build_action_address(sampled_dataset, "add"), {"keys": keys})
    assert sampled_dataset.items.count() == 3


def test_nothing_can_be_added_by_key_to_an_import(draft, as_):
    response = as_("researcher").post(build_action_address(draft, "add"), {"keys": "k1"}, follow=True)
    assert list_messages(response) == ["set@1 was not drawn from another dataset"]


@pytest.mark.parametrize("address", ["act/burn/", "items/{pk}/act/burn/"])
def test_unknown_verbs_are_not_found(draft, as_, address):
    path = build_address(draft) + address.format(pk=draft.items.first().pk)
    assert as_("curator").post(path).status_code == 404


def submit_sample(client, dataset, **fields):
    form = {"slug": "few", "strategy": "stratified", "n": "6", "seed": "3", **fields}
    return client.post(build_address(dataset, "dataset_sample"), form)


def test_a_sample_is_drawn_into_a_new_draft(draft, as_):
    response = submit_sample(as_("researcher"), draft)
    few = Dataset.objects.get(slug="few")
    assert response.url == build_address(few)
    assert (few.status, few.item_count, few.parent) == ("draft", 6, draft)
    assert {name: few.recipe[name] for name in ("strategy", "n", "seed")} == {
        "strategy": "stratified",
        "n": 6,
        "seed": 3,
    }


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"strategy": "uniform", "n": "4"}, "n", "4 is not a multiple of the number of categories, which is 3"),
        ({"n": "10"}, "n", "cannot draw 10 of 9 items"),
        ({"n": "2"}, "n", "2 items cannot hold one of each of 3 categories"),
        ({"n": ""}, "n", "This field is required."),
        ({"n": "0"}, "n", "Ensure this value is greater than or equal to 1."),
        ({"n": "9" * 400}, "n", "cannot draw"),
        ({"seed": ""}, "seed", "This field is required."),
        ({"seed": "-1"}, "seed", "Ensure this value is greater than or equal to 0."),
        ({"strategy": "best"}, "strategy", "Select a valid choice. best is not one of the available choices."),
        ({"slug": "(?)"}, "slug", "Use at least one letter (a to z) or digit."),
        ({"slug": ""}, "slug", "This field is required."),
    ],
)
def test_an_impossible_draw_is_an_error_at_its_field(draft, as_, fields, field, message):
    response = submit_sample(as_("researcher"), draft, **fields)
    assert response.status_code == 200
    assert any(error.startswith(message) for error in response.context["form"].errors[field])
    assert Dataset.objects.count() == 1


def test_the_strategy_all_needs_no_number(draft, as_):
    submit_sample(as_("researcher"), draft, strategy="all", n="")
    assert Dataset.objects.get(slug="few").item_count == 9


def test_a_sample_is_redrawn(sampled_dataset, as_):
    before = set(sampled_dataset.items.values_list("key", flat=True))
    response = as_("researcher").post(
        build_action_address(sampled_dataset, "reshuffle"), {"seed": "2", "reason": "Another look"}, follow=True
    )
    assert set(sampled_dataset.items.values_list("key", flat=True)) != before
    assert list_messages(response) == ["3 items were redrawn with seed 2."]


def test_a_wrong_seed_is_refused(sampled_dataset, as_):
    before = set(sampled_dataset.items.values_list("key", flat=True))
    response = as_("researcher").post(build_action_address(sampled_dataset, "reshuffle"), {"seed": "many"}, follow=True)
    assert list_messages(response) == ["Seed: Enter a whole number."]
    assert set(sampled_dataset.items.values_list("key", flat=True)) == before


def test_a_duplicate_is_the_next_version(pictures, as_):
    response = as_("researcher").post(build_action_address(pictures, "duplicate"), {"reason": "To crop one"})
    copy = Dataset.objects.get(slug="pictures", version=2)
    assert (copy.status, copy.item_count, response.url) == ("draft", 2, build_address(copy))


def test_a_curator_approves_and_archives_with_a_reason(draft, as_):
    client = as_("curator")
    client.post(build_action_address(draft, "approve"), {"reason": "Looked through"})
    draft.refresh_from_db()
    assert (draft.status, len(draft.content_hash)) == ("approved", 64)
    assert get_newest_change(draft) == ("curator", "status", "approved", "Looked through")
    client.post(build_action_address(draft, "archive"), {"reason": "Replaced"})
    draft.refresh_from_db()
    assert draft.status == "archived"
    assert get_newest_change(draft) == ("curator", "status", "archived", "Replaced")


@pytest.mark.parametrize("verb", ["approve", "archive"])
def test_a_transition_needs_a_reason(draft, as_, verb):
    response = as_("curator").post(build_action_address(draft, verb), {"reason": " "}, follow=True)
    draft.refresh_from_db()
    assert draft.status == "draft"
    assert list_messages(response)[0].startswith("reason: say why")


def test_a_draft_without_an_item_in_use_is_not_approved(draft, as_):
    draft.exclude_items([f"k{n}" for n in range(9)], by="a test", reason="x")
    response = as_("curator").post(build_action_address(draft, "approve"), {"reason": "x"}, follow=True)
    assert list_messages(response) == ["set@1 has no active item to approve"]


def test_a_draft_is_deleted(draft, as_):
    response = as_("researcher").post(build_action_address(draft, "delete"), follow=True)
    assert not Dataset.objects.filter(pk=draft.pk).exists()
    assert list_messages(response) == ["set@1 is deleted."]
    assert response.redirect_chain == [(reverse("dataset_list"), 302)]


def test_a_draft_with_samples_is_not_deleted(draft, sampled_dataset, as_):
    response = as_("researcher").post(build_action_address(draft, "delete"), follow=True)
    assert list_messages(response) == ["set@1 is in use by few@1"]
    assert Dataset.objects.filter(pk__in=[draft.pk, sampled_dataset.pk]).count() == 2


def test_title_and_source_of_a_draft_are_edited(draft, as_):
    form = {"title": "A set", "description": "", "source": "A paper", "licence": "CC BY"}
    assert as_("researcher").post(build_address(draft, "dataset_edit"), form).url == build_address(draft)
    draft.refresh_from_db()
    assert (draft.title, draft.licence) == ("A set", "CC BY")
    changes = draft.history.filter(aspect__in=["title", "licence"]).order_by("aspect")
    assert [(change.actor, change.aspect, change.from_value, change.to_value) for change in changes] == [
        ("researcher", "licence", "CC0", "CC BY"), ("researcher", "title", "none", "A set"),
    ]  # fmt: skip


def test_the_source_of_an_approved_dataset_changes_with_a_reason_that_its_history_shows(pictures, as_):
    form = {"title": "", "description": "", "source": "A better <b>citation</b>", "licence": "CC0"}
    page = as_("curator").post(build_address(pictures, "dataset_edit"), form)
    assert "the history keeps the reason" in page.context["form"].errors["reason"][0]
    assert page.context["form"]["source"].value() == form["source"]
    pictures.refresh_from_db()
    assert (pictures.source, pictures.licence) == ("", "")
    before = pictures.content_hash
    response = as_("curator").post(
        build_address(pictures, "dataset_edit"), form | {"reason": "Published since"}, follow=True
    )
    assert list_messages(response) == ["pictures@1 is saved."]
    pictures.refresh_from_db()
    assert (pictures.source, pictures.licence, pictures.content_hash) == (form["source"], "CC0", before)
    text = as_("researcher").get(build_address(pictures, "dataset_about")).content.decode()
    assert "A better &lt;b&gt;citation&lt;/b&gt;" in text
    assert text.count("Published since") == 2


def test_saving_nothing_new_leaves_no_line_of_history(draft, as_):
    before = draft.history.count()
    form = {"title": "", "description": "", "source": "A paper", "licence": "CC0"}
    as_("researcher").post(build_address(draft, "dataset_edit"), form)
    assert draft.history.count() == before


def test_norms_are_added_to_a_draft(draft, as_):
    table = build_upload("id,calm_mean,calm_sd\nk0,3.5,1\nK1 ,4,\n", "calm.csv")
    response = as_("researcher").post(build_address(draft, "dataset_norms"), {"norms": table}, follow=True)
    assert response.redirect_chain[-1] == (build_address(draft, "dataset_about"), 302)
    assert dict(Norm.objects.filter(dimension="calm").values_list("item__key", "mean")) == {"k0": 3.5, "k1": 4}
    text = response.content.decode()
    assert "2 warnings in calm.csv" in text
    assert "&#x27;K1 &#x27; is read as &#x27;k1&#x27;" in text
    assert "7 items have no norms" in text


def test_norms_with_an_error_are_reported_by_line_and_not_saved(draft, as_):
    table = build_upload("id,calm_mean\nk0,3.5\nk1,much\n", "calm.csv")
    response = as_("researcher").post(build_address(draft, "dataset_norms"), {"norms": table}, follow=True)
    text = response.content.decode()
    assert "Nothing was saved" in text
    assert "&#x27;much&#x27; is not a number" in text
    assert not Norm.objects.filter(dimension="calm").exists()


def test_a_table_without_norms_for_the_items_is_reported(draft, as_):
    table = build_upload("id,calm_mean\nzz,1\n", "calm.csv")
    response = as_("researcher").post(build_address(draft, "dataset_norms"), {"norms": table}, follow=True)
    assert "no norm for any item of this dataset" in response.content.decode()
