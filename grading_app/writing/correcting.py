"""Texts read by a curator: a correction is a new version, who and when is kept, and approval freezes all of it."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from datasets_app.models import Item
from datasets_app.models.history import record_changes
from runs_app.designs import versioning
from runs_app.models import ItemText, TextSet

LONGEST_TEXT = 50_000  # Characters.
NAMED = 5
COPY = """INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id, edited_by_id, edited_at)
SELECT %(new)s, item_id, text, trial_id, edited_by_id, edited_at FROM runs_app_itemtext WHERE text_set_id = %(old)s"""


def correct(texts: TextSet, item: Item, text: str, *, by: Any, reason: str) -> TextSet:
    """Say something else of this item; returns the version that says it.

    A draft that holds corrections takes one more. What a model wrote, and what was approved, stays as it is: its
    correction is the next version. ValueError for a blank text, or where a newer version is the one to correct.
    """
    said = text.replace("\r\n", "\n").strip()
    if not said or len(said) > LONGEST_TEXT:
        raise ValueError(f"A text has at least one and at most {LONGEST_TEXT:,} characters.")
    with transaction.atomic():
        locked: TextSet = TextSet.objects.select_for_update().get(pk=texts.pk)
        if newer := TextSet.objects.filter(name=locked.name, version__gt=locked.version).order_by("-version").first():
            raise ValueError(f"{newer} is newer: correct that one.")
        target = locked if _takes_corrections(locked) else _next(locked, by=by, reason=reason)
        _write(target, item, said, by, reason)
    return target


def _takes_corrections(texts: TextSet) -> bool:
    if texts.status != TextSet.Status.DRAFT:
        return False
    return texts.written_by_id is None or texts.texts.exclude(edited_at=None).exists()


def _next(texts: TextSet, *, by: Any, reason: str) -> TextSet:
    new = versioning.new_version(texts, by=by)
    with connection.cursor() as cursor:
        cursor.execute(COPY, {"new": new.pk, "old": texts.pk})
    if texts.status == TextSet.Status.DRAFT:
        versioning.retire(texts, by=by, reason=f"corrected as {new}: {reason}")
    made: TextSet = new  # type: ignore[assignment]
    return made


def _write(texts: TextSet, item: Item, said: str, by: Any, reason: str) -> None:
    known = texts.texts.filter(item=item).first()
    before = known.text if known else ""
    ItemText.objects.update_or_create(
        text_set=texts, item=item, defaults={"text": said, "edited_by": by, "edited_at": timezone.now()}
    )
    texts.save(update_fields=["content_hash"])
    record_changes([(texts, before[:200], said[:200])], by=by, reason=reason, what=f"text of {item.key}"[:40])


def missing_from(texts: TextSet) -> list[str]:
    """The keys of active items without a text, in their order."""
    lacking = texts.dataset.items.active().exclude(pk__in=texts.texts.values("item")).order_by("position", "pk")
    return list(lacking.values_list("key", flat=True))


def approve(texts: TextSet, *, by: Any, reason: str) -> None:
    """Freeze it for judges. ValueError where an item has no text; TransitionError where it is no draft."""
    with transaction.atomic():
        locked: TextSet = TextSet.objects.select_for_update().get(pk=texts.pk)
        if missing := missing_from(locked):
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            raise ValueError(f"{locked} cannot be approved: no text for {', '.join(missing[:NAMED])}{more}.")
        if locked.status == TextSet.Status.DRAFT:
            locked.save(update_fields=["content_hash"])
        versioning.approve(locked, by=by, reason=reason)
    texts.refresh_from_db()
