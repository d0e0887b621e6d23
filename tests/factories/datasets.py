"""Approved datasets and their items."""

from datasets_app.models import Dataset, Item, Norm
from evalsite.lib.text.hashing import hash_content
from tests.factories.people import NOON


def make_dataset(slug="questions", items=3, *, version=1, approved=True, **fields):
    """Create a dataset. `items` is a number of plain questions or a list of mappings of Item fields.

    A mapping may also have `norms={dimension: mean}`.
    """
    dataset = Dataset.objects.create(slug=slug, version=version, title=slug.capitalize(), **fields)
    rows = [build_question(number) for number in range(items)] if isinstance(items, int) else items
    created = Item.objects.bulk_create(
        Item(dataset=dataset, position=position, **{name: value for name, value in row.items() if name != "norms"})
        for position, row in enumerate(rows)
    )
    Norm.objects.bulk_create(
        Norm(item=item, dimension=dimension, mean=mean, sd=1.0, n=100)
        for item, row in zip(created, rows, strict=True)
        for dimension, mean in row.get("norms", {}).items()
    )
    if approved:
        approve(dataset)
    return dataset


def build_question(number):
    return {
        "key": f"item-{number}",
        "input": f"What is {number} plus {number}?",
        "target": str(2 * number),
        "category": ("even", "odd")[number % 2],
    }


def approve(dataset):
    """Approve the dataset without a record in its history."""
    items = list(dataset.items.all())
    Dataset.objects.filter(pk=dataset.pk).update(
        status="approved",
        content_hash=hash_content([item.key for item in items]),
        approved_at=NOON,
        item_count=len(items),
        active_count=sum(not item.excluded for item in items),
    )
    dataset.refresh_from_db()
