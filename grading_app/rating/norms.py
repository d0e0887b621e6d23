"""Means of people's ratings as the norms of a dataset: of a new draft, since what is approved never changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db import transaction

from datasets_app import curating
from datasets_app.drafts import changing, note
from datasets_app.models import Dataset, Norm
from datasets_app.models.history import Actor
from grading_app.models import RatingQueue
from grading_app.rating.queues import QueueError
from grading_app.rating.results import ItemMeans, item_means


@transaction.atomic
def make_norms(queue: RatingQueue, *, by: Actor, reason: str) -> Dataset:
    """A new draft of the queue's dataset whose norms, on the dimensions that were rated, are the means of the ratings.

    Norms on other dimensions, and of items that nobody rated, stay as they were.
    """
    if queue.rates_answers:
        raise QueueError(f"{queue} rates answers; norms are of items")
    means = item_means(queue)
    if not means:
        raise QueueError(f"{queue} has no rating that counts yet")
    draft = curating.duplicate(queue.dataset, by=by, reason=reason)
    names: dict[int | None, str] = dict(queue.dimensions.values_list("pk", "name"))
    keys = dict(queue.dataset.items.values_list("pk", "key"))
    with changing(draft):
        copies = dict(draft.items.values_list("key", "pk"))
        norms = list(_norms(means, names, {pk: copies[key] for pk, key in keys.items() if key in copies}))
        _replace(norms)
        note(draft, "norms", f"{len(norms)} means of ratings in {queue}", by=by, reason=reason)
    return draft


def _norms(means: Iterable[ItemMeans], names: dict[int | None, str], copies: dict[int, int]) -> Iterator[Norm]:
    for line in means:
        yield Norm(item_id=copies[line.item], dimension=names[line.dimension], mean=line.mean, sd=line.sd, n=line.n)


def _replace(norms: list[Norm]) -> None:
    Norm.objects.bulk_create(
        norms,
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["item", "dimension"],
        update_fields=["mean", "sd", "n"],
    )
