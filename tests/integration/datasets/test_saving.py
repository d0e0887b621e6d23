"""A reading without errors is stored completely, as the next version of its name; others are not stored."""

import pytest
from PIL import Image

from datasets_app.content_hash import hash_contents
from datasets_app.importing import read_items, read_norms
from datasets_app.importing.dataset_writer import create_dataset, save_items, save_norms
from datasets_app.models import Asset, Dataset, Item, Norm
from datasets_app.models.datasets import CurationError
from evalsite.lib.history import TransitionError
from tests import factories
from tests.factories.files import BLUE, build_archive, build_picture, build_upload

pytestmark = pytest.mark.django_db


def read(text: str, **how):
    return read_items(build_upload(text, **how))


def test_every_field_is_stored():
    line = (
        '{"id": "a", "question": "Q", "choices": ["x", "y"], "answer": "A", "category": "c", "rubric": "r", "level": 2,'
        ' "joy_mean": 4.5, "joy_sd": 1, "joy_n": 90}'
    )
    create_dataset(read(line, name="a.jsonl"), slug="set", by="a test", title="A set", licence="CC0")
    item = Item.objects.get()
    assert (item.key, item.input, item.choices, item.target) == ("a", "Q", ["x", "y"], "A")
    assert (item.category, item.grading_scheme, item.metadata, item.position) == ("c", "r", {"level": 2}, 0)
    assert list(item.norms.values_list("dimension", "mean", "sd", "n")) == [("joy", 4.5, 1.0, 90)]
    assert (item.dataset.title, item.dataset.licence, item.dataset.status) == ("A set", "CC0", "draft")


def test_the_dataset_records_its_file_and_mapping():
    reading = read("id,text\na,Q\n")
    dataset = create_dataset(reading, slug="set", by="a test")
    assert (dataset.source_name, dataset.source_sha256) == ("items.csv", reading.source_sha256)
    assert dataset.mapping == {"key": "id", "input": "text"}


def test_the_hash_of_a_reading_equals_that_of_the_stored_items():
    reading = read_items(build_archive({"A/cat.jpg": build_picture(), "B/cup.png": build_picture(BLUE, form="PNG")}))
    dataset = create_dataset(reading, slug="set", by="a test")
    assert dataset.hash_items() == hash_contents(item.content() for item in reading.items)


def test_an_existing_name_gets_the_next_version():
    first, second = (create_dataset(read("id,text\na,Q\n"), slug="set", by="a test") for _ in range(2))
    assert (str(first), str(second)) == ("set@1", "set@2")


def test_images_are_stored_once_under_their_hash_with_a_thumbnail(media):
    data = build_picture(size=(900, 600))
    reading = read_items(build_archive({"one.jpg": data, "two.jpg": data}))
    for slug in ("first", "second"):
        create_dataset(reading, slug=slug, by="a test")
    asset = Asset.objects.get()
    assert asset.file.read_bytes() == reading.items[0].image.path.read_bytes()
    assert asset.file == media / "assets" / asset.pk[:2] / f"{asset.pk}.jpeg"
    assert asset.size == asset.file.stat().st_size
    with Image.open(asset.shared_thumbnail.path) as small:
        assert small.size == (320, 213)
    assert not list(media.rglob(".*"))


def test_a_reading_with_an_error_is_not_saved_at_all():
    with pytest.raises(CurationError, match="1 errors"):
        create_dataset(read("id,text\na,Q\na,R\n"), slug="set", by="a test")
    assert not Dataset.objects.exists()


@pytest.mark.parametrize("slug", ["", "Big", "a b", "../x", "x" * 81, "a@1"])
def test_an_invalid_name_is_refused(slug):
    with pytest.raises(CurationError, match="name"):
        create_dataset(read("id,text\na,Q\n"), slug=slug, by="a test")
    assert not Dataset.objects.exists()


def test_added_items_go_to_the_end_and_existing_keys_are_refused(draft):
    save_items(draft, read("id,text\nnew,Q\n"), by="a test")
    assert draft.items.get(key="new").position == 9
    assert draft.item_count == draft.active_count == 10
    with pytest.raises(CurationError, match="1 item: new"):
        save_items(draft, read("id,text\nnewer,Q\nnew,Q\n"), by="a test")
    assert draft.items.count() == 10


def test_norms_replace_existing_norms(draft):
    reading = read_norms(build_upload("key,joy_mean,fear_mean\nk1,6.5,2\n"), {"k1": ""})
    assert save_norms(draft, reading.norms, by="a test") == 2
    assert dict(Norm.objects.filter(item__key="k1").values_list("dimension", "mean")) == {"joy": 6.5, "fear": 2.0}


def test_norms_for_other_keys_are_refused(draft):
    reading = read_norms(build_upload("key,joy_mean\nzz,6.5\n"), {"zz": ""})
    with pytest.raises(CurationError, match="zz"):
        save_norms(draft, reading.norms, by="a test")


def test_nothing_is_added_to_an_approved_dataset():
    dataset = factories.make_dataset()
    with pytest.raises(TransitionError, match="only a draft can change"):
        save_items(dataset, read("id,text\na,Q\n"), by="a test")


def test_the_history_names_the_author_and_the_file(curator):
    dataset = create_dataset(read("id,text\na,Q\n"), slug="set", by=curator)
    assert dataset.created_by == curator
    changes = [(change.actor, change.by, change.aspect, change.to_value) for change in dataset.history]
    assert changes == [
        ("curator", curator, "items", "imported 1 items from items.csv"),
        ("curator", curator, "status", "draft"),
    ]
