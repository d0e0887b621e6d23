"""Norms of a dataset from the mean ratings of people, in a new draft, because approved data never changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db import transaction

from datasets_app import curation
from datasets_app.models import Dataset, Norm
from evalsite.lib.history import Actor, record_changes
from grading_app.models import RatingQueue
from grading_app.models.rating import NORMS, QueueError
from grading_app.rating.queue_results import ItemMeans, list_item_means


@transaction.atomic
def make_norms(queue: RatingQueue, *, by: Actor, reason: str) -> Dataset:
    """Create a draft of the queue's dataset whose norms on the rated dimensions are the means of the ratings.

    Norms on other dimensions and of unrated items stay. The history of the draft and of the queue records the ratings.
    """
    queue = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if queue.rates_answers:
        raise QueueError(f"{queue} rates answers; norms describe items")
    if queue.status == RatingQueue.Status.OPEN:
        raise QueueError(f"{queue} is open: raters can still undo ratings. Close it first; you can reopen it later")
    means, basis = list_item_means(queue), queue.hash_ratings()
    if not means:
        raise QueueError(f"{queue} has no counted ratings yet")
    draft = curation.duplicate(queue.dataset, by=by, reason=reason)
    names: dict[int | None, str] = dict(queue.dimensions.values_list("pk", "name"))
    keys = dict(queue.dataset.items.values_list("pk", "key"))
    with draft.change_draft():
        copies = dict(draft.items.values_list("key", "pk"))
        norms = list(_build_norms(means, names, {pk: copies[key] for pk, key in keys.items() if key in copies}))
        Norm.objects.bulk_create(
            norms,
            batch_size=1000,
            update_conflicts=True,
            unique_fields=["item", "dimension"],
            update_fields=["mean", "sd", "n"],
        )
        draft.add_history_line(NORMS, f"{len(norms)} means of {basis} in {queue}", by=by, reason=reason)
    record_changes([(queue, "", f"{basis} to {draft}"[:200])], by=by, reason=reason, aspect=NORMS)
    return draft


def _build_norms(means: Iterable[ItemMeans], names: dict[int | None, str], copies: dict[int, int]) -> Iterator[Norm]:
    for line in means:
        yield Norm(item_id=copies[line.item], dimension=names[line.dimension], mean=line.mean, sd=line.sd, n=line.n)
