"""Changes of a draft: the lock, the check and the item count that every action shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Max

from datasets_app.models import Dataset, TransitionError
from datasets_app.models.history import Actor, record_changes

SUMMARY_CHARS = 200


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
    locked = Dataset.objects.select_for_update().filter(pk=dataset.pk).first()
    if locked is None:
        raise CurationError(f"{dataset} does not exist any more")
    if not locked.is_draft:
        raise TransitionError(f"{dataset} is {locked.status}; only a draft can change: duplicate it to a new one")


def next_version(slug: str) -> int:
    """Return the newest version of the name plus one.

    An advisory lock keeps other transactions from taking a version of this name until this transaction ends.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"dataset {slug}"])
    return 1 + (Dataset.objects.filter(slug=slug).aggregate(newest=Max("version"))["newest"] or 0)


def note(dataset: Dataset, what: str, message: str, *, by: Actor, reason: str = "") -> None:
    """Write a line of the dataset's history that is not a change of its status."""
    record_changes([(dataset, "", message[:SUMMARY_CHARS])], by=by, reason=reason, what=what)


def list_keys(keys: Collection[str]) -> str:
    """Return a text such as "3 items: a, b, c", cut to SUMMARY_CHARS."""
    text = f"{len(keys)} item{'' if len(keys) == 1 else 's'}: {', '.join(keys)}"
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"
