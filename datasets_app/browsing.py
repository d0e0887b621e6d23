"""Pages of a dataset's items by key of order, at any size: no OFFSET, and only what a list shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Left, Length

from datasets_app.models import Item

PAGE = 48
EXCERPT = 240


class Cursor(NamedTuple):
    """Where an item stands: its place in the set, and its key where two share a place. In an address: "12.345"."""

    position: int
    pk: int

    def __str__(self) -> str:
        return f"{self.position}.{self.pk}"


@dataclass(frozen=True)
class Page:
    """Items in their order, and the cursors of the pages around them, None where there is nothing more."""

    items: list[Item]
    after: Cursor | None = None
    before: Cursor | None = None


def cursor_of(item: Item) -> Cursor:
    return Cursor(item.position, item.pk)


def parse_cursor(text: str) -> Cursor | None:
    """None for anything that `str(cursor)` did not write."""
    position, _, pk = text.partition(".")
    if not (position.isdecimal() and pk.isdecimal()) or len(position) > 9 or len(pk) > 18:
        return None
    return Cursor(int(position), int(pk))


def find(items: QuerySet[Item], *, after: Cursor | None = None, before: Cursor | None = None, size: int = PAGE) -> Page:
    """The items behind a cursor, else those before one, else the first ones."""
    if before is not None and after is None:
        rows = list(items.filter(_before(before)).order_by("-position", "-pk")[: size + 1])
        shown = rows[:size][::-1]
        back = cursor_of(shown[0]) if len(rows) > size else None
        return Page(shown, after=cursor_of(shown[-1]) if shown else None, before=back)
    rows = list(items.filter(_after(after)).order_by("position", "pk")[: size + 1])
    shown = rows[:size]
    more = cursor_of(shown[-1]) if len(rows) > size else None
    return Page(shown, after=more, before=cursor_of(shown[0]) if after is not None and shown else None)


def neighbours(items: QuerySet[Item], item: Item) -> tuple[int | None, int | None]:
    """The keys of the items before and behind this one, among those of the set."""
    here = cursor_of(item)
    before = items.filter(_before(here)).order_by("-position", "-pk").values_list("pk", flat=True).first()
    after = items.filter(_after(here)).order_by("position", "pk").values_list("pk", flat=True).first()
    return before, after


def in_short(items: QuerySet[Item]) -> QuerySet[Item]:
    """With the start of the input as `excerpt` and whether that is all of it, and without what a list never shows."""
    is_cut = ExpressionWrapper(Q(length__gt=EXCERPT), output_field=BooleanField())
    return (
        items.select_related("image")
        .defer("input", "choices", "grading_scheme", "metadata")
        .annotate(excerpt=Left("input", EXCERPT), target_excerpt=Left("target", 80), length=Length("input"))
        .annotate(is_cut=is_cut)
    )


def _after(cursor: Cursor | None) -> Any:
    if cursor is None:
        return Q()
    return Q(position__gt=cursor.position) | Q(position=cursor.position, pk__gt=cursor.pk)


def _before(cursor: Cursor) -> Any:
    return Q(position__lt=cursor.position) | Q(position=cursor.position, pk__lt=cursor.pk)
