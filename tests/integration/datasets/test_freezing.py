"""Frozen data cannot be changed by forms, models or plain SQL."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from datasets_app.models import Asset, Dataset, Item, Norm

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["approved", "archived"])
def frozen_dataset(request, draft):
    draft.approve(by="a test", reason="ok")
    if request.param == "archived":
        draft.archive(by="a test", reason="old")
    return draft


def execute_refused(sql: str) -> str:
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    return str(caught.value)


STATEMENTS = [
    "UPDATE datasets_app_item SET input = 'changed' WHERE dataset_id = {id} AND key = 'k1'",
    "UPDATE datasets_app_item SET excluded = true WHERE dataset_id = {id}",
    "UPDATE datasets_app_item SET position = 7 WHERE dataset_id = {id}",
    "DELETE FROM datasets_app_norm",
    "UPDATE datasets_app_norm SET mean = 1",
    "INSERT INTO datasets_app_norm (item_id, dimension, mean) SELECT id, 'new', 1 FROM datasets_app_item",
    "INSERT INTO datasets_app_item (dataset_id, key, position, input, target, choices, grading_scheme, category,"
    " metadata, excluded, note) VALUES ({id}, 'new', 1, '', '', '[]', '', '', '{{}}', false, '')",
    "UPDATE datasets_app_dataset SET content_hash = 'x' WHERE id = {id}",
    "UPDATE datasets_app_dataset SET status = 'draft' WHERE id = {id}",
    "UPDATE datasets_app_dataset SET slug = 'other' WHERE id = {id}",
    "UPDATE datasets_app_dataset SET active_count = 1 WHERE id = {id}",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_plain_sql_cannot_change_frozen_data(frozen_dataset, statement):
    before = list(Item.objects.order_by("pk").values()), list(Norm.objects.order_by("pk").values())
    assert "set@1" in execute_refused(statement.format(id=frozen_dataset.pk))
    assert (list(Item.objects.order_by("pk").values()), list(Norm.objects.order_by("pk").values())) == before


@pytest.mark.parametrize("table", ["dataset", "item", "norm", "parametricspace", "asset"])
def test_a_table_with_frozen_data_is_not_emptied(frozen_dataset, table):
    statement = f"SET CONSTRAINTS ALL IMMEDIATE; TRUNCATE datasets_app_{table} CASCADE"
    assert "Create a new database instead" in execute_refused(statement)
    assert frozen_dataset.items.count() == 9


@pytest.mark.parametrize(
    "change", ["width = 7", "format = 'jpeg'", "size = 0", "original_name = 'x'", "sha256 = repeat('b', 64)"]
)
def test_an_image_never_changes(draft, change):
    """Its key is the hash of its bytes, and a figure or a cost rests on its size."""
    image = Asset.objects.create(sha256="a" * 64, format="png", width=2, height=1, size=1)
    draft.items.filter(key="k1").update(image=image)
    before = Asset.objects.values().get()
    assert "an image never changes" in execute_refused(f"UPDATE datasets_app_asset SET {change}")
    assert Asset.objects.values().get() == before
    Asset.objects.update(width=2)


def test_an_image_is_deleted_only_if_no_item_has_it(draft):
    image = Asset.objects.create(sha256="a" * 64, format="png", width=2, height=1, size=1)
    draft.items.filter(key="k1").update(image=image)
    assert "is in use" in execute_refused("DELETE FROM datasets_app_asset")
    draft.items.filter(key="k1").update(image=None)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM datasets_app_asset")
    assert not Asset.objects.exists()


def test_models_cannot_change_frozen_data(frozen_dataset):
    item = frozen_dataset.items.first()
    item.input = "changed"
    for change in (item.save, item.delete, frozen_dataset.delete, frozen_dataset.items.all().delete):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()
    assert frozen_dataset.items.count() == 9


def test_an_item_is_not_moved_into_or_out_of_a_frozen_dataset(frozen_dataset):
    other = Dataset.objects.create(slug="other")
    loose = Item.objects.create(dataset=other, key="loose")
    assert "set@1" in execute_refused(
        f"UPDATE datasets_app_item SET dataset_id = {frozen_dataset.pk} WHERE id = {loose.pk}"
    )
    assert "set@1" in execute_refused(
        f"UPDATE datasets_app_item SET dataset_id = {other.pk} WHERE dataset_id = {frozen_dataset.pk}"
    )


def test_title_and_source_can_still_be_corrected(frozen_dataset):
    frozen_dataset.title, frozen_dataset.source = "A better title", "The first edition"
    frozen_dataset.save(update_fields=["title", "source"])
    assert frozen_dataset.hash_items() == frozen_dataset.content_hash


def test_a_draft_can_be_changed(draft):
    Item.objects.filter(dataset=draft).update(category="z")
    assert draft.items.filter(category="z").count() == 9


@pytest.mark.parametrize("missing", ["content_hash = ''", "approved_at = NULL"])
def test_the_database_approves_no_dataset_without_its_hash_and_the_time(draft, missing):
    Dataset.objects.filter(pk=draft.pk).update(content_hash="0" * 64, approved_at=timezone.now())
    assert "approval_is_complete" in execute_refused(
        f"UPDATE datasets_app_dataset SET status = 'approved', {missing} WHERE id = {draft.pk}"
    )
