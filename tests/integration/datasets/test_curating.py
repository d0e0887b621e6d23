"""Curation commands: their effects, allowed states and history entries."""

import pytest

from datasets_app import curation
from datasets_app.models import Dataset
from datasets_app.models.datasets import CurationError
from evalsite.lib.history import TransitionError
from tests import factories

pytestmark = pytest.mark.django_db


def list_keys(dataset: Dataset) -> list[str]:
    return list(dataset.items.values_list("key", flat=True))


def get_last_change(dataset: Dataset) -> tuple[str, str, str, str]:
    change = dataset.history.first()
    return change.aspect, change.to_value, change.reason, change.actor


# --- states ---


def test_approval_freezes_counts_and_hashes(draft, curator):
    draft.exclude_items(["k8"], by=curator, reason="unclear")
    draft.approve(by=curator, reason="checked by two people")
    assert (draft.status, draft.active_count, draft.item_count) == ("approved", 8, 9)
    assert draft.content_hash == draft.hash_items()
    assert draft.approved_at is not None
    assert get_last_change(draft) == ("status", "approved", "checked by two people", "curator")


def test_the_hash_ignores_excluded_items_and_order(draft):
    before = draft.hash_items()
    draft.exclude_items(["k8"], by="a test", reason="unclear")
    without = draft.hash_items()
    draft.items.filter(key="k0").update(position=99)
    assert before != without == draft.hash_items()
    draft.include_items(["k8"], by="a test")
    assert draft.hash_items() == before


def test_a_dataset_without_an_active_item_is_not_approved(draft):
    draft.exclude_items(list_keys(draft), by="a test", reason="all wrong")
    with pytest.raises(CurationError, match="no active item"):
        draft.approve(by="a test", reason="why not")
    draft.refresh_from_db()
    assert draft.is_draft


@pytest.mark.parametrize("verb", [Dataset.approve, Dataset.archive])
def test_a_reason_is_needed(draft, verb):
    with pytest.raises(CurationError, match="reason"):
        verb(draft, by="a test", reason="  ")


def test_states_only_go_forward(draft):
    with pytest.raises(TransitionError):
        draft.archive(by="a test", reason="too early")
    draft.approve(by="a test", reason="ok")
    with pytest.raises(TransitionError):
        draft.approve(by="a test", reason="again")
    draft.archive(by="a test", reason="old")
    for verb in (Dataset.approve, Dataset.archive):
        with pytest.raises(TransitionError):
            verb(draft, by="a test", reason="again")
    assert draft.status == "archived"


def test_a_duplicate_is_a_draft_with_the_active_items(draft):
    draft.exclude_items(["k0"], by="a test", reason="unclear")
    draft.approve(by="a test", reason="ok")
    copy = curation.duplicate(draft, by="a test")
    assert (str(copy), copy.status, copy.parent, copy.item_count) == ("set@2", "draft", draft, 8)
    assert copy.hash_items() == draft.content_hash
    assert str(curation.duplicate(draft, by="a test", slug="other")) == "other@1"


def test_a_draft_is_deleted_and_its_history_says_so(draft):
    from evalsite.lib.history import StatusChange

    key = draft.pk
    draft.delete_draft(by="a test")
    assert not Dataset.objects.exists()
    change = StatusChange.objects.filter(object_id=key).first()
    assert (change.to_value, change.actor, change.reason) == ("deleted", "a test", "set@1")


def test_a_dataset_with_samples_is_not_deleted(draft):
    curation.duplicate(draft, by="a test")
    with pytest.raises(CurationError, match="set@1 is in use by set@2"):
        draft.delete_draft(by="a test")
    assert Dataset.objects.count() == 2


def test_an_approved_dataset_is_not_deleted():
    with pytest.raises(TransitionError):
        factories.make_dataset().delete_draft(by="a test")
    assert Dataset.objects.exists()


# --- draws ---


def test_a_sample_can_be_repeated_from_its_recipe(draft):
    one = curation.sample_dataset(draft, slug="one", strategy="stratified", n=6, seed=5, by="a test")
    two = curation.sample_dataset(draft, slug="two", strategy="stratified", n=6, seed=5, by="a test")
    assert list_keys(one) == list_keys(two)
    assert sorted(item.category for item in one.items.all()) == list("aabbcc")
    assert one.recipe == {"strategy": "stratified", "n": 6, "seed": 5, "from": "set@1", "from_hash": ""}
    assert one.items.first().norms.get().dimension == "joy"


def test_excluded_items_are_not_drawn(draft):
    draft.exclude_items(["k0", "k3"], by="a test", reason="unclear")
    assert set(list_keys(curation.sample_dataset(draft, slug="x", strategy="all", n=None, seed=1, by="a test"))) == {
        "k1",
        "k2",
        "k4",
        "k5",
        "k6",
        "k7",
        "k8",
    }


def test_a_sample_that_is_too_large_leaves_no_rows(draft):
    with pytest.raises(CurationError, match="cannot draw 10 of 9"):
        curation.sample_dataset(draft, slug="x", strategy="random", n=10, seed=1, by="a test")
    assert Dataset.objects.count() == 1


def test_one_item_is_replaced_by_another_of_its_category_at_its_position(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="uniform", n=6, seed=1, by="a test")
    before = list_keys(sample)
    new_key = curation.replace_item(sample, before[2], by="a test", seed=1, reason="too easy")
    assert list_keys(sample) == [*before[:2], new_key, *before[3:]]
    assert sample.items.get(key=new_key).category == draft.items.get(key=before[2]).category
    assert get_last_change(sample)[1:3] == (f"replaced {before[2]} by {new_key}", "too easy")


