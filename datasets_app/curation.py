"""Actions of curators on the items of datasets: draw, copy, add, remove, exclude.

Only a draft can change. Each action is one transaction: it locks the dataset's row, does its work, counts the items and
writes a line of history. It raises TransitionError if the dataset is in the wrong state, and CurationError if the
request is invalid. In both cases nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Max

from datasets_app.importing.dataset_writer import create_draft
from datasets_app.models import Dataset, Item, Norm
from datasets_app.models.datasets import CurationError, list_keys
from datasets_app.sampling import SamplingError, Strategy, replace_one, reshuffle, sample
from evalsite.lib.history import Actor

COPIED = ("input", "image_id", "target", "choices", "grading_scheme", "category", "metadata")
BATCH = 2000


@transaction.atomic
def duplicate(dataset: Dataset, *, by: Actor, reason: str = "", slug: str = "") -> Dataset:
    """Create a new draft with the active items, as the next version of the same name or of `slug`."""
    keys = list(dataset.items.active().values_list("key", flat=True))
    if not keys:
        excluded = dataset.items.count()
        raise CurationError(
            f"all items of {dataset} are excluded ({excluded}), so there is nothing to copy; include some of them first"
            if excluded
            else f"{dataset} has no items, so there is nothing to copy; add items to it first"
        )
    recipe = {"strategy": "duplicate", "from": str(dataset)}
    return _create_sample(dataset, keys, slug=slug or dataset.slug, by=by, reason=reason, recipe=recipe)


@transaction.atomic
def select_items(dataset: Dataset, keys: Sequence[str], *, slug: str, by: Actor, reason: str = "") -> Dataset:
    """Create a new draft with these active items, as the next version of `slug`."""
    recipe = {"strategy": "selected", "from": str(dataset), "from_hash": dataset.content_hash}
    return _create_sample(dataset, keys, slug=slug, by=by, reason=reason, recipe=recipe)


# --- draws -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def sample_dataset(parent: Dataset, *, slug: str, strategy: Strategy, n: int | None, seed: int, by: Actor) -> Dataset:
    """Create a draft sampled from the active items of `parent`, with the recipe to repeat the draw."""
    keys = _draw_keys(sample, _load_pool(parent), strategy, n, seed)
    recipe = {"strategy": strategy, "n": n, "seed": seed, "from": str(parent), "from_hash": parent.content_hash}
    return _create_sample(parent, keys, slug=slug, by=by, recipe=recipe)


def replace_item(dataset: Dataset, key: str, *, by: Actor, seed: int, reason: str = "") -> str:
    """Replace one item of a sampled draft by another of its category, at the same position. Return the new key."""
    parent = _get_parent(dataset)
    with dataset.change_draft():
        keys = _list_active_keys(dataset)
        new_keys = _draw_keys(replace_one, _load_pool(parent, extra=dataset), keys, key, seed)
        new_key = new_keys[keys.index(key)]
        position = dataset.items.get(key=key).position
        dataset.items.filter(key=key).delete()
        _copy_items(parent, dataset, [new_key], start=position)
        dataset.add_history_line("items", f"replaced {key} by {new_key}", by=by, reason=reason)
    return new_key


def reshuffle_items(dataset: Dataset, *, by: Actor, seed: int, reason: str = "") -> list[str]:
    """Draw the active items of a sampled draft again, with the same number per category. Return their keys.

    Excluded items move to the end of the draft, keep their notes, and are not drawn again.
    """
    parent = _get_parent(dataset)
    with dataset.change_draft():
        excluded = dataset.items.filter(excluded=True)
        excluded_keys = set(excluded.values_list("key", flat=True))
        active_keys = list(dataset.items.active().values_list("key", flat=True))
        if not active_keys:
            raise CurationError(f"{dataset} has no active items to draw again")
        categories = dict(parent.items.active().values_list("key", "category"))
        if missing := sorted(set(active_keys) - set(categories)):
            names = ", ".join(missing[:5])
            raise CurationError(f"{parent} has no active item {names}; remove it from {dataset} first")
        pool = [(key, category) for key, category in categories.items() if key not in excluded_keys]
        keys = _draw_keys(reshuffle, pool, active_keys, seed)
        dataset.items.active().delete()
        _copy_items(parent, dataset, keys)
        rows = list(excluded.order_by("position", "pk"))
        for position, item in enumerate(rows, len(keys)):
            item.position = position
        Item.objects.bulk_update(rows, ["position"], batch_size=BATCH)
        dataset.recipe = {**dataset.recipe, "seed": seed}
        dataset.save(update_fields=["recipe"])
        dataset.add_history_line("items", f"drawn again with seed {seed}", by=by, reason=reason)
    return keys


def _draw_keys(draw: Any, *arguments: Any) -> list[str]:
    try:
        return list(draw(*arguments))
    except SamplingError as error:
        raise CurationError(str(error)) from None


def _get_parent(dataset: Dataset) -> Dataset:
    if dataset.parent is None:
        raise CurationError(f"{dataset} was not drawn from another dataset")
    return dataset.parent


def _list_active_keys(dataset: Dataset) -> list[str]:
    return list(dataset.items.values_list("key", flat=True))


def _load_pool(parent: Dataset, extra: Dataset | None = None) -> list[tuple[str, str]]:
    """Return (key, category) of the parent's active items.

    Include the items of `extra` that are no longer active in the parent.
    """
    pool = dict(parent.items.active().values_list("key", "category"))
    inactive = extra.items.values_list("key", "category") if extra else ()
    return list((dict(inactive) | pool).items())


# --- single items ----------------------------------------------------------------------------------------------------


def add_items(dataset: Dataset, keys: Sequence[str], *, source: Dataset, by: Actor, reason: str = "") -> None:
    """Copy active items of another dataset, with their norms, to the end of a draft."""
    with dataset.change_draft():
        duplicates = sorted(set(keys) & set(_list_active_keys(dataset)))
        if duplicates:
            raise CurationError(f"{dataset} has these keys already: {list_keys(duplicates)}")
        newest = dataset.items.aggregate(last=Max("position"))["last"]
        _copy_items(source, dataset, keys, start=0 if newest is None else newest + 1)
        dataset.add_history_line("items", f"added from {source} {list_keys(keys)}", by=by, reason=reason)


# --- copies ----------------------------------------------------------------------------------------------------------


def _create_sample(
    parent: Dataset, keys: Sequence[str], *, slug: str, by: Actor, recipe: Mapping[str, Any], reason: str = ""
) -> Dataset:
    """Create a new draft with copies of these items of another dataset."""
    draft = create_draft(
        slug,
        by=by,
        title=parent.title,
        description=parent.description,
        source=parent.source,
        licence=parent.licence,
        parent=parent,
        recipe={**recipe, **({"parametric": True} if parent.is_parametric else {})},
    )
    with draft.change_draft():
        _copy_items(parent, draft, keys)
        draft.add_history_line("items", f"{recipe['strategy']}: {len(keys)} items from {parent}", by=by, reason=reason)
    return draft


def _copy_items(source: Dataset, target: Dataset, keys: Sequence[str], *, start: int = 0) -> None:
    """Copy active items and their norms, in the order of `keys`, to the positions from `start`."""
    if not keys:
        raise CurationError(f"no item of {source} was named")
    originals = {item.key: item for item in source.items.active().filter(key__in=keys).prefetch_related("norms")}
    source.refuse_missing_items([key for key in keys if key not in originals])
    items = (
        Item(dataset=target, key=key, position=position, **{name: getattr(originals[key], name) for name in COPIED})
        for position, key in enumerate(keys, start=start)
    )
    copies = Item.objects.bulk_create(items, batch_size=BATCH)
    norms = (
        Norm(item=copy, dimension=norm.dimension, mean=norm.mean, sd=norm.sd, n=norm.n)
        for copy in copies
        for norm in originals[copy.key].norms.all()
    )
    Norm.objects.bulk_create(norms, batch_size=BATCH)
