"""Changing a draft: one lock, one check and one count for every verb that does."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Max

from datasets_app.models import Dataset, TransitionError
from datasets_app.models.history import Actor, record_changes

SUMMARY_CHARS = 200


class CurationError(ValueError):
    """What was asked cannot be done with this dataset; the message says why, and nothing was changed."""


@contextmanager
def changing(dataset: Dataset) -> Iterator[None]:
    """A transaction that holds the draft's row from the start and counts its items at the end.

    The lock comes before any item is touched: the triggers of the items take a shared lock on the same row, and two
    changes that both hold it shared could never count. TransitionError where the dataset is no draft any more.
    """
    with transaction.atomic():
        hold_draft(dataset)
        yield
        dataset.refresh_counts()


def hold_draft(dataset: Dataset) -> None:
    """Lock the row until the transaction ends; TransitionError unless it is a draft then."""
    locked = Dataset.objects.select_for_update().filter(pk=dataset.pk).first()
    if locked is None:
        raise CurationError(f"{dataset} does not exist any more")
    if not locked.is_draft:
        raise TransitionError(f"{dataset} is {locked.status}; only a draft can change: duplicate it to a new one")


def next_version(slug: str) -> int:
    """One more than the newest version. Until the transaction ends, nobody else gets a number of this name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"dataset {slug}"])
    return 1 + (Dataset.objects.filter(slug=slug).aggregate(newest=Max("version"))["newest"] or 0)


def note(dataset: Dataset, what: str, message: str, *, by: Actor, reason: str = "") -> None:
    """One line of the dataset's history that is no change of its status."""
    record_changes([(dataset, "", message[:SUMMARY_CHARS])], by=by, reason=reason, what=what)


def listed(keys: Collection[str]) -> str:
    """ "3 items: a, b, c", as short as history wants it."""
    text = f"{len(keys)} item{'' if len(keys) == 1 else 's'}: {', '.join(keys)}"
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"
