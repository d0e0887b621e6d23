"""Changes of a draft: the lock, the check and the item count that every action shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.db import transaction

from datasets_app.models import Dataset
from datasets_app.models.datasets import SUMMARY_CHARS
from evalsite.lib.history import TransitionError


class CurationError(ValueError):
    """A request that this dataset does not allow. The message gives the reason; nothing was changed."""


@contextmanager
def change_draft(dataset: Dataset) -> Iterator[None]:
    """Run the block in a transaction that locks the draft's row first and counts its items at the end.

    The lock must come before any change of an item. The triggers of the items take a shared lock on the same row. Two
    changes that both hold the shared lock would deadlock at the count. Raise TransitionError if the dataset is no
    longer a draft.
    """
    with transaction.atomic():
        lock_draft(dataset)
        yield
        dataset.refresh_counts()


def lock_draft(dataset: Dataset) -> None:
    """Lock the dataset's row until the transaction ends.

    Raise TransitionError if it is not a draft, and CurationError if it no longer exists.
    """
    row = Dataset.objects.select_for_update().filter(pk=dataset.pk).first()
    if row is None:
        raise CurationError(f"{dataset} does not exist any more")
    if not row.is_draft:
        raise TransitionError(f"{dataset} is {row.status}; only a draft can change: duplicate it to a new one")


def list_keys(keys: Collection[str]) -> str:
    """Return a text such as "3 items: a, b, c", cut to SUMMARY_CHARS."""
    text = f"{len(keys)} item{'' if len(keys) == 1 else 's'}: {', '.join(keys)}"
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"
