"""The saving half of the import: it stores a reading without errors in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max

from datasets_app.importing.image_storage import store_images
from datasets_app.importing.records import ItemReading, NormRecord
from datasets_app.models import Dataset, Item, Norm
from datasets_app.models.datasets import CurationError, list_keys
from evalsite.lib.history import Actor, record_changes

BATCH = 2000


@transaction.atomic
def create_dataset(
    reading: ItemReading, *, slug: str, by: Actor, norms: Collection[NormRecord] = (), **about: Any
) -> Dataset:
    """Create a new draft with the whole reading: version 1 of a new name, or the next version of a known name.

    `about` contains fields of Dataset (title, description, source, licence). Raise CurationError, and save nothing, if
    the reading has errors or a field is invalid.
    """
    _require_valid(reading)
    dataset = create_draft(
        slug,
        by=by,
        source_name=reading.source_name[-255:],
        source_sha256=reading.source_sha256,
        mapping=reading.mapping,
        **about,
    )
    save_items(dataset, reading, by=by)
    if norms:
        save_norms(dataset, norms, by=by)
    return dataset


def create_draft(slug: str, *, by: Actor, **fields: Any) -> Dataset:
    """Create an empty draft as the next version of its name, with the first line of its history."""
    author: Any = None if by is None or isinstance(by, str) or not by.pk else by
    dataset = Dataset(slug=slug, version=Dataset.objects.get_next_version(slug), created_by=author, **fields)
    try:
        dataset.clean_fields(exclude=["created_by", "parent"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise CurationError(f"{'name' if field == 'slug' else field}: {messages[0]}") from None
    dataset.save(force_insert=True)
    record_changes([(dataset, "", Dataset.Status.DRAFT)], by=by, reason="")
    return dataset


def save_items(dataset: Dataset, reading: ItemReading, *, by: Actor) -> list[Item]:
    """Append the items of a reading to a draft.

    Raise CurationError if the reading has errors or the draft already has one of the keys.
    """
    _require_valid(reading)
    with dataset.change_draft():
        keys = [record.key for record in reading.items]
        existing = sorted(dataset.items.filter(key__in=keys).values_list("key", flat=True))
        if existing:
            raise CurationError(f"{dataset} has these keys already: {list_keys(existing)}")
        store_images(record.image for record in reading.items if record.image)
        newest = dataset.items.aggregate(last=Max("position"))["last"]
        start = 0 if newest is None else newest + 1
        items = Item.objects.bulk_create(
            (
                Item(
                    dataset=dataset,
                    key=record.key,
                    position=start + offset,
                    input=record.input,
                    image_id=record.image.sha256 if record.image else None,
                    target=record.target,
                    choices=list(record.choices),
                    grading_scheme=record.grading_scheme,
                    category=record.category,
                    metadata=dict(record.metadata),
                )
                for offset, record in enumerate(reading.items)
            ),
            batch_size=BATCH,
        )
        _write_norms({item.key: item for item in items}, [norm for record in reading.items for norm in record.norms])
        dataset.add_history_line("items", f"imported {len(items)} items from {reading.source_name}", by=by)
    return items


def save_norms(dataset: Dataset, norms: Collection[NormRecord], *, by: Actor) -> int:
    """Attach norms to the items of a draft and return their number. Existing norms of the same dimension are replaced.

    Raise CurationError if the draft lacks one of the keys.
    """
    with dataset.change_draft():
        items = {item.key: item for item in dataset.items.filter(key__in={norm.key for norm in norms})}
        unknown = [norm.key for norm in norms if norm.key not in items]
        if unknown:
            raise CurationError(f"norms for keys that {dataset} does not have: {list_keys(unknown)}")
        _write_norms(items, norms)
        dataset.add_history_line("norms", f"{len(norms)} norms for {len(items)} items", by=by)
    return len(norms)


def _require_valid(reading: ItemReading) -> None:
    if not reading.ok:
        raise CurationError(f"{reading.report.error_total} errors in {reading.source_name}; nothing was saved")


def _write_norms(items: dict[str, Item], norms: Iterable[NormRecord]) -> None:
    Norm.objects.bulk_create(
        (Norm(item=items[norm.key], dimension=norm.dimension, mean=norm.mean, sd=norm.sd, n=norm.n) for norm in norms),
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["item", "dimension"],
        update_fields=["mean", "sd", "n"],
    )