def test_replacing_fails_without_another_item_of_the_category(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="all", n=None, seed=1, by="a test")
    with pytest.raises(CurationError, match="no other item"):
        curation.replace_item(sample, "k0", by="a test", seed=1)
    assert len(list_keys(sample)) == 9


def test_a_reshuffle_keeps_the_shares(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="uniform", n=6, seed=1, by="a test")
    orders = {tuple(sorted(curation.reshuffle_items(sample, by="a test", seed=seed))) for seed in range(5)}
    assert len(orders) > 1
    assert sorted(sample.items.values_list("category", flat=True)) == list("aabbcc")
    assert sample.recipe["seed"] == 4
    assert sample.item_count == 6


def test_an_exclusion_survives_every_reshuffle(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="uniform", n=6, seed=1, by="a test")
    removed_key = list_keys(sample)[0]
    sample.exclude_items([removed_key], by="a test", reason="blurred")
    for seed in range(5):
        assert removed_key not in curation.reshuffle_items(sample, by="a test", seed=seed)
        assert list(sample.items.filter(excluded=True).values_list("key", "note")) == [(removed_key, "blurred")]
        assert (sample.item_count, sample.active_count) == (6, 5)
        assert sorted(sample.items.values_list("position", flat=True)) == list(range(6))


def test_a_draft_with_only_excluded_items_is_not_redrawn(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="uniform", n=3, seed=1, by="a test")
    sample.exclude_items(list_keys(sample), by="a test", reason="all wrong")
    with pytest.raises(CurationError, match="x@1 has no active items to draw again"):
        curation.reshuffle_items(sample, by="a test", seed=1)


def test_a_draft_without_active_items_is_not_duplicated_and_says_why(draft):
    draft.exclude_items(list_keys(draft), by="a test", reason="all wrong")
    with pytest.raises(CurationError, match=r"all items of \S+@1 are excluded \(9\)"):
        curation.duplicate(draft, by="a test")
    draft.remove_items(list_keys(draft), by="a test")
    with pytest.raises(CurationError, match="has no items, so there is nothing to copy"):
        curation.duplicate(draft, by="a test")
    assert Dataset.objects.count() == 1


def test_a_reshuffle_is_refused_if_the_parent_lacks_an_active_item(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="all", n=None, seed=1, by="a test")
    draft.exclude_items(["k0"], by="a test", reason="wrong")
    with pytest.raises(CurationError, match="k0"):
        curation.reshuffle_items(sample, by="a test", seed=2)
    assert len(list_keys(sample)) == 9


def test_an_import_cannot_be_redrawn(draft):
    with pytest.raises(CurationError, match="was not drawn"):
        curation.replace_item(draft, "k0", by="a test", seed=1)
    with pytest.raises(CurationError, match="was not drawn"):
        curation.reshuffle_items(draft, by="a test", seed=1)


# --- single items ---


def test_items_are_added_from_another_dataset_with_their_norms(draft):
    sample = curation.sample_dataset(draft, slug="x", strategy="uniform", n=3, seed=1, by="a test")
    unused_keys = [key for key in list_keys(draft) if key not in list_keys(sample)][:2]
    curation.add_items(sample, unused_keys, source=draft, by="a test")
    assert list_keys(sample)[-2:] == unused_keys
    assert sample.items.get(key=unused_keys[0]).norms.count() == 1
    with pytest.raises(CurationError, match="already"):
        curation.add_items(sample, unused_keys, source=draft, by="a test")


def test_items_are_removed_and_counted(draft):
    draft.remove_items(["k1", "k2"], by="a test", reason="twice")
    assert (draft.item_count, len(list_keys(draft))) == (7, 7)
    assert get_last_change(draft) == ("items", "removed 2 items: k1, k2", "twice", "a test")


def test_an_exclusion_keeps_the_item_and_the_reason(draft):
    draft.exclude_items(["k1"], by="a test", reason="two right answers")
    item = draft.items.get(key="k1")
    assert (item.excluded, item.note) == (True, "two right answers")
    assert (draft.item_count, draft.active_count) == (9, 8)
    draft.include_items(["k1"], by="a test")
    item.refresh_from_db()
    assert (item.excluded, item.note) == (False, "")
    assert [change.aspect for change in draft.history][:2] == ["included", "excluded"]


def test_an_exclusion_without_a_reason_is_refused(draft):
    with pytest.raises(CurationError, match="note"):
        draft.exclude_items(["k1"], by="a test", reason="")


@pytest.mark.parametrize("verb", ["remove_items", "exclude_items", "include_items"])
def test_an_unknown_key_is_named_and_nothing_changes(draft, verb):
    with pytest.raises(CurationError, match="not among the items of set@1: 1 item: nope"):
        getattr(draft, verb)(["k1", "nope"], by="a test", reason="x")
    assert draft.items.active().count() == 9
    with pytest.raises(CurationError, match="no item was named"):
        getattr(draft, verb)([], by="a test", reason="x")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.remove_items(["item-0"], by="a test"),
        lambda d: d.exclude_items(["item-0"], by="a test", reason="x"),
        lambda d: d.include_items(["item-0"], by="a test"),
        lambda d: curation.add_items(d, ["item-0"], source=d, by="a test"),
    ],
)
def test_no_verb_changes_an_approved_dataset(change):
    dataset = factories.make_dataset()
    with pytest.raises(TransitionError):
        change(dataset)
    assert dataset.items.active().count() == 3
